"""Reduction strategies: rows in parallel, a row in vectors (softmax, norms), windows in vectors
(pools).

In: a schedule with reductions and the elementwise blocks around them, and a machine. The one idea
of `rows`: all blocks have their leading axes in common; whatever a row needs is computed inside
the loop over rows and stays in cache. The one idea of `lanes` and `columns`: where memory runs
along an axis that is not reduced, its vectors accumulate side by side; `columns` keeps everything
about a tile of them together. The one idea of `reduce_in_lanes`: a long sum is many short ones
side by side; of `vectorize_across_rows`: rows too short for that have a lane each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tilewright.arith.estimate import IMAGE, SEQUENCE, estimate
from tilewright.ir.expr import Select, Var, as_int, const
from tilewright.ir.stmt import Axis, Block
from tilewright.ir.walk import blocks, free_vars, loads, stores, visit
from tilewright.lower.bound_loops import BOUNDED
from tilewright.lower.jam_runs import JAMMED
from tilewright.schedule.locate import find_loop
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.absorb import OFTEN, instances, is_costly, is_reduction, written
from tilewright.strategy.cpu.contiguous import STEP, contiguous, in_order
from tilewright.strategy.cpu.contraction import contraction, tiling
from tilewright.strategy.cpu.convolution import split_off_result
from tilewright.strategy.cpu.pointwise import (
    runs,
    stream,
    vector_lanes,
    vectorize_inner,
)
from tilewright.strategy.cpu.registers import INNER_UNROLLED, fill_registers
from tilewright.strategy.cpu.tiles import heights, row_tile
from tilewright.strategy.loops import (
    RUN,
    by_axis,
    chunked,
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
from tilewright.strategy.sketch.tiles import tiles
from tilewright.strategy.work import is_worth_a_region
from tilewright.support.errors import ScheduleError
from tilewright.target.target import Target

ONE = const(1)
UNROLLED = 112  # multiply-adds unrolled for rows whose windows overlap
SHORTEST = 4  # lanes: numbers that are combined one by one
OPEN_ROWS = 2  # of an image of open height whose windows vectors walk along, side by side; of
# windows over several channels as many as the ACCUMULATORS that their long sums need
IN_ROW = 2  # vectors of partial results, where rows of open length are many and may be short
ACCUMULATORS = 4  # vectors of partial results: as many as an addition takes cycles


def reduction(schedule: Schedule, target: Target, threads: int) -> None:
    """Register tiles for a single sum of products, lanes for one over outer axes, else rows, else
    every block by itself."""
    found = blocks(schedule.func.body)
    reductions = [b for b in found if is_reduction(b)]
    ordered = any(a.kind == "ordered" for b in found for a in b.axes)
    if len(reductions) == 1 and not ordered and tiling(reductions[0], target):
        of = contraction(schedule, reductions[0].name, target, threads)
        for name in schedule.blocks():
            if name not in of:
                stream(schedule, name, target, threads)
        return
    if len(reductions) == 1 and not ordered and is_long_in_pairs(reductions[0]):
        tiles(schedule, target, threads)
        return
    operands = operands_of(found, reductions[0]) if len(reductions) == 1 and not ordered else []
    others = [b for b in found if b not in operands]
    if len(reductions) == 1 and not ordered and in_lanes(others, reductions[0]):
        lanes(schedule, reductions[0].name, target, threads)
        for operand in operands:
            stream(schedule, operand.name, target, threads)
        return
    if operands and has_windows(reductions[0]):  # rows read what is padded where others have it
        for operand in operands:
            stream(schedule, operand.name, target, threads)
        found = others
    names = [b.name for b in found]
    common = 0 if ordered else common_axes(found)
    along, kept = (0, []) if ordered else common_columns(found, common, target)
    if kept:
        columns(schedule, along, kept, target, threads, names)
        return
    if common:
        rows(schedule, common, target, threads, names)
        return
    for name in names:
        tiled = tiling(find(schedule, name), target, few=1) if ordered else None
        if tiled and tiled.across is None:  # a step has little for threads, and nothing to copy
            contraction(schedule, name, target, 1, few=1)
        else:
            by_itself(schedule, name, target, 1 if ordered else threads)


def is_long_in_pairs(reduced: Block) -> bool:
    """Does it combine several values of an element (the greatest, and where that is) along more
    steps than LLVM unrolls by itself, while vectors of neighbours lie side by side? They are worth
    registers."""
    spatial = [a.var for a in reduced.axes if a.kind == "spatial"]
    steps = prod(estimate(a.extent) for a in reduced.axes if a.kind == "reduce")
    is_open = any(as_int(a.extent) is None for a in reduced.axes)
    is_long = is_open or steps > INNER_UNROLLED
    return (
        len(reduced.writes) > 1 and is_long and bool(spatial) and contiguous(reduced, spatial[-1])
    )


def operands_of(found: Sequence[Block], reduced: Block) -> list[Block]:
    """The elementwise blocks before a reduction of which it needs each value often: they are made
    as a whole before it, like a padded image."""
    before = found[: found.index(reduced)]
    return [b for b in before if instances(reduced) >= OFTEN * instances(b)]


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
        and contiguous(reduced, spatial[-1].var, STEP)
    )


def lanes(schedule: Schedule, name: str, target: Target, threads: int) -> None:
    """One reduction (and perhaps an epilogue of the same shape): accumulators in vector
    registers.
    """
    block = find(schedule, name)
    width = vector_lanes(block, target)
    along = [a.var for a in block.axes if a.kind == "spatial"][-1]
    anchor = split_off_result(schedule, name)
    *outer, inner = by_axis(schedule, anchor.result)
    width = min(width, extent(schedule, inner, width))
    windows = has_windows(block)
    in_rows = walks_window(block) or not extent(schedule, inner, 0)  # open: no channels of a block
    v_outer, lane = split(schedule, inner, width)
    last = innermost(outer) if windows else v_outer
    if windows and extent(schedule, last, 1 if last == outer[0] else IMAGE) == 1:
        last = v_outer  # of one row; a batch of open size may be one, too
    asks = any(isinstance(n, Select) for n in visit(block.body))  # whether a pixel is padding
    one_row = last == v_outer and all(extent(schedule, n) == 1 for n in outer)
    one_row = one_row and not asks  # its tails cost little, and it may be long
    most = target.vector_registers // 4
    side_by_side = most_accumulators(block, target, one_row) if windows else most
    count = extent(schedule, last, IMAGE if in_rows or not (asks and windows) else 1)
    fit = heights(count, 1, target.vector_registers)
    rows = row_tile(count, side_by_side)
    if not extent(schedule, last, 0) and walks_window(block) and not one_row:
        # short tails; neighbours' windows overlap, if what they read is not staged
        staged = target.has_mask_registers and not contiguous(block, along)
        several = ACCUMULATORS if sums_channels(block) else OPEN_ROWS
        rows = 1 if staged else min(several, fit[-1])
    in_runs = asks and windows and threads > 1 and not extent(schedule, v_outer, 0)
    if in_runs and last == v_outer:
        rows = 1  # the rounds of a run wait for nothing, and have fewer kinds of ends
    if not windows and not extent(schedule, last, 0) and is_costly(block):
        rows = 1  # a function takes longer than a sum waits, and each copy has calls of its own
    beside = schedule.decide(f"{name}.tile_m", rows, fit)
    column = ""
    if beside > 1:
        tile, column = split(schedule, last, beside)
        if last == v_outer:
            v_outer = tile
        else:
            outer[outer.index(last)] = tile
        reorder(schedule, *outer, v_outer, column, lane)
    count = sum(a.kind == "spatial" for a in block.axes)
    chunk = ""
    if windows and len(outer) == 4:
        n, c, y, x = outer
        chunk, y = chunked(schedule, f"{name}.chunk_m", y, threads, extent(schedule, c))
        if chunk:
            outer = [n, chunk, c, y, x]
            reorder(schedule, *outer, v_outer, column, lane)
    own = compute_inside(schedule, anchor.block, innermost([*outer, v_outer]))
    taps = own[count:]
    ends = asks and windows and is_apart(block)
    fill_registers(
        schedule, anchor.block, own[: count - 1], own[count - 1], taps, width, len(taps) - ends
    )
    if ends and is_serial(schedule, anchor.block, taps[0]):
        schedule.annotate(taps[0], BOUNDED, True)
    unroll(schedule, column)
    vectorize(schedule, lane)
    if threads > 1:
        around = outer[:3] if chunk else [*outer, v_outer]
        in_runs, worth = in_runs and not chunk, is_worth_a_region([block], target)
        run = parallel(schedule, around, threads, f"{name}.parallel", worth=worth, in_runs=in_runs)
        if run and last == v_outer and not column:
            counts = heights(RUN, 1, target.vector_registers, exact=True)
            pick = max(n for n in counts if n <= side_by_side)
            schedule.annotate(run, JAMMED, schedule.decide(f"{name}.jam", pick, counts))


def is_apart(block: Block) -> bool:
    """Does the first loop over taps move no window along the last two axes of the result, as rows
    of taps do not where vectors are channels of a pixel? Then a tile knows which taps it has."""
    tap = next(a.var for a in block.axes if a.kind == "reduce")
    tile = {a.var for a in [a for a in block.axes if a.kind == "spatial"][-2:]}
    indices = (free_vars(i) for n in loads(block.body) for i in n.indices)
    return not any(tap in used and used & tile for used in indices)


def is_serial(schedule: Schedule, block: str, loop: str) -> bool:
    """Is it still a loop around the block, neither cut nor unrolled?"""
    return loop in schedule.loops(block) and find_loop(schedule.func, loop).kind == "serial"


def most_accumulators(block: Block, target: Target, one_row: bool) -> int:
    """How many vectors of a window operator's results, of neighbouring rows or pixels or of
    `one_row` that asks nothing, are accumulated side by side: as many as leave registers for what
    they read. Where vectors run along rows, the taps of a plane are unrolled for rows whose
    windows overlap, if they are few."""
    most = target.vector_registers // 4
    if not walks_window(block):
        return most
    spatial, reduced = ([a for a in block.axes if a.kind == k] for k in ("spatial", "reduce"))
    taps = prod(estimate(a.extent) for a in reduced[-2:])  # of a plane
    if as_int(spatial[-1].extent) is None and not one_row:  # each row has an address of its own
        most = target.vector_registers // 6
    return min(most, UNROLLED // taps) if 2 * taps <= UNROLLED else most


def has_windows(block: Block) -> bool:
    """Is an index of what it reads made of a spatial and a reduced axis?"""
    kinds = [{a.var for a in block.axes if (a.kind == "spatial") is s} for s in (True, False)]
    indices = (free_vars(i) for n in loads(block.body) for i in n.indices)
    return any(used & kinds[0] and used & kinds[1] for used in indices)


def sums_channels(block: Block) -> bool:
    """Does a sum of windows go over more than their taps, as a convolution's does?"""
    reduced = [a for a in block.axes if a.kind == "reduce"]
    spatial = {a.var for a in block.axes if a.kind == "spatial"}
    indices = [free_vars(i) for n in loads(block.body) for i in n.indices]
    taps = {v for used in indices if used & spatial for v in used}
    return any(a.var not in taps and as_int(a.extent) != 1 for a in reduced)


