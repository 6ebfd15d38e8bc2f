"""Reduction strategies: rows in parallel, a row in vectors (softmax, norms), windows in vectors
(pools).

In: a schedule with reductions and the elementwise blocks around them, and a machine. The one idea
of `rows`: all blocks share their leading axes; whatever a row needs is computed inside the loop
over rows and stays in cache. The one idea of `lanes`: where the innermost axis of memory is not
reduced, its vectors accumulate side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.expr import Load, Var, const
from tilewright.ir.stmt import Axis, Block
from tilewright.ir.walk import blocks, free_vars, loads
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.absorb import instances, is_reduction, written
from tilewright.strategy.convolution import split_off_result
from tilewright.strategy.loops import (
    by_axis,
    compute_inside,
    extent,
    find,
    fuse,
    innermost,
    parallel,
    reorder,
    split,
    unroll,
    vectorize,
)
from tilewright.strategy.pointwise import PARALLEL_BYTES, stream, vector_lanes, vectorize_inner
from tilewright.strategy.registers import fill_registers
from tilewright.strategy.tiles import heights, strip
from tilewright.support.errors import ScheduleError
from tilewright.target.target import Target

ONE = const(1)
UNKNOWN = (1 << 16) - 1  # an open size: long, and no multiple of anything
IN_FLIGHT = 4  # vectors of partial results: as many as an addition takes cycles


def reduction(schedule: Schedule, target: Target, threads: int) -> None:
    """Lanes for a single reduction over outer axes, else rows, else every block by itself."""
    found = blocks(schedule.func.body)
    reductions = [b for b in found if is_reduction(b)]
    ordered = any(a.kind == "ordered" for b in found for a in b.axes)
    if len(reductions) == 1 and not ordered and in_lanes(found, reductions[0]):
        lanes(schedule, reductions[0].name, target, threads)
        return
    shared = 0 if ordered else shared_axes(found)
    if shared:
        rows(schedule, shared, target, threads)
        return
    for name in schedule.blocks():
        by_itself(schedule, name, target, threads)


def in_lanes(found: Sequence[Block], reduced: Block) -> bool:
    """Do vectors of the last spatial axis accumulate side by side, in a block that ends the
    function?
    """
    spatial = [a for a in reduced.axes if a.kind == "spatial"]
    after = found[found.index(reduced) + 1 :]
    simple = len(reduced.writes) == 1 and len(after) <= 1 and not (len(found) > 2 and not after)
    same = all([a.extent for a in b.axes] == [a.extent for a in spatial] for b in after)
    return (
        bool(spatial)
        and simple
        and same
        and len(found) <= 2
        and contiguous(reduced, spatial[-1].var)
    )


def lanes(schedule: Schedule, name: str, target: Target, threads: int) -> None:
    """One reduction (and perhaps an epilogue of the same shape): accumulators in vector
    registers.
    """
    block = find(schedule, name)
    width = vector_lanes(block, target)
    anchor = split_off_result(schedule, name)
    *outer, inner = by_axis(schedule, anchor.result)
    width = min(width, extent(schedule, inner, width))
    piece, lane = split(schedule, inner, width)
    last = innermost(outer)
    fit = heights(extent(schedule, last), 1, target.vector_registers)
    side_by_side = target.vector_registers // 4  # the rest is for what neighbours share
    columns = schedule.decide("columns", strip(extent(schedule, last), side_by_side), fit)
    column = ""
    if columns > 1:
        tile, column = split(schedule, last, columns)
        outer[outer.index(last)] = tile
        reorder(schedule, *outer, piece, column, lane)
    count = sum(a.kind == "spatial" for a in block.axes)
    own = compute_inside(schedule, anchor.block, innermost([*outer, piece]))
    taps = own[count:]
    fill_registers(
        schedule, anchor.block, own[: count - 1], own[count - 1], taps, width, written=len(taps)
    )
    unroll(schedule, column)
    vectorize(schedule, lane)
    if threads > 1 and instances(block) * 4 >= PARALLEL_BYTES:
        parallel(schedule, [*outer, piece], threads)


def shared_axes(found: Sequence[Block]) -> int:
    """How many leading axes all blocks have in common, with some block one element a row; 0: no
    rows.
    """
    if len(found) == 1:
        return 0
    spatial = [[a.extent for a in b.axes if a.kind == "spatial"] for b in found]
    shortest = min(spatial, key=len)
    while shortest and shortest[-1:] == [ONE]:
        shortest = shortest[:-1]  # kept dimensions of size 1 are no rows
    count = 0
    for d, size in enumerate(shortest):
        if any(s[d] != size for s in spatial):
            break
        count += 1
    return count


def rows(schedule: Schedule, shared: int, target: Target, threads: int) -> None:
    """Rows outside and in parallel, everything about a row inside."""
    names = schedule.blocks()
    outer = schedule.loops(names[-1])[:shared]
    for name in reversed(names[:-1]):
        schedule.compute_at(name, outer[-1])
    for name in names:
        inside = [n for n in schedule.loops(name) if n not in outer]
        vectorize_block(schedule, name, inside, target)
    size = sum(instances(find(schedule, n)) for n in schedule.blocks()) * 4
    if threads > 1 and size >= PARALLEL_BYTES:
        parallel(schedule, outer, threads)


def by_itself(schedule: Schedule, name: str, target: Target, threads: int) -> None:
    """A block that shares no rows with the others."""
    block = find(schedule, name)
    if not is_reduction(block):
        stream(schedule, name, target, threads)
        return
    loops = schedule.loops(name)
    spatial = [n for n, a in zip(loops, block.axes, strict=False) if a.kind == "spatial"]
    vectorize_block(schedule, name, list(loops), target, alone=len(spatial))
    if threads > 1 and instances(block) * 4 >= PARALLEL_BYTES and len(spatial) > 1:
        schedule.parallel(schedule.loops(name)[0])


def vectorize_block(
    schedule: Schedule, name: str, inside: Sequence[str], target: Target, alone: int = 0
) -> None:
    """Vectorise one block over its loops `inside` a row. alone: how many loops are around each of
    its results, if no other block is in them."""
    block = find(schedule, name)
    inside = [n for n in inside if extent(schedule, n, 0) != 1]
    if not inside:
        return
    width = vector_lanes(block, target)
    if not is_reduction(block):
        size = extent(schedule, inside[-1], 0) or None
        vectorize_inner(schedule, inside[-1], size, width, f"{name}.flight")
        return
    driven = {v.name: a for a in block.axes for v in free_vars(a.value)}
    reduced = [n for n in inside if n in driven and driven[n].kind == "reduce"]
    spatial = [n for n in inside if n in driven and driven[n].kind == "spatial"]
    if spatial and contiguous(block, driven[spatial[-1]].var):
        lane = spatial[-1]
        outer: list[str] = []
        if not 0 < extent(schedule, lane, 0) <= width:
            piece, lane = schedule.split(lane, (None, width))
            outer = [piece]
        schedule.reorder(*outer, *reduced, lane)
        schedule.vectorize(lane)
    elif reduced and contiguous(block, driven[reduced[-1]].var):
        loop = reduced[-1]
        if 0 < extent(schedule, loop, 0) < 2 * width and in_order(
            block, [driven[n] for n in reduced]
        ):
            loop = fuse(schedule, reduced)  # a short last axis: all of them are one run of memory
        reduce_in_lanes(schedule, name, loop, width, alone)


def reduce_in_lanes(schedule: Schedule, name: str, loop: str, width: int, alone: int = 0) -> None:
    """Reduce in `width` partial results side by side, then combine them. With so many loops `alone`
    around it, the partial results of one result are all that is kept.

    Decision "flight": how many vectors of partial results there are.
    """
    size = extent(schedule, loop, UNKNOWN)
    if size < 2 * width or len(find(schedule, name).writes) > 1:
        return
    most = size // (2 * width)
    values = [f for f in range(1, 9) if f == 1 or (f <= most and size % (f * width) == 0)]
    enough = min((f for f in values if f >= IN_FLIGHT), default=values[-1])
    flight = schedule.decide(f"{name}.flight", enough, values)
    around, *vectors, lane = schedule.split(
        loop, (None, flight, width) if flight > 1 else (None, width)
    )
    try:
        partial = schedule.rfactor(name, lane)
    except ScheduleError:
        return  # the scalar loop is correct, only slower
    stages = [partial, name]
    if vectors:  # these are combined first, then the numbers of the vector that is left
        (buffer,) = written(find(schedule, partial))
        stages.insert(0, schedule.rfactor(partial, vectors[0], len(buffer.shape) - 1))
    for block in stages:
        (buffer,) = written(find(schedule, block))
        if buffer not in schedule.func.buffers:
            schedule.set_scope(buffer.name, "local")
    if alone:
        row = schedule.loops(stages[0])[alone - 1]
        for block in stages[1:]:
            schedule.reverse_compute_at(block, row)
    reorder(schedule, around, *vectors, lane)
    unroll(schedule, *vectors)
    schedule.vectorize(lane)
    if vectors:
        *_, lane, several = schedule.loops(partial)
        schedule.reorder(several, lane)
        schedule.unroll(several)
        schedule.vectorize(lane)
    schedule.unroll(schedule.loops(name)[-1])


def in_order(block: Block, axes: Sequence[Axis]) -> bool:
    """Are these the last indices of every load of another buffer, over its whole extents?"""
    own = written(block)
    found = [n for n in loads(block.body) if n.buffer not in own]
    variables, extents = tuple(a.var for a in axes), tuple(a.extent for a in axes)
    return all(
        n.indices[-len(axes) :] == variables and n.buffer.shape[-len(axes) :] == extents
        for n in found
    )


def contiguous(block: Block, axis: Var) -> bool:
    """Does every load of another buffer that uses `axis` use it as its last index only (and does
    one)?
    """
    own = written(block)
    using = [
        n for n in loads(block.body)
        if n.buffer not in own and any(axis in free_vars(i) for i in n.indices)
    ]  # fmt: skip
    return bool(using) and all(_last(n, axis) for n in using)


def _last(load: Load, axis: Var) -> bool:
    *outer, inner = load.indices
    return inner == axis and not any(axis in free_vars(i) for i in outer)
