"""Walking trees: visit, rewrite, substitute, collect.

In: any node. Out: the same node if nothing changed. Rewrites are bottom-up functions from node to
node, so a pass is a plain function and not a visitor class.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    binary,
    cast,
    choose,
    select,
    unary,
)
from tilewright.ir.stmt import Alloc, Axis, Block, Eval, For, Func, Let, Region, Seq, Stmt, Store
from tilewright.support.node import Node

N = TypeVar("N", bound=Node)

_LEAVES = frozenset({Const, Var})
_BINDERS = frozenset({For, Let, Axis})


def visit(root: Node) -> Iterator[Node]:
    """Every node below and including `root`, parents first, in program order."""
    stack = [root]
    while stack:
        current: Any = stack.pop()
        yield current
        kind = current.__class__
        if kind is Binary:  # as most nodes are
            stack += (current.b, current.a)
        elif kind not in _LEAVES:
            stack += current.children()[::-1]


def operators(root: Node, ops: Collection[BinaryOp]) -> list[Binary]:
    """Every operator of two operands below `root`, or that is it, which is one of `ops`: parents
    first, in program order."""
    found: list[Binary] = []
    stack: list[Any] = [root]
    while stack:
        n = stack.pop()
        kind = n.__class__
        if kind is Binary:
            if n.op in ops:
                found.append(n)
            stack += (n.b, n.a)
        elif kind not in _LEAVES:
            stack += n.children()[::-1]
    return found


def distinct(roots: Iterable[Node]) -> Iterator[Node]:
    """Every node below and including `roots` but plain expressions (`Expr.is_plain`), parents
    first, in the order of first appearance: one that stands in several positions comes once, and so
    does what is below it."""
    stack: list[Any] = [*roots][::-1]
    seen: set[int] = set()
    while stack:
        current = stack.pop()
        kind = current.__class__
        if kind in _LEAVES or id(current) in seen or (kind is Binary and current.is_plain):
            continue
        seen.add(id(current))
        yield current
        stack += current.children()[::-1]


def rewrite(root: N, kinds: tuple[type[Node], ...], change: Callable[[Any], Any]) -> N:
    """Rebuild bottom-up: `change` gets each node of these classes after its children were
    rewritten.

    A load that stands in several positions of an expression is rewritten once and stays shared.
    """
    return _Rewrite(frozenset(kinds), change).go(root)


class _Rewrite:
    """`rewrite`; a closure that named itself would be left to the cycle collector."""

    __slots__ = ("change", "keeps_indices", "kinds", "shared")

    def __init__(self, kinds: frozenset[type[Node]], change: Callable[[Any], Any]) -> None:
        self.kinds, self.change = kinds, change
        self.shared: dict[int, Any] = {}
        # whether plain expressions stay as they are: most nodes are that
        self.keeps_indices = not any(k is not Load and issubclass(k, Expr) for k in kinds)

    def go(self, n: Any) -> Any:
        kind = n.__class__
        if kind in _LEAVES:
            return self.change(n) if kind in self.kinds else n
        if kind is Binary and self.keeps_indices and n.is_plain:
            return n
        if kind is not Load:
            made = n.map_children(self.go)
            return self.change(made) if kind in self.kinds else made
        found = self.shared.get(id(n))
        if found is None:
            made = n.map_children(self.go)
            found = self.shared[id(n)] = self.change(made) if Load in self.kinds else made
        return found


def rewrite_expr(root: N, change: Callable[[Expr], Expr]) -> N:
    """`rewrite` for expressions only."""

    def go(n: Any) -> Any:
        n = n.map_children(go)
        return change(n) if isinstance(n, Expr) else n

    return go(root)


def substitute(root: N, values: Mapping[Var, Expr]) -> N:
    """Replace free variables. Names are unique in a Func, so nothing is captured.

    Sums and products are rebuilt through the folding constructors.
    """
    return _Substitution(values).go(root) if values else root


class _Substitution:
    """`substitute`; a closure that named itself would be left to the cycle collector."""

    __slots__ = ("shared", "values")

    def __init__(self, values: Mapping[Var, Expr]) -> None:
        self.values = values
        self.shared: dict[int, Any] = {}

    def go(self, n: Any) -> Any:
        if n.__class__ is Const:
            return n
        if n.__class__ is Var:
            return self.values.get(n, n)
        if n.__class__ is not Load:
            return refold(n, n.map_children(self.go))
        found = self.shared.get(id(n))
        if found is None:
            found = self.shared[id(n)] = n.map_children(self.go)
        return found


def refold(before: Any, after: Any) -> Any:
    """`after` again through the folding constructors if it is an operator whose operands
    changed.
    """
    if after is before:
        return after
    fold = _REFOLD.get(after.__class__)
    return after if fold is None else fold(after)


_REFOLD: dict[type, Callable[[Any], Expr]] = {
    Binary: lambda n: binary(n.op, n.a, n.b),
    Unary: lambda n: unary(n.op, n.a),
    Cast: lambda n: cast(n.dtype, n.a),
    Select: lambda n: select(n.cond, n.then, n.other),
    Call: lambda n: choose(n.args[0], n.args[1:]) if n.name == "choose" else n,
}


def replace_buffers(root: N, buffers: Mapping[Buffer, Buffer]) -> N:
    """Replace buffers everywhere they are named: loads, stores, regions, allocations."""

    def change(n: Any) -> Any:
        new = buffers.get(n.buffer)
        return n if new is None else n.replace(buffer=new)

    return rewrite(root, (Load, Store, Region, Alloc), change)


def free_vars(root: Node) -> set[Var]:
    """Variables that `root` uses and does not bind."""
    kind = root.__class__
    if kind is Var:
        return {root}  # type: ignore[arg-type]
    if kind is Const:
        return set()
    used: set[Var] = set()
    bound: set[Var] = set()
    seen: set[int] = set()  # a node that stands in several positions
    stack: list[Any] = [root]
    while stack:
        n = stack.pop()
        kind = n.__class__
        if kind is Const:
            continue
        if kind is Var:
            used.add(n)
            continue
        if id(n) in seen:
            continue
        seen.add(id(n))
        if kind is Binary:  # as most nodes are
            stack += (n.a, n.b)
            continue
        if isinstance(n, Var):
            used.add(n)
            continue
        if kind in _BINDERS:
            bound.add(n.var)
        stack += n.children()
    return used - bound if bound else used


def accesses(root: Node) -> list[Load | Store]:
    """Every load and store below `root`, in program order."""
    found: list[Load | Store] = []
    stack: list[Any] = [root]
    while stack:
        n = stack.pop()
        kind = n.__class__
        if kind in _LEAVES:
            continue
        if kind is Binary:  # as most nodes are
            if not n.is_plain:
                stack += (n.b, n.a)
            continue
        if kind is Load or kind is Store:
            found.append(n)
        stack += n.children()[::-1]
    return found


def contains(root: Node, *kinds: type[Node]) -> bool:
    """Whether a node of one of these classes is below `root`, or is it. They are none of those that
    plain expressions are made of (`Expr.is_plain`)."""
    stack: list[Any] = [root]
    while stack:
        n = stack.pop()
        kind = n.__class__
        if kind in kinds:
            return True
        if kind is Binary:  # as most nodes are
            if not n.is_plain:
                stack += (n.a, n.b)
        elif kind not in _LEAVES:
            stack += n.children()
    return False


def reads(root: Node) -> bool:
    """Whether a load is below `root`, or is it."""
    return contains(root, Load)


def loads(root: Node) -> list[Load]:
    """Every load below `root`."""
    return [n for n in accesses(root) if n.__class__ is Load]  # type: ignore[misc]


def stores(root: Node) -> list[Store]:
    """Every store below `root`."""
    return [n for n in statements(root) if isinstance(n, Store)]


def blocks(root: Node) -> list[Block]:
    """Every block below `root`, in program order."""
    return [n for n in statements(root) if isinstance(n, Block)]


def names(root: Node) -> set[str]:
    """Every name in use: variables, loops, blocks and buffers, and what a function takes, were it
    only a size of a buffer."""
    if isinstance(root, Func):  # binds all that its expressions use: its statements tell
        found = {p.name for p in root.params}
        s: Any
        for s in statements(root.body):
            kind = s.__class__
            if kind is For or kind is Let:
                found.add(s.var.name)
            elif kind is Block:
                found.add(s.name)
                found.update([axis.var.name for axis in s.axes])
            elif kind is Alloc:
                found.add(s.buffer.name)
        return found
    found = set[str]()
    for n in visit(root):
        if isinstance(n, Var):
            found.add(n.name)
        elif isinstance(n, For | Let | Axis):
            found.add(n.var.name)
        elif isinstance(n, Block):
            found.add(n.name)
        if isinstance(n, Load | Store | Region | Alloc):
            found.add(n.buffer.name)
    return found


def fresh(name: str, taken: set[str]) -> str:
    """`name`, or `name_1`, `name_2`, … : the first that is not taken; it is added to `taken`."""
    candidate, count = name, 0
    while candidate in taken:
        count += 1
        candidate = f"{name}_{count}"
    taken.add(candidate)
    return candidate


def statements(root: Node) -> Iterator[Stmt]:
    """Every statement below and including `root`, without descending into expressions."""
    stack: list[Any] = [root]
    while stack:
        current = stack.pop()
        kind = current.__class__
        if kind is For or kind is Alloc:
            yield current
            stack.append(current.body)
        elif kind is Seq:
            yield current
            stack += current.stmts[::-1]
        elif kind is Block:
            yield current
            stack.append(current.body)
            if current.init is not None:
                stack.append(current.init)
        elif kind is Store or kind is Eval:
            yield current
        else:
            if isinstance(current, Stmt):
                yield current
            stack.extend([c for c in current.children()[::-1] if isinstance(c, Stmt)])
