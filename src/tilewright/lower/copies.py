"""Copies of a loop's body: whether a round may be taken twice, what each allocates, what they cost.

Passes that give parts of a loop code of their own (its middle, its last rounds, each remainder of a
size) write its body several times. The one idea: a body reads and writes what it did before, and
what it allocates belongs to one copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any

from tilewright.arith.affine import Affine
from tilewright.arith.coverage import is_quotient
from tilewright.arith.simplify import Facts
from tilewright.ir.dtype import i64
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    as_int,
    const,
)
from tilewright.ir.stmt import Alloc, Eval, For, Stmt, Store
from tilewright.ir.walk import (
    contains,
    free_vars,
    fresh,
    loads,
    reads,
    replace_buffers,
    stores,
    visit,
)
from tilewright.support.record import record


def accumulates(body: Stmt, own: set[Buffer]) -> bool:
    """Are there sums, in buffers of the body's own? Then no result lies where an operand was, and a
    round may be taken twice."""
    return any(
        s.buffer in own and any(n.buffer == s.buffer for n in loads(s.value)) for s in stores(body)
    )


def whole_numbers(s: Any, own: AbstractSet[Buffer]) -> Iterator[Expr]:
    """The whole numbers that a statement works with, but where they are indices of its
    own buffers, or of what is only prefetched."""
    kind = s.__class__
    if (kind is Load or kind is Store) and s.buffer in own:
        if kind is Store:
            yield from whole_numbers(s.value, own)
        return
    if isinstance(s, Expr) and s.dtype is i64 and not reads(s):
        yield s
        return
    if isinstance(s, Eval) and is_prefetch(s):
        return
    for c in s.children():
        yield from whole_numbers(c, own)


def is_of_element(
    e: Expr,
    loop: Var,
    inner: AbstractSet[Var],
    rounds: int,
    known: Facts,
    *,
    quotients: bool = False,
) -> bool:
    """Whether a number is told by which element a round is, `loop * rounds + round`, times
    something, or whether a condition compares such numbers; `inner` are the loops over rounds.
    quotients: an element may be divided by what divides `rounds`."""

    def all_are(e: Expr) -> bool:
        parts = [c for c in e.children() if isinstance(c, Expr)]
        return all(is_of_element(c, loop, inner, rounds, known, quotients=quotients) for c in parts)

    if e.dtype is not i64:
        return isinstance(e, Binary | Unary) and e.dtype.is_bool and all_are(e)
    if chooses(e):  # simplified under its condition, a side says less of the element
        return all_are(e)
    form, mine = known.affine(e), {loop, *inner}
    apart = form.terms.get(loop, 0)
    for t, c in form.terms.items():
        if t in mine or not free_vars(t) & mine:
            continue
        part = split_quotient(t, loop, inner, rounds, known) if quotients else None
        if part is None and not all_are(t):
            return False  # the least of several, a quotient
        apart -= c * part.apart if part is not None else 0
    used = [form.terms[v] * rounds for v in inner if v in form.terms]
    return used == ([apart] if apart else [])


@record
class SplitQuotient:
    """`inside` op `by`, the part of lanes in (an element * k + c) op `by`; what the loop around
    them adds is `apart` times its variable."""

    op: BinaryOp
    inside: Affine
    slope: int  # k
    by: int
    apart: int

    def moved(self, start: Affine, known: Facts) -> Affine:
        """That of the elements from `start` on."""
        whole = known.expr(known.sum(self.inside, start, self.slope))
        return known.affine(Binary(self.op, whole, const(self.by)))


def split_quotient(
    t: Expr, loop: Var, inner: AbstractSet[Var], rounds: int, known: Facts
) -> SplitQuotient | None:
    """A quotient (or remainder) of elements, of which the affine form shows only the lanes' part:
    (loop * 16 + lane + 1) // 2 is loop * 8 + (lane + 1) // 2."""
    if not isinstance(t, Binary) or not is_quotient(t):
        return None
    by, inside = as_int(t.b), known.affine(t.a)
    lanes = [v for v in inner if v in inside.terms]
    if not by or by < 0 or len(lanes) != 1:
        return None
    rest = [x for x in inside.terms if x not in lanes]
    if any(free_vars(x) & {loop, *inner} for x in rest):
        return None
    slope = inside.terms[lanes[0]]
    if slope * rounds % by:
        return None
    apart = slope * rounds // by if t.op is BinaryOp.floordiv else 0
    return SplitQuotient(t.op, inside, slope, by, apart)


def chooses(e: Expr) -> bool:
    """Is there a choice in it?"""
    return contains(e, Select)


def own_memory(s: Any, taken: set[str]) -> Any:
    """Copies of a loop allocate buffers of their own: the second of a name gets another."""
    if isinstance(s, Alloc):
        body, name = s.body, fresh(s.buffer.name, taken)
        if name != s.buffer.name:
            renamed = s.buffer.replace(name=name)
            s = Alloc(renamed, replace_buffers(body, {s.buffer: renamed}))
        body = own_memory(s.body, taken)
        return s if body is s.body else Alloc(s.buffer, body)

    if isinstance(s, Store):
        return s

    def inner(c: Any) -> Any:
        return own_memory(c, taken) if isinstance(c, Stmt) else c

    return s.map_children(inner)


def stores_of(s: Stmt) -> int:
    """Stores that the statement becomes when it is unrolled."""
    return _unrolled(s, lambda store: 1)


def accesses_of(s: Stmt) -> int:
    """Stores, and the loads of what they store, that the statement becomes when it is unrolled."""
    return _unrolled(s, lambda store: 1 + len(loads(store.value)))


def _unrolled(s: Stmt, cost: Callable[[Store], int]) -> int:
    if isinstance(s, For):
        times = as_int(s.extent) if s.kind == "unroll" else 1
        return _unrolled(s.body, cost) * max(1, times or 1)
    if isinstance(s, Store):
        return cost(s)
    return sum(_unrolled(c, cost) for c in s.children() if isinstance(c, Stmt))


def is_prefetch(s: Eval) -> bool:
    """Is it a prefetch?"""
    return any(getattr(n, "name", "") == "prefetch" for n in visit(s.value))
