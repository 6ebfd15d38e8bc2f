"""Translators of quantised `com.microsoft` operators: from integers to floats, what they do there,
and back. The tests compare with onnxruntime.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.frontend.onnx.contrib import (
    DOMAIN,
    channels_first,
    channels_last,
    embedded,
    normalised,
    results,
)
from tilewright.frontend.onnx.contrib_attention import attention_of
from tilewright.frontend.onnx.quantised import (
    as_type,
    dequantised,
    integer_product,
    qlinear_conv,
    quantised,
)
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.graph import sizes
from tilewright.graph.graph import Value
from tilewright.graph.quantise import range_of
from tilewright.ir.dtype import dtype


def operand(n: NodeContext, k: int) -> Value:
    """Inputs k, k + 1, k + 2 (numbers, scale, zero point) as f32."""
    return dequantised(n, n[k], n[k + 1], n.optional(k + 2))


def result(n: NodeContext, y: Value, k: int, of: Value) -> Value:
    """y quantised by the scale and zero point in inputs k, k + 1, to the type of `of`."""
    zero = n.optional(k + 1)
    return quantised(n, y, n[k], zero, of.dtype if zero is None else zero.dtype)


@translates("QLinearAdd", "QLinearMul", domain=DOMAIN)
def pair(n: NodeContext) -> Any:
    op = "add" if n.op == "QLinearAdd" else "mul"
    return result(n, n.build.emit(op, operand(n, 0), operand(n, 3)), 6, n[0])


def _one(compute: Callable[[NodeContext, Value], Value]) -> Callable[[NodeContext], Any]:
    return lambda n: result(n, compute(n, operand(n, 0)), 3, n[0])


def _average(n: NodeContext, x: Value) -> Value:
    last = n.flag("channels_last")
    y = n.apply(n.op.removeprefix("QLinear"), channels_first(n, x) if last else x)
    return channels_last(n, y) if last else y


def _softmax(n: NodeContext, x: Value) -> Value:
    """Before version 13, `opset` says, over all axes from `axis` on, as one."""
    return n.apply("Softmax", x, version=n.int("opset", 13), axis=n.int("axis", -1))


def _mean(n: NodeContext, x: Value) -> Value:
    axes = tuple(a % x.rank for a in n.ints("axes", range(x.rank)))
    return n.build.emit("reduce_mean", x, axes=axes, keepdims=n.flag("keepdims", True))


translates("QLinearSigmoid", domain=DOMAIN)(_one(lambda n, x: n.build.emit("sigmoid", x)))
translates("QLinearLeakyRelu", domain=DOMAIN)(
    _one(lambda n, x: n.build.emit("leaky_relu", x, alpha=n.float("alpha", 0.01)))
)
translates("QLinearAveragePool", "QLinearGlobalAveragePool", domain=DOMAIN)(_one(_average))
translates("QLinearSoftmax", domain=DOMAIN)(_one(_softmax))
translates("QLinearReduceMean", domain=DOMAIN)(_one(_mean))


@translates("QLinearWhere", domain=DOMAIN)
def where(n: NodeContext) -> Any:
    return result(n, n.build.emit("where", n[0], operand(n, 1), operand(n, 4)), 7, n[1])


@translates("QLinearConcat", domain=DOMAIN)
def concat(n: NodeContext) -> Any:
    """Scale and zero point of the result come first, then those of each part beside it."""
    if len(n.inputs) % 3 != 2:
        raise Refusal(f"it has {len(n.inputs)} inputs, not 2 and 3 for each part")
    parts = [operand(n, k) for k in range(2, len(n.inputs), 3)]
    return result(n, n.build.emit("concat", *parts, axis=n.int("axis", 0)), 0, n[2])


@translates("QLinearConv", domain=DOMAIN)
def convolution(n: NodeContext) -> Any:
    """As ai.onnx has it; with channels_last, images are [batch, …, channels] (weights are not)."""
    if not n.flag("channels_last"):
        return qlinear_conv(n)
    parts = [channels_first(n, n[0]), *n.inputs[1:]]
    return channels_last(n, n.apply("QLinearConv", *parts))


@translates("NhwcMaxPool", domain=DOMAIN)
def max_pool(n: NodeContext) -> Any:
    """Of images [batch, …, channels]."""
    return channels_last(n, n.apply("MaxPool", channels_first(n, n[0])))


@translates("QGemm", domain=DOMAIN)
def gemm(n: NodeContext) -> Any:
    """alpha a b + c in integers, then scaled: floats, or quantised where there is a scale for y.
    Zero points and scales of b may be many: one for each column of the product."""
    transposed = n.flag("transA"), n.flag("transB")
    y = integer_product(n, n[0], n[3], n.optional(2), n.optional(5), *transposed)
    y = y if n.optional(6) is None else n.build.emit("add", y, n[6])
    y = scaled(n, as_type(n, y, n[1].dtype), n[1], n[4])
    if n.float("alpha", 1.0) != 1.0:
        y = n.build.emit("mul", y, n.constant(n.float("alpha"), y.dtype))
    return y if n.optional(7) is None else result(n, y, 7, n[0])


@translates("MatMulInteger16", domain=DOMAIN)
def matmul_of_words(n: NodeContext) -> Any:
    return integer_product(n, n[0], n[1], None, None)


@translates("MatMulIntegerToFloat", domain=DOMAIN)
def matmul_integer_to_float(n: NodeContext) -> Any:
    return scaled_product(n, n[0], n[2], n.optional(4), n[3], n.optional(5), n.optional(6))


@translates("DynamicQuantizeMatMul", domain=DOMAIN)
def dynamic_quantize_matmul(n: NodeContext) -> Any:
    """The left operand is quantised to u8 by its own range."""
    x = n[0]
    scale, at = range_of(n.build, x)
    at = n.build.emit("cast", at, to="u8")
    q = quantised(n, x, scale, at, dtype("u8"))
    return scaled_product(n, q, scale, at, n[2], n.optional(3), n.optional(4))


def scaled_product(
    n: NodeContext,
    a: Value,
    a_scale: Value,
    a_zero: Value | None,
    b_scale: Value,
    b_zero: Value | None,
    bias: Value | None,
) -> Value:
    """a · b in integers, times both scales, plus a bias."""
    y = as_type(n, integer_product(n, a, n[1], a_zero, b_zero), a_scale.dtype)
    y = scaled(n, y, a_scale, b_scale)
    return y if bias is None else n.emit("add", y, bias)


def scaled(n: NodeContext, y: Value, *scales: Value) -> Value:
    """y times scales: one number each, or one for each column."""
    for scale in scales:
        if scale.elements == sizes.size(1):
            scale = n.build.emit("reshape", scale, shape=())
        y = n.emit("mul", y, scale)
    return y


# Transformers -------------------------------------------------------------------------------------


@translates("QAttention", domain=DOMAIN)
def attention(n: NodeContext) -> Any:
    """As Attention, from a product in integers."""
    y = scaled(n, as_type(n, integer_product(n, n[0], n[1], n.optional(6), n.optional(7)),
                          n[3].dtype), n[3], n[4])  # fmt: skip
    y = n.build.emit("add", y, n[2])
    return attention_of(n, y, n.optional(5), n.optional(8), None)


@translates("QEmbedLayerNormalization", domain=DOMAIN)
def embed_norm(n: NodeContext) -> Any:
    """The norm of word, position and segment embeddings, all quantised; how many words count."""
    tables: list[Value | None] = []
    for k in (2, 3, 4, 5, 6):  # words, positions, segments, gamma, beta: scales, then zero points
        table, scale, zero = n.optional(k), n.optional(k + 6), n.optional(k + 11)
        there = table is not None and scale is not None
        tables.append(dequantised(n, table, scale, zero) if there else None)
    words, positions, segments, gamma, beta = tables
    if words is None or positions is None or gamma is None:
        raise Refusal("it needs tables of words and positions, and gamma, with their scales")
    total, counted = embedded(n, words, positions, segments, n.optional(7), None)
    return results(n, normalised(n, total, gamma, beta), counted)