def walks_window(block: Block) -> bool:
    """Does the last axis of the result, along which vectors run, move a window?"""
    last = [a.var for a in block.axes if a.kind == "spatial"][-1]
    reduced = {a.var for a in block.axes if a.kind == "reduce"}
    indices = (free_vars(i) for n in loads(block.body) for i in n.indices)
    return any(last in used and used & reduced for used in indices)


def common_axes(found: Sequence[Block]) -> int:
    """How many leading axes all blocks have in common, each reading of the others' results its own
    row, with some block one element a row; 0: no rows.
    """
    if len(found) == 1:
        return 0
    spatial = [[a.extent for a in b.axes if a.kind == "spatial"] for b in found]
    shortest = min(spatial, key=len)
    while shortest and shortest[-1:] == [ONE]:
        shortest = shortest[:-1]  # kept dimensions of size 1 are no rows
    count = 0
    for d, size in enumerate(shortest):
        if any(s[d] != size for s in spatial) or not keeps_to(found, d):
            break
        count += 1
    return count


def keeps_to(found: Sequence[Block], d: int) -> bool:
    """Does each block at index i of its spatial axis `d` read only what others make at index i of
    theirs? Axes may be of one extent by chance: the channels that a convolution reads and makes."""

    def axis(block: Block) -> Var:
        return [a for a in block.axes if a.kind == "spatial"][d].var

    made = {
        (s.buffer, p)
        for b in found
        for s in stores(b.body)
        for p, index in enumerate(s.indices)
        if index == axis(b) and s.buffer.shape[p] != ONE
    }
    return all(
        index == axis(b)
        for b in found
        for n in loads(b.body)
        if n.buffer not in written(b)
        for p, index in enumerate(n.indices)
        if (n.buffer, p) in made
    )


