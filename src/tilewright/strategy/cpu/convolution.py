"""Convolution strategies: a tile of the output in registers, the reduction around it.

In: a schedule whose anchor is a convolution over packed channels, plain or transposed, and a
machine. The one idea: the innermost body is `columns × vectors` accumulators that stay in registers
while the reduction runs; each step loads a few vectors of weights and broadcasts one number of the
image for each column.

    parallel chunks of the rows, channel groups
        rows, columns in tiles
            init the tile; for every tap: tile += image * weights          (the anchor)
            bias, activation, sum with a branch → memory                   (the epilogue)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

from tilewright.arith.affine import Forms
from tilewright.arith.estimate import BATCH, IMAGE, estimate
from tilewright.ir.stmt import annotation
from tilewright.ir.walk import blocks, loads
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.absorb import role, written
from tilewright.strategy.cpu.padding import columns_met, skip_padding, skipped_padding
from tilewright.strategy.cpu.pointwise import COLUMNS, ROWS, stream
from tilewright.strategy.cpu.prefetch_panels import prefetch_panels
from tilewright.strategy.cpu.registers import (
    decide_spatial_tile,
    fill_registers,
    multiples,
    weights_on,
)
from tilewright.strategy.loops import (
    blocked,
    by_axis,
    chunked,
    compute_inside,
    extent,
    find,
    innermost,
    parallel,
    reorder,
    split,
    unroll,
    vectorize,
)
from tilewright.strategy.work import operand_type, stored_type
from tilewright.support.record import record
from tilewright.target.target import Target

MUCH_MORE = 3  # times as many numbers


@record
class Anchor:
    """The block that does the work, the one that stores the result, and what pads its input."""

    block: str
    result: str
    pad: str | None


def split_off_result(schedule: Schedule, anchor: str) -> Anchor:
    """The anchor with an epilogue that stores its result, made if there is none.

    The anchor's own buffer is in registers from here on.
    """
    names = schedule.blocks()
    pad = next((b.name for b in blocks(schedule.func.body) if role(b) == "pad"), None)
    last = names[-1]
    (buffer,) = written(find(schedule, anchor))
    if last == anchor:
        last = schedule.cache_write(anchor, buffer.name, "local")
    else:
        schedule.set_scope(buffer.name, "local")
    return Anchor(anchor, last, pad)


def convolution(schedule: Schedule, target: Target, threads: int) -> None:
    """conv_packed: (N, Co/ob, [D,] H, W, ob)."""
    name = next(b.name for b in blocks(schedule.func.body) if role(b) == "conv_packed")
    anchor = split_off_result(schedule, name)
    n, o, *planes, y, x, i = by_axis(schedule, anchor.result)
    line = is_line(schedule, [*planes, y])
    if anchor.pad is not None:
        stream(schedule, anchor.pad, target, threads, chunk_axis=COLUMNS if line else ROWS)
    lanes = lanes_of(schedule, name, target)
    skips = skipped_padding(schedule, anchor.pad, line=line) if anchor.pad else "none"
    met = columns_met(schedule, name) if skips == "all" else ()
    o, y, x, tile = cut_tile(schedule, name, (o, y, x, i), target, lanes, met)
    y_block, y = blocked(schedule, f"{name}.block_h", y)
    chunk, rows = "", [*planes, y]
    if not y_block:
        spread, others = is_spread(schedule, name), extent(schedule, o)
        decision = f"{name}.chunk_m"
        if line:
            most = tiles_that_stay(schedule, name, x, extent(schedule, tile[1]), others, target)
            chunk, x = chunked(schedule, decision, x, threads, others, wanted=spread, most=most)
        else:
            chunk, rows[0] = chunked(schedule, decision, rows[0], threads, others, wanted=spread)
    reorder(schedule, n, chunk, y_block, o, *rows, x, *tile)
    own = compute_inside(schedule, anchor.block, innermost([n, chunk, y_block, o, *rows, x]))
    (_, own_o, *_, own_y, own_x, own_i), reduced = own[: 5 + len(planes)], own[5 + len(planes) :]
    if schedule.decide(f"{name}.order", "channels", ("channels", "taps")) == "taps":
        channel, *taps, inner = reduced
        reduced = [*taps, channel, inner]
    fill_registers(
        schedule, anchor.block, (own_y, own_x, own_o), own_i, reduced, lanes, unroll_inner=1
    )
    prefetch_panels(schedule, target, anchor.block, o)
    if anchor.pad and skips != "none":
        skip_padding(schedule, name, anchor.pad, skips)
    unroll(schedule, *tile[:-1])
    vectorize(schedule, tile[-1])
    if threads > 1:
        alone = [n, y_block, o, *rows, *[x] * line]
        around = [n, chunk, o] if chunk else alone
        parallel(schedule, around, threads, f"{name}.parallel")


def is_line(schedule: Schedule, rows: Sequence[str]) -> bool:
    """Whether an image with these loops over rows is one row, of whose columns threads then get
    chunks."""
    return all(extent(schedule, loop, IMAGE) == 1 for loop in rows)


def is_spread(schedule: Schedule, anchor: str) -> bool:
    """Whether threads get chunks of the pixels, so that each reads all weights, and not of the
    channels, so that each reads the whole image: where weights are not much more."""
    work = find(schedule, anchor)
    sizes = [(estimate(a.extent, BATCH), a.kind) for a in work.axes]
    _, groups, *_, block = (size for size, kind in sizes if kind == "spatial")
    weights = groups * block * prod(size for size, kind in sizes if kind == "reduce")
    touched = sum(prod(estimate(d, BATCH) for d in b.shape) for b in schedule.func.buffers)
    return weights <= MUCH_MORE * (touched - weights)


def tiles_that_stay(
    schedule: Schedule, anchor: str, x: str, columns: int, panels: int, target: Target
) -> int:
    """In chunks of how many tiles of `columns` (loop `x` is over a line of them) what they read,
    all taps and channels, stays in a quarter of L2 while the panels of weights go by.

    0: the line stays; or its taps are near, so that each finds in half of L1 what the one before it
    read; or chunks, each with all weights, move more bytes than the line for each panel.
    """
    work = find(schedule, anchor)
    image, weights = (read.buffer for read in work.reads[-2:])
    *_, pixels, block = (estimate(size, BATCH) for size in image.shape)
    pixel = image.dtype.nbytes(block * prod(estimate(size, BATCH) for size in image.shape[1:-2]))
    every = weights.dtype.nbytes(prod(estimate(size, BATCH) for size in weights.shape))
    reduced = {a.var: estimate(a.extent, BATCH) for a in work.axes if a.kind == "reduce"}
    at = next(n.indices[-2] for n in loads(work.body) if n.buffer == image)
    terms = Forms({}).affine(at).terms
    apart = sum(terms.get(v, 0) * (count - 1) for v, count in reduced.items())
    near = target.cache(1).size // 4
    most = max(1, near // image.dtype.nbytes(prod(reduced.values()) * columns))
    chunks = -(-extent(schedule, x) // most)
    far = apart * pixel > target.cache(0).size // 2 and pixels * pixel > near
    return most if far and pixels * pixel + chunks * every <= panels * pixels * pixel else 0


def transposed(schedule: Schedule, target: Target, threads: int) -> None:
    """conv_transpose_packed: (N, Co/ob, [planes, sz,] rows, sy, columns, sx, ob); each phase is a
    convolution."""
    name = next(b.name for b in blocks(schedule.func.body) if role(b) == "conv_transpose_packed")
    anchor = split_off_result(schedule, name)
    if anchor.pad is not None:
        stream(schedule, anchor.pad, target, threads)
    n, o, *space, i = by_axis(schedule, anchor.result)
    (*planes, y, x), phases = space[::2], space[1::2]
    line = is_line(schedule, [*planes, y])
    lanes = lanes_of(schedule, name, target)
    o, y, x, tile = cut_tile(schedule, name, (o, y, x, i), target, lanes)
    around = [n, o, *phases, *planes, y, x]
    reorder(schedule, *around, *tile)
    own = compute_inside(schedule, anchor.block, innermost(around))
    (_, own_o, *own_space, own_i), reduced = own[: 3 + len(space)], own[3 + len(space) :]
    *_, own_y, own_x = own_space[::2]
    fill_registers(schedule, anchor.block, (own_y, own_x, own_o), own_i, reduced, lanes)
    prefetch_panels(schedule, target, anchor.block, phases[-1])
    unroll(schedule, *tile[:-1])
    vectorize(schedule, tile[-1])
    if threads > 1:
        outer = around if line else around[:-1]
        parallel(schedule, outer, threads, f"{name}.parallel")


def lanes_of(schedule: Schedule, anchor: str, target: Target) -> int:
    """How many neighbouring channels of a result fill a vector: those of a block, or of them those
    that read the same channels of the image."""
    work = find(schedule, anchor)
    *_, block = (estimate(a.extent, BATCH) for a in work.axes if a.kind == "spatial")
    return min(target.lanes(stored_type(work).bits), gcd(block, annotation(work, "same_input", 0)))


def cut_tile(
    schedule: Schedule,
    anchor: str,
    loops: Sequence[str],
    target: Target,
    lanes: int,
    met: tuple[float, ...] = (),
) -> tuple[str, str, str, tuple[str, ...]]:
    """Cut the loops over (channel blocks, rows, columns, channels of a block) into register tiles
    of vectors of so many lanes. `met` is for `decide_spatial_tile`.

    Gives the loops over tiles (at least the columns' always has one), and the loops of a tile,
    lanes last.
    """
    o, y, x, i = loops
    groups, height, block = (extent(schedule, loop) for loop in (o, y, i))
    width = extent(schedule, x, IMAGE)
    wide = block // lanes
    work = find(schedule, anchor)
    depth = prod(estimate(a.extent, BATCH) for a in work.axes if a.kind == "reduce")
    same_input = annotation(work, "same_input", 0) // lanes
    weights = weights_on(target, operand_type(work), lanes, depth, same_input)
    rows, columns, vectors = decide_spatial_tile(
        schedule, anchor, height, width, groups * wide, lanes, target, multiples(wide), weights, met
    )
    o_outer, o_inner = split(schedule, o, vectors // wide)
    y_outer, y_inner = split(schedule, y, rows)
    x_outer, x_inner = split(schedule, x, columns)
    several, lane = split(schedule, i, lanes)
    return o_outer, y_outer, x_outer, (y_inner, x_inner, o_inner, several, lane)
