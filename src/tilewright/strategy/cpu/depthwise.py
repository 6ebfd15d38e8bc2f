"""Depthwise strategy: one channel block at a time, a tile of pixels in registers.

In: a schedule whose anchor is a depthwise convolution over packed channels. The one idea: there is
no reuse between channels, so the input must come from memory once and leave once. Taps read the
image where it lies: loops over rows of taps begin and end with the image, and lowering cuts those
over tiles where taps begin to fall outside, so that tiles inside ask nothing. Where that would be
too much code, a padded copy is made.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.arith.estimate import IMAGE, estimate
from tilewright.ir.expr import Load, Select
from tilewright.ir.walk import blocks, free_vars, stores
from tilewright.lower.bound_loops import BOUNDED
from tilewright.lower.partition_loops import BUDGET
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.absorb import role
from tilewright.strategy.cpu.convolution import split_off_result
from tilewright.strategy.cpu.padding import image_of
from tilewright.strategy.cpu.pointwise import stream, vectorize_inner
from tilewright.strategy.cpu.registers import decide_columns, fill_registers
from tilewright.strategy.cpu.tiles import heights, row_tile
from tilewright.strategy.loops import (
    by_axis,
    compute_inside,
    divisors,
    extent,
    find,
    innermost,
    parallel,
    reorder,
    split,
    unroll,
    vectorize,
)
from tilewright.strategy.work import stored_type
from tilewright.target.target import Target

PLANES = 4  # for each thread, so that the last one does not keep the others waiting for long
TILE = 14  # pixels in registers: enough to hide the latency of a multiply-add twice over


def depthwise(schedule: Schedule, target: Target, threads: int) -> None:
    """depthwise_packed: (N, C/b, [D,] H, W, b)."""
    name = next(b.name for b in blocks(schedule.func.body) if role(b) == "depthwise_packed")
    anchor = split_off_result(schedule, name)
    n, c, *deep, y, x, i = by_axis(schedule, anchor.result)
    planes = extent(schedule, n) * extent(schedule, c)
    split_planes = planes % threads > 0 and planes < threads * PLANES  # too few for every thread
    height, width, block = extent(schedule, y), extent(schedule, x, IMAGE), extent(schedule, i)
    lanes = min(target.lanes(stored_type(find(schedule, name)).bits), block)
    wide, registers = block // lanes, target.vector_registers
    vectors = decide_columns(schedule, name, wide, divisors(wide), lanes)
    fit = heights(width, vectors, registers)
    most = max(1, min(TILE, registers // 2) // vectors)  # beside a row's weights and its pixels
    columns = schedule.decide(f"{name}.tile_w", row_tile(width, min(most, fit[-1])), fit)
    rows = schedule.decide(f"{name}.tile_h", 1, divisors(height, fit[-1] // columns))
    taps = estimate(find(schedule, name).axes[-1].extent, IMAGE)  # of a row, unrolled
    known = extent(schedule, y, 0) > 0 and extent(schedule, x, 0) > 0
    copies = 3 if width > columns else 1  # of a tile: for the ends and the middle of a row
    flat = rows == 1  # taps of a row are rows of the image all together, or none
    if not known:
        copies *= 2  # for narrow tiles
    elif not flat:
        copies *= 3 ** (1 + len(deep))  # for the ends and the middle of the other axes
    cheap = copies * vectors * columns * rows * (taps + 2) <= BUDGET  # 2: it begins, it is stored
    pad = decide_pad(schedule, anchor.pad, cheap, split_planes, c)
    if anchor.pad is not None and pad == "root":
        stream(schedule, anchor.pad, target, threads)
    if anchor.pad is not None and pad == "inline" and known and not flat:
        schedule.compute_inline(anchor.pad)
    y, y_inner = split(schedule, y, rows) if rows > 1 else (y, "")
    x_outer, x_inner = split(schedule, x, columns)
    one = vectors * lanes == block
    v_outer, several, lane = (
        ("", *split(schedule, i, lanes)) if one else split(schedule, i, vectors, lanes)
    )
    outer = [n, c, *deep, y, x_outer, v_outer]
    reorder(schedule, *outer, y_inner, x_inner, several, lane)
    own = compute_inside(schedule, anchor.block, innermost(outer))
    count = 5 + len(deep)
    (*_, own_y, own_x, own_i), reduced = own[:count], own[count:]
    fill_registers(schedule, anchor.block, (own_y, own_x), own_i, reduced, lanes, unroll_inner=1)
    if anchor.pad is not None and pad == "inline" and (flat or not known):
        skip_rows(schedule, name, reduced)
        schedule.compute_inline(anchor.pad)
    unroll(schedule, y_inner, x_inner, several)
    vectorize(schedule, lane)
    if anchor.pad is not None and pad == "channels":
        own_i = compute_inside(schedule, anchor.pad, c)[-1]
        vectorize_inner(schedule, own_i, block, lanes)
    if threads > 1:
        alone = pad == "channels" or (pad == "inline" and not split_planes)
        around = [n, c] if alone else [n, c, *deep, y]
        parallel(schedule, around, threads, f"{name}.parallel")


def depthwise_transposed(schedule: Schedule, target: Target, threads: int) -> None:
    """depthwise_transpose_packed: (N, C/b, [planes, sz,] rows, sy, columns, sx, b); each phase is a
    depthwise convolution over the image with zeros around, a copy that is small beside the result.
    """
    name = next(
        b.name for b in blocks(schedule.func.body) if role(b) == "depthwise_transpose_packed"
    )
    anchor = split_off_result(schedule, name)
    n, c, *space, i = by_axis(schedule, anchor.result)
    (*deep, y, x), phases = space[::2], space[1::2]
    planes = extent(schedule, n) * extent(schedule, c)
    split_planes = planes % threads > 0 and planes < threads * PLANES
    width, block = extent(schedule, x, IMAGE), extent(schedule, i)
    lanes = min(target.lanes(stored_type(find(schedule, name)).bits), block)
    wide, registers = block // lanes, target.vector_registers
    vectors = decide_columns(schedule, name, wide, divisors(wide), lanes)
    fit = heights(width, vectors, registers)
    most = max(1, min(TILE, registers - 4) // vectors)
    columns = schedule.decide(f"{name}.tile_w", row_tile(width, min(most, fit[-1])), fit)
    pad = decide_pad(schedule, anchor.pad, False, split_planes, c, may_inline=False)
    if anchor.pad is not None and pad == "root":
        stream(schedule, anchor.pad, target, threads)
    x_outer, x_inner = split(schedule, x, columns)
    v_outer, several, lane = (
        ("", *split(schedule, i, lanes))
        if vectors * lanes == block
        else split(schedule, i, vectors, lanes)
    )
    outer = [n, c, *deep, y, *phases, x_outer, v_outer]
    reorder(schedule, *outer, x_inner, several, lane)
    own = compute_inside(schedule, anchor.block, innermost(outer))
    (_, _, *own_space, own_i), reduced = own[: 3 + len(space)], own[3 + len(space) :]
    fill_registers(
        schedule,
        anchor.block,
        (own_space[-4], own_space[-2]),
        own_i,
        reduced,
        lanes,
        unroll_inner=1,
    )
    unroll(schedule, x_inner, several)
    vectorize(schedule, lane)
    if anchor.pad is not None and pad == "channels":
        own_i = compute_inside(schedule, anchor.pad, c)[-1]
        vectorize_inner(schedule, own_i, block, lanes)
    if threads > 1:
        around = [n, c] if pad == "channels" else [n, c, *deep, y]
        parallel(schedule, around, threads, f"{name}.parallel")


def decide_pad(
    schedule: Schedule,
    pad: str | None,
    cheap: bool,
    split_planes: bool,
    channel: str,
    *,
    may_inline: bool = True,
) -> str:
    """Where the padded copy is made, decision "compute_at": "inline" reads the image itself, the
    pick where that is `cheap` in code; "root" copies all of it first, "channels" a channel block
    when its turn comes, which leaves threads idle where planes are few (`split_planes`)."""
    if pad is None:
        return "root"
    values = [s.value for s in stores(find(schedule, pad).body)]
    moves = all(isinstance(v, Select) and isinstance(v.then, Load) for v in values)  # cheap to ask
    moves = moves and may_inline
    ways = ["inline"] * moves + ["root"] + ["channels"] * bool(channel)
    pick = "root" if split_planes else ways[-1]
    return schedule.decide(f"{pad}.compute_at", "inline" if moves and cheap else pick, ways)


def skip_rows(schedule: Schedule, anchor: str, taps: Sequence[str]) -> None:
    """Have loops over rows of taps that are rows of the image: the height is not cut where rows
    begin and end to be. A loop that was cut into steps asks once for all taps of a row."""
    image = image_of(schedule, anchor).buffer.name
    values = [a.value for a in find(schedule, anchor).axes if a.kind == "reduce"]
    for loop, value in zip(taps[:-1], values, strict=False):
        if loop:
            bound = {v.name for v in free_vars(value)}
            parts = [part for part in schedule.loops(anchor) if part in bound]
            schedule.skip_zeros(image, parts[-1])
            if parts == [loop]:  # it was not cut into steps
                schedule.annotate(loop, BOUNDED, True)
