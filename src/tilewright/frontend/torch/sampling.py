"""Translators of ATen operators that resample images: axis by axis, from positions known early."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.frontend.torch import open_sizes
from tilewright.frontend.torch.registry import NodeContext, translates
from tilewright.graph import grid_sample, sizes
from tilewright.graph.graph import Value


def source(size: int, count: int, scale: float | None, align_corners: bool) -> np.ndarray:
    """Where each of `count` output positions lies on an axis of `size`, in floating point."""
    positions = np.arange(count, dtype=np.float64)
    if align_corners:
        return positions * ((size - 1) / (count - 1) if count > 1 else 0.0)
    step = 1 / scale if scale else size / count
    return (positions + 0.5) * step - 0.5


def linear(at: np.ndarray, size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The two neighbours of each position: (indices, weights)."""
    at = np.clip(at, 0, None)
    low = np.minimum(np.floor(at).astype(np.int64), size - 1)
    part = at - low
    return [(low, 1 - part), (np.minimum(low + 1, size - 1), part)]


def cubic(at: np.ndarray, size: int, a: float = -0.75) -> list[tuple[np.ndarray, np.ndarray]]:
    """The four neighbours of each position, weighted by Keys' kernel."""
    low = np.floor(at).astype(np.int64)
    t = at - low

    def near(x: np.ndarray) -> np.ndarray:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: np.ndarray) -> np.ndarray:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    weights = [far(t + 1), near(t), near(1 - t), far(2 - t)]
    return [(np.clip(low + k - 1, 0, size - 1), w) for k, w in enumerate(weights)]


def resampled(
    n: NodeContext, x: Value, axis: int, taps: list[tuple[np.ndarray, np.ndarray]]
) -> Value:
    """The weighted sum of gathers along one axis."""
    total = None
    for indices, weights in taps:
        if not np.any(weights):
            continue
        part = n.emit("gather", x, n.constant(indices), axis=axis)
        if np.any(weights != 1):
            column = weights.reshape((-1,) + (1,) * (x.rank - 1 - axis))
            part = n.emit("mul", part, n.constant(column, x.dtype))
        total = part if total is None else n.emit("add", total, part)
    assert total is not None
    return total


NEAREST = [f"upsample_nearest{d}d.{o}" for d in (1, 2, 3) for o in ("default", "vec")]
EXACT = [f"_upsample_nearest_exact{d}d.{o}" for d in (1, 2, 3) for o in ("default", "vec")]
SMOOTH = [f"upsample_{kind}.{o}" for kind in ("linear1d", "bilinear2d", "trilinear3d", "bicubic2d")
          for o in ("default", "vec")]  # fmt: skip


@translates(*NEAREST, *EXACT)
def nearest(n: NodeContext, x: Value, output_size: Any, *scales: Any) -> Any:
    half = 0.5 if "exact" in n.op else 0.0
    for axis, size, count, scale in axes(n, x, scales):
        if not isinstance(size, int) or not isinstance(count, int):
            x = open_sizes.nearest(n, x, axis, count, scale, half)
            continue
        step = np.float32(1 / scale if scale else size / count)
        positions = (np.arange(count) + half).astype(np.float32)
        at = np.floor(positions * step).astype(np.int64)  # rounded, as PyTorch has it
        if size != count or scale:
            x = n.emit("gather", x, n.constant(np.minimum(at, size - 1)), axis=axis)
    return x


@translates(*SMOOTH)
def smooth(n: NodeContext, x: Value, output_size: Any, align_corners: bool, *scales: Any) -> Any:
    for axis, size, count, scale in axes(n, x, scales):
        if not isinstance(size, int) or not isinstance(count, int):
            kind = "cubic" if "bicubic" in n.op else "linear"
            x = open_sizes.smooth(n, x, axis, count, scale, align_corners, kind)
            continue
        at = source(size, count, scale, align_corners)
        if not np.array_equal(at, np.arange(size)):
            x = resampled(n, x, axis, (cubic if "bicubic" in n.op else linear)(at, size))
    return x


def axes(n: NodeContext, x: Value, scales: Any) -> Any:
    """(axis, input size, output size, scale if one was given) of each space axis; sizes are
    numbers where they are known."""
    space, goal = ([whole(s) for s in shape[2:]] for shape in (x.shape, n.shape))
    given = (
        list(scales[0] or []) if scales and isinstance(scales[0], list | tuple) else list(scales)
    )
    given += [None] * (len(space) - len(given))
    return list(zip(range(2, x.rank), space, goal, given, strict=False))


def whole(size: Any) -> Any:
    known = sizes.static([size])
    return known[0] if known else size