def rows(
    schedule: Schedule, common: int, target: Target, threads: int, names: Sequence[str]
) -> None:
    """Rows outside and in parallel, everything about a row inside, in blocks `names`."""
    outer: Sequence[str] = schedule.loops(names[-1])[:common]
    if around := vectorize_across_rows(schedule, names, outer, target):
        outer = around
    else:
        for name in reversed(names[:-1]):
            schedule.compute_at(name, outer[-1])
        for name in names:
            inside = [n for n in schedule.loops(name) if n not in outer]
            vectorize_block(schedule, name, inside, target)
    if threads > 1:
        worth = is_worth_a_region([find(schedule, n) for n in names], target)
        parallel(schedule, outer, threads, f"{names[-1]}.parallel", worth=worth)


def vectorize_across_rows(
    schedule: Schedule, names: Sequence[str], outer: Sequence[str], target: Target
) -> list[str]:
    """Vectorise across rows, a lane for each, where they are too short to fill vectors
    themselves: `outer` are the loops over rows of the last block. Gives the loops around a vector
    of rows; [] if rows are better taken one by one, and nothing was done."""
    found = [find(schedule, name) for name in names]
    lanes = min(vector_lanes(b, target) for b in found)
    longest = max(prod(estimate(a.extent) for a in b.axes[len(outer) :]) for b in found)
    around = list(outer)
    while len(around) > 1 and extent(schedule, around[-1], 0) == 1:
        around.pop()
    most = lanes if target.has_masks else 2 * lanes - 1  # else what is left over goes one by one
    whole = longest == lanes and sum(map(is_reduction, found)) > 1  # a row is loaded once, and full
    fills = lanes > 1 and bool(around) and extent(schedule, around[-1], 0) >= lanes
    if not fills or longest > most or whole:
        return []
    around[-1], _ = schedule.split(around[-1], (None, lanes))
    v_outer = around[-1]
    for name in reversed(names[:-1]):
        schedule.compute_at(name, v_outer)
    for name in names:
        inside = [n for n in schedule.loops(name) if n not in (*outer, v_outer)]
        lane, *own = [n for n in inside if extent(schedule, n, 0) != 1]
        for buffer in written(find(schedule, name)):
            if buffer not in schedule.func.buffers:
                schedule.set_scope(buffer.name, "local")
        reorder(schedule, *own, lane)
        unroll(schedule, *own)
        vectorize(schedule, lane)
    return around


