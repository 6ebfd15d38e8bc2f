"""Kernels know sizes by names of their own.

In: a function whose sizes are expressions of the model's symbols. Out: the function with a
parameter for each size that stands in it for itself, and what the host program gives for these. A
convolution deep in a pyramid computes on (height + 31) // 32 rows: no proof, index or schedule in
it gains by knowing how that came about, and each pays for it. And kernels that differ in this alone
are one.

Sizes that are related stay so: of quotients of one symbol, ⌈h/4⌉ and ⌈h/8⌉, the first gets a name
and the second is told by it. A symbol that is needed by itself keeps its name, and so do all sizes
made of it. Where a parameter has less than a symbol, h - 4, the kernel counts from there: no run
has less than none, and nothing in the kernel may then be negative. What a slice takes at most,
min(t, 5), has a name of its own even beside t: loops over it are those over any open size. So has
what operands broadcast to. Symbols that are only added up, the same ones in all sizes, are one.

A kernel whose results have no elements does not run. So where each result has an axis of
max(t - 1, 0), what `x[:-1]` has of t, it is t - 1 there, and t is not 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from tilewright.graph import sizes
from tilewright.ir.dtype import i64
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Const,
    Expr,
    Load,
    Var,
    as_int,
    maximum,
    minimum,
)
from tilewright.ir.stmt import Func
from tilewright.ir.walk import free_vars, names, refold, replace_buffers, substitute, visit

Own = dict[Var, Expr]
MANY = 4  # symbols
SOME = Var("some")  # in Own, no parameter: 1 where a kernel has to run, which its sizes rest on


def own_sizes(
    func: Func, data_dependent: Collection[Var] = (), results: int = 1
) -> tuple[Func, Own]:
    """The function, and for each of its symbols that is its own the size that it stands for.
    `data_dependent`: symbols that the run finds, of which it is not asked before whether sizes made
    of them are negative. `results`: how many of its buffers, the last ones, are."""
    if not any(isinstance(p, Var) for p in func.params):
        return func, {}
    outputs = func.buffers[-results:]
    if minima := _known_minima(func, outputs, data_dependent):
        made, own = _own(_told(func, dict.fromkeys(minima, sizes.size(0))), data_dependent)
        if not any(_may_be_negative(s) for b in _buffers(made) for s in b.shape):
            own = {v: sizes.size(maximum(e, sizes.size(0))) for v, e in own.items()}
            return made, own | {SOME: some_elements(outputs)}
    return _own(func, data_dependent)


def _own(func: Func, data_dependent: Collection[Var]) -> tuple[Func, Own]:
    func, own = _of_broadcasts(func)
    func, more = _of_slices(func)
    own |= {v: sizes.size(_within(e, own)) for v, e in more.items()}
    func, own = _of_sums(func, own)
    for found in (divisions, products):
        func, own = _named(func, own, found)
    return _numbered(*_from_least(func, own, data_dependent))


def _numbered(func: Func, own: Own) -> tuple[Func, Own]:
    """A function of many symbols, which then are called by their positions: joins of parts of
    unrelated sizes differ in nothing else."""
    symbols = [p for p in func.params if isinstance(p, Var)]
    if len(symbols) < MANY:
        return func, own
    taken = names(func)
    called = {s: _fresh(taken, n) for n, s in enumerate(symbols)}
    made = _replaced(func, {**called})
    params = [called.get(p, p) if isinstance(p, Var) else p for p in made.params]
    named = {called[s]: own.get(s, s) for s in symbols}
    return made.replace(params=tuple(params)), named


def some_elements(results: Iterable[Any]) -> Expr:
    """1 where one of several results has elements, else 0."""
    count: Expr = sizes.size(0)
    for v in results:
        count = maximum(count, sizes.product(v.shape))
    return sizes.size(minimum(count, sizes.size(1)))


def _known_minima(
    func: Func, results: Iterable[Buffer], data_dependent: Collection[Var]
) -> list[Expr]:
    """The min(e, 0) in sizes that are 0 wherever one of the results has elements: each has an axis
    of max(e, 0), or of no more than e + 1."""
    symbols = {p for p in func.params if isinstance(p, Var)} - set(data_dependent)
    minima = (n for n in visit(func.body) if isinstance(n, Binary) and n.op is BinaryOp.min)
    inside = [n for n in dict.fromkeys(minima) if sizes.is_size(n)]
    given = [s for b in _buffers(func) for s in b.shape if s.__class__ is Binary]
    bounded = dict.fromkeys(a for s in (*given, *inside) for a in sizes.factors(s))

    def known(a: Expr) -> bool:
        if not isinstance(a, Binary) or not _is_bounded(a) or as_int(a.b) != 0:
            return False
        if not symbols.issuperset(sizes.symbols([a])):
            return False
        above = sizes.size(a.a - a)
        return all(
            any(s == above or sizes.is_never_more(s, sizes.size(a.a + 1)) for s in b.shape)
            for b in results
        )

    return [a for a in bounded if known(a)]


def _of_broadcasts(func: Func) -> tuple[Func, Own]:
    """The function with names for the sizes that broadcasting gives, max(n, m) · (0 or 1):
    operands are read at their last element at most, whatever these have to do with it."""
    given = [s for b in _buffers(func) for s in b.shape if s.__class__ is Binary]
    found = dict.fromkeys(
        sizes.product(p)
        for s in given
        for p in sizes.monomials(s)
        if any(isinstance(f, Binary) and f.op is BinaryOp.max and as_int(f.b) is None for f in p)
    )
    if not found:
        return func, {}
    taken = names(func)
    new = {e: _fresh(taken, n) for n, e in enumerate(found)}
    made = _told(func, dict(new))
    left = free_vars(made.body) | set(sizes.symbols(s for b in _buffers(made) for s in b.shape))
    params = [p for p in made.params if not isinstance(p, Var) or p in left]
    own: Own = {v: e for e, v in new.items() if v in left}
    return made.replace(params=(*params, *own)), own


def _of_sums(func: Func, own: Own) -> tuple[Func, Own]:
    """The function with one name for symbols that are but added up, and the same ones in all sizes:
    what several are joined to is joined to others as a whole."""
    symbols = frozenset(p for p in func.params if isinstance(p, Var))
    if len(symbols) < 2:
        return func, own
    given = [s for b in _buffers(func) for s in b.shape]
    found = [*dict.fromkeys([*given, *_whole_sizes(func.body, symbols)])]
    positions: dict[Var, dict[int, int]] = {s: {} for s in symbols}  # where it stands, how often
    kept: set[Var] = set()
    for n, size in enumerate(found):
        for product, count in sizes.terms(size).items():
            if len(product) == 1 and isinstance(product[0], Var):
                positions[product[0]][n] = count
            else:
                kept.update(sizes.symbols(product))
    equal: dict[tuple[tuple[int, int], ...], list[Var]] = {}
    for s in (p for p in func.params if isinstance(p, Var) and p not in kept and positions[p]):
        equal.setdefault(tuple(sorted(positions[s].items())), []).append(s)
    sums = [some for some in equal.values() if len(some) > 1]
    if not sums:
        return func, own
    taken, table, named = names(func), dict[Expr, Expr](), Own()
    rest: dict[Var, Expr] = {}
    for n, (first, *others) in enumerate(sums):
        name = _fresh(taken, n)
        named[name] = sizes.total([own.get(s, s) for s in (first, *others)])
        rest |= {first: name} | dict.fromkeys(others, sizes.size(0))
    for size in found:
        table[size] = sizes.size(substitute(size, rest))
    made = _replaced(func, table)
    left = free_vars(made.body) | set(sizes.symbols(s for b in _buffers(made) for s in b.shape))
    params = [p for p in made.params if not isinstance(p, Var) or p in left]
    own = {v: e for v, e in own.items() if v in left} | named
    return made.replace(params=(*params, *named)), own


def _whole_sizes(body: Any, symbols: frozenset[Var]) -> Iterator[Expr]:
    """What is computed from these symbols and numbers alone, each as a whole."""
    stack: list[Any] = [body]
    seen: set[int] = set()
    while stack:
        n = stack.pop()
        if id(n) in seen:
            continue
        seen.add(id(n))
        if n.__class__ in (Var, Binary) and _is_of(n, symbols):
            yield n
        else:
            stack.extend(n.children())


def _of_slices(func: Func) -> tuple[Func, Own]:
    """The function with names for sizes that a number bounds, min(t - 5, 0) + 5, where what is
    bounded stands in no size beside them."""
    given = [s for b in _buffers(func) for s in b.shape if s.__class__ not in (Const, Var)]
    found = {a: sizes.lowest(a) for s in given for a in sizes.factors(s) if _is_bounded(a)}
    for size in given:
        for a in {a for a in sizes.factors(size) if a in found}:
            if any(k < 0 for k in sizes.coefficients(size, a)):
                del found[a]
    if not found:
        return func, {}
    taken = names(func)
    new = {a: _fresh(taken, n) for n, a in enumerate(found)}
    made = _told(func, {a: sizes.size(new[a] + low) for a, low in found.items()})
    left = free_vars(made.body) | set(sizes.symbols(s for b in _buffers(made) for s in b.shape))
    params = [p for p in made.params if not isinstance(p, Var) or p in left]
    own: Own = {new[a]: sizes.size(a - low) for a, low in found.items() if new[a] in left}
    return made.replace(params=(*params, *own)), own


def _may_be_negative(size: Expr) -> bool:
    low = sizes.lowest(size)
    return low is None or low < 0


def _is_bounded(e: Expr) -> bool:
    return isinstance(e, Binary) and e.op is BinaryOp.min and sizes.lowest(e) is not None


def _told(func: Func, table: Mapping[Expr, Expr]) -> Func:
    """The function with what stands in `table` for each expression there, and all that is computed
    from sizes in its normal form."""
    symbols = frozenset(p for p in func.params if isinstance(p, Var))
    found = (n for n in visit(func.body) if isinstance(n, Binary) and _is_of(n, symbols))
    told = {e: sizes.size(_within(e, table)) for e in dict.fromkeys(found)}
    return _replaced(func, told | dict(table))


def _from_least(func: Func, own: Own, data_dependent: Collection[Var]) -> tuple[Func, Own]:
    """The function with names for what symbols are more than the parameters' sizes need."""
    least: dict[Var, int] = {}
    for size in (s for b in func.buffers for s in b.shape):
        symbol, scale, offset = sizes.linear(size) or (None, 1, 0)
        if symbol is not None and offset < 0:
            if set(data_dependent).isdisjoint(sizes.symbols([own.get(symbol, symbol)])):
                least[symbol] = max(least.get(symbol, 0), -(offset // scale))
    if not least:
        return func, own
    taken = names(func)
    new = {symbol: _fresh(taken, n) for n, symbol in enumerate(least)}
    table: dict[Expr, Expr] = {v: sizes.size(new[v] + number) for v, number in least.items()}
    made = _told(func, table)
    named = {new[v]: sizes.size(own.get(v, v) - number) for v, number in least.items()}
    own = {v: e for v, e in own.items() if v not in least} | named
    params = tuple(new.get(p, p) if isinstance(p, Var) else p for p in made.params)
    return made.replace(params=params), own


def _named(func: Func, own: Own, found: Any) -> tuple[Func, Own]:
    """The function with names for the sizes that `found` picks of its shapes."""
    given = [s for b in _buffers(func) for s in b.shape if s.__class__ not in (Const, Var)]
    given += _within_body(func)
    if not given:
        return func, own
    kept: set[Var] = set()  # symbols that are needed by themselves
    taken = names(func)
    while True:
        named, table = found(given, kept, taken)
        if not named:
            return func, own
        made = _replaced(func, table)
        left = free_vars(made.body) | set(sizes.symbols(s for b in _buffers(made) for s in b.shape))
        still = {v for size in named.values() for v in sizes.symbols([size])} & left
        if not still:
            break
        kept |= still
    order = [s for b in _buffers(made) for s in sizes.symbols(b.shape)]
    order = dict.fromkeys([*order, *sorted(left, key=lambda v: v.name)])
    params = (*made.buffers, *(v for v in order if v in left))
    own = {v: e for v, e in own.items() if v in left} | {
        v: sizes.size(_within(e, own)) for v, e in named.items()
    }
    return made.replace(params=params), own


def _buffers(func: Func) -> list[Buffer]:
    found = dict.fromkeys(func.buffers)
    inside = (getattr(n, "buffer", None) for n in visit(func.body))
    found.update(dict.fromkeys(b for b in inside if isinstance(b, Buffer)))
    return list(found)


def _within_body(func: Func) -> list[Expr]:
    """The quotients of sizes that the body computes with."""
    symbols = {p for p in func.params if isinstance(p, Var)}
    found = dict.fromkeys(
        n
        for n in visit(func.body)
        if isinstance(n, Binary) and _is_quotient(n) and sizes.is_size(n)
    )
    return [e for e in found if symbols.issuperset(sizes.symbols([e]))]


def _is_of(e: Expr, symbols: frozenset[Var]) -> bool:
    """Is it computed from whole numbers and these symbols?"""
    if isinstance(e, Binary):
        return e.dtype is i64 and _is_of(e.a, symbols) and _is_of(e.b, symbols)
    return isinstance(e, Const) or e in symbols


def _fresh(taken: set[str], count: int) -> Var:
    name = f"size{count}"
    while name in taken:
        name = f"{name}_"
    return Var(name)


def divisions(
    given: Iterable[Expr], kept: set[Var], taken: set[str]
) -> tuple[Own, dict[Expr, Expr]]:
    """Names for what is no plain symbol in sizes, and what stands for each of these in terms of
    them."""
    atoms = dict.fromkeys(a for s in given for a in sizes.factors(s) if a.__class__ is not Var)
    chains: dict[Var, list[tuple[int, int, Expr]]] = {}
    others: list[Expr] = []
    for atom in atoms:
        if kept & set(sizes.symbols([atom])):
            continue
        line = sizes.linear(atom.a) if isinstance(atom, Binary) and _is_quotient(atom) else None
        if isinstance(atom, Binary) and line is not None and line[1] == 1:
            chains.setdefault(line[0], []).append((as_int(atom.b) or 1, line[2], atom))
        elif sizes.is_never_more(sizes.size(0), atom):
            others.append(atom)
    named: Own = {}
    table: dict[Expr, Expr] = {}
    for divided in chains.values():
        divisor, offset, base = min(divided, key=lambda d: d[:2])
        if any(d % divisor or (c - offset) % divisor for d, c, _ in divided):
            continue
        name = _fresh(taken, len(named))
        named[name] = base
        for d, c, atom in divided:
            table[atom] = sizes.size((name + (c - offset) // divisor) // (d // divisor))
    for atom in others:
        name = _fresh(taken, len(named))
        named[name], table[atom] = atom, name
    return named, table


def _is_quotient(e: Any) -> bool:
    return isinstance(e, Binary) and e.op is BinaryOp.floordiv and (as_int(e.b) or 0) > 1


def products(
    given: Iterable[Expr], kept: set[Var], taken: set[str]
) -> tuple[Own, dict[Expr, Expr]]:
    """Names for products of symbols."""
    found = dict.fromkeys(p for s in given for p in sizes.monomials(s) if len(p) > 1)
    named: Own = {}
    table: dict[Expr, Expr] = {}
    for factors in found:
        if all(f.__class__ is Var and f not in kept for f in factors):
            name = _fresh(taken, len(named))
            named[name] = sizes.product(factors)
            table[named[name]] = name
    return named, table


def _replaced(func: Func, table: Mapping[Expr, Expr]) -> Func:
    """The function with what stands in `table` for each expression there."""
    renamed = {b: _renamed(b, table) for b in _buffers(func)}
    body = replace_buffers(func.body, {b: r for b, r in renamed.items() if r is not b})
    params = tuple([renamed.get(p, p) if isinstance(p, Buffer) else p for p in func.params])
    return func.replace(params=params, body=_within(body, table))


def _renamed(buffer: Buffer, table: Mapping[Expr, Expr]) -> Buffer:
    shape = tuple([_within(s, table) for s in buffer.shape])
    return buffer if shape == buffer.shape else buffer.replace(shape=sizes.shape(shape))


def _within(root: Any, table: Mapping[Any, Expr]) -> Any:
    shared: dict[int, Any] = {}

    def go(n: Any) -> Any:
        if n.__class__ is Const:
            return n
        if n.__class__ in (Var, Binary):
            found = table.get(n)
            if found is not None:
                return found
        if n.__class__ is not Load:
            return refold(n, n.map_children(go))
        if id(n) not in shared:
            shared[id(n)] = n.map_children(go)
        return shared[id(n)]

    return go(root)
