"""partition_loop: cut a loop's range into consecutive loops."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf

from tilewright.arith.affine import Affine
from tilewright.arith.prove import prove_less, prove_less_equal
from tilewright.arith.simplify import Facts
from tilewright.ir.dtype import i64
from tilewright.ir.expr import Binary, BinaryOp, Expr, as_int, const, minimum
from tilewright.ir.stmt import Block, For, Func, If, Stmt, seq
from tilewright.ir.walk import substitute
from tilewright.schedule.depend import axis_values, uses
from tilewright.schedule.domain import conditions, ranges_at, rebind
from tilewright.schedule.locate import (
    Path,
    block_nests,
    copy_afresh,
    loop_path,
    loops_above,
    map_blocks,
    need,
    primitive,
    replace,
    the_loop,
)


@primitive("partition loop '{loop}' at {points}")
def partition_loop(
    func: Func, loop: str, points: Sequence[int] = (), multiple: int = 0, whole: bool = False
) -> tuple[Func, tuple[str, ...]]:
    """Cut a loop's range into consecutive loops, so that guards vanish; gives their names.

    The first keeps the names of what stands in it; the others get fresh ones. With `multiple`
    instead of points, the first has as many iterations as are a multiple of it, the second the
    rest; either may have none. `whole`: the first has those in which no guard on the loop's end
    fails.

    rewrite: partition_loop("i_o", [1])
        for i_o in serial(0, 2):
            for i_i in serial(0, 32):
                with block("B", where=i_o * 32 + i_i < 60):
                    vi = spatial(60, i_o * 32 + i_i)
                    reads(A[vi])
                    writes(B[vi])
                    B[vi] = A[vi] * 2.0
    →
        for i_o in serial(0, 1):
            for i_i in serial(0, 32):
                with block("B"):
                    vi = spatial(60, i_o * 32 + i_i)
                    reads(A[vi])
                    writes(B[vi])
                    B[vi] = A[vi] * 2.0
        for i_o_1 in serial(1, 2):
            for i_i_1 in serial(0, 32):
                with block("B_1", where=i_i_1 < 28):
                    vi_1 = spatial(60, i_o_1 * 32 + i_i_1)
                    reads(A[vi_1])
                    writes(B[vi_1])
                    B[vi_1] = A[vi_1] * 2.0
    needs:
        P1  the loop is not bound to threads
        P2  there are points, they rise, and each part has an iteration; or there is a multiple; or
            guards say where the last iterations begin that are not whole
        P3  a reduction bound to the loop starts in the first part
    """
    path = loop_path(func, loop)
    old = the_loop(path)
    why = f"it is a '{old.kind}' loop"
    bound = old.kind in ("thread", "vthread", "pipeline")
    need("P1", not bound, func, old, why, "partition a loop before binding it")
    ranges = ranges_at(func, path[:-1])
    ends: list[Expr] = [old.start, *(const(p) for p in points), old.stop]
    if multiple:
        alone = multiple > 0 and not points and not whole
        need("P2", alone, func, old, "a multiple stands alone", "give one")
        ends[1:1] = [old.start + (old.stop - old.start) // multiple * multiple]
    elif whole:
        end = None if points else _whole(func, path)
        why = "no guard says which iterations are whole"
        need("P2", end is not None, func, old, why, "give points, or a multiple")
        ends[1:1] = [end] if end is not None else []
    else:
        inside = all(prove_less(a, b, ranges) for a, b in pairwise(ends))
        why = f"the points {', '.join(map(str, points))} leave a part without iterations"
        remedy = "give rising points between its start and stop"
        need("P2", inside and points, func, old, why, remedy)
    parts: list[Stmt] = []
    names: list[str] = []
    beside = func
    for start, stop in pairwise(ends):
        part = old.replace(start=start, stop=stop)
        if parts:
            part = copy_afresh(beside, part)
            beside = func.replace(body=seq(beside.body, part))
        part = part.replace(body=rebind(func, [*path[:-1], part], part.body, {}))
        names.append(part.name)
        parts.append(_begin(func, path, part))
    return replace(func, path, seq(*parts)), tuple(names)


def _whole(func: Func, path: Path) -> Expr | None:
    """Where the last iterations of a loop begin in which a guard may fail; None if none does, or
    it is not known to lie in the loop's range."""
    old = the_loop(path)
    end: Expr | None = None
    for block, loops in block_nests(old):
        known = Facts(ranges_at(func, (*path[:-1], *loops)))
        for part in _asked(block):
            form = _slack(part, known)
            step = 0 if form is None else form.terms.get(old.var, 0)
            if form is None or step >= 0:
                continue
            others = {t: c for t, c in form.terms.items() if t != old.var}
            inside = {f.var for f in loops[1:]}
            moved = {t: c for t, c in others.items() if known.variables(t) & inside}
            kept = {t: c for t, c in others.items() if t not in moved}
            low = known.bounds(Affine(moved, 0))[0]
            if low == -inf or any(old.var in known.variables(t) for t in others):
                return None
            least = known.expr(Affine(kept, form.const + int(low)))
            here = known.simplify(least // const(-step) + 1)
            end = here if end is None else minimum(end, here)
    ranges = ranges_at(func, path[:-1])
    if end is None or not prove_less_equal(old.start, end, ranges):
        return None
    return end if prove_less_equal(end, old.stop, ranges) else None


def _asked(block: Block) -> list[Expr]:
    """The conditions under which an instance does anything but begin a reduction."""
    asked = conditions(block.where)
    if isinstance(block.body, If) and block.body.other is None:
        values = {a.var: a.value for a in block.axes}
        asked += conditions(substitute(block.body.cond, values))
    return asked


def _slack(part: Expr, known: Facts) -> Affine | None:
    """What is at least 0 where `a < b` or `a <= b` holds; None of any other condition."""
    if not isinstance(part, Binary) or part.op not in _ENDS or part.a.dtype is not i64:
        return None
    return known.sum(known.affine(part.b), known.affine(part.a), -1) - _ENDS[part.op]


_ENDS = {BinaryOp.lt: 1, BinaryOp.le: 0}


def _begin(func: Func, path: Path, part: For) -> For:
    """A part of a loop, in which reductions that began in an earlier part do not begin again."""
    begun = {
        b.name
        for b, loops in block_nests(part, loops_above(path))
        if part.var in uses(b, ("reduce",)) and _begun(func, path, loops, b)
    }
    return map_blocks(part, lambda b: b.replace(init=None) if b.name in begun else b)


def _begun(func: Func, path: Path, loops: Sequence[For], block: Block) -> bool:
    """Has the block's reduction begun before these loops run?"""
    if block.init is None:
        return False
    values = axis_values(block, "reduce")
    known = Facts(ranges_at(func, (*path[:-1], *loops)))
    if any(prove_less(0, value, known) for value in values):
        return True
    starts = {f.var: f.start for f in loops}
    first = [known.simplify(substitute(value, starts)) for value in values]
    mixed = uses(block, ("reduce",)) & uses(block, ("spatial",))
    begins = mixed or all(as_int(value) == 0 for value in first)
    why = f"it is not known in which part the reduction of block '{block.name}' begins"
    need("P3", begins, func, path[-1], why, "take its start out first: decompose_reduction")
    return False
