"""Resampling along axes (image resizing), built from gathers, weights and views.

In: a builder, a tensor and for each resized axis the old coordinates of its new pixels. Out: the
resampled tensor. One axis at a time: a pixel of the result is a weighted sum of a few old ones;
which and with what weights is known when compiling, so it becomes two small constant tables.
Repeating every pixel k times needs no table: it is a broadcast between two views.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tilewright.graph.builder import Builder
from tilewright.graph.graph import Value

FEW = 4  # taps up to which a weighted sum of gathers is used, else a matrix product
MOST_IN_MATRIX = 1 << 24  # numbers of such a matrix; larger ones are gathers and a sum


class Axis(NamedTuple):
    """How one axis is resampled: the old coordinate of each new pixel, and the factor from old to
    new."""

    axis: int
    coordinates: np.ndarray
    scale: float


class Kernel(NamedTuple):
    """How values between pixels are read.

    kind: "nearest", "linear" or "cubic"; rounding (nearest): "floor", "ceil", "round_prefer_floor"
    or "round_prefer_ceil"; a: the cubic's parameter; antialias: widen the kernel when shrinking;
    exclude: leave out taps beyond the edge instead of repeating the edge.
    """

    kind: str
    rounding: str = "round_prefer_floor"
    a: float = -0.75
    antialias: bool = False
    exclude: bool = False


ROUNDING: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
}


def resample(build: Builder, x: Value, axes: list[Axis], kernel: Kernel) -> Value:
    """x with each of `axes` resampled."""
    for axis, coordinates, scale in axes:
        size = x.static_shape[axis] if x.static_shape is not None else _size(x, axis)
        taps, weights = tables(coordinates, scale, size, kernel)
        x = along(build, x, axis, taps, weights)
    return x


def _size(x: Value, axis: int) -> int:
    from_shape = getattr(x.shape[axis], "value", None)
    if from_shape is None:
        raise ValueError("resampling needs known sizes")
    return int(from_shape)


def tables(
    coordinates: np.ndarray, scale: float, size: int, kernel: Kernel
) -> tuple[np.ndarray, np.ndarray | None]:
    """(old indices [new, taps], weights [new, taps]; None: one tap, weight 1)."""
    if kernel.kind == "nearest":
        taps = ROUNDING[kernel.rounding](coordinates).astype(np.int64)[:, None]
        return np.clip(taps, 0, size - 1), None
    reach = {"linear": 1, "cubic": 2}[kernel.kind]
    shrink = min(scale, 1.0) if kernel.antialias else 1.0
    first = int(np.floor(-reach / shrink)) + 1
    steps = np.arange(first, 2 - first)
    base = np.ceil(coordinates) - 1  # the pixel on the left: the ratio lies in (0, 1]
    distance = (steps[None, :] - (coordinates - base)[:, None]) * shrink
    weights = _linear(distance) if kernel.kind == "linear" else _cubic(distance, kernel.a)
    taps = base.astype(np.int64)[:, None] + steps[None, :]
    if kernel.antialias:
        weights = weights / weights.sum(1, keepdims=True)
    if kernel.exclude:
        weights = np.where((taps < 0) | (taps >= size), 0, weights)
        weights = weights / weights.sum(1, keepdims=True)
    return np.clip(taps, 0, size - 1), weights


def _linear(distance: np.ndarray) -> np.ndarray:
    return np.clip(1 - np.abs(distance), 0, 1)


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """Keys 1981."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def along(
    build: Builder, x: Value, axis: int, taps: np.ndarray, weights: np.ndarray | None
) -> Value:
    """One axis resampled by tables."""
    count, width = taps.shape
    old = _size(x, axis)
    if weights is None:
        if count == old and (taps[:, 0] == np.arange(old)).all():
            return x
        if count % old == 0 and (taps[:, 0] == np.arange(count) // (count // old)).all():
            return repeated(build, x, axis, count // old)
        return build.emit("gather", x, build.constant(taps[:, 0]), axis=axis)
    if width > FEW and count * old > MOST_IN_MATRIX:
        return gathered(build, x, axis, taps, weights)
    if width > FEW:
        matrix = np.zeros((count, old))
        np.add.at(matrix, (np.arange(count)[:, None], taps), weights)
        return product(build, x, axis, matrix)
    shape = [1] * x.rank
    shape[axis] = count
    total: Value | None = None
    for k in range(width):
        if not weights[:, k].any():
            continue
        part = build.emit("gather", x, build.constant(taps[:, k].copy()), axis=axis)
        factor = weights[:, k].reshape(shape).astype(x.dtype.numpy)
        part = build.emit("mul", part, build.constant(factor))
        total = part if total is None else build.emit("add", total, part)
    assert total is not None
    return total


def gathered(build: Builder, x: Value, axis: int, taps: np.ndarray, weights: np.ndarray) -> Value:
    """As `product`, without a matrix that is mostly zeros: sums over the taps of each pixel."""
    part = build.emit("gather", x, build.constant(taps), axis=axis)  # […, new, taps, …]
    shape = [1] * part.rank
    shape[axis : axis + 2] = taps.shape
    factor = build.constant(weights.reshape(shape).astype(x.dtype.numpy))
    return build.emit("reduce_sum", build.emit("mul", part, factor), axes=(axis + 1,))


def repeated(build: Builder, x: Value, axis: int, times: int) -> Value:
    """Every element along `axis`, `times` times."""
    if times == 1:
        return x
    before, size, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    y = build.emit("reshape", x, shape=(*before, size, 1, *after))
    y = build.emit("expand", y, shape=(*before, size, times, *after))
    return build.emit("reshape", y, shape=(*before, size * times, *after))


def product(build: Builder, x: Value, axis: int, matrix: np.ndarray) -> Value:
    """The matrix [new, old] applied along `axis`."""
    last = x.rank - 1
    perm = tuple(last if d == axis else axis if d == last else d for d in range(x.rank))
    weights = build.constant(matrix.astype(x.dtype.numpy))
    y = x if axis == last else build.emit("transpose", x, perm=perm)
    y = build.emit("matmul", y, weights, transpose_b=True)
    return y if axis == last else build.emit("transpose", y, perm=perm)