def common_columns(found: Sequence[Block], common: int, target: Target) -> tuple[int, list[int]]:
    """The axis along which all reductions read, if it fills vectors and is none that some block
    reduces, and with it all axes that no block reduces; else (0, [])."""
    spatial = [[a for a in b.axes if a.kind == "spatial"] for b in found]
    rank = len(spatial[-1])
    if len(found) == 1 or any(len(s) != rank for s in spatial):
        return 0, []
    same = [
        d for d in range(rank) if len({s[d].extent for s in spatial}) == 1 and keeps_to(found, d)
    ]
    trailing = [d for d in same if {*range(d, rank)} <= {*same}]
    kept = [*range(common), *(d for d in trailing if d >= common)]
    width = min(vector_lanes(b, target) for b in found)
    for d in {rank - 1, common - 1} & {*kept}:
        size = as_int(spatial[-1][d].extent)
        pairs = [(b, s[d].var) for b, s in zip(found, spatial, strict=True) if is_reduction(b)]
        if (size is None or size >= width) and all(contiguous(b, axis) for b, axis in pairs):
            return d, kept
    return 0, []


def columns(
    schedule: Schedule,
    along: int,
    kept: Sequence[int],
    target: Target,
    threads: int,
    names: Sequence[str],
) -> None:
    """Tiles of axis `along` and all other axes that are `kept` outside and in parallel, everything
    about a tile inside, in blocks `names`: it stays in cache, and its accumulators in
    registers."""
    width = min(vector_lanes(find(schedule, n), target) for n in names)
    inside = list(schedule.loops(names[-1]))
    outer = [inside[d] for d in kept if d != along]
    several = prod(extent(schedule, n, 1) for n in outer) > 1
    row = several and not extent(schedule, inside[along], 0)
    in_row = IN_ROW if target.has_masks else 1  # else a row's last tile is a whole one, again
    beside = in_row if row else ACCUMULATORS
    widths = [n * width for n in (1, IN_ROW, ACCUMULATORS, 8)]
    tile = schedule.decide(f"{names[-1]}.tile_n", beside * width, widths)
    if extent(schedule, inside[along], SEQUENCE) > tile:
        v_outer, inside[along] = schedule.split(inside[along], (None, tile))
        outer.append(v_outer)
    reorder(schedule, *outer, *[n for n in inside if n not in outer])
    for name in reversed(names[:-1]):
        if outer:
            schedule.compute_at(name, outer[-1])
    for name in names:
        block = find(schedule, name)
        own = [n for n in schedule.loops(name) if n not in outer and extent(schedule, n, 0) != 1]
        if not is_reduction(block):
            vectorize_inner(schedule, own[-1], extent(schedule, own[-1], 0) or None, width)
            continue
        bound = bound_axes(block)
        reduced = [n for n in own if bound[n].kind == "reduce"]
        *across, last = [n for n in own if n not in reduced]
        for buffer in written(block):
            if buffer not in schedule.func.buffers:
                schedule.set_scope(buffer.name, "local")
        vectors, lane = schedule.split(last, (None, width))
        reorder(schedule, *across, *reduced, vectors, lane)
        if extent(schedule, vectors, 0):
            schedule.unroll(vectors)
        schedule.vectorize(lane)
    if threads > 1:
        worth = is_worth_a_region([find(schedule, n) for n in names], target)
        parallel(schedule, outer, threads, f"{names[-1]}.parallel", worth=worth)


