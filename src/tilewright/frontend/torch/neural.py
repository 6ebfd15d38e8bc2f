"""Translators of ATen matrix products, convolutions, pooling and attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.frontend.torch.convert import Refusal
from tilewright.frontend.torch.elementwise import scaled
from tilewright.frontend.torch.random import dropped
from tilewright.frontend.torch.reductions import log_of_sum, reduced
from tilewright.frontend.torch.registry import NodeContext, translates
from tilewright.frontend.torch.windows import adaptive_windows, greatest
from tilewright.graph import sizes
from tilewright.graph.graph import Value
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import as_int, maximum

# matrix products --------------------------------------------------------------------------------


@translates("mm.default", "bmm.default", "matmul.default", "mv.default", "dot.default",
            "vdot.default", "__matmul__.default", "inner.default")  # fmt: skip
def matmul(n: NodeContext, a: Value, b: Value) -> Any:
    """The product over a's last axis and b's last but one; vectors are rows and columns."""
    if n.op == "inner" and not (a.rank and b.rank):
        return n.emit("mul", a, b)
    if n.op == "inner":
        return n.reshape(product(n, a, b, transpose_b=True), n.shape)
    return n.reshape(product(n, a, b), n.shape)


@translates("_int_mm.default")
def integer_matmul(n: NodeContext, a: Value, b: Value) -> Any:
    """A product of i8, added up in i32."""
    return product(n, a, b, out_dtype="i32")


@translates("mm.dtype", "bmm.dtype")
def matmul_as(n: NodeContext, a: Value, b: Value, out_dtype: Any) -> Any:
    """A product of small floats that is not rounded to their dtype."""
    return product(n, a, b, out_dtype=n.of.name)


def product(
    n: NodeContext, a: Value, b: Value, transpose_b: bool = False, out_dtype: str = ""
) -> Value:
    left = n.reshape(a, (1, *a.shape)) if a.rank == 1 else a
    if b.rank == 1:
        b = n.reshape(b, (1, *b.shape) if transpose_b else (*b.shape, 1))
    if transpose_b and b.rank > 2:
        b, transpose_b = (
            n.transpose(n.reshape(b, (b.elements // b.shape[-1], b.shape[-1])), (1, 0)),
            False,
        )
    if left.dtype.is_bool:  # is there a position where both hold?
        left, b = (n.cast(v, "u8") for v in (left, b))
        y = n.emit("matmul", left, b, transpose_b=transpose_b, out_dtype="i32")
        return n.cast(y, "bool")
    return n.emit("matmul", left, b, transpose_b=transpose_b, out_dtype=out_dtype)


@translates("linear.default")
def linear(n: NodeContext, x: Value, weight: Value, bias: Value | None = None) -> Any:
    """x Wᵀ + b."""
    y = n.reshape(product(n, x, weight, transpose_b=True), n.shape)
    return y if bias is None else n.emit("add", y, bias)


@translates("addmm.default", "baddbmm.default", "addmv.default", "addbmm.default")
def addmm(n: NodeContext, x: Value, a: Value, b: Value, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta x + alpha a b."""
    y = product(n, a, b)
    y = reduced(n, "sum", y, 0) if n.op == "addbmm" else n.reshape(y, n.shape)
    return added(n, y, x, beta, alpha)


@translates("addmm.dtype", "baddbmm.dtype")
def addmm_as(
    n: NodeContext, x: Value, a: Value, b: Value, out_dtype: Any, *, beta: Any = 1, alpha: Any = 1
) -> Any:
    """beta x + alpha a b, of small floats that are not rounded to their dtype."""
    return added(n, product(n, a, b, out_dtype=n.of.name), n.cast(x, n.of), beta, alpha)


def added(n: NodeContext, y: Value, x: Value, beta: Any, alpha: Any) -> Value:
    """beta x + alpha y; x is not read where beta is 0."""
    y = scaled(n, y, alpha)
    return y if beta == 0 else n.emit("add", y, scaled(n, x, beta))


