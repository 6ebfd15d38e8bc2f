"""skip_unread: write nothing of a buffer that is not read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from math import inf

from tilewright.arith.region import cover, cover_region, union
from tilewright.arith.simplify import Facts, loop_range
from tilewright.ir.expr import Binary, BinaryOp, Expr, const, maximum, minimum
from tilewright.ir.stmt import Block, For, Func, If, Stmt
from tilewright.ir.walk import free_vars
from tilewright.schedule.depend import Access, accesses_of, below
from tilewright.schedule.domain import conditions, conjunction, guard, ranges_at
from tilewright.schedule.locate import (
    alloc_path,
    find_buffer,
    inner,
    loop_path,
    need,
    primitive,
    replace,
    the_loop,
)

_SLACK = {BinaryOp.lt: (1, -1), BinaryOp.le: (1, 0), BinaryOp.gt: (-1, -1), BinaryOp.ge: (-1, 0)}
Read = tuple[Access, tuple[For, ...], tuple[Expr, ...]]  # the loops and conditions around it


@primitive("write nothing of '{buffer}' that is not read in loop '{loop}'")
def skip_unread(func: Func, buffer: str, loop: str) -> Func:
    """In iterations of a loop that write nothing of a buffer but what nothing reads, do nothing.

    What is read is told by the conditions around the reads, as `skip_zeros` makes them: of much
    padding, what lies near the image.

    rewrite: skip_unread("P", "p_o")
        P = alloc(f32[24], "global")
        for p_o in serial(0, 6):
            for p_i in serial(0, 4):
                with block("P"):
                    vp = spatial(24, p_o * 4 + p_i)
                    reads(A[vp])
                    writes(P[vp])
                    P[vp] = A[vp]
        for x in serial(0, 24):
            if x >= 10 and x < 15:
                with block("B"):
                    vx = spatial(24, x)
                    reads(P[vx])
                    writes(B[vx])
                    B[vx] = P[vx]
    →
        P = alloc(f32[24], "global")
        for p_o in serial(0, 6):
            if p_o >= 2 and p_o < 4:
                for p_i in serial(0, 4):
                    with block("P"):
                        vp = spatial(24, p_o * 4 + p_i)
                        reads(A[vp])
                        writes(P[vp])
                        P[vp] = A[vp]
        for x in serial(0, 24):
            if x >= 10 and x < 15:
                with block("B"):
                    vx = spatial(24, x)
                    reads(P[vx])
                    writes(B[vx])
                    B[vx] = P[vx]
    needs:
        P1  the loop lies in no block, and all that its body writes is the buffer
        P2  the function allocates the buffer, outside of the loop, which does not read it
    """
    path = loop_path(func, loop)
    old = the_loop(path)
    of = find_buffer(func, buffer)
    inside = below(old.body)
    written = [a for a in inside.accesses if a.writes]
    outer = not any(isinstance(s, Block) for s in path)
    only = bool(written) and all(a.buffer == buffer for a in written)
    why = f"it writes more than '{buffer}'"
    need("P1", outer and only, func, old, why, "name a loop around nothing but what writes it")
    own = alloc_path(func, of) is not None and of not in inside.allocated
    own = own and not any(a.buffer == buffer and not a.writes for a in inside.accesses)
    why = f"'{buffer}' comes from outside of the function, or is the loop's own"
    need("P2", own, func, old, why, "name a buffer that the function allocates around the loop")
    reads = list(_reads(func.body, buffer, (), ()))
    known = Facts(ranges_at(func, path))
    varying = {f.var: loop_range(f) for f in inside.loops}
    region = union([cover_region(a.region, varying, known) for a in written], known)
    asked: list[Expr] = []
    for axis, (start, extent) in enumerate(zip(region.starts, region.extents, strict=True)):
        if old.var in free_vars(start) and reads:
            lows, ends = zip(*(_read_between(func, read, axis) for read in reads), strict=True)
            if None not in lows:
                asked.append(start + extent > reduce(minimum, lows))
            if None not in ends:
                asked.append(start < reduce(maximum, ends))
    some = guard(conjunction(asked), known)
    return func if some is None else replace(func, path, old.replace(body=If(some, old.body)))


def _reads(s: Stmt, buffer: str, loops: tuple[For, ...], asked: tuple[Expr, ...]) -> Iterator[Read]:
    """Each read of the buffer in a statement, with the loops and conditions around it."""
    for access in accesses_of(s):
        if access.buffer == buffer and not access.writes:
            yield access, loops, asked
    if isinstance(s, Block):
        return
    around = (*loops, s) if isinstance(s, For) else loops
    for part in inner(s):
        more = conditions(s.cond) if isinstance(s, If) and part is s.then else []
        yield from _reads(part, buffer, around, (*asked, *more))


def _read_between(func: Func, read: Read, axis: int) -> tuple[Expr | None, Expr | None]:
    """Where what is read begins and ends along an axis, in terms of the run's sizes, for all that
    the conditions tell: where g >= 0, an index i is i - k * g at least and i + k * g at most."""
    access, loops, asked = read
    first, extent = access.region.starts[axis], access.region.extents[axis]
    slacks = [_slack(part) for part in asked if isinstance(part, Binary) and part.op in _SLACK]
    lows = [_bounds(func, first, g, loops)[0] for g in slacks]
    ends = [_bounds(func, first + extent, g, loops)[1] for g in slacks]
    low, end = [e for e in lows if e is not None], [e for e in ends if e is not None]
    return reduce(maximum, low) if low else None, reduce(minimum, end) if end else None


def _slack(part: Binary) -> Expr:
    """g of a condition g >= 0."""
    sign, more = _SLACK[part.op]
    return (part.b - part.a) * sign + more


def _bounds(
    func: Func, index: Expr, slack: Expr, loops: Sequence[For]
) -> tuple[Expr | None, Expr | None]:
    """A bound of an index from below or from above, where a slack that moves with it (or against
    it) is not negative; in numbers, or else in terms of the run's sizes."""
    sizes = ranges_at(func, ())
    known = Facts(ranges_at(func, loops))
    form, asked = known.affine(index), known.affine(slack)
    moved = [f.var for f in loops if f.var in form.terms and f.var in asked.terms]
    times = form.terms[moved[0]] // asked.terms[moved[0]] if moved else 0
    if not times:
        return None, None
    rest = known.sum(form, asked, -times)  # the index is this and so many times the slack
    if any(v in rest.terms for v in moved):
        return None, None
    number = known.bounds(rest)[times < 0]
    if abs(number) < inf:
        bound: Expr = const(int(number))
    else:
        varying = {f.var: loop_range(f) for f in loops}
        try:
            (start,), (extent,) = cover([known.expr(rest)], varying, sizes)
        except ValueError:
            return None, None
        bound = start if times > 0 else start + extent - 1
    if not free_vars(bound) <= {*sizes}:
        return None, None
    return (bound, None) if times > 0 else (None, bound)