def by_itself(schedule: Schedule, name: str, target: Target, threads: int) -> None:
    """A block that has no rows in common with the others."""
    block = find(schedule, name)
    if not is_reduction(block):
        stream(schedule, name, target, threads)
        return
    loops = schedule.loops(name)
    spatial = [n for n, a in zip(loops, block.axes, strict=False) if a.kind == "spatial"]
    ordered = sum(a.kind == "ordered" for a in block.axes)
    if not vectorize_across_rows(schedule, [name], spatial, target):
        alone = ordered + len(spatial) if spatial else 0
        vectorize_block(schedule, name, list(loops), target, alone=alone)
    if threads > 1:
        around, bound = result_loops(schedule, name), bound_axes(find(schedule, name))
        first, sizes = around[:1], [extent(schedule, n, 0) for n in around]
        # windows of few rows are in chunks along a row, too; one result is not cut
        if not has_windows(block) or prod(sizes) == 1 or sizes[0] >= threads:
            around = [n for n in first if n in bound]
        worth, in_runs = is_worth_a_region([block], target), len(around) > 1
        parallel(schedule, around, threads, f"{name}.parallel", worth=worth, in_runs=in_runs)


def result_loops(schedule: Schedule, name: str) -> list[str]:
    """The outer loops around a block that walk its results, one after another: they may run in
    parallel."""
    bound, found = bound_axes(find(schedule, name)), list[str]()
    for loop in schedule.loops(name):
        walks = bound[loop].kind == "spatial" if loop in bound else extent(schedule, loop, 0) == 1
        if not walks or find_loop(schedule.func, loop).kind != "serial":
            break
        found.append(loop)
    return found


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
        loop = fuse(schedule, last_run(block, inside))
        count = extent(schedule, loop, 0) or None
        vectorize_inner(schedule, loop, count, width, f"{name}.interleave")
        return
    bound = bound_axes(block)
    reduced = [n for n in inside if n in bound and bound[n].kind == "reduce"]
    spatial = [n for n in inside if n in bound and bound[n].kind == "spatial"]
    walked = bool(spatial) and contiguous(block, bound[spatial[-1]].var)
    lane, side_by_side = "", width
    if reduced and not walked:
        lane, side_by_side = lane_of(schedule, block, reduced, bound, width)
    if lane:
        reduce_in_lanes(schedule, name, lane, side_by_side, alone)
    elif spatial:
        lane = spatial[-1]
        outer: list[str] = []
        if not 0 < extent(schedule, lane, 0) <= width:
            v_outer, lane = schedule.split(lane, (None, width))
            outer = [v_outer]
        schedule.reorder(*outer, *reduced, lane)
        schedule.vectorize(lane)


def last_run(block: Block, inside: Sequence[str]) -> list[str]:
    """The last of the loops `inside` that every access walks as one."""
    of = {n: d for d, a in enumerate(block.axes) for n in inside if a.value == Var(n)}
    run = runs(block, len(block.axes))[-1]
    found = list(inside[-1:])
    for outer, inner in zip(inside[-2::-1], inside[:0:-1], strict=True):
        at = of.get(outer, -1)
        if at not in run or of.get(inner) != at + 1:
            break
        found.insert(0, outer)
    return found


