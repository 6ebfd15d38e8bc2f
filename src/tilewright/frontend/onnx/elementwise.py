"""Translators of element-wise ONNX operators."""

from __future__ import annotations

import math
from typing import Any

from tilewright.frontend.onnx.coded import Coded
from tilewright.frontend.onnx.registry import MAIN, TRANSLATORS, NodeContext, translates
from tilewright.frontend.onnx.small_floats import codes, floats, format_of
from tilewright.graph import sizes
from tilewright.graph.graph import Value

# ONNX name → our operator: same operands in the same order, no attributes
PLAIN = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Add": "add", "Asin": "asin", "Asinh": "asinh",
    "Atan": "atan", "Atanh": "atanh", "BitwiseAnd": "bit_and", "BitwiseNot": "bit_not",
    "BitwiseOr": "bit_or", "BitwiseXor": "bit_xor", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh",
    "Div": "div", "Equal": "equal", "Erf": "erf", "Exp": "exp", "Floor": "floor",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal", "HardSwish": "hard_swish", "IsNaN": "isnan", "Less": "less",
    "LessOrEqual": "less_equal", "Log": "log", "Mish": "mish", "Mul": "mul", "Neg": "neg",
    "Not": "logical_not", "And": "logical_and", "Or": "logical_or", "Xor": "logical_xor",
    "Reciprocal": "reciprocal", "Relu": "relu", "Round": "round", "Sigmoid": "sigmoid",
    "Sign": "sign",
    "Sin": "sin", "Sinh": "sinh", "Softplus": "softplus", "Softsign": "softsign", "Sqrt": "sqrt",
    "Sub": "sub", "Tan": "tan", "Tanh": "tanh", "Where": "where",
}  # fmt: skip


def _plain(ours: str) -> Any:
    def translate(n: NodeContext) -> Any:
        operands = [n[k] for k in range(len(n.inputs))]
        if n.version < 7 and n.flag("broadcast"):
            operands[1] = aligned(n, *operands)
        return n.emit(ours, *operands)

    return translate


def aligned(n: NodeContext, x: Value, y: Value) -> Value:
    """Before version 7, `axis` said where the second operand's axes start in the first's."""
    axis = n.int("axis", x.rank - y.rank)
    after = x.rank - (axis % max(x.rank, 1)) - y.rank
    return n.build.emit("reshape", y, shape=(*y.shape, *(1,) * max(after, 0)))


for _theirs, _ours in PLAIN.items():
    TRANSLATORS[MAIN, _theirs] = _plain(_ours)


@translates("Identity")
def identity(n: NodeContext) -> Any:
    return n.inputs[0]


@translates("Cast", "CastLike")
def cast(n: NodeContext) -> Any:
    x, like = n.inputs[0], n.inputs[1] if n.op == "CastLike" else None
    format = like.format if isinstance(like, Coded) else format_of(n, "to")
    if isinstance(x, Coded):
        if x.format == format:
            return x
        x = floats(n, x)
    else:
        x = n[0]
    if format is not None:
        return codes(n, x, format)
    to = n[1].dtype if n.op == "CastLike" else n.dtype("to")
    if to.is_float and to.bits == 8 and x.dtype.bits > 8 and n.flag("saturate", True):
        x = n.build.emit("clip", x, low=-to.largest, high=to.largest)
    if to.is_packed and x.dtype.is_float:  # what does not fit wraps
        x = n.build.emit("cast", x, to="i32")
    return x if x.dtype is to else n.emit("cast", x, to=to.name)


@translates("BitCast")
def bitcast(n: NodeContext) -> Any:
    to = n.dtype("to")
    return n[0] if to is n[0].dtype else n.emit("bitcast", n[0], to=to.name)


@translates("Sum", "Mean", "Max", "Min")
def fold(n: NodeContext) -> Any:
    """Any number of operands, combined from left to right."""
    op = {"Sum": "add", "Mean": "add", "Max": "maximum", "Min": "minimum"}[n.op]
    total = n[0]
    for k in range(1, len(n.inputs)):
        total = n.emit(op, total, n[k])
    if n.op == "Mean" and len(n.inputs) > 1:
        total = n.emit("div", total, n.constant(len(n.inputs), total.dtype))
    return total


