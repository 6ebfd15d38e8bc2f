"""Translators of quantised `com.microsoft` operators: from integers to floats, what they do there,
and back. The tests compare with onnxruntime.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.frontend.onnx.contrib import DOMAIN
from tilewright.frontend.onnx.neural import window
from tilewright.frontend.onnx.quantised import as_type, dequantised, integer_product, quantised
from tilewright.frontend.onnx.registry import Refusal, Site, translates
from tilewright.graph import sizes
from tilewright.graph.graph import Value
from tilewright.ir.dtype import dtype


def operand(n: Site, k: int) -> Value:
    """Inputs k, k + 1, k + 2 (numbers, scale, zero point) as f32."""
    return dequantised(n, n[k], n[k + 1], n.optional(k + 2))


def result(n: Site, y: Value, k: int, of: Value) -> Value:
    """y quantised by the scale and zero point in inputs k, k + 1, to the type of `of`."""
    zero = n.optional(k + 1)
    return quantised(n, y, n[k], zero, of.dtype if zero is None else zero.dtype)


@translates("QLinearAdd", "QLinearMul", domain=DOMAIN)
def pair(n: Site) -> Any:
    op = "add" if n.op == "QLinearAdd" else "mul"
    return result(n, n.build.emit(op, operand(n, 0), operand(n, 3)), 6, n[0])


def _one(compute: Callable[[Site, Value], Value]) -> Callable[[Site], Any]:
    return lambda n: result(n, compute(n, operand(n, 0)), 3, n[0])


def _average(n: Site, x: Value) -> Value:
    if n.flag("channels_last"):
        raise Refusal("channels_last is not supported")
    if n.op == "QLinearGlobalAveragePool":
        return n.build.emit("reduce_mean", x, axes=tuple(range(2, x.rank)), keepdims=True)
    kernel = n.ints("kernel_shape")
    if not kernel or any(k < 1 for k in kernel):
        raise Refusal(f"kernel_shape {kernel} is not positive")
    attrs = {**window(n, x, kernel), "ceil_mode": n.flag("ceil_mode")}
    return n.build.emit(
        "avg_pool", x, kernel=kernel, **attrs, count_pads=n.flag("count_include_pad")
    )


translates("QLinearSigmoid", domain=DOMAIN)(_one(lambda n, x: n.build.emit("sigmoid", x)))
translates("QLinearLeakyRelu", domain=DOMAIN)(
    _one(lambda n, x: n.build.emit("leaky_relu", x, alpha=n.float("alpha", 0.01)))
)
translates("QLinearAveragePool", "QLinearGlobalAveragePool", domain=DOMAIN)(_one(_average))


@translates("QLinearConcat", domain=DOMAIN)
def concat(n: Site) -> Any:
    """Scale and zero point of the result come first, then those of each part beside it."""
    if len(n.inputs) % 3 != 2:
        raise Refusal(f"it has {len(n.inputs)} inputs, not 2 and 3 for each part")
    parts = [operand(n, k) for k in range(2, len(n.inputs), 3)]
    return result(n, n.build.emit("concat", *parts, axis=n.int("axis", 0)), 0, n[2])


@translates("MatMulIntegerToFloat", domain=DOMAIN)
def matmul_integer_to_float(n: Site) -> Any:
    return scaled_product(n, n[0], n[2], n.optional(4), n[3], n.optional(5), n.optional(6))


@translates("DynamicQuantizeMatMul", domain=DOMAIN)
def dynamic_quantize_matmul(n: Site) -> Any:
    """The left operand is quantised to u8 by its own range."""
    x, build = n[0], n.build
    zero, most = n.constant(0.0, x.dtype), n.constant(255.0, x.dtype)
    every = tuple(range(x.rank))
    low = build.emit("minimum", build.emit("reduce_min", x, axes=every), zero)
    high = build.emit("maximum", build.emit("reduce_max", x, axes=every), zero)
    scale = build.emit("div", build.emit("sub", high, low), most)
    flat = build.emit("equal", scale, zero)
    scale = build.emit("where", flat, n.constant(1.0, x.dtype), scale)
    at = build.emit("round", build.emit("div", build.emit("sub", zero, low), scale))
    at = build.emit("cast", build.emit("clip", at, low=0.0, high=255.0), to="u8")
    q = quantised(n, x, scale, at, dtype("u8"))
    return scaled_product(n, q, scale, at, n[2], n.optional(3), n.optional(4))


def scaled_product(
    n: Site,
    a: Value,
    a_scale: Value,
    a_zero: Value | None,
    b_scale: Value,
    b_zero: Value | None,
    bias: Value | None,
) -> Value:
    """a · b in integers, times both scales, plus a bias."""
    y = as_type(n, integer_product(n, a, n[1], a_zero, b_zero), a_scale.dtype)
    for scale in (a_scale, b_scale):
        if scale.elements == sizes.size(1):
            scale = n.build.emit("reshape", scale, shape=())
        y = n.emit("mul", y, scale)
    return y if bias is None else n.emit("add", y, bias)