def lane_of(
    schedule: Schedule, block: Block, reduced: Sequence[str], bound: Mapping[str, Axis], width: int
) -> tuple[str, int]:
    """The loop whose rounds are best reduced side by side: one along which memory is read, all of
    them if they are one run of memory, else one whose elements are gathered. "" if all are short.
    And how many at a time: `width`, or fewer where memory is read along short loops.
    """
    axes = [bound[n] for n in reduced]
    sizes = [extent(schedule, n, 0) for n in reduced]
    one_run = len(reduced) > 1 and in_order(block, axes)
    together = width
    while together >= min(SHORTEST, width):
        walked = [n for n in reversed(reduced) if contiguous(block, bound[n].var, run=together)]
        uneven = sizes[-1] < 2 * together or sizes[-1] % (ACCUMULATORS * together)  # or open
        if one_run and uneven and (0 in sizes or prod(sizes) >= 2 * together):
            return fuse(schedule, reduced), together
        gathered = reversed(reduced) if together == width else ()
        for name in (*walked, *gathered):
            if extent(schedule, name, SEQUENCE) >= 2 * together:
                return name, together
        together //= 2
    return "", width


def reduce_in_lanes(schedule: Schedule, name: str, loop: str, width: int, alone: int = 0) -> None:
    """Reduce in `width` partial results side by side, then combine them. With so many loops `alone`
    around it, the partial results of one result are all that is kept.

    Decision "interleave": how many vectors of partial results there are.
    """
    size = extent(schedule, loop, 0)
    values = list(range(1, min(8, (size or SEQUENCE) // (2 * width)) + 1))
    even = [f for f in values if f >= ACCUMULATORS and size and size % (f * width) == 0]
    beside = IN_ROW if is_open_row(find(schedule, name)) else ACCUMULATORS
    accumulators = min(even[0] if even else beside, values[-1])
    accumulators = schedule.decide(f"{name}.interleave", accumulators, values)
    around, inner = schedule.split(loop, (None, accumulators * width))
    try:
        partial = schedule.rfactor(name, inner)
    except ScheduleError:
        return  # the scalar loop is correct, only slower
    stages, combined = [partial], []
    for shape in narrowing(accumulators, width):
        *_, whole = schedule.loops(name)
        combined.append(schedule.split(whole, shape))
        stages.append(schedule.rfactor(name, combined[-1][1]))
    stages.append(name)
    for block in stages:
        for buffer in written(find(schedule, block)):
            if buffer not in schedule.func.buffers:
                schedule.set_scope(buffer.name, "local")
    if alone:
        row = schedule.loops(partial)[alone - 1]
        for block in stages[1:]:
            schedule.reverse_compute_at(block, row)
    rounds = schedule.split(inner, (accumulators, width))
    bound = bound_axes(find(schedule, partial))
    reduced = [n for n in schedule.loops(partial) if n in bound and bound[n].kind == "reduce"]
    reorder(schedule, *[n for n in reduced if n != around], around, *rounds)
    for several, lane in (rounds, *combined):
        reorder(schedule, several, lane)
        unroll(schedule, several)
        vectorize(schedule, lane)
    schedule.unroll(schedule.loops(name)[-1])


def is_open_row(block: Block) -> bool:
    """Does a block make several results, each of one axis of open length? Planes are longer."""
    several = any(a.kind == "spatial" and as_int(a.extent) != 1 for a in block.axes)
    reduced = [as_int(a.extent) for a in block.axes if a.kind == "reduce"]
    return several and [n for n in reduced if n != 1] == [None]


def narrowing(accumulators: int, width: int) -> list[tuple[int, int]]:
    """How partial results become few: vectors are combined to one, parts of that to one part, down
    to what is left to combine number by number. Pairs: so many, of so many lanes."""
    shapes = [(accumulators, width)] if accumulators > 1 else []
    while width > SHORTEST:
        parts = min(ACCUMULATORS, width // SHORTEST)
        width //= parts
        shapes.append((parts, width))
    return shapes


def bound_axes(block: Block) -> dict[str, Axis]:
    """For the name of each loop the axis that is bound to it."""
    return {v.name: a for a in block.axes for v in free_vars(a.value)}
