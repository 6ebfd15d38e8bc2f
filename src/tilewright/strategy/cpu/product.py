"""Product strategies: rows times columns, a tile of the result in registers.

In: a schedule whose anchor is a matrix product (with packed weights, a 1×1 convolution, or of two
computed operands), and a machine. The one idea: `rows × vectors` accumulators stay in registers
over the whole reduction; the panel of weights that they use is walked in storage order and stays in
cache while the rows go by.

    parallel panels (and groups of rows)
        rows in tiles
            init the tile; for k: tile += row[k] * panel[k]                (the anchor)
            bias, activation, sum with a branch → memory                   (the epilogue)
"""

from __future__ import annotations

from math import prod

from tilewright.arith.estimate import BATCH, SEQUENCE, estimate
from tilewright.ir.stmt import annotation
from tilewright.ir.walk import blocks
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.absorb import role
from tilewright.strategy.cpu.convolution import is_spread, lanes_of, split_off_result
from tilewright.strategy.cpu.pointwise import ROWS, stream
from tilewright.strategy.cpu.prefetch_panels import prefetch_panels
from tilewright.strategy.cpu.registers import (
    decide_tile,
    fill_registers,
    multiples,
    row_lanes,
    weights_on,
)
from tilewright.strategy.cpu.tiles import WIDEST, register_tile, tiled_cycles
from tilewright.strategy.loops import (
    ITERATIONS,
    blocked,
    by_axis,
    chunked,
    compute_inside,
    divisors,
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
from tilewright.strategy.work import operand_type, stored_type
from tilewright.support.errors import ScheduleError
from tilewright.target.costs import COMMON, Costs
from tilewright.target.target import Target

CHUNKS = tuple(1 << n for n in range(9))  # tiles that go through all panels together
WORTH_CUTTING = 0.9  # of the time of a whole panel's tiles


def dense(schedule: Schedule, target: Target, threads: int) -> None:
    """dense_packed: (batch,) rows × (N/b, b)."""
    product = next(b for b in blocks(schedule.func.body) if role(b) == "dense_packed")
    *_, block = (estimate(a.extent, BATCH) for a in product.axes if a.kind == "spatial")
    batched = annotation(product, "batch", 0)
    anchor = split_off_result(schedule, product.name)
    *lead, column = by_axis(schedule, anchor.result)
    batch, lead = lead[:batched], lead[batched:]
    lanes = min(target.lanes(stored_type(product).bits), block)
    wide = block // lanes
    panel, vector, lane = split(schedule, column, wide, lanes)
    row = fuse(schedule, lead)
    count = extent(schedule, row, SEQUENCE)
    groups = panel_groups(count, wide, target.vector_registers, target.costs)
    depth = estimate(product.axes[-1].extent)
    of = operand_type(product)
    weights = weights_on(target, of, lanes, depth, apart=of.nbytes(depth))
    rows, vectors = decide_tile(
        schedule, product.name, count, wide, lanes, target, groups, weights=weights,
        among=panel_parts(wide),
    )  # fmt: skip
    v_outer, vector = split(schedule, vector, vectors) if vectors < wide else ("", vector)
    tile, inner = split(schedule, row, rows)
    part, tile = blocked(schedule, f"{product.name}.block_m", tile)
    reorder(schedule, *batch, part, panel, v_outer, tile, inner, vector, lane)
    around = [*batch, part, panel, v_outer, tile]
    *_, m, o, i, k = compute_inside(schedule, anchor.block, innermost(around))
    fill_registers(schedule, anchor.block, (m, o), i, (k,), lanes)
    prefetch_panels(schedule, target, anchor.block, panel)
    unroll(schedule, inner, vector)
    vectorize(schedule, lane)
    if threads > 1:
        parallel(schedule, around, threads, f"{product.name}.parallel")


def panel_parts(wide: int) -> tuple[int, ...]:
    """The vectors that a tile may take of a panel `wide` vectors wide."""
    return tuple(dict.fromkeys((*divisors(wide, WIDEST), wide)))


def panel_groups(rows: int, wide: int, registers: int, costs: Costs = COMMON) -> tuple[int, ...]:
    """The vectors that a tile best takes of a panel `wide` vectors wide: all of them, but for one
    that was packed for a machine of wider vectors or more registers, and is a waste of these."""
    whole, parts = (wide,), tuple(divisors(wide, WIDEST))
    if wide > WIDEST:
        return parts

    def cycles(groups: tuple[int, ...]) -> float:
        tile = register_tile(rows, wide, registers, groups, costs=costs)
        return tiled_cycles(rows, wide, *tile, costs)

    return parts if cycles(parts) < WORTH_CUTTING * cycles(whole) else whole


def pointwise_product(schedule: Schedule, target: Target, threads: int) -> None:
    """pointwise_packed: (N, Co/ob, pixels, ob), a convolution whose pixels form one axis.

    Pixels are taken in parts whose input stays in L2 while all panels of weights go
    by.
    """
    name = next(b.name for b in blocks(schedule.func.body) if role(b) == "pointwise_packed")
    reduced = [estimate(a.extent, BATCH) for a in find(schedule, name).axes if a.kind == "reduce"]
    depth = reduced[0] * reduced[-1]  # channels: neighbouring pixels read the same for their taps
    block = estimate(find(schedule, name).axes[3].extent, BATCH)
    of = operand_type(find(schedule, name))
    anchor = split_off_result(schedule, name)
    if anchor.pad is not None:
        stream(schedule, anchor.pad, target, threads, chunk_axis=ROWS)
    n, o, *pixels, i = by_axis(schedule, anchor.result)
    pixel = fuse(schedule, pixels)
    groups, count = extent(schedule, o), extent(schedule, pixel, SEQUENCE)
    lanes = lanes_of(schedule, name, target)
    wide = block // lanes
    fits = tuple(v for v in multiples(wide) if groups * wide % v == 0)
    stays = max(1, target.cache(1).size // 2 // of.nbytes(depth))  # pixels whose input stays there
    block_m = divisors(count, stays)[-1]
    if block_m * 4 < stays:
        block_m = count  # no even parts: in one
    registers, costs = target.vector_registers, target.costs
    weights = weights_on(target, of, lanes, depth)
    rows, vectors = register_tile(block_m, groups * wide, registers, fits, False, costs, weights)
    few = count // block_m * (groups * wide // vectors) < threads * ITERATIONS
    if threads > 1 and (few or block_m % rows):  # blocks must be enough, and whole tiles each
        block_m = count
    block_m = schedule.decide(f"{name}.block_m", block_m, divisors(count))
    apart = threads > 1 and block_m < count  # then tiles must not reach into the next part
    rows, vectors = decide_tile(
        schedule, name, block_m, groups * wide, lanes, target, fits, exact=apart, weights=weights
    )
    o_outer, o_inner = split(schedule, o, vectors // wide)
    part, pixel = split(schedule, pixel, block_m) if block_m < count else ("", pixel)
    tile, inner = split(schedule, pixel, rows)
    if not part:
        spread = is_spread(schedule, name)
        others = extent(schedule, o_outer)
        part, tile = chunked(schedule, f"{name}.chunk_m", tile, threads, others, wanted=spread)
    several, lane = split(schedule, i, lanes)
    reorder(schedule, n, part, o_outer, tile, inner, o_inner, several, lane)
    inside = innermost([n, part, o_outer, tile])
    _, own_o, own_p, own_i, *reduced = compute_inside(schedule, anchor.block, inside)
    fill_registers(schedule, anchor.block, (own_p, own_o), own_i, reduced, lanes, unroll_inner=1)
    prefetch_panels(schedule, target, anchor.block, o_outer)
    unroll(schedule, inner, o_inner, several)
    vectorize(schedule, lane)
    if threads > 1:
        around = [n, part, o_outer] if part else [n, o_outer, tile]
        parallel(schedule, around, threads, f"{name}.parallel")


def tiles_in_l1(schedule: Schedule, name: str, rows: int, target: Target) -> int:
    """How many tiles of so many rows go through all panels together: as many as fill half of L1,
    where the next panel finds what this one read of them."""
    work = find(schedule, name)
    row = prod(estimate(a.extent) for a in work.axes if a.kind == "reduce")
    fit = target.cache(0).size // 2 // operand_type(work).nbytes(rows * row)
    return schedule.decide(f"{name}.chunk_m", max(n for n in CHUNKS if n <= max(fit, 1)), CHUNKS)


def matmul(schedule: Schedule, target: Target, threads: int) -> None:
    """matmul: (*batch, rows, columns), both operands computed at run time."""
    name = next(b.name for b in blocks(schedule.func.body) if role(b) == "matmul")
    anchor = split_off_result(schedule, name)
    if anchor.pad is not None:
        stream(schedule, anchor.pad, target, threads)
    axes = by_axis(schedule, anchor.result)
    if len(axes) < 2:  # by a vector, inside a loop
        raise ScheduleError(f"cannot tile '{name}'", "its result has less than two axes")
    *batch, i, j = axes
    count, width = (extent(schedule, loop, SEQUENCE) for loop in (i, j))
    # of open rows a few last ones are tiles in which panels are jammed
    first = "columns" if not extent(schedule, i, 0) and extent(schedule, j, 0) else "rows"
    lanes = row_lanes(find(schedule, name), width, target)
    rows, vectors = decide_tile(schedule, name, count, -(-width // lanes), lanes, target)
    tile, inner = split(schedule, i, rows)
    panel, several, lane = split(schedule, j, vectors, lanes)
    outer = [*batch, tile, panel]
    if schedule.decide(f"{name}.order", first, ("rows", "columns")) == "columns":
        chunk, tile = split(schedule, tile, tiles_in_l1(schedule, name, rows, target))
        outer = [*batch, chunk, panel, tile]
    reorder(schedule, *outer, inner, several, lane)
    around = innermost(outer)
    *_, own_i, own_j, k = compute_inside(schedule, anchor.block, around)
    fill_registers(schedule, anchor.block, (own_i,), own_j, (k,), lanes)
    unroll(schedule, inner, several)
    vectorize(schedule, lane)
    if threads > 1:
        parallel(schedule, outer, threads, f"{name}.parallel")
