"""What instances touch, and which instances a region needs.

In: a block's regions, the loops that its axes are bound to, and a loop at which to look. Out: the
region relaxed over the loops inside, whether it runs whole and leaves no gaps, and the part of the
block's axes that others need. The one idea: regions go through the block's index map, forwards or
backwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from tilewright.arith import linear
from tilewright.arith import region as regions
from tilewright.arith.coverage import is_digit, reach
from tilewright.arith.prove import can_prove
from tilewright.arith.simplify import Facts, loop_range
from tilewright.ir.expr import Buffer, Expr, Var, as_int, const, minimum
from tilewright.ir.stmt import Axis, Block, For, Func, Region
from tilewright.ir.walk import free_vars
from tilewright.schedule import access, index_map
from tilewright.schedule.depend import bind_axes
from tilewright.schedule.domain import Ranges, ranges_at
from tilewright.schedule.locate import Path, the_block

Span = tuple[Expr, Expr]  # the start and the extent of an axis
ZERO = const(0)
AXIS_KINDS = ("spatial", "reduce", "ordered")


def relaxed_region(
    func: Func, paths: Sequence[Path], depth: int, buffer: Buffer, kind: str, scope: str = "global"
) -> Region:
    """What blocks touch of a buffer while the loops of their paths from `depth` on run.

    kind: "reads" or "writes". The loops of threads that share memory `scope` run too: together the
    threads need the whole.
    """
    parts: list[Region] = []
    ranges: Ranges = {}
    for path in paths:
        block = the_block(path)
        moving: Ranges = {
            s.var: loop_range(s)
            for n, s in enumerate(path)
            if isinstance(s, For) and (n >= depth or _is_shared(s, scope))
        }
        ranges = ranges_at(func, path[:-1])
        values = {a.var: a.value for a in block.axes}
        for own in block.reads if kind == "reads" else block.writes:
            if own.buffer == buffer:
                parts.append(_relax(bind_axes(own, values), moving, ranges))
    return parts[0] if len(parts) == 1 else regions.union(parts, ranges)


def _relax(region: Region, moving: Ranges, ranges: Ranges) -> Region:
    """What a region covers while the variables of `moving` run."""
    starts: list[Expr] = []
    extents: list[Expr] = []
    for start, extent, size in zip(region.starts, region.extents, region.buffer.shape, strict=True):
        length, limit = as_int(extent), as_int(size)
        quick = None if length is None else linear.span(start, moving)
        if quick is None or length is None:
            return regions.cover_region(region, moving, ranges)
        first, width = quick
        width += length - 1
        at = as_int(first)
        if at is not None and limit is not None:  # inside the buffer
            width = min(at + width, limit) - max(at, 0)
            first = const(max(at, 0))
        starts.append(first)
        extents.append(const(max(width, 0)))
    return Region(region.buffer, tuple(starts), tuple(extents))


def _is_shared(loop: For, scope: str) -> bool:
    """Whether the threads of a loop see one `scope` memory."""
    return scope == "shared" and loop.thread.startswith("threadIdx")


def is_exact(func: Func, path: Path, depth: int, buffer: Buffer) -> bool:
    """Whether a block writes every element of its relaxed region.

    Each dimension must be a sum of the moving loops without gaps; no loop may move two dimensions.
    """
    block = the_block(path)
    moving = {s.var: s for s in path[depth:] if isinstance(s, For)}
    if any(free_vars(e) & moving.keys() for s in moving.values() for e in (s.start, s.stop)):
        return False
    own = [r for r in block.writes if r.buffer == buffer]
    if len(own) != 1 or not access.is_whole_domain(func, path):
        return False
    known: Facts | None = None
    region = bind_axes(own[0], {a.var: a.value for a in block.axes})
    seen: set[Var] = set()
    for start, extent in zip(region.starts, region.extents, strict=True):
        quick = linear.linear(start)
        if quick is None:
            known = known or Facts(ranges_at(func, path[:-1]))
        terms = quick[0] if quick is not None else known.affine(start).terms  # type: ignore[union-attr]
        steps: list[tuple[int, float]] = []
        for term, factor in terms.items():
            if isinstance(term, Var) and term in moving:
                if term in seen:
                    return False
                seen.add(term)
                steps.append((abs(factor), _times(moving[term])))
            elif free_vars(term) & moving.keys():
                return False
        width = as_int(extent)
        if steps and reach(inf if width is None else width, steps) is None:
            return False
    return True


def runs_whole(func: Func, path: Path, kinds: Sequence[str] = AXIS_KINDS) -> bool:
    """Whether the loops around a block run all its instances, as far as axes of some kinds go.

    Not so where a loop was partitioned, or a guard leaves instances out.
    """
    block = the_block(path)
    if not access.is_whole_domain(func, path):
        return False
    loops = {s.var: s for s in path if isinstance(s, For)}
    plain: set[Var] = set()
    known: Facts | None = None
    for axis in block.axes:
        if axis.kind not in kinds:
            continue
        loop = loops.get(axis.value) if isinstance(axis.value, Var) else None
        if loop is not None and loop.start == ZERO and loop.stop == axis.extent:
            if loop.var in plain:
                return False  # a diagonal
            plain.add(loop.var)
            continue
        known = known or Facts(ranges_at(func, path[:-1]))
        if not _covers(axis, loops, known):
            return False
    return True


def _covers(axis: Axis, loops: Mapping[Var, For], known: Facts) -> bool:
    """Whether an axis's value takes every number from 0 to its extent as the loops run."""
    moving: Ranges = {v: loop_range(f) for v, f in loops.items()}
    quick, limit = linear.linear(axis.value), as_int(axis.extent)
    ends = None if quick is None else linear.extremes(*quick, moving)
    if quick is not None and ends is not None and limit is not None:
        counts = [(abs(k), _times(loops[v])) for v, k in quick[0].items() if k]
        return ends[0] <= 0 and ends[1] >= limit - 1 and reach(1, counts) is not None
    form = known.affine(axis.value)
    steps: list[tuple[int, float]] = []
    for term, factor in form.terms.items():
        if not is_digit(term):
            return False
        low, high = known.term_bounds(term)
        steps.append((abs(factor), high - low))
    (start,), (extent,) = regions.cover([axis.value], moving, known, (axis.extent,))
    whole = can_prove(start <= 0, known) and can_prove(start + extent >= axis.extent, known)
    return whole and reach(1, steps) is not None


