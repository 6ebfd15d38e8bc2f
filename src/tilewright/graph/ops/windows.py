"""Windows over the space axes of [batch, channels, *space] beside convolution and pooling: where
the greatest value of each lies, and columns of windows added back into an image."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright import te
from tilewright.graph import sizes
from tilewright.graph.operator import (
    REDUCTION,
    WINDOW,
    Type,
    need,
    operator,
)
from tilewright.graph.ops.linear import Pads, axis_name, named, padded, window, windows
from tilewright.graph.ops.movement import Sizes, ravel
from tilewright.graph.ops.pooling import max_pool, whole_pads, window_axes
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Expr, eq, select
from tilewright.te.reduce import extreme_pair


def _index_type(x: Any, **attrs: Any) -> Type:
    return dtype("i64"), max_pool.infer(x, **attrs)[1]


def _index(x, *, kernel, strides, pads, dilations, ceil_mode):  # type: ignore[no-untyped-def]
    strides, pads, dilations = window(x, kernel, strides, pads, dilations)
    whole = whole_pads(x.shape[2:], kernel, strides, pads, dilations, ceil_mode)
    around = ((0, 0), (0, 0), *whole)
    lowest = dtype(x.dtype).lowest
    views = windows(np.pad(x, around, constant_values=lowest), kernel, strides, dilations)
    own = np.broadcast_to(np.arange(int(np.prod(x.shape[2:]))).reshape(x.shape[2:]), x.shape)
    index = windows(np.pad(own, around, constant_values=-1), kernel, strides, dilations)
    rank = len(kernel)
    flat = (*views.shape[: 2 + rank], -1)
    values = np.where(index < 0, lowest, views).reshape(flat)
    inside = (index >= 0).reshape(flat)
    best = np.argmax((values == values.max(-1, keepdims=True)) & inside, axis=-1)
    lacks = np.isnan(values) & inside if values.dtype.kind == "f" else np.zeros_like(inside)
    latest = values.shape[-1] - 1 - np.argmax(lacks[..., ::-1], axis=-1)
    best = np.where(lacks.any(-1), latest, best)
    return np.take_along_axis(index.reshape(flat), best[..., None], -1)[..., 0]


@operator(fusion=REDUCTION, infer=_index_type, reference=_index, traits=WINDOW)
def max_pool_index(
    x: Any,
    *,
    kernel: tuple[int, ...],
    strides: tuple[int, ...] = (),
    pads: Pads = (),
    dilations: tuple[int, ...] = (),
    ceil_mode: bool = False,
) -> Any:
    """Where the value lies that max_pool takes of each window: its index (i64) in the flattened
    space; of equals the first, of several NaN the last (as in PyTorch)."""
    strides, pads, dilations = window(x, kernel, strides, pads, dilations)
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "ceil_mode": ceil_mode}
    shape = _index_type(x, kernel=kernel, **attrs)[1]
    whole = whole_pads(x.shape[2:], kernel, strides, pads, dilations, ceil_mode)
    wide = padded(x, whole, te.const(x.dtype.lowest, x.dtype), "max_pool_index_pad")
    ks, taps = window_axes(kernel)

    greatest = extreme_pair("max_pool_index", greatest=True, latest_nan=True)

    def at(*i: Expr) -> Any:
        pixel = [y * s + k * d for y, s, k, d in zip(i[2:], strides, ks, dilations, strict=True)]
        own = [p - before for p, (before, _) in zip(pixel, whole, strict=True)]
        flat: Expr = ravel(own, x.shape[2:])
        inside: Expr = te.const(True, "bool")
        for p, size, pad in zip(own, x.shape[2:], whole, strict=True):
            if any(pad):
                inside = inside & (p >= 0) & (p < size)
        beyond = te.const(dtype("i64").highest, "i64")
        return greatest((wide[(*i[:2], *pixel)], select(inside, flat, beyond)), taps)

    return te.compute(shape, named(at, len(kernel)), name="max_pool_index")[1]


def window_count(size: Any, kernel: Any, stride: int, pad: tuple[int, int], dilation: int) -> Expr:
    """The number of windows along one axis; the kernel may be symbolic."""
    reach = (sizes.size(kernel) - 1) * dilation + 1
    return sizes.size((sizes.size(size) + (pad[0] + pad[1]) - reach) // stride + 1)


def _col2im_type(
    x: Any,
    *,
    image: Sizes,
    block: Sizes,
    strides: tuple[int, ...] = (),
    pads: Pads = (),
    dilations: tuple[int, ...] = (),
) -> Type:
    need(len(x.shape) == 3, "needs columns [batch, channels * block, windows]")
    rank = len(image)
    given = (("block", block), ("strides", strides), ("pads", pads), ("dilations", dilations))
    for what, values in given:
        need(not values or len(values) == rank, f"has {len(values)} {what} for {rank} space axes")
    need(rank > 0 and len(block) == rank, "needs a block for each space axis")
    channels = sizes.size(x.shape[1] // sizes.product(block))
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    need(min((*strides, *dilations)) > 0, "strides and dilations must be positive")
    whole = zip(image, block, strides, pads or ((0, 0),) * rank, dilations, strict=True)
    known = sizes.static((x.shape[2], *(window_count(*axis) for axis in whole)))
    if known is not None:
        count = math.prod(known[1:])
        need(count == known[0], f"{known[0]} columns are not one for each of {count} windows")
    return x.dtype, (x.shape[0], channels, *sizes.shape(image))


def _col2im(x, *, image, block, strides, pads, dilations):  # type: ignore[no-untyped-def]
    rank = len(image)
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    pads = pads or ((0, 0),) * rank
    full = [s + a + b for s, (a, b) in zip(image, pads, strict=True)]
    counts = [
        (f - d * (k - 1) - 1) // st + 1
        for f, d, k, st in zip(full, dilations, block, strides, strict=True)
    ]
    columns = x.reshape(x.shape[0], -1, *block, *counts)
    y = np.zeros((*columns.shape[:2], *full), x.dtype)
    for k in np.ndindex(*block):
        where = tuple(
            slice(i * d, i * d + (c - 1) * s + 1, s)
            for i, d, c, s in zip(k, dilations, counts, strides, strict=True)
        )
        y[(slice(None), slice(None), *where)] += columns[(slice(None), slice(None), *k)]
    cut = tuple(slice(a, a + s) for (a, _), s in zip(pads, image, strict=True))
    return y[(slice(None), slice(None), *cut)]


@operator(fusion=REDUCTION, infer=_col2im_type, reference=_col2im, traits=WINDOW)
def col2im(
    x: Any,
    *,
    image: Sizes,
    block: Sizes,
    strides: tuple[int, ...] = (),
    pads: Pads = (),
    dilations: tuple[int, ...] = (),
) -> Any:
    """Columns [batch, channels · block, windows] added into an image where their windows lie."""
    _, shape = _col2im_type(
        x, image=image, block=block, strides=strides, pads=pads, dilations=dilations
    )
    rank = len(image)
    block = sizes.shape(block)
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    pads = pads or ((0, 0),) * rank
    counts = [
        window_count(s, k, st, pad, d)
        for s, k, st, pad, d in zip(shape[2:], block, strides, pads, dilations, strict=True)
    ]
    ks = [te.reduce_axis(k, f"r{axis_name(d, rank)}") for d, k in enumerate(block)]
    each = sizes.product(block)

    def at(*i: Expr) -> Expr:
        n, c, *space = i
        inside: Expr = te.const(True, "bool")
        sources: list[Expr] = []
        for d in range(rank):
            reached = space[d] + pads[d][0] - ks[d] * dilations[d]
            source = reached // strides[d]
            inside = inside & (reached >= 0) & (source < counts[d])
            if strides[d] > 1:
                inside = inside & eq(reached % strides[d], 0)
            sources.append(source)
        value = x[(n, c * each + ravel(ks, block), ravel(sources, counts))]
        return te.sum(te.select(inside, value, te.const(0, x.dtype)), ks)

    return te.compute(shape, named(at, rank), name="col2im")
