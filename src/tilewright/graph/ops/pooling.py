"""Pooling over windows of the space axes of [batch, channels, *space]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.graph import sizes
from tilewright.graph.operator import (
    POOL,
    REDUCTION,
    WINDOW,
    Type,
    need,
    operator,
)
from tilewright.graph.ops.elementwise import keeping_dtype, sum_type
from tilewright.graph.ops.linear import Pads, axis_name, convolved, named, padded, window, windows
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Expr, as_int

Sides = tuple[tuple[sizes.SizeLike, sizes.SizeLike], ...]  # (first, end) along each space axis


def pooled(
    size: Expr, kernel: int, stride: int, pad: tuple[int, int], dilation: int, ceil_mode: bool
) -> Expr:
    """The output size along one axis; with ceil_mode a last, partial window that starts inside
    counts."""
    if not ceil_mode:
        return convolved(size, kernel, stride, pad, dilation)
    reach = dilation * (kernel - 1) + 1
    # the last window is the last that starts before size + pad[0] and is not whole past the end
    beyond = min(pad[1] - reach + stride, 0)
    count = sizes.size((size + (pad[0] + beyond - 1)) // stride + 1)
    known = as_int(count)
    need(known is None or known > 0, f"the kernel reaches {reach} but the padded input has less")
    return count


def _pool_type(
    x: Any,
    *,
    kernel: tuple[int, ...],
    strides: tuple[int, ...] = (),
    pads: Pads = (),
    dilations: tuple[int, ...] = (),
    ceil_mode: bool = False,
    count_pads: bool = False,
    inside: Sides = (),
) -> Type:
    strides, pads, dilations = window(x, kernel, strides, pads, dilations)
    need(len(inside) in (0, len(kernel)), f"has {len(inside)} sides for {len(kernel)} space axes")
    need(not (inside and count_pads), "either counts pads or does not")
    space = [
        pooled(*a, ceil_mode)
        for a in zip(x.shape[2:], kernel, strides, pads, dilations, strict=True)
    ]
    return x.dtype, (*x.shape[:2], *space)


def whole_pads(
    space: Sequence[Any], kernel: Any, strides: Any, pads: Any, dilations: Any, ceil_mode: bool
) -> Pads:
    """The pads with what ceil_mode adds at the ends."""
    if not ceil_mode:
        return tuple(pads)
    made = []
    for s, k, st, pad, d in zip(space, kernel, strides, pads, dilations, strict=True):
        reach, n = d * (k - 1) + 1, as_int(s)
        if n is None:  # at most: what no window reads does no harm
            made.append((pad[0], pad[1] + st - 1))
            continue
        count = as_int(pooled(sizes.size(n), k, st, pad, d, True))
        made.append((pad[0], max(pad[1], (count - 1) * st + reach - n - pad[0])))
    return tuple(made)


def window_axes(kernel: Sequence[int]) -> tuple[list[Expr], list[Expr]]:
    """The index of a tap along each axis, and those of them that are reduced: an axis along which
    windows have one tap needs no reduction (but one there must be)."""
    moves = [k > 1 or max(kernel) == 1 for k in kernel]
    indices = [
        te.reduce_axis(k, f"r{axis_name(d, len(kernel))}") if moves[d] else te.const(0)
        for d, k in enumerate(kernel)
    ]
    return indices, [k for k, m in zip(indices, moves, strict=True) if m]


def _max_pool(x, *, kernel, strides, pads, dilations, ceil_mode):  # type: ignore[no-untyped-def]
    strides, pads, dilations = window(x, kernel, strides, pads, dilations)
    pads = whole_pads(x.shape[2:], kernel, strides, pads, dilations, ceil_mode)
    x = np.pad(x, ((0, 0), (0, 0), *pads), constant_values=dtype(x.dtype).lowest)
    rank = len(kernel)
    return windows(x, kernel, strides, dilations).max(axis=tuple(range(2 + rank, 2 + 2 * rank)))


def _max_pool_type(
    x: Any,
    *,
    kernel: tuple[int, ...],
    strides: tuple[int, ...] = (),
    pads: Pads = (),
    dilations: tuple[int, ...] = (),
    ceil_mode: bool = False,
) -> Type:
    return _pool_type(
        x, kernel=kernel, strides=strides, pads=pads, dilations=dilations, ceil_mode=ceil_mode
    )


@operator(fusion=REDUCTION, infer=_max_pool_type, reference=_max_pool, traits=WINDOW | POOL)
def max_pool(
    x: Any,
    *,
    kernel: tuple[int, ...],
    strides: tuple[int, ...] = (),
    pads: Pads = (),
    dilations: tuple[int, ...] = (),
    ceil_mode: bool = False,
) -> Any:
    """The greatest value in each window; pads never win. Source: ONNX MaxPool-12."""
    strides, pads, dilations = window(x, kernel, strides, pads, dilations)
    shape = _pool_type(
        x, kernel=kernel, strides=strides, pads=pads, dilations=dilations, ceil_mode=ceil_mode
    )[1]
    whole = whole_pads(x.shape[2:], kernel, strides, pads, dilations, ceil_mode)
    x = padded(x, whole, te.const(x.dtype.lowest, x.dtype), "max_pool_pad")
    ks, taps = window_axes(kernel)

    def at(*i: Expr) -> Expr:
        pixel = [y * s + k * d for y, s, k, d in zip(i[2:], strides, ks, dilations, strict=True)]
        return te.max(x[(*i[:2], *pixel)], taps)

    return te.compute(shape, named(at, len(kernel)), name="max_pool")


def _counts(out: int, kernel: int, stride: int, dilation: int, low: int, high: int) -> np.ndarray:
    """How many pixels from `low` to `high` each window along one axis counts, the first of which
    begins at 0."""
    taps = np.arange(out)[:, None] * stride + np.arange(kernel) * dilation
    return ((taps >= low) & (taps < high)).sum(1)


def _avg_pool(x, *, kernel, strides, pads, dilations, ceil_mode, count_pads, inside):  # type: ignore[no-untyped-def]
    strides, pads, dilations = window(x, kernel, strides, pads, dilations)
    whole = whole_pads(x.shape[2:], kernel, strides, pads, dilations, ceil_mode)
    rank = len(kernel)
    views = windows(np.pad(x, ((0, 0), (0, 0), *whole)), kernel, strides, dilations)
    total = views.sum(axis=tuple(range(2 + rank, 2 + 2 * rank)))
    counted = _counted(x.shape[2:], pads, count_pads, inside)
    for d, ((low, high), (before, _)) in enumerate(zip(counted, pads, strict=True)):
        ends = low + before, high + before
        count = _counts(total.shape[2 + d], kernel[d], strides[d], dilations[d], *ends)
        counts = np.maximum(count, 1).reshape((-1,) + (1,) * (rank - 1 - d))
        total = total / counts.astype(x.dtype)
    return total


def _counted(space: Sequence[Any], pads: Pads, count_pads: bool, inside: Sides) -> list[Any]:
    """From which pixel to which of x a mean counts, along each axis."""
    if inside:
        return list(inside)
    if not count_pads:
        return [(0, size) for size in space]
    return [(-before, size + after) for size, (before, after) in zip(space, pads, strict=True)]


@operator(
    fusion=REDUCTION, infer=_pool_type, reference=keeping_dtype(_avg_pool), traits=WINDOW | POOL
)
def avg_pool(
    x: Any,
    *,
    kernel: tuple[int, ...],
    strides: tuple[int, ...] = (),
    pads: Pads = (),
    dilations: tuple[int, ...] = (),
    ceil_mode: bool = False,
    count_pads: bool = False,
    inside: Sides = (),
) -> Any:
    """The mean of each window; `count_pads`: padded zeros count as values. Where x comes with zeros
    around that do not, `inside` says from which pixel to which it counts. Source: ONNX
    AveragePool-19."""
    strides, pads, dilations = window(x, kernel, strides, pads, dilations)
    shape = _pool_type(
        x, kernel=kernel, strides=strides, pads=pads, dilations=dilations, ceil_mode=ceil_mode
    )[1]
    whole = whole_pads(x.shape[2:], kernel, strides, pads, dilations, ceil_mode)
    rank = len(kernel)
    counted = _counted(x.shape[2:], pads, count_pads, inside)
    zeros = padded(x, whole, te.const(0, x.dtype), "avg_pool_pad")
    ks, taps = window_axes(kernel)

    def total(*i: Expr) -> Expr:
        pixel = [y * s + k * d for y, s, k, d in zip(i[2:], strides, ks, dilations, strict=True)]
        return te.sum(zeros[(*i[:2], *pixel)].astype(acc), taps)

    acc = sum_type(x.dtype)
    sums = te.compute(shape, named(total, rank), name="avg_pool_sum")

    def mean(*i: Expr) -> Expr:
        count: Expr = te.const(1)
        for d, (at, (low, high)) in enumerate(zip(i[2:], counted, strict=True)):
            cut = (0, whole[d][1] - pads[d][1]) if count_pads else inside or whole[d]
            start = at * strides[d] - pads[d][0]
            count = count * (
                _window_count(start, kernel[d], dilations[d], sizes.size(low), sizes.size(high))
                if any(cut) and kernel[d] > 1
                else kernel[d]
            )
        return (sums[i] / count.astype(acc)).astype(x.dtype)

    return te.compute(shape, named(mean, rank), name="avg_pool")


def _window_count(start: Expr, kernel: int, dilation: int, low: Expr, high: Expr) -> Expr:
    """How many pixels from `low` to `high` the window from `start` on counts along one axis."""
    skipped = te.maximum(low - start, 0)
    skipped = (skipped + (dilation - 1)) // dilation  # the first tap at or after `low`
    end = te.minimum((high - start + (dilation - 1)) // dilation, kernel)  # the taps before `high`
    return te.maximum(end - skipped, 1)  # the sum of a window in the padding alone is 0
