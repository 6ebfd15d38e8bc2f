"""Translators of element-wise ATen operators. Operands take the result's dtype first."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from tilewright.frontend.torch.convert import Refusal, of_torch
from tilewright.frontend.torch.registry import TRANSLATORS, NodeContext, translates
from tilewright.graph.graph import Value
from tilewright.ir.dtype import DType, dtype

# ATen name → our operator. Floats of the result's dtype in:
FLOAT = {
    "acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh", "atan": "atan",
    "atanh": "atanh", "cos": "cos", "cosh": "cosh", "erf": "erf", "exp": "exp", "exp2": "exp2",
    "expm1": "expm1", "log": "log", "log1p": "log1p", "log2": "log2", "mish": "mish",
    "reciprocal": "reciprocal", "rsqrt": "rsqrt", "sigmoid": "sigmoid", "silu": "silu",
    "sin": "sin", "sinh": "sinh", "sqrt": "sqrt", "tan": "tan", "tanh": "tanh",
}  # fmt: skip
ROUNDING = {"ceil": "ceil", "floor": "floor", "trunc": "trunc", "round": "round", "fix": "trunc"}
SAME = {"abs": "abs", "neg": "neg", "relu": "relu"}
COMPARISONS = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal",
}  # fmt: skip
LOGIC = {"logical_and": "logical_and", "logical_or": "logical_or", "logical_xor": "logical_xor"}
BITS = {"and": "bit_and", "or": "bit_or", "xor": "bit_xor"}
SHIFTS = {"left_shift": "shift_left", "right_shift": "shift_right"}


def _unary(ours: str) -> Any:
    return lambda n, x: n.emit(ours, n.operand(x))


def _rounding(ours: str) -> Any:
    return lambda n, x: n.emit(ours, x) if x.dtype.is_float else x


for _theirs, _ours in {**FLOAT, **SAME}.items():
    TRANSLATORS[f"aten.{_theirs}.default"] = _unary(_ours)
for _theirs, _ours in ROUNDING.items():
    TRANSLATORS[f"aten.{_theirs}.default"] = _rounding(_ours)


OF_BOOLEANS = {"mul": "logical_and", "minimum": "logical_and", "maximum": "logical_or"}


def _binary(ours: str) -> Any:
    def translate(n: NodeContext, x: Any, y: Any) -> Any:
        return n.emit(OF_BOOLEANS[ours] if n.of.is_bool else ours, n.operand(x), n.operand(y))

    return translate


for _theirs, _ours in {
    "atan2.default": "atan2", "maximum.default": "maximum", "minimum.default": "minimum",
    "mul.Tensor": "mul", "mul.Scalar": "mul", "div.Tensor": "div", "div.Scalar": "div",
    "fmod.Tensor": "fmod", "fmod.Scalar": "fmod", "remainder.Tensor": "floormod",
    "remainder.Scalar": "floormod", "remainder.Scalar_Tensor": "floormod",
}.items():  # fmt: skip
    TRANSLATORS[f"aten.{_theirs}"] = _binary(_ours)


@translates("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", "rsub.Tensor", "rsub.Scalar")
def add(n: NodeContext, x: Any, y: Any, alpha: Any = 1) -> Any:
    """x ± alpha y; of booleans, the sum is "or"."""
    if n.op == "rsub":
        left, right = n.operand(y), scaled(n, n.operand(x), alpha)
    else:
        left, right = n.operand(x), scaled(n, n.operand(y), alpha)
    op = "add" if n.op == "add" else "sub"
    return n.emit("logical_or" if n.of.is_bool else op, left, right)


def scaled(n: NodeContext, x: Value, factor: Any) -> Value:
    """x times a number."""
    return x if factor == 1 else n.emit("mul", x, n.operand(factor, x.dtype))


def _compared(n: NodeContext) -> Any:
    """The dtype in which the operands are compared."""
    a, b = n.fake(0), n.fake(1)
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return of_torch(
            torch.result_type(*(x if isinstance(x, torch.Tensor) else _plain(x) for x in (a, b)))
        )
    raise Refusal("it compares two numbers")


def _plain(x: Any) -> Any:
    return 1 if isinstance(x, torch.SymInt) else x


def _comparison(ours: str) -> Any:
    def translate(n: NodeContext, x: Any, y: Any) -> Any:
        of = _compared(n)
        if of.is_bool and ours not in ("equal", "not_equal"):
            of = dtype("u8")
        if of.is_bool:
            y = n.emit("logical_xor", n.operand(x, of), n.operand(y, of))
            return y if ours == "not_equal" else n.emit("logical_not", y)
        return n.emit(ours, n.operand(x, of), n.operand(y, of))

    return translate


for _theirs, _ours in COMPARISONS.items():
    for _overload in ("Tensor", "Scalar"):
        TRANSLATORS[f"aten.{_theirs}.{_overload}"] = _comparison(_ours)


def truth(n: NodeContext, x: Value) -> Value:
    """Is x not zero?"""
    if x.dtype.is_bool:
        return x
    return n.emit("not_equal", x, n.constant(0, x.dtype))


def _logic(ours: str) -> Any:
    return lambda n, x, y: n.emit(ours, truth(n, x), truth(n, y))


for _theirs, _ours in LOGIC.items():
    TRANSLATORS[f"aten.{_theirs}.default"] = _logic(_ours)


def _bits(ours: str) -> Any:
    def translate(n: NodeContext, x: Any, y: Any) -> Any:
        op = ours.replace("bit", "logical") if n.of.is_bool else ours
        return n.emit(op, n.operand(x), n.operand(y))

    return translate


for _theirs, _ours in BITS.items():
    for _name in (f"bitwise_{_theirs}", f"__{_theirs}__"):
        for _overload in ("Tensor", "Scalar"):
            TRANSLATORS[f"aten.{_name}.{_overload}"] = _bits(_ours)
for _theirs, _ours in SHIFTS.items():
    for _overload in ("Tensor", "Tensor_Scalar", "Scalar"):
        TRANSLATORS[f"aten.bitwise_{_theirs}.{_overload}"] = _binary(_ours)
    _short = "__lshift__" if _theirs == "left_shift" else "__rshift__"
    for _overload in ("Tensor", "Scalar"):
        TRANSLATORS[f"aten.{_short}.{_overload}"] = _binary(_ours)


@translates("logical_not.default")
def logical_not(n: NodeContext, x: Value) -> Any:
    return n.emit("logical_not", truth(n, x))


@translates("bitwise_not.default")
def bitwise_not(n: NodeContext, x: Value) -> Any:
    return n.emit("logical_not" if x.dtype.is_bool else "bit_not", x)


@translates("sign.default", "sgn.default")
def sign(n: NodeContext, x: Value) -> Any:
    """-1, 0 or 1; 0 for what is not a number."""
    if x.dtype.is_bool:
        return x
    above, below = (n.emit(op, x, n.constant(0, x.dtype)) for op in ("greater", "less"))
    return n.emit("sub", n.cast(above, x.dtype), n.cast(below, x.dtype))


@translates("fmax.default", "fmin.default")
def extreme_number(n: NodeContext, x: Value, y: Value) -> Any:
    """The greater or lesser; of a number and NaN the number."""
    x, y = n.operand(x), n.operand(y)
    found = n.emit("maximum" if n.op == "fmax" else "minimum", x, y)
    if not n.of.is_float:
        return found
    found = n.emit("where", n.emit("isnan", x), y, found)
    return n.emit("where", n.emit("isnan", y), x, found)


@translates("hypot.default")
def hypot(n: NodeContext, x: Value, y: Value) -> Any:
    """√(x² + y²), scaled so that no square overflows; infinite if either is, even beside NaN."""
    return n.cast(length(n, n.wide(n.operand(x)), n.wide(n.operand(y))), n.of)


def length(n: NodeContext, x: Value, y: Value) -> Value:
    """√(x² + y²) in the dtype of both, as `hypot`."""
    x, y = n.emit("abs", x), n.emit("abs", y)
    large, small = n.emit("maximum", x, y), n.emit("minimum", x, y)
    ratio = n.emit("div", small, large)
    square = n.emit("add", n.emit("mul", ratio, ratio), n.constant(1, x.dtype))
    scaled = n.emit("mul", large, n.emit("sqrt", square))
    plain = n.emit("equal", large, n.constant(0, x.dtype))  # 0 / 0 is no number
    endless = n.emit("logical_or", n.emit("isinf", x), n.emit("isinf", y))
    found = n.emit("where", plain, large, scaled)
    return n.emit("where", endless, n.constant(math.inf, x.dtype), found)


@translates("ldexp.Tensor")
def ldexp(n: NodeContext, x: Value, exponent: Value) -> Any:
    return n.emit("mul", n.operand(x), n.emit("exp2", n.operand(exponent)))


@translates("isnan.default", "isinf.default")
def is_special(n: NodeContext, x: Value) -> Any:
    return n.emit(n.op, x) if x.dtype.is_float else n.full(False)


@translates("log10.default")
def log10(n: NodeContext, x: Value) -> Any:
    return n.emit("mul", n.emit("log", n.operand(x)), n.constant(1 / math.log(10), n.of))


@translates("round.decimals")
def round_decimals(n: NodeContext, x: Value, decimals: int = 0) -> Any:
    if not x.dtype.is_float:
        return x
    scale = n.constant(10.0 ** abs(decimals), x.dtype)
    there, back = ("mul", "div") if decimals >= 0 else ("div", "mul")
    return n.emit(back, n.emit("round", n.emit(there, x, scale)), scale)


@translates("square.default")
def square(n: NodeContext, x: Value) -> Any:
    x = n.operand(x)
    return n.emit("mul", x, x)


@translates("div.Tensor_mode", "div.Scalar_mode", "floor_divide.default", "floor_divide.Scalar")
def divide(n: NodeContext, x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    """Quotients, rounded towards zero ("trunc"), down ("floor") or not."""
    mode = "floor" if n.op == "floor_divide" else rounding_mode
    a, b = n.operand(x), n.operand(y)
    if n.of.is_float:
        quotient = n.emit("div", a, b)
        return quotient if mode is None else n.emit(mode, quotient)
    if mode == "floor" and n.of.is_signed:  # take the remainder away: the rest divides
        a = n.emit("sub", a, n.emit("floormod", a, b))
    return n.emit("div", a, b)


SHORT_POWERS = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}


@translates("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "float_power.Tensor_Scalar")
def power(n: NodeContext, x: Any, y: Any) -> Any:
    base = n.operand(x)
    if isinstance(y, int | float) and isinstance(x, Value):
        if y in (1, 2, 3, 4):
            if y == 1:
                return base
            two = n.emit("mul", base, base)
            return two if y == 2 else n.emit("mul", two, base if y == 3 else two)
        if y == 0:
            return n.full(1)
        if n.of.is_float and float(y) in SHORT_POWERS:
            return n.emit(SHORT_POWERS[float(y)], base)
    return n.emit("pow", base, n.operand(y))


def held(end: int, of: DType) -> int:
    """An end of a range as C converts it to an integer type: -1 is the greatest u8."""
    return int(np.asarray(end, np.int64).astype(of.numpy))


@translates("clamp.default", "clamp.Tensor", "clamp_min.default", "clamp_max.default",
            "hardtanh.default", "clamp_min.Tensor", "clamp_max.Tensor")  # fmt: skip
def clamp(
    n: NodeContext, x: Value, min: Any = None, max: Any = None, *rest: Any, **named: Any
) -> Any:
    if n.op == "hardtanh":
        min, max = (-1.0 if min is None else min), (1.0 if max is None else max)
        min, max = named.get("min_val", min), named.get("max_val", max)
    if n.op == "clamp_max":
        min, max = None, min
    x = n.operand(x)
    if not any(isinstance(end, Value) for end in (min, max)):
        if min is not None and max is not None and min > max:
            return n.full(max)
        if x.dtype.is_int:
            min, max = (None if end is None else held(end, x.dtype) for end in (min, max))
        return n.emit("clip", x, low=min, high=max)
    for op, end in (("maximum", min), ("minimum", max)):
        if end is not None:
            x = n.emit(op, x, n.operand(end))
    return x


@translates("relu6.default")
def relu6(n: NodeContext, x: Value) -> Any:
    return n.emit("clip", x, low=0, high=6)


@translates("leaky_relu.default")
def leaky_relu(n: NodeContext, x: Value, negative_slope: float = 0.01) -> Any:
    return n.emit("leaky_relu", x, alpha=negative_slope)


@translates("prelu.default", "_prelu_kernel.default")
def prelu(n: NodeContext, x: Value, weight: Value) -> Any:
    """One slope for all, or one for each channel (axis 1)."""
    if n.op == "prelu" and x.rank > 1:
        weight = n.reshape(weight, (*weight.shape, *(1,) * (x.rank - 2)))
    return n.reshape(n.emit("prelu", x, weight), x.shape)


@translates("elu.default")
def elu(
    n: NodeContext, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1
) -> Any:
    if input_scale != 1:
        scaled = n.emit("mul", x, n.constant(input_scale, x.dtype))
        low = n.emit("mul", n.emit("expm1", scaled), n.constant(alpha * scale, x.dtype))
        high = n.emit("mul", x, n.constant(scale, x.dtype))
        return n.emit("where", n.emit("greater", x, n.constant(0, x.dtype)), high, low)
    if scale != 1:
        return n.emit("selu", x, alpha=alpha, gamma=scale)
    return n.emit("elu", x, alpha=alpha)


@translates("selu.default")
def selu(n: NodeContext, x: Value) -> Any:
    return n.emit("selu", x)


@translates("celu.default")
def celu(n: NodeContext, x: Value, alpha: float = 1.0) -> Any:
    return n.emit("celu", x, alpha=alpha)


@translates("gelu.default")
def gelu(n: NodeContext, x: Value, approximate: str = "none") -> Any:
    return n.emit("gelu", x, tanh=approximate == "tanh")


@translates("hardsigmoid.default")
def hardsigmoid(n: NodeContext, x: Value) -> Any:
    return n.emit("hard_sigmoid", x, alpha=1 / 6, beta=0.5)


@translates("hardswish.default")
def hardswish(n: NodeContext, x: Value) -> Any:
    return n.emit("hard_swish", x)


@translates("hardshrink.default", "softshrink.default")
def shrink(n: NodeContext, x: Value, lambd: float = 0.5) -> Any:
    """0 within [-lambd, lambd]; softshrink moves the rest towards it. NaN stays NaN."""
    if n.op == "softshrink":
        return n.emit("sub", x, n.emit("clip", x, low=-lambd, high=lambd))
    small = n.emit("less_equal", n.emit("abs", x), n.constant(lambd, x.dtype))
    return n.emit("where", small, n.constant(0, x.dtype), x)


@translates("softplus.default")
def softplus(n: NodeContext, x: Value, beta: float = 1, threshold: float = 20) -> Any:
    """log(1 + e^(beta x)) / beta, and x where beta x is above the threshold: from 20 on that is the
    same."""
    scale = n.constant(beta, x.dtype)
    scaled = x if beta == 1 else n.emit("mul", x, scale)
    y = n.emit("softplus", scaled)
    y = y if beta == 1 else n.emit("div", y, scale)
    if threshold >= 20:
        return y
    return n.emit("where", n.emit("greater", scaled, n.constant(threshold, x.dtype)), x, y)


@translates("log_sigmoid.default", "log_sigmoid_forward.default")
def log_sigmoid(n: NodeContext, x: Value) -> Any:
    y = n.emit("neg", n.emit("softplus", n.emit("neg", x)))
    return y if n.op == "log_sigmoid" else (y, None)


@translates("threshold.default")
def threshold(n: NodeContext, x: Value, threshold: float, value: float) -> Any:
    small = n.emit("less_equal", x, n.constant(threshold, x.dtype))
    return n.emit("where", small, n.constant(value, x.dtype), x)


@translates("where.self", "where.Scalar", "where.ScalarOther", "where.ScalarSelf")
def where(n: NodeContext, condition: Value, x: Any, y: Any) -> Any:
    return n.emit("where", truth(n, condition), n.operand(x), n.operand(y))


@translates("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(n: NodeContext, x: Value, mask: Value, value: Any) -> Any:
    return n.emit("where", mask, n.operand(value), n.operand(x))


@translates("fill.Scalar", "fill.Tensor")
def fill(n: NodeContext, x: Value, value: Any) -> Any:
    return n.expand(n.operand(value), n.shape)


@translates("copy.default")
def copy(n: NodeContext, x: Value, source: Value, non_blocking: bool = False) -> Any:
    return n.expand(n.operand(source), n.shape)


@translates("_to_copy.default", "to.dtype", "to.dtype_layout", "to.device", "to.other",
            "type_as.default", "_cast_Float.default")  # fmt: skip
def convert(n: NodeContext, x: Value, *_: Any, **named: Any) -> Any:
    """Another dtype, as the result has it."""
    if n.of.is_bool and not x.dtype.is_bool:
        return truth(n, x)
    if n.of.is_int and n.of.bits < 32 and x.dtype.is_float:  # PyTorch truncates to i64 and wraps
        x = n.cast(x, "i64")
    return n.cast(x, n.of)


@translates("clone.default", "alias.default", "contiguous.default", "detach.default",
            "detach_.default", "lift_fresh_copy.default", "lift_fresh.default", "lift.default",
            "view_of.default", "_conj.default", "resolve_conj.default", "resolve_neg.default",
            "real.default", "positive.default", "_assert_tensor_metadata.default")  # fmt: skip
def identity(n: NodeContext, x: Value, *_: Any, **named: Any) -> Any:
    return x


@translates("_assert_scalar.default", "_assert_async.msg", "_assert_async.default",
            "sym_constrain_range.default", "sym_constrain_range_for_size.default")  # fmt: skip
def assertion(n: NodeContext, *_: Any, **named: Any) -> None:
    """Conditions of the export, which hold for the sizes of the graph."""
