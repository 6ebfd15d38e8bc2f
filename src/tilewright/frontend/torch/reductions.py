"""Translators of ATen reductions, normalisations and running sums."""

from __future__ import annotations

import math
from typing import Any

import torch

from tilewright.frontend.torch.convert import Refusal, of_torch
from tilewright.frontend.torch.elementwise import truth
from tilewright.frontend.torch.registry import EVAL, NodeContext, axes_of, axis_of, translates
from tilewright.graph import sizes
from tilewright.graph.graph import Value
from tilewright.ir.dtype import DType
from tilewright.ir.expr import as_int


def reduced(n: NodeContext, op: str, x: Value, axes: Any, keepdim: bool = False) -> Value:
    """Any reduction; of a scalar it is the scalar."""
    if not x.rank:
        return x
    return n.emit(f"reduce_{op}", x, axes=axes_of(axes, x.rank), keepdims=keepdim)


@translates("sum.default", "sum.dim_IntList", "mean.default", "mean.dim", "prod.default",
            "prod.dim_int")  # fmt: skip
def total(
    n: NodeContext, x: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Any:
    return reduced(n, n.op, n.operand(x), dim, keepdim)


@translates("amax.default", "amin.default")
def extreme(n: NodeContext, x: Value, dim: Any = (), keepdim: bool = False) -> Any:
    return of_order(n, n.op[1:], x, dim, keepdim)


def of_order(n: NodeContext, op: str, x: Value, dim: Any, keepdim: bool = False) -> Value:
    """The greatest or least; of booleans any or all."""
    return reduced(n, {"max": "any", "min": "all"}[op] if x.dtype.is_bool else op, x, dim, keepdim)


@translates("max.default", "min.default")
def greatest(n: NodeContext, x: Value) -> Any:
    return of_order(n, n.op, x, None)


@translates("max.dim", "min.dim")
def greatest_along(n: NodeContext, x: Value, dim: int, keepdim: bool = False) -> Any:
    return of_order(n, n.op, x, dim, keepdim), position(n, f"arg{n.op}", x, dim, keepdim, n.uses(1))


def position(
    n: NodeContext, op: str, x: Value, dim: int, keepdim: bool, wanted: bool = True
) -> Value | None:
    """The index of the greatest or least along one axis."""
    if not wanted:
        return None
    if not x.rank:
        return n.constant(0, "i64")
    x = n.cast(x, "u8") if x.dtype.is_bool else x
    return n.emit(op, x, axis=axis_of(dim, x.rank), keepdims=keepdim)


@translates("argmax.default", "argmin.default")
def argmax(n: NodeContext, x: Value, dim: int | None = None, keepdim: bool = False) -> Any:
    if dim is not None:
        return position(n, n.op, x, dim, keepdim)
    found = position(n, n.op, n.reshape(x, (x.elements,)), 0, False)
    return n.reshape(found, n.shape)  # type: ignore[arg-type]


@translates("any.default", "any.dim", "any.dims", "all.default", "all.dim", "all.dims")
def any_all(n: NodeContext, x: Value, dim: Any = None, keepdim: bool = False) -> Any:
    return n.cast(reduced(n, n.op, truth(n, x), dim, keepdim), n.of)


UNSAID = object()  # None is a correction


def moments(
    n: NodeContext, x: Value, dim: Any, correction: float | None, keepdim: bool
) -> tuple[Value, Value]:
    """(variance, mean), in f32 at least; the squares are divided by their count minus
    `correction`."""
    axes, x = axes_of(dim, x.rank), n.wide(x)
    if not x.rank:
        x = n.reshape(x, (1,))
        axes, keepdim = (0,), False
    mean = n.emit("reduce_mean", x, axes=axes, keepdims=True)
    centred = n.emit("sub", x, mean)
    square = n.emit("mul", centred, centred)
    count = sizes.product([x.shape[d] for d in axes])
    correction = 1 if correction is None else correction
    if correction == 0:
        variance = n.emit("reduce_mean", square, axes=axes, keepdims=keepdim)
    else:
        total, known = n.emit("reduce_sum", square, axes=axes, keepdims=keepdim), as_int(count)
        if known is not None:
            divisor = max(known - correction, 0)
            scale = n.constant(1 / divisor if divisor else math.inf, x.dtype)
            variance = n.emit("mul", total, scale)
        else:
            divisor = n.emit("sub", n.operand(count, x.dtype), n.constant(correction, x.dtype))
            divisor = n.emit("maximum", divisor, n.constant(0, x.dtype))
            variance = n.emit("div", total, divisor)
    if not keepdim:
        mean = n.reshape(mean, tuple(s for d, s in enumerate(x.shape) if d not in axes))
    return variance, mean


@translates("var.default", "var.dim", "var.correction", "std.default", "std.dim",
            "std.correction", "var_mean.correction", "std_mean.correction")  # fmt: skip
def variance(
    n: NodeContext,
    x: Value,
    dim: Any = None,
    unbiased: Any = True,
    keepdim: bool = False,
    *,
    correction: Any = UNSAID,
) -> Any:
    overload = str(n.node.target).split(".")[2]
    if overload == "default":  # its second parameter is `unbiased`
        unbiased, dim = (True if dim is None else dim), None
    if correction is UNSAID:
        correction = 1 if unbiased or overload == "correction" else 0
    found, mean = moments(n, x, dim, correction, keepdim)
    found = n.emit("sqrt", found) if n.op.startswith("std") else found
    found, mean = n.cast(found, x.dtype), n.cast(mean, x.dtype)
    return (found, mean) if n.op.endswith("_mean") else found


@translates("linalg_vector_norm.default")
def vector_norm(
    n: NodeContext,
    x: Value,
    ord: float = 2,
    dim: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
) -> Any:
    return norm_of(n, n.operand(x), ord, dim, keepdim)


def norm_of(n: NodeContext, x: Value, ord: float, dim: Any, keepdim: bool) -> Value:
    """The p-norm along axes. The powers of halves may be out of their range: they are singles."""
    kind, x = x.dtype, n.wide(x)
    if ord == 2:
        y = n.emit("sqrt", reduced(n, "sum", n.emit("mul", x, x), dim, keepdim))
        return n.cast(y, kind)
    size = n.emit("abs", x)
    if ord == 1:
        y = reduced(n, "sum", size, dim, keepdim)
    elif math.isinf(ord):
        y = reduced(n, "max" if ord > 0 else "min", size, dim, keepdim)
    elif ord == 0:
        y = reduced(n, "sum", n.cast(truth(n, x), x.dtype), dim, keepdim)
    else:
        powers = n.emit("pow", size, n.constant(ord, x.dtype))
        total = reduced(n, "sum", powers, dim, keepdim)
        y = n.emit("pow", total, n.constant(1 / ord, x.dtype))
    return n.cast(y, kind)


@translates("dist.default", "_cdist_forward.default", "_euclidean_dist.default")
def distance(n: NodeContext, x: Value, y: Value, p: float = 2, *_: Any) -> Any:
    """The norm of the difference: of two tensors, or of each row of x and each row of y."""
    if n.op == "dist":
        return norm_of(n, n.emit("sub", n.operand(x), n.operand(y)), p, None, False)
    x = n.reshape(x, (*x.shape[:-1], 1, x.shape[-1]))
    y = n.reshape(y, (*y.shape[:-2], 1, *y.shape[-2:]))
    return norm_of(n, n.emit("sub", x, y), p, -1, False)


@translates("logsumexp.default")
def logsumexp(n: NodeContext, x: Value, dim: Any, keepdim: bool = False) -> Any:
    return n.reshape(n.cast(log_of_sum(n, n.operand(x), dim), n.of), n.shape)


def log_of_sum(n: NodeContext, x: Value, dim: Any) -> Value:
    """log Σ exp x, in f32 at least, with the axes kept."""
    x = n.wide(x)
    top = reduced(n, "max", x, dim, True)
    finite = n.emit("where", n.emit("isinf", top), n.constant(0, x.dtype), top)
    sums = reduced(n, "sum", n.emit("exp", n.emit("sub", x, finite)), dim, True)
    return n.emit("add", n.emit("log", sums), finite)


@translates("softmax.int", "_softmax.default", "log_softmax.int", "_log_softmax.default",
            "_safe_softmax.default")  # fmt: skip
def softmax(n: NodeContext, x: Value, dim: int, *_: Any, **named: Any) -> Any:
    x = n.operand(x)
    if not x.rank:
        return n.full(0 if "log" in n.op else 1)
    y = n.emit("log_softmax" if "log" in n.op else "softmax", x, axis=axis_of(dim, x.rank))
    if n.op != "_safe_softmax":
        return y
    hidden = n.emit("equal", reduced(n, "max", x, dim, True), n.constant(-math.inf, x.dtype))
    return n.emit("where", hidden, n.constant(0, x.dtype), y)


def normalised(n: NodeContext, op: str, x: Value, *parts: Value, **attrs: Any) -> Value:
    """The operator with parameters of x's dtype; wider ones (f32 beside bf16, as autocast has them)
    are computed with as they are, and the result is rounded once."""
    of = max((x, *parts), key=lambda v: v.dtype.bits).dtype
    y = n.emit(op, n.cast(x, of), *(n.cast(v, of) for v in parts), **attrs)
    return n.cast(y, n.of)


@translates("layer_norm.default", "native_layer_norm.default")
def layer_norm(
    n: NodeContext,
    x: Value,
    normalized_shape: Any,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    *_: Any,
    **named: Any,
) -> Any:
    axis = x.rank - len(normalized_shape)
    if weight is None and bias is not None:
        weight = n.full(1, x.dtype, normalized_shape)
    parts = [v for v in (weight, bias) if v is not None]
    y = normalised(n, "layer_norm", x, *parts, axis=axis, eps=eps)
    if n.op == "layer_norm":
        return y
    if not (n.uses(1) or n.uses(2)):
        return y, None, None
    found, mean = moments(n, x, tuple(range(axis, x.rank)), 0, True)
    inverse = n.emit("rsqrt", n.emit("add", found, n.constant(eps, found.dtype)))
    return y, *in_given_types(n, mean, inverse)


def in_given_types(n: NodeContext, *statistics: Value) -> list[Value]:
    """What stands behind the first result, in the dtypes that it has there."""
    return [n.cast(v, of_torch(f.dtype)) for v, f in zip(statistics, n.fakes[1:], strict=True)]


@translates("rms_norm.default")
def rms_norm(
    n: NodeContext,
    x: Value,
    normalized_shape: Any,
    weight: Value | None = None,
    eps: float | None = None,
) -> Any:
    if eps is None:  # that of the dtype in which PyTorch computes it
        eps = torch.finfo(torch.promote_types(n.fake(0).dtype, torch.float32)).eps
    parts = [] if weight is None else [weight]
    return normalised(n, "rms_norm", x, *parts, axis=x.rank - len(normalized_shape), eps=eps)


def channels(n: NodeContext, weight: Value | None, default: float, count: Any, of: DType) -> Value:
    """A vector with one entry for each channel: the weights, or the same number for all."""
    return n.full(default, of, (count,)) if weight is None else weight


@translates("batch_norm.default", "_native_batch_norm_legit_no_training.default",
            "_native_batch_norm_legit.default", "_native_batch_norm_legit_functional.default",
            "cudnn_batch_norm.default")  # fmt: skip
def batch_norm(
    n: NodeContext,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    *rest: Any,
) -> Any:
    if n.op.endswith("no_training"):
        training, eps = False, rest[1]
    else:
        training, eps = rest[0], rest[2]
    if running_mean is None or running_var is None:
        y = by_own_statistics(n, x, weight, bias, eps)
    elif training:
        return trained(n, x, weight, bias, running_mean, running_var, rest[1], eps)
    else:
        count = x.shape[1]
        gain, shift = channels(n, weight, 1, count, x.dtype), channels(n, bias, 0, count, x.dtype)
        y = normalised(n, "batch_norm", x, gain, shift, running_mean, running_var, eps=eps)
    if n.op == "batch_norm":
        return y
    unused = [f.shape == (0,) for f in n.fakes[1:]]  # statistics of the batch, in training only
    return y, *(n.full(0, of_torch(f.dtype), (0,)) if u else None
                for f, u in zip(n.fakes[1:], unused, strict=True))  # fmt: skip


def trained(
    n: NodeContext, x: Value, weight: Value | None, bias: Value | None, running_mean: Value,
    running_var: Value, momentum: float, eps: float
) -> Any:  # fmt: skip
    """Normalised by its own statistics; those, and the running ones moved towards them."""
    if not n.op.endswith("functional"):
        raise Refusal(
            "it updates its running statistics, because the module is in training mode", EVAL
        )
    axes = tuple(d for d in range(x.rank) if d != 1)
    found, mean = moments(n, x, axes, 0, False)
    unbiased, _ = moments(n, x, axes, 1, False)
    inverse = n.emit("rsqrt", n.emit("add", found, n.constant(eps, found.dtype)))
    moved = []
    for old, new in ((running_mean, mean), (running_var, unbiased)):
        kept = n.emit("mul", n.cast(old, new.dtype), n.constant(1 - momentum, new.dtype))
        moved.append(n.emit("add", kept, n.emit("mul", new, n.constant(momentum, new.dtype))))
    y = by_own_statistics(n, x, weight, bias, eps)
    return tuple(
        n.cast(v, of_torch(f.dtype))
        for v, f in zip((y, mean, inverse, *moved), n.fakes, strict=True)
    )


@translates("_native_batch_norm_legit.no_stats")
def batch_norm_of_batch(
    n: NodeContext,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    found, mean = moments(n, x, tuple(d for d in range(x.rank) if d != 1), 0, False)
    inverse = n.emit("rsqrt", n.emit("add", found, n.constant(eps, found.dtype)))
    shapes = [n.sizes(f.shape) for f in n.fakes[1:]]
    parts = (v if v.shape == sizes.shape(s) else None
             for v, s in zip(in_given_types(n, mean, inverse), shapes, strict=True))  # fmt: skip
    return by_own_statistics(n, x, weight, bias, eps), *parts


def by_own_statistics(
    n: NodeContext, x: Value, weight: Value | None, bias: Value | None, eps: float
) -> Value:
    """Normalise each channel over the batch and all positions."""
    return by_moments(n, x, (0, *range(2, x.rank)), weight, bias, eps)


def by_moments(
    n: NodeContext,
    x: Value,
    axes: tuple[int, ...],
    weight: Value | None,
    bias: Value | None,
    eps: float,
) -> Value:
    """Mean 0 and variance 1 along the axes, then a gain and a shift for each channel."""
    found, mean = moments(n, x, axes, 0, True)
    inverse = n.emit("rsqrt", n.emit("add", found, n.constant(eps, found.dtype)))
    y = n.emit("mul", n.emit("sub", n.wide(x), mean), inverse)
    for op, part in (("mul", weight), ("add", bias)):
        if part is not None:
            part = n.cast(part, y.dtype)
            y = n.emit(op, y, n.reshape(part, (part.shape[0], *(1,) * (x.rank - 2))))
    return n.cast(y, x.dtype)


@translates("group_norm.default", "instance_norm.default")
def group_norm(n: NodeContext, x: Value, *args: Any, **named: Any) -> Any:
    if n.op == "group_norm":
        given: tuple[Any, ...] = (*args, *(None, None, 1e-5)[len(args) - 1 :])
        groups, weight, bias, eps = given[:4]
    else:
        weight, bias, mean, variance, own, _, eps, *_ = args
        if not own:
            count = x.shape[1]
            gain, shift = (
                channels(n, weight, 1, count, x.dtype),
                channels(n, bias, 0, count, x.dtype),
            )
            return normalised(n, "batch_norm", x, gain, shift, mean, variance, eps=eps)
        groups = as_int(x.shape[1])
        if groups is None:
            return by_moments(n, x, tuple(range(2, x.rank)), weight, bias, eps)
    return grouped(n, x, groups, weight, bias, eps)


def grouped(
    n: NodeContext, x: Value, groups: int, weight: Value | None, bias: Value | None, eps: float
) -> Value:
    count = x.shape[1]
    gain, shift = channels(n, weight, 1, count, x.dtype), channels(n, bias, 0, count, x.dtype)
    return normalised(n, "group_norm", x, gain, shift, groups=groups, eps=eps)


@translates("native_group_norm.default")
def native_group_norm(
    n: NodeContext,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    N: Any,
    C: Any,
    HxW: Any,
    group: int,
    eps: float,
) -> Any:
    y = grouped(n, x, group, weight, bias, eps)
    if not (n.uses(1) or n.uses(2)):
        return y, None, None
    parts = n.reshape(x, (x.shape[0], group, C * HxW // group))
    found, mean = moments(n, parts, -1, 0, True)
    inverse = n.emit("rsqrt", n.emit("add", found, n.constant(eps, found.dtype)))
    shapes = [n.sizes(f.shape) for f in n.fakes[1:]]
    statistics = in_given_types(n, mean, inverse)
    return y, *(n.reshape(v, s) for v, s in zip(statistics, shapes, strict=True))


@translates("cumsum.default")
def cumsum(n: NodeContext, x: Value, dim: int, dtype: Any = None) -> Any:
    x = n.operand(x)
    return n.emit("cumsum", x, axis=axis_of(dim, x.rank)) if x.rank else x
