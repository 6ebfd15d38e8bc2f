"""Depthwise strategy: one channel block at a time, a strip of pixels in registers.

In: a schedule whose anchor is a depthwise convolution over packed channels. The one idea: there is
no reuse between channels, so the input must come from memory once and leave once; a band of rows
is padded, used and forgotten.
"""

from __future__ import annotations

from tilewright.ir.walk import blocks
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.absorb import role
from tilewright.strategy.convolution import LARGE, split_off_result
from tilewright.strategy.loops import (
    by_axis,
    compute_inside,
    divisors,
    extent,
    innermost,
    parallel,
    reorder,
    split,
    unroll,
    vectorize,
)
from tilewright.strategy.pointwise import stream, vectorize_inner
from tilewright.strategy.registers import fill_registers
from tilewright.strategy.tiles import heights, strip
from tilewright.target.target import Target

PLANES = 4  # for each thread, so that the last one does not keep the others waiting for long
STRIP = 14  # pixels in registers: enough to hide the latency of a multiply-add twice over


def depthwise(schedule: Schedule, target: Target, threads: int) -> None:
    """depthwise_packed: (N, C/b, H, W, b)."""
    name = next(b.name for b in blocks(schedule.func.body) if role(b) == "depthwise_packed")
    anchor = split_off_result(schedule, name)
    n, c, y, x, i = by_axis(schedule, anchor.result)
    pads = ("whole", "channels") if anchor.pad is not None and c else ("whole",)
    planes = extent(schedule, n) * extent(schedule, c)
    shared = planes % threads and planes < threads * PLANES  # too few for every thread
    apart = schedule.decide("pad", pads[0] if shared else pads[-1], pads) == "whole"
    if anchor.pad is not None and apart:
        stream(schedule, anchor.pad, target, threads)
    height, width, block = extent(schedule, y), extent(schedule, x, LARGE), extent(schedule, i)
    lanes, registers = min(target.lanes(32), block), target.vector_registers
    vectors = schedule.decide("vectors", block // lanes, divisors(block // lanes))
    fit = heights(width, vectors, registers)
    most = max(1, min(STRIP, registers - 4) // vectors)
    columns = schedule.decide("columns", strip(width, most), fit)
    rows = schedule.decide("rows", 1, divisors(height, fit[-1] // columns))
    y, y_inner = split(schedule, y, rows) if rows > 1 else (y, "")
    x_outer, x_inner = split(schedule, x, columns)
    one = vectors * lanes == block
    piece, several, lane = (
        ("", *split(schedule, i, lanes)) if one else split(schedule, i, vectors, lanes)
    )
    outer = [n, c, y, x_outer, piece]
    reorder(schedule, *outer, y_inner, x_inner, several, lane)
    own = compute_inside(schedule, anchor.block, innermost(outer))
    _, _, own_y, own_x, own_i, *reduced = own
    fill_registers(schedule, anchor.block, (own_y, own_x), own_i, reduced, lanes, written=2)
    unroll(schedule, y_inner, x_inner, several)
    vectorize(schedule, lane)
    if anchor.pad is not None and not apart:
        own_i = compute_inside(schedule, anchor.pad, c)[-1]
        vectorize_inner(schedule, own_i, block, lanes)
    if threads > 1:
        parallel(schedule, [n, c, y] if apart else [n, c], threads)
