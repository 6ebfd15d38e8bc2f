"""partition_loops: where a condition holds but near the ends of a loop, the loop is cut there.

In: stage "loops". Out: stage "loops". The middle part, where all conditions hold whatever the inner
loops do, is free of them; the ends keep what is not decided. A loop that cannot be cut (a launch, a
fused loop) gets branches around its body instead, one for each condition, so that every edge has
code of its own. Copies of a body cost code, so they are paid from a budget.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Any, TypeGuard

from tilewright.arith.affine import Affine
from tilewright.arith.simplify import Facts, loop_range
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Call,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    UnaryOp,
    Var,
    as_int,
    const,
    maximum,
    minimum,
)
from tilewright.ir.stmt import Alloc, Eval, For, Func, If, Let, Seq, Stmt, Store, seq
from tilewright.ir.walk import (
    contains,
    distinct,
    free_vars,
    loads,
    operators,
    reads,
    stores,
    visit,
)
from tilewright.lower.comparisons import BOUNDS, decided, form_of
from tilewright.lower.copies import accesses_of, is_prefetch, own_memory, stores_of
from tilewright.lower.lower_blocks import all_of, parts_of
from tilewright.support.record import record

BUDGET = 800  # stores (counted as often as they are unrolled) that copies may add to a function
LIGHT = 8  # a body of fewer stores and loads is not worth a branch
FEW = 8  # rounds beyond the end of what is read that are not worth code of their own

_ENDS = frozenset({BinaryOp.min, BinaryOp.max})


def partition_loops(func: Func) -> Func:
    """Cut loops where their conditions begin and end to hold.

    rewrite:
        for i_o in serial(0, 8):                    for i_o in serial(0, 7):
            for i_i in unroll(0, 8):         →          for i_i in unroll(0, 8):
                if i_o * 8 + i_i < 60:                      B[i_o * 8 + i_i] = 0.0
                    B[i_o * 8 + i_i] = 0.0          for i_o in serial(7, 8):
                                                        for i_i in unroll(0, 8):
                                                            if i_i < 4:
                                                                B[i_o * 8 + i_i] = 0.0
    """
    partition = _Partition(frozenset(p for p in func.params if isinstance(p, Var)))
    if not partition.guards(func.body):
        return func
    known = Facts(dict.fromkeys(partition.params, (0, None)))
    body = partition.go(func.body, known)
    return func.replace(body=own_memory(body, {b.name for b in func.buffers}))


@record
class _Guard:
    """A condition, the loops around it (inside the statement asked), its variables, and conditions
    under which it is asked."""

    cond: Expr
    loops: tuple[For, ...]
    vars: frozenset[Var]
    under: tuple[Expr, ...] = ()


class _Partition:
    def __init__(self, params: frozenset[Var]) -> None:
        self.params = params
        self.budget = BUDGET
        self.cuts = True  # or what never happens is dropped, and no more
        self.found: dict[int, tuple[Stmt, list[_Guard]]] = {}  # by identity of the statement
        self.clamped: dict[int, tuple[Store, list[Binary]]] = {}  # likewise, see `clamps`

    def guards(self, s: Stmt) -> list[_Guard]:
        """Conditions of statements, of guarded reads and of the indices that are read."""
        known = self.found.get(id(s))
        if known is not None:
            return known[1]
        found: list[_Guard] = []
        if isinstance(s, For):
            inside = [*self.guards(s.body), *(self.clamps(s) if s.kind == "vectorize" else ())]
            found = [_Guard(g.cond, (s, *g.loops), g.vars, g.under) for g in inside]
        elif isinstance(s, Store | Eval):
            for n in visit(s.value) if contains(s.value, Select) else ():
                if isinstance(n, Select) and _reads(n):
                    found.append(_Guard(n.cond, (), frozenset(free_vars(n.cond))))
                elif isinstance(n, Load):  # indices that are folded back at the ends
                    conds = [m.cond for i in n.indices for m in visit(i) if isinstance(m, Select)]
                    found += [_Guard(c, (), frozenset(free_vars(c))) for c in conds]
        else:
            cheap = isinstance(s, If) and self.is_cheap(s)
            if isinstance(s, If) and not cheap:
                found.append(_Guard(s.cond, (), frozenset(free_vars(s.cond))))
            found += [g for c in s.children() if isinstance(c, Stmt) for g in self.guards(c)]
            if isinstance(s, If) and cheap:
                found = [replace(g, under=(s.cond, *g.under)) for g in found]
            if isinstance(s, Let):  # outside, the name says nothing
                found = [g for g in found if s.var not in g.vars]
        self.found[id(s)] = s, found
        return found

    def clamps(self, s: For) -> Iterator[_Guard]:
        """Where lanes of a vectorised loop read within the ends of a row whatever they ask for:
        between the ends they read as they lie, where else they would be gathered."""
        for m in dict.fromkeys(m for store in stores(s.body) for m in self.ends_of_rows(store)):
            used = frozenset(free_vars(m))
            if s.var in used and not reads(m):
                cond = m.a <= m.b if m.op is BinaryOp.min else m.a >= m.b
                yield _Guard(cond, (), used)

    def ends_of_rows(self, store: Store) -> list[Binary]:
        """The minima and maxima in the indices that a store reads; copies of loops share it."""
        known = self.clamped.get(id(store))
        if known is None:
            indices = [i for n in loads(store.value) for i in n.indices]
            ends = [m for i in indices for m in operators(i, _ENDS)]
            known = self.clamped[id(store)] = store, ends
        return known[1]

    def is_cheap(self, s: If) -> bool:
        """Is it a branch around loops, in a function of open sizes? It is asked rarely, and a copy
        of the loops costs as much as ever."""
        return bool(self.params) and s.other is None and isinstance(s.then, For)

    def is_of_sizes(self, cond: Expr) -> bool:
        """Does it ask for open sizes alone, so that each side has sizes of its own?"""
        return free_vars(cond) <= self.params

    def go(self, s: Any, known: Facts) -> Any:
        if isinstance(s, For):
            if self.cuts and self.params and _streams(s):
                s = _without_idle(s, known)
            cut = self.cut(s, known) if self.cuts and _may_cut(s) else None
            if cut is not None:
                return cut
            body = self.go(s.body, known.bind(s.var, *loop_range(s)))
            return s if body is s.body else s.replace(body=body)
        if isinstance(s, If):
            cond = known.condition(s.cond)
            if isinstance(cond, Const):
                chosen = s.then if cond.value else s.other
                return Seq(()) if chosen is None else self.go(chosen, known)
            held = self.budget
            then = self.go(s.then, known.during(cond, s.then))
            spent = held - self.budget
            if s.other is not None and self.is_of_sizes(cond):
                self.budget += spent  # as much for the other side: some sizes take always that one
            other = None if s.other is None else self.go(s.other, known.during(_not(cond), s.other))
            self.budget = min(self.budget, held - spent)
            return If(cond, then, other)
        if isinstance(s, Seq):
            stmts = [self.go(c, known) for c in s.stmts]
            if all(a is b for a, b in zip(stmts, s.stmts, strict=True)):
                return s
            return seq(*(c for c in stmts if not (isinstance(c, Seq) and not c.stmts)))
        if isinstance(s, Alloc | Let):
            return s.map_children(lambda c: self.go(c, known) if isinstance(c, Stmt) else c)
        if isinstance(s, Store) and self.params:  # the part's own ends say more than its loop's
            return s.replace(value=decided(s.value, known))
        return s

    def cut(self, s: For, known: Facts) -> Stmt | None:
        """The loop in parts, or with a branch in its body; None where nothing is to be gained."""
        guards = [g for g in self.guards(s.body) if s.var in g.vars]
        if not guards:
            return None
        inside = known.bind(s.var, *loop_range(s))
        hot = _conditions(s.var, guards, inside)
        if not hot:
            return self.shortened(s, known)
        weight = stores_of(s.body)
        first, last = self.ends(s, hot, known)
        edges = (first is not None) + (last is not None)
        if edges and weight * edges <= self.budget:
            if self.params and s.kind != "serial":  # one bound for all would say less of each
                return s.replace(body=self.branched(s.var, s.body, hot, inside))
            return self.parts(s, known, first, last)
        if edges or weight > self.budget or _may_end(s):
            return None
        worth = accesses_of(s.body) >= LIGHT or self.has_rounds(s.body)
        return s.replace(body=self.branched(s.var, s.body, hot, inside)) if worth else None

    def shortened(self, s: For, known: Facts) -> Stmt | None:
        """The loop without last rounds that do nothing, as the last block of tiles has where none
        of them is whole: of the one that is left, what it does follows. None if all may do
        something."""
        if s.kind != "serial" or self.params:
            return None
        stop = self.busy(s, s.start, known)
        return None if stop == s.stop else self.go(s.replace(stop=stop), known)

    def has_rounds(self, body: Stmt) -> bool:
        """Is it a run of an open row, for whose rounds one may ask once?"""
        side = body.then if isinstance(body, If) else body
        return bool(self.params) and isinstance(side, For) and side.kind == "serial"

    def branched(self, var: Var, body: Stmt, hot: list[Affine], known: Facts) -> Stmt:
        """The body of loop `var` under branches for conditions. Of one that is itself a branch for
        sizes, each side asks for its own edges and may cost as much as the other: some sizes take
        always that one."""
        if isinstance(body, If) and body.other is not None and self.is_of_sizes(body.cond):
            held, left, found = self.budget, self.budget, list[Stmt]()
            for cond, side in ((body.cond, body.then), (_not(body.cond), body.other)):
                self.budget, here = held, known.under(cond)
                guards = [g for g in self.guards(side) if var in g.vars]
                found.append(self.branched(var, side, _conditions(var, guards, here), here))
                left = min(left, self.budget)
            self.budget = left
            return If(body.cond, found[0], found[1])
        weight = stores_of(body)
        conds = [known.expr(h) >= const(0) for h in hot]
        if weight * len(conds) > self.budget:
            conds = [all_of(conds)]
        return self.asked(body, conds, weight, known)

    def asked(self, body: Stmt, conds: Sequence[Expr], weight: int, known: Facts) -> Stmt:
        """The body under a branch for each condition, so that a copy knows which of them fail: an
        edge of one axis keeps no guard of another, as if their loops were not fused."""
        if not conds or weight > self.budget or not self.guards(body):
            return self.go(body, known)
        if isinstance(body, Alloc) and _is_nests(body.body):
            return body.replace(body=self.asked(body.body, conds, weight, known))
        if _is_nests(body):  # what asks nothing is not copied
            return seq(*(self.asked(c, conds, stores_of(c), known) for c in body.stmts))
        cond, *others = conds
        decided = known.condition(cond)
        if isinstance(decided, Const):  # by one before it: the ends of two axes may be one
            return self.asked(body, others, weight, known)
        before = self.budget
        self.budget -= weight
        then = self.asked(body, others, weight, known.under(cond))
        other = self.asked(body, others, weight, known.under(_not(cond)))
        joined = self.joined(body, cond, then, other, known)
        if joined is None:
            return If(cond, then, other)
        self.budget = before - max(0, stores_of(joined) - stores_of(then))
        return joined

    def joined(self, s: Stmt, cond: Expr, then: Stmt, other: Stmt, known: Facts) -> Stmt | None:
        """What `s` becomes where `cond` holds and where not as one, if they differ in nothing but
        where a loop stops and in what comes after it. None: they differ in more."""
        if isinstance(then, If) and isinstance(other, If):  # both ask the same of another edge
            if then.cond != other.cond or then.other is None or other.other is None:
                return None
            inside = self.joined(s, cond, then.then, other.then, known.under(then.cond))
            beyond = self.joined(s, cond, then.other, other.other, known.under(_not(then.cond)))
            return inside and beyond and If(then.cond, inside, beyond)
        if isinstance(s, Alloc) and isinstance(then, Alloc) and isinstance(other, Alloc):
            inner = self.joined(s.body, cond, then.body, other.body, known)
            return None if inner is None else s.replace(body=inner)
        if isinstance(s, Seq) and isinstance(then, Seq) and isinstance(other, Seq):
            return self.all_joined(s, cond, then, other, known)
        if isinstance(s, For) and s.kind == "serial":
            return self.one_loop(s, cond, then, other, known)
        return None

    def all_joined(self, s: Seq, cond: Expr, then: Seq, other: Seq, known: Facts) -> Stmt | None:
        """`joined`, statement by statement."""
        if not len(s.stmts) == len(then.stmts) == len(other.stmts):
            return None
        loops = [c.var for c in s.stmts if isinstance(c, For)]
        if len(set(loops)) != len(s.stmts):  # so that it is plain which became which
            return None
        made = [
            self.joined(c, cond, t, o, known)
            for c, t, o in zip(s.stmts, then.stmts, other.stmts, strict=True)
        ]
        return None if None in made else seq(*(m for m in made if m is not None))

    def one_loop(self, s: For, cond: Expr, then: Stmt, other: Stmt, known: Facts) -> Stmt | None:
        """`joined` of a serial loop: it stops sooner on one side, or its body is joined."""
        if isinstance(then, For) and isinstance(other, For) and _range(then) == _range(other):
            shared = known.bind(s.var, *loop_range(then))  # rounds may be left out on both sides
            inner = self.joined(s.body, cond, then.body, other.body, shared)
            if inner is not None and then.var == s.var:
                return then.replace(body=inner)
        inside = known.bind(s.var, *loop_range(s))
        sides = [(cond, *_loop_and_rest(then)), (_not(cond), *_loop_and_rest(other))]
        guards = [g for g in self.guards(s.body) if s.var in g.vars]
        hot = [known.expr(h) >= const(0) for h in _conditions(s.var, guards, inside)]
        for under, loop, _ in sides:
            if loop is None or loop.var != s.var or loop.start != s.start:
                return None
            here = known.under(under).bind(s.var, *loop_range(loop))
            if not all(isinstance(h := here.condition(c), Const) and h.value for c in hot):
                return None
        for c in hot:
            inside = inside.under(c)
        body = self.go(s.body, inside)
        (_, one, _), (_, two, _) = sides
        if one is None or two is None or stores_of(body) > stores_of(one.body):
            return None
        left = [{g.cond for g in self.guards(p)} for p in (body, one.body, two.body)]
        if not left[0] <= left[1] & left[2]:
            return None
        stop = one.stop
        if one.stop != two.stop:
            stop = Select(cond, one.stop, two.stop)
            if self.params:  # say what follows of no side by itself, for indices inside to be plain
                stop = minimum(stop, s.stop)
        loop = s.replace(stop=stop, body=body)
        return seq(loop, *(If(c, seq(*rest)) for c, _, rest in sides if rest))

    def ends(self, s: For, hot: list[Affine], known: Facts) -> tuple[Expr | None, Expr | None]:
        """Where the middle part begins and stops (None: at the loop's own end). What streams along
        a chunk of an open extent is cut where that ends, though each chunk ends elsewhere."""
        anywhere = bool(self.params) and _streams(s)
        first: Expr | None = None
        last: Expr | None = None
        for h in hot:
            c = h.terms.get(s.var, 0)
            rest = Affine({t: k for t, k in h.terms.items() if t != s.var}, h.const)
            varying = {v for t in rest.terms for v in known.variables(t)} - self.params
            if not c or (varying and not anywhere) or s.var in varying:
                continue
            whole = known.expr(rest)
            if c > 0:  # v >= -rest / c, rounded up
                low = -(whole // const(c))
                first = low if first is None else maximum(first, low)
            else:
                high = whole // const(-c) + 1
                last = high if last is None else minimum(last, high)
        return first, last

    def parts(self, s: For, known: Facts, first: Expr | None, last: Expr | None) -> Stmt:
        """The loop cut at `first` and `last`. What it costs is by how much the parts are more than
        the loop was, once each is without what it does not need."""
        begin = s.start if first is None else _clamped(first, s.start, s.stop, known)
        end = s.stop if last is None else _clamped(last, begin, s.stop, known)
        if s.kind != "serial":
            return self.branches(s, known, begin if first is not None else None, end)
        stopped = self.busy(s, end, known)
        beyond = None if last is None else self.beyond(s, known)
        outside = stopped if beyond is None else _clamped(beyond, end, stopped, known)
        found: dict[int, tuple[For, Facts]] = {}
        for number, start, stop in (
            (1, begin, end), (0, s.start, begin), (2, end, outside), (3, outside, stopped)
        ):  # fmt: skip
            if start != stop:
                if number == 1 and self.params:  # where it has rounds, its ends are not held back
                    start = s.start if first is None else known.simplify(maximum(first, s.start))
                    stop = s.stop if last is None else known.simplify(minimum(last, s.stop))
                part = s.replace(start=start, stop=stop)
                low, high = loop_range(part)
                if number == 1 and last is not None:
                    high = last - 1
                if number == 3:
                    low = beyond
                here = known.bind(s.var, low, high)
                found[number] = part.replace(body=self.pruned(s.body, here)), here
        self.budget -= max(0, sum(stores_of(p) for p, _ in found.values()) - stores_of(s.body))
        # the middle runs most often, so its copies are paid for first
        made = {n: p.replace(body=self.go(p.body, here)) for n, (p, here) in found.items()}
        return seq(*(made[number] for number in sorted(made)))

    def pruned(self, s: Stmt, known: Facts) -> Stmt:
        """A statement without what never happens, and nothing cut."""
        held, self.cuts = self.cuts, False
        left = self.go(s, known)
        self.cuts = held
        return left

    def beyond(self, s: For, known: Facts) -> Expr | None:
        """From which round on all vectors read beyond the end of an operand, where many may: a load
        whose lanes are all off waits for pages that are not there."""
        stops, inner = list[Expr | None](), set[Var]()
        loop, here = s.body, known.bind(s.var, *loop_range(s))
        while isinstance(loop, For):
            inner.add(loop.var)
            here = here.bind(loop.var, *loop_range(loop))
            loop = loop.body
        if not isinstance(loop, Store):
            return None
        for n in visit(loop.value):
            if isinstance(n, Select) and _reads(n):
                stops += [_stop(p, s.var, inner, here) for p in parts_of(here.condition(n.cond))]
        found = [stop for stop in stops if stop is not None]
        if len(found) != 1 or self.budget < stores_of(s.body):
            return None
        if known.bounds(known.sum(known.affine(s.stop), known.affine(found[0]), -1))[1] <= FEW:
            return None
        return found[0]

    def busy(self, s: For, start: Expr, known: Facts) -> Expr:
        """Where the rounds from `start` on that do anything stop: those of the last chunk of a
        result that was cut into equal ones may be fewer than the loop's."""
        low, high = as_int(start), as_int(s.stop)
        if low is None or high is None:
            return s.stop

        def idle(n: int) -> bool:
            return _is_idle(s.body, known.bind(s.var, n, high - 1))

        return const(low + bisect_left(range(low, high), True, key=idle))

    def branches(self, s: For, known: Facts, begin: Expr | None, end: Expr) -> Stmt:
        """One loop whose body asks in which part it is."""
        conds = [] if begin is None else [begin <= s.var]
        if end != s.stop:
            conds.append(s.var < end)
        inside = known.bind(s.var, *loop_range(s))
        return s.replace(body=self.asked(s.body, conds, stores_of(s.body), inside))


def _is_nests(s: Stmt) -> TypeGuard[Seq]:
    """Loop nests one after the other that share no registers, as the parts of a tile do; memory
    may begin to live between them."""
    return isinstance(s, Seq) and all(
        _is_nests(c.body) if isinstance(c, Alloc) else isinstance(c, For) and c.kind == "serial"
        for c in s.stmts
    )


def _range(s: For) -> tuple[Var, Expr, Expr]:
    return s.var, s.start, s.stop


def _loop_and_rest(s: Stmt) -> tuple[For | None, Sequence[Stmt]]:
    """A loop, and the statements after it."""
    first, *rest = s.stmts if isinstance(s, Seq) and s.stmts else (s,)
    return (first if isinstance(first, For) else None), rest


def _streams(s: For) -> bool:
    """Is it a loop around vectors that are made or read under a condition, as what threads share
    has?"""
    inner = _vectors_of(s)
    asks = isinstance(inner, If)
    if isinstance(inner, Store):
        asks = any(isinstance(n, Select) and _reads(n) for n in distinct([inner.value]))
    return s.kind == "serial" and asks


def _vectors_of(s: For) -> Stmt:
    """What a loop does in each lane of each of its unrolled vectors."""
    inner, kinds = s.body, set[str]()
    while isinstance(inner, For) and (inner.kind != "serial" or as_int(inner.extent) == 1):
        kinds.add(inner.kind)
        inner = inner.body
    return inner if "vectorize" in kinds else s


def _without_idle(s: For, known: Facts) -> For:
    """The loop without last rounds in which the condition fails in every lane."""
    vectors, inner, here = _vectors_of(s), set[Var](), known.bind(s.var, *loop_range(s))
    loop = s.body
    while isinstance(loop, For):
        inner.add(loop.var)
        here = here.bind(loop.var, *loop_range(loop))
        loop = loop.body
    if not isinstance(vectors, If) or vectors.other is not None:
        return s
    stop = s.stop
    for part in parts_of(here.condition(vectors.cond)):
        ends = _stop(part, s.var, inner, here)
        if ends is not None:
            stop = minimum(stop, ends)
    return s if stop is s.stop else s.replace(stop=known.simplify(maximum(s.start, stop)))


def _stop(part: Expr, var: Var, inner: set[Var], known: Facts) -> Expr | None:
    """From which round of a loop on a condition fails in all rounds of those inside of it."""
    form = form_of(part, known)
    step = 0 if form is None else form.terms.get(var, 0)
    if form is None or step >= 0:
        return None
    others = {t: c for t, c in form.terms.items() if t != var}
    kept = {t: c for t, c in others.items() if not known.variables(t) & {var, *inner}}
    moved = {t: c for t, c in others.items() if t not in kept}
    high = known.bounds(Affine(moved, 0))[1] if moved else 0
    if high == inf:
        return None
    return known.expr(Affine(kept, form.const + int(high))) // const(-step) + 1


def _may_cut(s: For) -> bool:
    """Threads of a block stay together, for they may have to wait for each other."""
    return s.kind in ("serial", "parallel") or s.thread.startswith("blockIdx")


# ---- what a loop's body asks


def _may_end(s: For) -> bool:
    """Does a round say that no later one does anything? Code generation looks for that in
    the body itself, and not in branches."""
    return any(isinstance(n, Call) and n.name == "again" for n in distinct([s.body]))


def _is_idle(s: Any, known: Facts) -> bool:
    """Whether a statement surely does nothing."""
    if isinstance(s, For):
        return _is_idle(s.body, known.bind(s.var, *loop_range(s)))
    if isinstance(s, If):
        cond = known.condition(s.cond)
        if isinstance(cond, Const):
            chosen = s.then if cond.value else s.other
            return chosen is None or _is_idle(chosen, known)
        return _is_idle(s.then, known) and (s.other is None or _is_idle(s.other, known))
    if isinstance(s, Eval):
        return is_prefetch(s)
    if isinstance(s, Store):
        return False
    return all(_is_idle(c, known) for c in s.children() if isinstance(c, Stmt))


def _conditions(var: Var, guards: list[_Guard], known: Facts) -> list[Affine]:
    """Forms of `var` and what is outside; where all are ≥ 0, the conditions surely hold."""
    seen: set[Expr] = set()
    asked: set[Expr] = set()  # of `known`: reads of one round, and rounds, mostly ask the same
    found: dict[tuple[frozenset[tuple[Expr, int]], int], Affine] = {}
    for guard in guards:
        here = known
        for f in guard.loops:
            here = here.bind(f.var, *loop_range(f))
        for cond in guard.under:
            here = here.under(cond)
        if here is known:
            if guard.cond in asked:
                continue
            asked.add(guard.cond)
        inner = frozenset(f.var for f in guard.loops)
        lanes = frozenset(f.var for f in guard.loops if f.kind == "vectorize")
        parts = parts_of(here.condition(guard.cond))
        for part in parts if len(parts) > 1 else ():  # lanes that are always off ask nothing
            here = here.under(part) if free_vars(part) <= lanes else here
        for part in parts:
            if part in seen or not isinstance(part, Binary) or part.op not in BOUNDS:
                continue
            seen.add(part)
            form = form_of(part, here)
            if form is None:
                continue
            least = _least(form, var, inner, here)
            if least is not None:  # the nests of one tile ask the same, of inner loops of their own
                found.setdefault((frozenset(least.terms.items()), least.const), least)
    return list(found.values())


def _least(form: Affine, var: Var, inner: frozenset[Var], known: Facts) -> Affine | None:
    """The form with its terms of inner loops at their least; None where that says nothing of
    `var`.
    """
    kept = {t: c for t, c in form.terms.items() if not known.variables(t) & inner}
    moved = {t: c for t, c in form.terms.items() if t not in kept}
    if not any(var in known.variables(t) for t in kept):
        return None
    low = known.bounds(Affine(moved, 0))[0] if moved else 0
    if low == -inf:
        return None
    least = Affine(kept, form.const + int(low))
    lo, hi = known.bounds(least)
    return None if lo >= 0 or hi < 0 else least


def _reads(e: Select) -> bool:
    return reads(e.then) or reads(e.other)


def _not(cond: Expr) -> Expr:
    return Unary(UnaryOp.logical_not, cond)


def _clamped(e: Expr, low: Expr, high: Expr, known: Facts) -> Expr:
    return known.simplify(minimum(maximum(e, low), high))