def _times(loop: For) -> float:
    """How often a loop's variable steps on; inf if only the run knows."""
    count = as_int(loop.extent)
    return inf if count is None else max(0, count - 1)


def spans(block: Block, own: Region, needed: Region, known: Facts) -> dict[Var, Span]:
    """The part of a block's axes whose instances touch `needed` through its region `own`.

    Axes that the region does not tell keep their whole extent.
    """
    plain = dict(zip(own.starts, zip(needed.starts, needed.extents, strict=True), strict=True))
    points = all(e == access.ONE for e in own.extents)
    if points and len(plain) == len(own.starts) and all(e.__class__ is Var for e in own.starts):
        return {
            a.var: _within(*plain[a.var], a.extent, known) for a in block.axes if a.var in plain
        }
    told = {v for e in own.starts for v in free_vars(e)}
    axes = [a for a in block.axes if a.var in told]
    inverse = None
    if points:
        inverse = index_map.invert([a.var for a in axes], [a.extent for a in axes], own.starts)
    found: dict[Var, Span] = {}
    if inverse is None:
        for axis in axes:
            span = _span(axis, own, needed, known)
            if span is not None:
                found[axis.var] = span
    else:
        indices = [Var(f"index {d}") for d in range(len(own.starts))]
        moving = {
            i: (start, start + extent - 1)
            for i, start, extent in zip(indices, needed.starts, needed.extents, strict=True)
        }
        at = {i: (s, e) for i, s, e in zip(indices, needed.starts, needed.extents, strict=True)}
        sizes = {a.var: a.extent for a in axes}
        for var, value in inverse.values(indices).items():
            if isinstance(value, Var) and value in at:
                found[var] = at[value]
                continue
            starts, extents = regions.cover([value], moving, known, (sizes[var],))
            found[var] = (starts[0], extents[0])
    return {a.var: _within(*found[a.var], a.extent, known) for a in axes if a.var in found}


def common(a: Mapping[Var, Span] | None, b: Mapping[Var, Span]) -> Mapping[Var, Span]:
    """The spans that serve both of two needs: where they differ the axis is taken whole."""
    return b if a is None else {v: s for v, s in a.items() if b.get(v) == s}


def _span(axis: Axis, own: Region, needed: Region, known: Facts) -> Span | None:
    """The span of an axis that moves one dimension alone, in steps of that dimension's extent."""
    uses = [d for d, e in enumerate(own.starts) if axis.var in free_vars(e)]
    if len(uses) != 1:
        return None
    form = known.affine(own.starts[uses[0]])
    step = form.terms.get(axis.var)
    if len(form.terms) != 1 or step is None or step != as_int(own.extents[uses[0]]):
        return None
    start = (needed.starts[uses[0]] - form.const) // step
    stop = (needed.starts[uses[0]] + needed.extents[uses[0]] - form.const + (step - 1)) // step
    width = known.bounds(known.affine(stop - start))[1]
    return None if width == inf else (known.simplify(start), const(int(width)))


def _within(start: Expr, extent: Expr, size: Expr, known: Facts) -> Span:
    """A span cut to an axis's extent where that is certain."""
    wide, limit = as_int(extent), as_int(size)
    if wide is None or limit is None:
        if extent == size or known.simplify(extent) == known.simplify(size):
            return ZERO, size
        most = known.bounds(known.affine(extent))[1]
        if wide is None and limit is not None and most != inf:
            return _within(start, const(int(most)), size, known)
        return start, (minimum(extent, size) if wide is None else extent)
    return (ZERO, size) if wide >= limit else (start, extent)