@translates("addr.default", "outer.default")
def outer(n: NodeContext, *args: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    a, b = args[-2:]
    y = n.emit("mul", n.reshape(n.operand(a), (*a.shape, 1)), n.operand(b))
    if n.op == "outer":
        return y
    if beta == 0:  # what it would be added to may be NaN
        return n.expand(scaled(n, y, alpha), n.shape)
    return n.emit("add", scaled(n, y, alpha), scaled(n, n.operand(args[0]), beta))


@translates("addcmul.default", "addcdiv.default")
def addcmul(n: NodeContext, x: Value, a: Value, b: Value, *, value: Any = 1) -> Any:
    y = n.emit("mul" if n.op == "addcmul" else "div", n.operand(a), n.operand(b))
    return n.emit("add", n.operand(x), scaled(n, y, value))


@translates("lerp.Scalar", "lerp.Tensor")
def lerp(n: NodeContext, start: Value, end: Value, weight: Any) -> Any:
    start, end = n.wide(start), n.wide(end)
    weight = n.operand(weight, start.dtype)
    step = n.emit("sub", end, start)
    return n.cast(n.emit("add", start, n.emit("mul", step, weight)), n.of)


# convolutions -----------------------------------------------------------------------------------


def each(given: Any, rank: int, default: int = 0) -> tuple[int, ...]:
    """One number for each space axis; a single one counts for all."""
    if given is None or (not isinstance(given, int) and len(given) == 0):
        return (default,) * rank
    given = (given,) if isinstance(given, int) else tuple(given)
    return given * rank if len(given) == 1 else given


def batched(n: NodeContext, x: Value, rank: int) -> Value:
    """[batch, channels, *space] of an input that may lack its batch."""
    return n.reshape(x, (1, *x.shape)) if x.rank == rank + 1 else x


@translates("conv1d.default", "conv2d.default", "conv3d.default", "conv1d.padding",
            "conv2d.padding", "conv3d.padding")  # fmt: skip
def conv(
    n: NodeContext,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    rank = weight.rank - 2
    dilations = each(dilation, rank, 1)
    if isinstance(padding, str):
        reach = [
            d * (k - 1)
            for k, d in zip(n.static(weight.shape[2:], "a kernel"), dilations, strict=True)
        ]
        total = reach if padding == "same" else [0] * rank
        pads = tuple((t // 2, t - t // 2) for t in total)
    else:
        pads = tuple((p, p) for p in each(padding, rank))
    parts = (batched(n, x, rank), weight) if bias is None else (batched(n, x, rank), weight, bias)
    y = n.emit(
        "conv", *parts, strides=each(stride, rank, 1), pads=pads, dilations=dilations, groups=groups
    )
    return n.reshape(y, n.shape)


@translates("conv_transpose1d.default", "conv_transpose2d.input", "conv_transpose3d.input")
def conv_transpose(
    n: NodeContext,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    rank = weight.rank - 2
    parts = (batched(n, x, rank), weight) if bias is None else (batched(n, x, rank), weight, bias)
    y = n.emit(
        "conv_transpose",
        *parts,
        strides=each(stride, rank, 1),
        pads=tuple((p, p) for p in each(padding, rank)),
        dilations=each(dilation, rank, 1),
        extra=each(output_padding, rank),
        groups=groups,
    )
    return n.reshape(y, n.shape)


@translates("convolution.default", "_convolution.default")
def convolution(
    n: NodeContext,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    *_: Any,
) -> Any:
    if transposed:
        return conv_transpose(n, x, weight, bias, stride, padding, output_padding, groups, dilation)
    return conv(n, x, weight, bias, stride, padding, dilation, groups)


# pooling ----------------------------------------------------------------------------------------


def window(
    kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, rank: int
) -> dict[str, Any]:
    kernel = each(kernel, rank)
    return {
        "kernel": kernel,
        "strides": each(stride, rank) if stride not in (None, [], ()) else kernel,
        "pads": tuple((p, p) for p in each(padding, rank)),
        "dilations": each(dilation, rank, 1),
        "ceil_mode": ceil_mode,
    }


def space_rank(n: NodeContext) -> int:
    """How many space axes an operator has, which its name says: max_pool2d."""
    return next(int(c) for c in n.op if c.isdigit())


@translates("max_pool1d.default", "max_pool2d.default", "max_pool3d.default",
            "max_pool2d_with_indices.default", "max_pool3d_with_indices.default",
            "max_pool1d_with_indices.default")  # fmt: skip
def max_pool(
    n: NodeContext,
    x: Value,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    rank = space_rank(n)
    attrs = window(kernel_size, stride, padding, dilation, ceil_mode, rank)
    x = batched(n, x, rank)
    y = n.reshape(n.emit("max_pool", x, **attrs), n.shape)
    if not n.op.endswith("indices"):
        return y
    return y, n.reshape(n.emit("max_pool_index", x, **attrs), n.shape) if n.uses(1) else None


@translates("avg_pool1d.default", "avg_pool2d.default", "avg_pool3d.default")
def avg_pool(
    n: NodeContext,
    x: Value,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    rank = space_rank(n)
    attrs = window(kernel_size, stride, padding, 1, ceil_mode, rank)
    x = batched(n, x, rank)
    kind = x.dtype
    x = n.cast(x, "f64") if kind.is_int else x
    if divisor_override is not None:  # sums, of windows that are whole
        count_include_pad = True
        if ceil_mode:  # these reach beyond the padding: pad by hand
            before, after = [0, 0], [sizes.size(0)] * 2
            for d, count in enumerate(n.shape[-rank:]):
                reach = (count - 1) * attrs["strides"][d] + attrs["kernel"][d]
                before.append(attrs["pads"][d][0])
                rest = sizes.size(reach - x.shape[2 + d] - attrs["pads"][d][0])
                after.append(sizes.size(maximum(rest, sizes.size(0))))
            x = n.emit("pad", x, before=tuple(before), after=tuple(after))
            attrs.update(pads=((0, 0),) * rank, ceil_mode=False)
    y = n.emit("avg_pool", x, **attrs, count_pads=count_include_pad)
    if divisor_override is not None:
        y = scaled(n, y, math.prod(attrs["kernel"]) / divisor_override)
    y = (
        n.cast(n.emit("trunc", n.emit("mul", y, n.constant(1 + 1e-12, "f64"))), kind)
        if kind.is_int
        else y
    )
    return n.reshape(y, n.shape)


@translates("adaptive_avg_pool1d.default", "adaptive_avg_pool2d.default",
            "adaptive_avg_pool3d.default", "_adaptive_avg_pool2d.default",
            "_adaptive_avg_pool3d.default", "adaptive_max_pool1d.default",
            "adaptive_max_pool2d.default", "adaptive_max_pool3d.default")  # fmt: skip
def adaptive_pool(n: NodeContext, x: Value, output_size: Any) -> Any:
    """Windows that divide each axis: output position o reads from ⌊o s / n⌋ to ⌈(o + 1) s /
    n⌉."""
    rank, of_max = space_rank(n), "max" in n.op
    y = batched(n, x, rank)
    if of_max and n.uses(1):
        counts = n.static(n.shape[-rank:], "a pooled axis")
        axes = [adaptive_windows(n, s, c) for s, c in zip(y.shape[2:], counts, strict=True)]
        return [n.reshape(v, n.shape) for v in greatest(n, y, axes)]
    goal = [as_int(s) for s in n.shape[-rank:]]
    if all(g == 1 for g in goal):
        axes = tuple(range(2, 2 + rank))
        y = n.emit("reduce_max" if of_max else "reduce_mean", y, axes=axes, keepdims=True)
    else:
        space, wanted = y.shape[2:], n.shape[-rank:]
        fixed, parts = sizes.static(space), sizes.static(wanted)
        if fixed and parts and all(s % g == 0 for s, g in zip(fixed, parts, strict=True)):
            kernel = tuple(s // g for s, g in zip(fixed, parts, strict=True))
            y = n.emit("max_pool" if of_max else "avg_pool", y, kernel=kernel, strides=kernel)
        else:
            for d, (size, count) in enumerate(zip(space, wanted, strict=True)):
                y = pooled_axis(n, y, 2 + d, size, count, of_max)
    y = n.reshape(y, n.shape)
    return (y, None) if of_max else y


def pooled_axis(n: NodeContext, x: Value, axis: int, size: Any, wanted: Any, of_max: bool) -> Value:
    """One axis of an adaptive pooling whose windows differ in length."""
    count = as_int(wanted)
    if size == wanted or as_int(size) == count is not None:
        return x
    if count is None:
        return averages(n, x, axis, size, wanted)  # PyTorch holds counts of maxima fixed
    windows = [(o * size // count, ((o + 1) * size + (count - 1)) // count) for o in range(count)]
    op = "reduce_max" if of_max else "reduce_mean"
    parts = [n.emit(op, n.cut(x, axis, a, b - a), axes=(axis,), keepdims=True) for a, b in windows]
    return parts[0] if len(parts) == 1 else n.emit("concat", *parts, axis=axis)


def averages(n: NodeContext, x: Value, axis: int, size: Any, count: Any) -> Value:
    """As `pooled_axis` for averages whose number the run knows: a product with the weights of the
    positions. Position i lies in window o where o s < (i + 1) n and i n < (o + 1) s."""
    positions, windows = n.emit("arange", length=size), n.emit("arange", length=count)
    s, c = (n.build.from_sizes(np.array(v, object), dtype("i64")) for v in (size, count))
    one = n.constant(1, "i64")
    i, o = n.reshape(positions, (size, 1)), n.reshape(windows, (1, count))
    after_i, after_o = n.emit("add", i, one), n.emit("add", o, one)
    begun = n.emit("less", n.emit("mul", o, s), n.emit("mul", after_i, c))
    lasts = n.emit("less", n.emit("mul", i, c), n.emit("mul", after_o, s))
    inside = n.emit("logical_and", begun, lasts)
    perm = [d for d in range(x.rank) if d != axis] + [axis]
    back = [perm.index(d) for d in range(x.rank)]
    rows = n.transpose(x, perm)
    weights = n.cast(inside, x.dtype)
    total = n.emit("reduce_sum", weights, axes=(0,), keepdims=True)
    made = n.emit("matmul", rows, n.emit("div", weights, total))
    return n.transpose(made, back)


# attention --------------------------------------------------------------------------------------


@translates("scaled_dot_product_attention.default",
            "_scaled_dot_product_flash_attention_for_cpu.default")  # fmt: skip
def attention(
    n: NodeContext,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | Value | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(scale q kᵀ + mask) v; rows whose every position is hidden give 0."""
    if not isinstance(attn_mask, Value | None):  # the flash operator's order: dropout, causal
        attn_mask, dropout_p, is_causal = None, attn_mask, bool(dropout_p)
    if scale is None:
        scale = default_scale(n, query)
    shape = (*query.shape[:-1], value.shape[-1])
    query, key, value = n.wide(query), n.wide(key), n.wide(value)
    grouped = enable_gqa and key.shape[-3] != query.shape[-3]
    if grouped:  # several query heads share one key head
        query, key, value = by_group(n, query, key), alone(n, key), alone(n, value)
    scores = scaled(n, n.emit("matmul", query, key, transpose_b=True), scale)
    if is_causal:
        everything = n.full(True, dtype("bool"), scores.shape[-2:])
        attn_mask = n.emit("trilu", everything, k=0, upper=False)
    hidden = None
    if attn_mask is not None:
        if grouped and attn_mask.rank >= 3:
            attn_mask = (
                alone(n, attn_mask)
                if attn_mask.shape[-3] == key.shape[-4]
                else by_group(n, attn_mask, key)
            )
        scores, hidden = masked(n, scores, attn_mask)
    weights = n.emit("softmax", scores, axis=-1)
    if dropout_p:
        weights, _ = dropped(n, weights, dropout_p, weights.shape)
    y = n.emit("matmul", weights, value)
    if hidden is not None:
        y = n.emit("where", hidden, n.constant(0, y.dtype), y)
    y = n.cast(n.reshape(y, shape) if grouped else y, n.of)
    if not n.op.startswith("_"):
        return y
    if not n.uses(1):
        return y, None
    return y, n.reshape(n.cast(log_of_sum(n, scores, -1), "f32"), shape[:-1])


def default_scale(n: NodeContext, query: Value) -> float | Value:
    """One divided by the square root of a head's width; scores of heads without numbers are 0."""
    width = maximum(query.shape[-1], 1)
    known = as_int(width)
    if known is not None:
        return 1 / math.sqrt(known)
    return n.emit("rsqrt", n.operand(width, n.wide(query).dtype))


@translates("_scaled_dot_product_flash_attention_for_cpu_backward.default")
def attention_backward(
    n: NodeContext, grad: Value, query: Value, key: Value, value: Value, y: Value, logs: Value,
    dropout_p: float, is_causal: bool, *, attn_mask: Value | None = None,
    scale: float | Value | None = None,
) -> Any:  # fmt: skip
    """Gradients of query, key and value. `logs`: the logarithm of each row's sum of exponentials.
    Source: Dao et al. 2022, algorithm 4."""
    if dropout_p:
        raise Refusal("it drops attention weights at random")
    if scale is None:
        scale = default_scale(n, query)
    scores = scaled(n, n.emit("matmul", query, key, transpose_b=True), scale)
    if is_causal:
        everything = n.full(True, dtype("bool"), scores.shape[-2:])
        attn_mask = n.emit("trilu", everything, k=0, upper=False)
    if attn_mask is not None:
        scores, _ = masked(n, scores, attn_mask)
    column = (*scores.shape[:-1], 1)
    shifted = n.emit("sub", scores, n.reshape(n.cast(logs, scores.dtype), column))
    weights = n.emit("exp", shifted)
    if attn_mask is not None:  # a row whose every position is hidden
        hidden = n.emit("isnan", weights)
        weights = n.emit("where", hidden, n.constant(0, weights.dtype), weights)
    perm = (*range(scores.rank - 2), scores.rank - 1, scores.rank - 2)
    of_value = n.emit("matmul", n.transpose(weights, perm), grad)
    of_weights = n.emit("matmul", grad, value, transpose_b=True)
    mean = reduced(n, "sum", n.emit("mul", grad, y), -1, True)
    of_scores = n.emit("mul", weights, n.emit("sub", of_weights, mean))
    of_query = scaled(n, n.emit("matmul", of_scores, key), scale)
    of_key = scaled(n, n.emit("matmul", n.transpose(of_scores, perm), query), scale)
    return of_query, of_key, of_value


def by_group(n: NodeContext, x: Value, key: Value) -> Value:
    """[…, heads, l, d] as […, key heads, heads for each, l, d]."""
    heads = key.shape[-3]
    return n.reshape(x, (*x.shape[:-3], heads, x.shape[-3] // heads, *x.shape[-2:]))


def alone(n: NodeContext, x: Value) -> Value:
    """[…, heads, l, d] as […, heads, 1, l, d]."""
    return n.reshape(x, (*x.shape[:-2], 1, *x.shape[-2:]))


def masked(n: NodeContext, scores: Value, mask: Value) -> tuple[Value, Value | None]:
    """Scores with a mask applied, and which rows are hidden as a whole (None: surely no row)."""
    lowest = n.constant(-math.inf, scores.dtype)
    if mask.dtype.is_bool:
        found = n.emit("where", mask, scores, lowest)
        seen = reduced(n, "any", mask, -1, True)
    else:
        found = n.emit("add", scores, n.cast(mask, scores.dtype))
        seen = n.emit(
            "greater", reduced(n, "max", mask, -1, True), n.constant(-math.inf, mask.dtype)
        )
    content = n.known(seen)
    if content is not None and content.all():
        return found, None
    return found, n.emit("logical_not", seen)
