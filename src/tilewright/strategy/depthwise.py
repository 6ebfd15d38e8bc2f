"""Depthwise strategy: one channel block at a time, a strip of pixels in registers.

In: a schedule whose anchor is a depthwise convolution over packed channels. The one idea: there is
no reuse between channels, so the input must come from memory once and leave once; a band of rows
is padded, used and forgotten.
"""

from __future__ import annotations

from tilewright.ir.walk import blocks
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.absorb import role
from tilewright.strategy.convolution import LARGE, fill_registers, split_off_result
from tilewright.strategy.loops import (
    by_axis,
    compute_inside,
    extent,
    innermost,
    parallel,
    reorder,
    split,
    unroll,
    vectorize,
)
from tilewright.strategy.pointwise import stream
from tilewright.target.target import Target

STRIP = 14  # pixels in registers: enough to hide the latency of a multiply-add twice over


def depthwise(schedule: Schedule, target: Target, threads: int) -> None:
    """depthwise_packed: (N, C/b, H, W, b)."""
    name = next(b.name for b in blocks(schedule.func.body) if role(b) == "depthwise_packed")
    anchor = split_off_result(schedule, name)
    if anchor.pad is not None:
        stream(schedule, anchor.pad, target, threads)
    n, c, y, x, i = by_axis(schedule, anchor.result)
    width, block = extent(schedule, x, LARGE), extent(schedule, i)
    lanes = min(target.lanes(32), block)
    most = max(1, min(STRIP, target.vector_registers - 4) * lanes // block)
    columns = schedule.decide("columns", strip(width, most))
    x_outer, x_inner = split(schedule, x, columns)
    several, lane = split(schedule, i, lanes)
    reorder(schedule, n, c, y, x_outer, x_inner, several, lane)
    around = innermost([n, c, y, x_outer])
    _, _, own_y, own_x, own_i, *reduced = compute_inside(schedule, anchor.block, around)
    fill_registers(schedule, anchor.block, (own_y, own_x), own_i, reduced, lanes)
    unroll(schedule, x_inner, several)
    vectorize(schedule, lane)
    if threads > 1:
        parallel(schedule, [n, c, y], threads)


def strip(width: int, most: int) -> int:
    """The strip that covers `width` with the least waste; of equals the longest."""
    return min(range(1, min(width, most) + 1), key=lambda s: (-(-width // s) * (s + 4), -s))