@translates("Pow")
def power(n: NodeContext) -> Any:
    x, y = n[0], n[1]
    if y in n.build.constants and n.build.constants[y].array.size == 1 and x.dtype.is_float:
        exponent = n.scalar(1)
        short = {0.5: "sqrt", -1.0: "reciprocal", -0.5: "rsqrt"}.get(float(exponent))
        if short and y.rank <= x.rank:
            return n.emit(short, x)
        if exponent == 2 and y.rank <= x.rank:
            return n.emit("mul", x, x)
    if x.dtype.is_int and y.dtype.is_int:  # through f64: exact while the result has 53 bits
        wide = [n.build.emit("cast", v, to="f64") for v in (x, y)]
        return n.emit("cast", n.build.emit("round", n.build.emit("pow", *wide)), to=x.dtype.name)
    if x.dtype is y.dtype:
        return n.emit("pow", x, y)
    if x.dtype.is_float:
        return n.emit("pow", x, n.build.emit("cast", y, to=x.dtype.name))
    wide = n.emit("pow", n.build.emit("cast", x, to=y.dtype.name), y)
    return n.emit("cast", wide, to=x.dtype.name)


@translates("Mod")
def modulo(n: NodeContext) -> Any:
    return n.emit("fmod" if n.flag("fmod") else "floormod", n[0], n[1])


@translates("BitShift")
def bit_shift(n: NodeContext) -> Any:
    return n.emit("shift_left" if n.text("direction") == "LEFT" else "shift_right", n[0], n[1])


@translates("LeakyRelu")
def leaky_relu(n: NodeContext) -> Any:
    return n.emit("leaky_relu", n[0], alpha=n.float("alpha", 0.01))


@translates("Elu", "Celu", "ThresholdedRelu")
def alpha_only(n: NodeContext) -> Any:
    op = {"Elu": "elu", "Celu": "celu", "ThresholdedRelu": "thresholded_relu"}[n.op]
    return n.emit(op, n[0], alpha=n.float("alpha", 1.0))


@translates("Selu")
def selu(n: NodeContext) -> Any:
    return n.emit(
        "selu", n[0], alpha=n.float("alpha", 1.67326319217681884765625),
        gamma=n.float("gamma", 1.05070102214813232421875),
    )  # fmt: skip


@translates("HardSigmoid")
def hard_sigmoid(n: NodeContext) -> Any:
    return n.emit("hard_sigmoid", n[0], alpha=n.float("alpha", 0.2), beta=n.float("beta", 0.5))


@translates("Shrink")
def shrink(n: NodeContext) -> Any:
    return n.emit("shrink", n[0], bias=n.float("bias", 0.0), lambd=n.float("lambd", 0.5))


@translates("Gelu")
def gelu(n: NodeContext) -> Any:
    return n.emit("gelu", n[0], tanh=n.text("approximate", "none") == "tanh")


@translates("Swish")
def swish(n: NodeContext) -> Any:
    alpha, x = n.float("alpha", 1.0), n[0]
    if alpha == 1.0:
        return n.emit("silu", x)
    scaled = n.emit("mul", x, n.constant(alpha, x.dtype))
    return n.emit("mul", x, n.emit("sigmoid", scaled))


@translates("PRelu")
def prelu(n: NodeContext) -> Any:
    x, slope = n[0], n[1]
    if n.version < 7 and slope.rank == 1 and x.rank > 1 and slope.shape != (sizes.size(1),):
        shape = (slope.shape[0], *(1,) * (x.rank - 2))  # one for each channel
        slope = n.build.emit("reshape", slope, shape=shape)
    return n.emit("prelu", x, slope)


@translates("IsInf")
def isinf(n: NodeContext) -> Any:
    return n.emit(
        "isinf",
        n[0],
        positive=n.flag("detect_positive", True),
        negative=n.flag("detect_negative", True),
    )


@translates("Clip")
def clip(n: NodeContext) -> Any:
    x = n[0]
    if n.version < 11:
        low, high = n.float("min"), n.float("max")
        return n.emit("clip", x, low=low, high=high)
    ends: list[Any] = []
    for k in (1, 2):
        end = n.optional(k)
        known = end is None or (end in n.build.constants and n.build.constants[end].array.size == 1)
        ends.append(n.scalar(k) if known else end)
    if not any(isinstance(e, Value) for e in ends):
        low, high = (
            None if e is None or (isinstance(e, float) and math.isnan(e)) else e for e in ends
        )
        return n.emit("clip", x, low=low, high=high)
    for op, k, end in (("maximum", 1, ends[0]), ("minimum", 2, ends[1])):
        if end is not None:
            x = n.emit(op, x, n[k])
    return x