@translates("pixel_shuffle.default", "pixel_unshuffle.default")
def pixel_shuffle(n: NodeContext, x: Value, factor: int) -> Any:
    """Channels become positions (or the other way): [c r r, h, w] ↔ [c, h r, w r]."""
    *lead, c, h, w = x.shape
    k = len(lead)
    if n.op == "pixel_shuffle":
        x = n.reshape(x, (*lead, c // (factor * factor), factor, factor, h, w))
        order = (0, 3, 1, 4, 2)
    else:
        x = n.reshape(x, (*lead, c, h // factor, factor, w // factor, factor))
        order = (0, 2, 4, 1, 3)
    return n.reshape(n.transpose(x, [*range(k), *(k + d for d in order)]), n.shape)


@translates("grid_sampler_2d.default", "grid_sampler_3d.default", "grid_sampler.default")
def grid_sampler(
    n: NodeContext,
    x: Value,
    grid: Value,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> Any:
    """Images read at positions that are data; halves compute the positions in halves, as PyTorch
    does."""
    mode = ("linear", "nearest", "cubic")[interpolation_mode]
    padding = grid_sample.PADDINGS[padding_mode]
    return grid_sample.grid_sample(
        n.build, x, grid, mode, padding, align_corners, of=grid.dtype.name, round_first=False
    )


# smooth resampling to fewer pixels ---------------------------------------------------------------


def resampling_weights(size: int, count: int, scale: float, reach: int) -> np.ndarray:
    """[count, size]: how much each pixel counts for each position, where a position takes in as
    many pixels as the scale says. `reach`: pixels to each side at scale 1; a triangle, or Keys'
    kernel with -1/2."""
    wide = max(scale, 1.0)
    made = np.zeros((count, size))
    for i in range(count):
        centre = scale * (i + 0.5)
        first = max(int(centre - reach * wide + 0.5), 0)
        at = np.arange(first, min(int(centre + reach * wide + 0.5), size))
        t = np.abs((at - centre + 0.5) / wide)
        if reach == 1:
            weights = np.clip(1 - t, 0, None)
        else:
            near = (1.5 * t - 2.5) * t * t + 1
            weights = np.where(t < 1, near, np.where(t < 2, ((-0.5 * t + 2.5) * t - 4) * t + 2, 0))
        made[i, at] = weights / weights.sum()
    return made


@translates("_upsample_bilinear2d_aa.default", "_upsample_bicubic2d_aa.default",
            "_upsample_bilinear2d_aa.vec", "_upsample_bicubic2d_aa.vec")  # fmt: skip
def antialiased(
    n: NodeContext, x: Value, output_size: Any, align_corners: bool, *scales: Any
) -> Any:
    for axis, size, count, scale in axes(n, x, scales):
        known, reach = sizes.static([size, count]), 2 if "bicubic" in n.op else 1
        if known is None:
            table = open_sizes.resampling_weights(n, size, count, scale, align_corners, reach)
            table = n.cast(table, x.dtype)
        else:
            size, count = known
            step = 1 / scale if scale else size / count
            if align_corners:
                step = (size - 1) / (count - 1) if count > 1 else 0.0
            table = n.constant(resampling_weights(size, count, step, reach), x.dtype)
        if axis == x.rank - 1:
            x = n.emit("matmul", x, table, transpose_b=True)
        else:
            x = n.emit("matmul", table, x)
    return x


@translates("fractional_max_pool2d.default", "fractional_max_pool3d.default")
def fractional_max_pool(
    n: NodeContext, x: Value, kernel: list[int], output_size: list[int], samples: Value
) -> Any:
    """Windows of one size whose distances vary at random, as the samples of each image and channel
    say. Source: Graham 2014."""
    d = len(kernel)
    space = n.static(x.shape[-d:], "an image")
    lead = sizes.product(x.shape[: x.rank - d])
    flat = n.reshape(x, (lead, math.prod(space)))
    order = range(d - 1, -1, -1) if d == 2 else range(d)  # samples stand x, y but t, y, x
    position: Value | None = None
    for axis, sample in enumerate(order):
        size, count, width = space[axis], output_size[axis], kernel[axis]
        u = n.reshape(samples, (lead, d))
        starts = window_starts(n, n.cut(u, 1, sample, 1), size, count, width)
        at = n.emit("add", n.reshape(starts, (lead, count, 1)), n.constant(np.arange(width), "i64"))
        shape = [lead, *(count if k == axis else 1 for k in range(d)),
                 *(width if k == axis else 1 for k in range(d))]  # fmt: skip
        at = n.emit("mul", n.reshape(at, shape), n.constant(math.prod(space[axis + 1 :]), "i64"))
        position = at if position is None else n.emit("add", position, at)
    assert position is not None
    many, window = math.prod(output_size), math.prod(kernel)
    position = n.reshape(position, (lead, many * window))
    found = n.reshape(n.emit("gather_elements", flat, position, axis=1), (lead, many, window))
    y = n.emit("reduce_max", found, axes=(2,))
    best = n.emit("argmax", found, axis=2, keepdims=True)
    where = n.emit("gather_elements", n.reshape(position, (lead, many, window)), best, axis=2)
    return n.reshape(y, n.shape), n.reshape(where, n.shape)


def window_starts(n: NodeContext, u: Value, size: int, count: int, width: int) -> Value:
    """Where `count` windows begin, of which the last ends with the axis: [lead, count]."""
    last = n.constant([[size - width]], "i64")
    if count == 1:
        return n.expand(last, (u.shape[0], 1))
    step = n.constant((size - width) / (count - 1), u.dtype)
    k = n.constant(np.arange(count - 1), u.dtype)
    after = n.emit("floor", n.emit("mul", n.emit("add", k, u), step))
    before = n.emit("floor", n.emit("mul", u, step))
    starts = n.cast(n.emit("sub", after, before), "i64")
    return n.emit("concat", starts, n.expand(last, (u.shape[0], 1)), axis=1)
