"""Reductions over axes, and the operators that normalise by them: softmax, layer norm, batch norm
and kin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright import te
from tilewright.graph.operator import (
    BROADCAST,
    ONE,
    OPAQUE,
    REDUCTION,
    Operator,
    Type,
    axes_of,
    axis_of,
    need,
    need_same_shape,
    operator,
)
from tilewright.graph.ops.elementwise import (
    element,
    keeping_dtype,
    narrowed,
    same_float,
    sum_type,
)
from tilewright.graph.ops.running import in_lines, in_tiles
from tilewright.graph.sizes import product
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Expr, truncdiv

Axes = tuple[int, ...] | None


def reduced(x: Any, *, axes: Axes = None, keepdims: bool = False) -> Type:
    """Type rule: the shape without `axes` (None: all), or with them at size 1."""
    drop = axes_of(axes, len(x.shape))
    if keepdims:
        return x.dtype, tuple([ONE if d in drop else s for d, s in enumerate(x.shape)])
    return x.dtype, tuple([s for d, s in enumerate(x.shape) if d not in drop])


def over(x: Any, axes: Axes, keepdims: bool, name: str, value: Callable[..., Any]) -> Any:
    """The tensor of value(element of x, reduce axes) with `axes` reduced."""
    drop = axes_of(axes, len(x.shape))
    ks = [te.reduce_axis(x.shape[d], f"k{d}") for d in drop]

    def at(*i: Expr) -> Any:
        rest, inner = iter(i), iter(ks)
        index = []
        for d in range(len(x.shape)):
            if d in drop:
                index.append(next(inner))
                if keepdims:
                    next(rest)
            else:
                index.append(next(rest))
        return value(x[tuple(index)], ks) if ks else value(x[tuple(index)], [te.reduce_axis(1)])

    return te.compute(reduced(x, axes=axes, keepdims=keepdims)[1], at, name=name)


def _total(x: Any, axes: Axes, keepdims: bool, name: str, reducer: Any = te.sum) -> Any:
    """The sum (or product) over `axes`, accumulated in f32 at least."""
    sums = sum_type(x.dtype)
    total = over(x, axes, keepdims, name, lambda v, k: reducer(v.astype(sums), k))
    return narrowed(total, x.dtype)


def reduction(
    name: str,
    reducer: Callable[..., Any],
    reference: Callable[..., Any],
    doc: str,
    of: str = "number",
) -> Operator:
    """Register a reduction over `axes` (None: all)."""

    def infer(x: Any, *, axes: Axes = None, keepdims: bool = False) -> Type:
        need(of != "bool" or x.dtype.is_bool, f"needs booleans, not {x.dtype}")
        return reduced(x, axes=axes, keepdims=keepdims)

    def define(x: Any, *, axes: Axes = None, keepdims: bool = False) -> Any:
        if name in ("sum", "prod"):
            return _total(x, axes, keepdims, name, reducer)
        return over(x, axes, keepdims, name, reducer)

    def numpy(x: np.ndarray, axes: Axes, keepdims: bool) -> np.ndarray:
        axis = None if axes is None else axes
        return np.asarray(reference(x, axis=axis, keepdims=keepdims)).astype(x.dtype, copy=False)

    define.__name__, define.__doc__ = f"reduce_{name}", doc
    return operator(fusion=REDUCTION, infer=infer, reference=numpy)(define)


def _extreme(numpy: Callable[..., Any], end: str) -> Callable[..., Any]:
    """np.max or np.min that gives the neutral element for empty axes."""

    def apply(x: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
        return numpy(x, axis=axis, keepdims=keepdims, initial=getattr(dtype(x.dtype), end))

    return apply


def _wide(numpy: Callable[..., Any]) -> Callable[..., Any]:
    """A sum or product of narrow floats, accumulated in f32."""

    def apply(x: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
        return numpy(x, axis=axis, keepdims=keepdims, dtype=dtype(sum_type(dtype(x.dtype))).numpy)

    return apply


reduction("sum", te.sum, _wide(np.sum), "the sum, accumulated in f32 at least")
reduction("prod", te.prod, _wide(np.prod), "the product, accumulated in f32 at least")
reduction("max", te.max, _extreme(np.max, "lowest"), "the greatest; NaN if any is")
reduction("min", te.min, _extreme(np.min, "highest"), "the least; NaN if any is")
reduction("any", te.any, np.any, "does any hold?", "bool")
reduction("all", te.all, np.all, "do all hold?", "bool")


def _count(x: Any, axes: Axes) -> Expr:
    return product([x.shape[d] for d in axes_of(axes, len(x.shape))])


def _mean(x: np.ndarray, axes: Axes, keepdims: bool) -> np.ndarray:
    wide = np.dtype(np.float64) if x.dtype == np.float64 else np.dtype(np.float32)
    with np.errstate(all="ignore"):
        if x.dtype.kind in "iu":
            total = np.sum(x, axis=axes, keepdims=keepdims)  # in 64 bits
            count = max(1, x.size // max(1, total.size))
            return (np.sign(total) * (np.abs(total) // count)).astype(x.dtype)
        return np.mean(x, axis=axes, keepdims=keepdims, dtype=wide).astype(x.dtype)


@operator(fusion=REDUCTION, infer=reduced, reference=_mean)
def reduce_mean(x: Any, *, axes: Axes = None, keepdims: bool = False) -> Any:
    """The mean over `axes`; accumulated in f32 at least, of integers in 64 bits and rounded towards
    zero. Source: ONNX ReduceMean as onnxruntime has it"""
    wide = sum_type(x.dtype) if x.dtype.is_float else "i64" if x.dtype.is_signed else "u64"
    total = over(x, axes, keepdims, "mean_sum", lambda v, k: te.sum(v.astype(wide), k))
    count = _count(x, axes)
    if x.dtype.is_float:
        return te.compute(
            total.shape, lambda *i: (total[i] / count.astype(wide)).astype(x.dtype), name="mean"
        )
    return te.compute(
        total.shape, lambda *i: truncdiv(total[i], count.astype(wide)).astype(x.dtype), name="mean"
    )


def _index_type(x: Any, *, axis: int = 0, keepdims: bool = False, last: bool = False) -> Type:
    return dtype("i64"), reduced(x, axes=(axis,), keepdims=keepdims)[1]


def _index_reference(pick: Callable[..., Any]) -> Callable[..., Any]:
    def apply(x: np.ndarray, axis: int, keepdims: bool, last: bool) -> np.ndarray:
        if last:
            found = x.shape[axis] - 1 - pick(np.flip(x, axis), axis=axis, keepdims=keepdims)
        else:
            found = pick(x, axis=axis, keepdims=keepdims)
        return np.asarray(found, np.int64)

    return apply


def _index_of_extreme(x: Any, axis: int, keepdims: bool, last: bool, pick: Any, name: str) -> Any:
    d = axis_of(axis, len(x.shape))
    k = te.reduce_axis(x.shape[d], "k")
    end = x.shape[d] - 1

    def at(*i: Expr) -> Any:
        before, after = i[:d], i[d + 1 :] if keepdims else i[d:]
        return pick(x[(*before, end - k if last else k, *after)], k)

    found = te.compute(reduced(x, axes=(d,), keepdims=keepdims)[1], at, name=name)[1]
    return (
        te.compute(found.shape, lambda *i: end - found[i], name=f"{name}_last") if last else found
    )


@operator(fusion=REDUCTION, infer=_index_type, reference=_index_reference(np.argmax))
def argmax(x: Any, *, axis: int = 0, keepdims: bool = False, last: bool = False) -> Any:
    """The index (i64) of the greatest along `axis`; of equals the first, or the `last`. NaN is more
    extreme than all numbers."""
    return _index_of_extreme(x, axis, keepdims, last, te.argmax, "argmax")


@operator(fusion=REDUCTION, infer=_index_type, reference=_index_reference(np.argmin))
def argmin(x: Any, *, axis: int = 0, keepdims: bool = False, last: bool = False) -> Any:
    """The index (i64) of the least along `axis`; of equals the first, or the `last`. NaN is more
    extreme than all numbers."""
    return _index_of_extreme(x, axis, keepdims, last, te.argmin, "argmin")


def along(x: Any, *, axis: int = -1, **_: Any) -> Type:
    """Type rule: floats, `axis` in range; the type of x."""
    axis_of(axis, len(x.shape))
    return same_float(x)


def _softmax(x: np.ndarray, axis: int) -> np.ndarray:
    with np.errstate(all="ignore"):
        e = np.exp(x - np.max(x, axis=axis, keepdims=True, initial=-np.inf))
        return e / np.sum(e, axis=axis, keepdims=True)


def _spread(small: Any, i: tuple[Expr, ...]) -> Expr:
    """The element of a tensor with size-1 axes that belongs to index `i`."""
    return element(small, i)


@operator(fusion=REDUCTION, infer=along, reference=keeping_dtype(_softmax))
def softmax(x: Any, *, axis: int = -1) -> Any:
    """Exponentials along `axis`, normalised to sum 1. Source: ONNX Softmax-13.

    A row is divided by its sum with one division, and as many products as it has numbers."""
    top = over(x, (axis,), True, "softmax_max", greatest_number)
    e = _exponentials(x, top, "softmax_exp")
    total = over(e, (axis,), True, "softmax_sum", te.sum)
    inverse = te.compute(total.shape, lambda *i: 1 / total[i], name="softmax_inverse")
    return te.compute(
        x.shape, lambda *i: (e[i] * _spread(inverse, i)).astype(x.dtype), name="softmax"
    )


# Leaves NaN out, in one instruction: what exponentials are taken from is NaN all the same.
greatest_number = te.reducer(
    lambda a, b: te.if_then_else(b > a, b, a), lambda t: te.const(t.lowest, t), "max"
)


def _exponentials(x: Any, top: Any, name: str) -> Any:
    """e^(x - top), in f32 at least."""
    wide = sum_type(x.dtype)

    def at(*i: Expr) -> Expr:
        return te.exp(x[i].astype(wide) - _spread(top, i).astype(wide))

    return te.compute(x.shape, at, name=name)


def _log_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    with np.errstate(all="ignore"):
        moved = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
        return moved - np.log(np.sum(np.exp(moved), axis=axis, keepdims=True))


@operator(fusion=REDUCTION, infer=along, reference=keeping_dtype(_log_softmax))
def log_softmax(x: Any, *, axis: int = -1) -> Any:
    """The logarithm of softmax, without its underflow."""
    top, wide = over(x, (axis,), True, "log_softmax_max", greatest_number), sum_type(x.dtype)
    e = _exponentials(x, top, "log_softmax_exp")
    total = over(e, (axis,), True, "log_softmax_sum", te.sum)
    size = te.compute(total.shape, lambda *i: te.log(total[i]), name="log_softmax_log")

    def at(*i: Expr) -> Expr:
        moved = x[i].astype(wide) - _spread(top, i).astype(wide)
        return (moved - _spread(size, i)).astype(x.dtype)

    return te.compute(x.shape, at, name="log_softmax")


def _fits_tail(x: Any, weight: Any, first: int) -> None:
    need(weight.dtype is x.dtype, f"its weights hold {weight.dtype}, its input {x.dtype}")
    why = "its weights must have the shape of the normalised axes"
    need_same_shape(weight.shape, x.shape[first:], why)


def _layer_norm_type(
    x: Any, scale: Any = None, bias: Any = None, *, axis: int = -1, eps: float = 1e-5
) -> Type:
    first = axis_of(axis, len(x.shape))
    for weight in (scale, bias):
        if weight is not None:
            _fits_tail(x, weight, first)
    return same_float(x)


def _layer_norm(x, scale=None, bias=None, *, axis, eps):  # type: ignore[no-untyped-def]
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x if x.dtype == np.float64 else x.astype(np.float32)
    moved = wide - wide.mean(axes, keepdims=True)
    y = moved / np.sqrt((moved * moved).mean(axes, keepdims=True) + wide.dtype.type(eps))
    y = y if scale is None else y * scale.astype(wide.dtype)
    return (y if bias is None else y + bias.astype(wide.dtype)).astype(x.dtype)


@operator(fusion=REDUCTION, infer=_layer_norm_type, reference=_layer_norm)
def layer_norm(
    x: Any, scale: Any = None, bias: Any = None, *, axis: int = -1, eps: float = 1e-5
) -> Any:
    """(x - mean) / sqrt(variance + eps) over the axes from `axis` on, times scale plus bias.

    Statistics in f32 at least, the variance from the centred values. Source: Ba et al. 2016; ONNX
    LayerNormalization-17.
    """
    return _normalised(
        x, scale, bias, tuple(range(axis_of(axis, x.ndim), x.ndim)), eps, True, "layer_norm"
    )


def _normalised(
    x: Any, scale: Any, bias: Any, axes: tuple[int, ...], eps: float, centre: bool, name: str
) -> Any:
    """Divide by the root of the mean square over `axes` (of the centred values), then scale and
    shift."""
    wide, first = sum_type(x.dtype), axes[0]
    count = _count(x, axes).astype(wide)
    moved: Callable[..., Expr] = lambda i: x[i].astype(wide)  # noqa: E731
    if centre:
        total = over(x, axes, True, f"{name}_sum", lambda v, k: te.sum(v.astype(wide), k))
        mean = te.compute(total.shape, lambda *i: total[i] / count, name=f"{name}_mean")
        moved = lambda i: x[i].astype(wide) - element(mean, i)  # noqa: E731
    squares = te.compute(x.shape, lambda *i: moved(i) * moved(i), name=f"{name}_square")
    power = over(squares, axes, True, f"{name}_power", te.sum)
    inverse = te.compute(
        power.shape,
        lambda *i: te.rsqrt(power[i] / count + te.const(eps, wide)),
        name=f"{name}_rsqrt",
    )

    def at(*i: Expr) -> Expr:
        y = moved(i) * element(inverse, i)
        y = y if scale is None else y * scale[i[first:]].astype(wide)
        y = y if bias is None else y + bias[i[first:]].astype(wide)
        return y.astype(x.dtype)

    return te.compute(x.shape, at, name=name)


def _rms_norm_type(x: Any, scale: Any = None, *, axis: int = -1, eps: float = 1e-5) -> Type:
    return _layer_norm_type(x, scale, axis=axis)


def _rms_norm(x, scale=None, *, axis, eps):  # type: ignore[no-untyped-def]
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x if x.dtype == np.float64 else x.astype(np.float32)
    y = wide / np.sqrt((wide * wide).mean(axes, keepdims=True) + wide.dtype.type(eps))
    return (y if scale is None else y * scale.astype(wide.dtype)).astype(x.dtype)


@operator(fusion=REDUCTION, infer=_rms_norm_type, reference=_rms_norm)
def rms_norm(x: Any, scale: Any = None, *, axis: int = -1, eps: float = 1e-5) -> Any:
    """x / sqrt(mean square + eps) over the axes from `axis` on, times scale. Source: ONNX
    RMSNormalization-23."""
    return _normalised(
        x, scale, None, tuple(range(axis_of(axis, x.ndim), x.ndim)), eps, False, "rms_norm"
    )


def _batch_norm_type(
    x: Any, scale: Any, bias: Any, mean: Any, variance: Any, *, eps: float = 1e-5
) -> Type:
    need(len(x.shape) >= 2, "needs a batch and a channel axis")
    for part in (scale, bias, mean, variance):
        why = "its statistics must be vectors with one entry for each channel"
        need_same_shape(part.shape, x.shape[1:2], why)
        need(part.dtype is x.dtype, f"its statistics hold {part.dtype}, its input {x.dtype}")
    return same_float(x)


def _batch_norm(x, scale, bias, mean, variance, *, eps):  # type: ignore[no-untyped-def]
    shape, wide = (-1,) + (1,) * (x.ndim - 2), dtype(sum_type(dtype(x.dtype))).numpy
    scale, bias, mean, variance = (v.astype(wide) for v in (scale, bias, mean, variance))
    gain = scale / np.sqrt(variance + wide.type(eps))
    y = x.astype(wide) * gain.reshape(shape) + (bias - mean * gain).reshape(shape)
    return y.astype(x.dtype)


@operator(fusion=BROADCAST, infer=_batch_norm_type, reference=_batch_norm)
def batch_norm(
    x: Any, scale: Any, bias: Any, mean: Any, variance: Any, *, eps: float = 1e-5
) -> Any:
    """(x - mean) / sqrt(variance + eps) scale + bias with given statistics for each channel (axis
    1)."""
    wide = sum_type(x.dtype)

    def at(*i: Expr) -> Expr:
        of = [part[i[1]].astype(wide) for part in (scale, bias, mean, variance)]
        gain = of[0] * te.rsqrt(of[3] + te.const(eps, wide))
        return ((x[i].astype(wide) - of[2]) * gain + of[1]).astype(x.dtype)

    return te.compute(x.shape, at, name="batch_norm")


def _group_norm_type(x: Any, scale: Any, bias: Any, *, groups: int, eps: float = 1e-5) -> Type:
    need(len(x.shape) >= 2, "needs a batch and a channel axis")
    for part in (scale, bias):
        why = "its weights must be vectors with one entry for each channel"
        need_same_shape(part.shape, x.shape[1:2], why)
    return same_float(x)


def _group_norm(x, scale, bias, *, groups, eps):  # type: ignore[no-untyped-def]
    grouped = x.reshape(x.shape[0], groups, int(np.prod(x.shape[1:])) // groups)
    wide = dtype(sum_type(dtype(x.dtype))).numpy
    y = _layer_norm(grouped.astype(wide), axis=2, eps=eps).reshape(x.shape)
    shape = (-1,) + (1,) * (x.ndim - 2)
    y = y * scale.astype(wide).reshape(shape) + bias.astype(wide).reshape(shape)
    return y.astype(x.dtype)


@operator(fusion=REDUCTION, infer=_group_norm_type, reference=_group_norm)
def group_norm(x: Any, scale: Any, bias: Any, *, groups: int, eps: float = 1e-5) -> Any:
    """Normalise over `groups` groups of channels and all pixels, then scale and shift each channel.

    groups = channels is instance normalisation. Sources: Wu & He 2018; ONNX GroupNormalization-21.
    """
    wide, channels = sum_type(x.dtype), x.shape[1] // groups
    ks = [te.reduce_axis(s, f"k{d}") for d, s in enumerate((channels, *x.shape[2:]))]
    count = product((channels, *x.shape[2:])).astype(wide)
    small = (x.shape[0], te.const(groups))

    def total(value: Callable[..., Expr], name: str) -> Any:
        return te.compute(
            small,
            lambda n, g: te.sum(value((n, g * channels + ks[0], *ks[1:]), (n, g)), ks),
            name=name,
        )

    sums = total(lambda i, j: x[i].astype(wide), "group_norm_sum")
    mean = te.compute(small, lambda n, g: sums[n, g] / count, name="group_norm_mean")
    square = lambda v: v * v  # noqa: E731
    power = total(lambda i, j: square(x[i].astype(wide) - mean[j]), "group_norm_power")
    inverse = te.compute(
        small,
        lambda n, g: te.rsqrt(power[n, g] / count + te.const(eps, wide)),
        name="group_norm_rsqrt",
    )

    def at(*i: Expr) -> Expr:
        group = (i[0], i[1] // channels)
        y = (x[i].astype(wide) - mean[group]) * inverse[group]
        return (y * scale[i[1]].astype(wide) + bias[i[1]].astype(wide)).astype(x.dtype)

    return te.compute(x.shape, at, name="group_norm")


def _running_type(x: Any, *, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Type:
    axis_of(axis, len(x.shape))
    return x.dtype, x.shape


def _running(combine: Any, neutral: int) -> Callable[..., Any]:
    def apply(x: np.ndarray, axis: int, exclusive: bool, reverse: bool) -> np.ndarray:
        x = np.flip(x, axis) if reverse else x
        wide = dtype(sum_type(dtype(x.dtype))).numpy
        y = combine.accumulate(x.astype(wide), axis=axis, dtype=wide).astype(x.dtype)
        if exclusive:
            y = np.roll(y, 1, axis)
            y[(slice(None),) * (axis % x.ndim) + (slice(0, 1),)] = neutral
        return np.flip(y, axis) if reverse else y

    return apply


def _scanned(
    x: Any, axis: int, exclusive: bool, reverse: bool, combine: Callable[..., Expr], neutral: int
) -> Any:
    """combine() of all elements up to each along `axis`, accumulated in f32 at least."""
    d, wide = axis_of(axis, x.ndim), sum_type(x.dtype)
    if d == x.ndim - 1:
        return in_lines(x, exclusive, reverse, combine, neutral, dtype(wide))
    return in_tiles(x, d, exclusive, reverse, combine, neutral, dtype(wide))


@operator(fusion=OPAQUE, infer=_running_type, reference=_running(np.add, 0))
def cumsum(x: Any, *, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Any:
    """Running sums along `axis`; `exclusive`: without the element itself; `reverse`: from the
    end."""
    return _scanned(x, axis, exclusive, reverse, lambda a, b: a + b, 0)


@operator(fusion=OPAQUE, infer=_running_type, reference=_running(np.multiply, 1))
def cumprod(x: Any, *, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Any:
    """Running products along `axis`; attributes as in cumsum."""
    return _scanned(x, axis, exclusive, reverse, lambda a, b: a * b, 1)


def _running_extreme_type(x: Any, *, axis: int = 0) -> list[Type]:
    axis_of(axis, len(x.shape))
    return [(x.dtype, x.shape), (dtype("i64"), x.shape)]


def running_extreme(name: str, greatest: bool, doc: str) -> Operator:
    """Register a running maximum or minimum, which also tells its index."""

    def reference(x: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
        rows = np.moveaxis(x, axis, 0)
        values, indices = rows.copy(), np.zeros(rows.shape, np.int64)
        for t in range(1, len(rows)):
            new, old = rows[t], values[t - 1]
            with np.errstate(invalid="ignore"):
                wins = (new != new) | (new >= old if greatest else new <= old)
            values[t] = np.where(wins, new, old)
            indices[t] = np.where(wins, t, indices[t - 1])
        return np.moveaxis(values, 0, axis), np.moveaxis(indices, 0, axis)

    def define(x: Any, *, axis: int = 0) -> Any:
        d = axis_of(axis, x.ndim)
        rest = (*x.shape[:d], *x.shape[d + 1 :])
        worst = x.dtype.lowest if greatest else x.dtype.highest
        start = (
            te.compute(rest, lambda *i: te.const(worst, x.dtype), name=f"{name}_start"),
            te.compute(rest, lambda *i: te.const(0, "i64"), name=f"{name}_origin"),
        )

        def step(t: Expr, value: Any, index: Any) -> Any:
            def pair(*i: Expr) -> tuple[Expr, Expr]:
                new = x[(*i[:d], t, *i[d:])]
                wins = new >= value[i] if greatest else new <= value[i]
                if x.dtype.is_float:  # and no number wins over NaN
                    wins = wins | te.isnan(new)
                return te.select(wins, new, value[i]), te.select(wins, t.astype("i64"), index[i])

            return te.compute(rest, pair, name=f"{name}_step")

        stacked = te.scan(step, start, x.shape[d], name=name)
        return tuple(
            te.compute(
                x.shape,
                lambda *i, of=of: of[(i[d], *i[:d], *i[d + 1 :])],
                name=f"{name}_{what}",
            )
            for of, what in zip(stacked, ("value", "index"), strict=True)
        )

    define.__name__, define.__doc__ = name, doc
    return operator(fusion=OPAQUE, infer=_running_extreme_type, reference=reference)(define)


running_extreme(
    "cummax",
    True,
    "The running maximum along `axis`, and where (i64); of equals, and of NaN, the last",
)
running_extreme(
    "cummin",
    False,
    "The running minimum along `axis`, and where (i64); of equals, and of NaN, the last",
)
