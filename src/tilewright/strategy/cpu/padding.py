"""Padding: the taps of a window that meet nothing but padding are left out.

In: a schedule whose anchor is a convolution with a padded copy of its image. Out: the same with
branches around the taps, where much of the image is padding, as it is where taps are far apart. The
one idea: a tile of the result knows from where it stands which taps meet the image at all.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.arith.affine import Forms
from tilewright.ir.expr import Load, Var, as_int
from tilewright.ir.walk import free_vars, loads
from tilewright.lower.bound_loops import BOUNDED
from tilewright.schedule.locate import find_loop
from tilewright.schedule.primitives.skip_zeros import padding
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.absorb import written
from tilewright.strategy.chains import SPARSE
from tilewright.strategy.loops import find

MUCH = 1 / 4  # of an axis: a branch for each tap costs something too


def skipped_padding(schedule: Schedule, pad: str, *, line: bool = False) -> str:
    """Which taps in the padding that block `pad` makes are left out, decision "skip_zeros":
    "none", those above, below, before and behind the image ("rows"), "all".

    The pick are all where a known axis has much padding, as an open `line` may have: one of one
    pixel meets one tap. Else rows and planes, whose loops over taps just have bounds.
    """
    (buffer,) = written(find(schedule, pad))
    own = "none"
    for axis, bounds in (padding(schedule.func, buffer.name) or {}).items():
        size = as_int(buffer.shape[axis])
        ends = zip(bounds, (0, size), strict=True)
        low, high = (n if end is None else as_int(end) for end, n in ends)
        if axis < len(buffer.shape) - 2 and own == "none":
            own = "rows"
        if line and size is None:
            own = "all"
        elif size is not None and low is not None and high is not None:
            own = "all" if high - low < (1 - MUCH) * size else own
    return schedule.decide(f"{pad}.skip_zeros", own, ("none", "rows", "all"))


def skip_padding(schedule: Schedule, anchor: str, pad: str, which: str) -> None:
    """Put the branches around the loops over taps that are left out, as `skipped_padding` has it.
    Loops that stay loops have bounds instead, and tiles near the ends of the image no code of their
    own; of rows and planes others add zeros. Of a padded open line only what the taps meet is
    written: far taps have much more padding than that."""
    if which == "all":
        schedule.annotate(anchor, SPARSE, True)
    block, image = find(schedule, anchor), image_of(schedule, anchor)
    across = free_vars(image.indices[-2]) if which == "rows" else frozenset[Var]()
    reduced = [a.value for a in block.axes if a.kind == "reduce" and a.var not in across]
    bound = {v.name for value in reduced for v in free_vars(value)}
    for loop in schedule.loops(anchor):
        stays = find_loop(schedule.func, loop).kind == "serial"
        if loop in bound and (stays or which != "rows"):
            schedule.skip_zeros(image.buffer.name, loop)
            if stays:
                schedule.annotate(loop, BOUNDED, True)
    if which == "all" and as_int(image.buffer.shape[-2]) is None:
        for loop in schedule.loops(pad):
            before = schedule.func
            if find_loop(before, loop).kind == "serial":
                schedule.skip_unread(image.buffer.name, loop)
            if schedule.func is not before:
                schedule.annotate(loop, BOUNDED, True)


def image_of(schedule: Schedule, anchor: str) -> Load:
    """What the anchor reads of its padded image."""
    block = find(schedule, anchor)
    return next(
        n
        for n in loads(block.body)
        if n.buffer not in written(block) and padding(schedule.func, n.buffer.name)
    )


def columns_met(schedule: Schedule, anchor: str) -> tuple[float, ...]:
    """For tiles of one, two, … columns the part of all (tile, tap) pairs along rows in which a tap
    meets the image; () where sizes are open."""
    load = image_of(schedule, anchor)
    axis = len(load.indices) - 2
    form = Forms({}).affine(load.indices[axis])
    sizes = {a.var: (as_int(a.extent), a.kind) for a in find(schedule, anchor).axes}
    low, high = (padding(schedule.func, load.buffer.name) or {}).get(axis, (None, None))
    first = 0 if low is None else as_int(low)
    end = as_int(load.buffer.shape[axis]) if high is None else as_int(high)
    used = [(v, c) for v, c in form.terms.items() if isinstance(v, Var) and v in sizes]
    steps = {sizes[v][1]: (c, sizes[v][0]) for v, c in used}
    if first is None or end is None or len(steps) != len(form.terms) or len(steps) != 2:
        return ()
    (step, width), (apart, taps) = steps["spatial"], steps["reduce"]
    if width is None or taps is None:
        return ()

    def part(columns: int) -> float:
        tiles = range(0, width, columns)
        pixels = [t * step + r * apart for t in tiles for r in range(taps)]
        met = sum(p < end and p + (columns - 1) * step >= first for p in pixels)
        return met / len(pixels)

    return tuple(part(columns) for columns in range(1, min(width, 32) + 1))


def part_met(size: int, pads: Sequence[int], taps: int, dilation: int) -> float:
    """The part of all (result, tap) pairs along an axis of `size` pixels in which the tap meets the
    image, where taps in the padding are left out; 1 where they are not."""
    before, after = pads
    if before + after <= MUCH * (before + size + after):
        return 1.0
    results = before + size + after - (taps - 1) * dilation
    firsts = (before - r * dilation for r in range(taps))
    met = sum(max(0, min(results, first + size) - max(0, first)) for first in firsts)
    return met / max(1, results * taps)
