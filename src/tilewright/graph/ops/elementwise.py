"""Element-wise operators: one row each for those of one or two operands, then those with
attributes.

Operands broadcast as in NumPy and share a dtype. Booleans, integers and floats follow the IR's
meaning (integers wrap, division of integers truncates). Sources: ONNX operators of the same names,
where they differ the docstring says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright import te
from tilewright.graph.operator import (
    BROADCAST,
    CHEAP,
    FINITE,
    MOVES,
    NO_TRAIT,
    ONE,
    Operator,
    Trait,
    Type,
    broadcast_shape,
    need,
    operator,
)
from tilewright.ir.dtype import DType, bool_, dtype
from tilewright.ir.expr import Call, Expr, truncdiv, truncmod


def same(x: Any, **_: Any) -> Type:
    """Type rule: the type of the first input."""
    return x.dtype, x.shape


def same_float(x: Any, **_: Any) -> Type:
    """Type rule: the type of the input, which holds floats."""
    need(x.dtype.is_float, f"needs floats, not {x.dtype}")
    return x.dtype, x.shape


def truth(x: Any, **_: Any) -> Type:
    """Type rule: booleans in the shape of the input."""
    return bool_, x.shape


def broadcast(*xs: Any, **_: Any) -> Type:
    """Type rule: one dtype, broadcast shapes."""
    first = xs[0].dtype
    for x in xs[1:]:
        need(x.dtype is first, f"operands have dtypes {first} and {x.dtype}")
    return first, broadcast_shape(*[x.shape for x in xs])


def broadcast_float(*xs: Any, **_: Any) -> Type:
    """Type rule: one float dtype, broadcast shapes."""
    need(xs[0].dtype.is_float, f"needs floats, not {xs[0].dtype}")
    return broadcast(*xs)


def broadcast_bits(*xs: Any, **_: Any) -> Type:
    """Type rule: one integer dtype, broadcast shapes."""
    need(xs[0].dtype.is_int, f"needs integers, not {xs[0].dtype}")
    return broadcast(*xs)


def logic(*xs: Any, **_: Any) -> Type:
    """Type rule: booleans, broadcast shapes."""
    need(xs[0].dtype.is_bool, f"needs booleans, not {xs[0].dtype}")
    return broadcast(*xs)


def comparison(*xs: Any, **_: Any) -> Type:
    """Type rule: booleans in the broadcast shape of operands of one dtype."""
    return bool_, broadcast(*xs)[1]


def element(x: Any, at: tuple[Expr, ...]) -> Expr:
    """The element of `x` that broadcasting puts at index `at`."""
    indices = at[len(at) - len(x.shape) :]
    return x[
        tuple([0 if s is ONE or s == ONE else i for i, s in zip(indices, x.shape, strict=True)])
    ]


def one_operand(
    name: str,
    value: Callable[[Expr], Expr],
    reference: Callable[..., Any],
    doc: str,
    infer: Callable[..., Type] = same_float,
    traits: Trait = NO_TRAIT,
) -> Operator:
    """Register y[i] = value(x[i])."""

    def define(x: Any) -> Any:
        return te.compute(x.shape, lambda *i: value(x[i]), name=name)

    define.__name__, define.__doc__ = name, doc
    reference = keeping_dtype(reference)
    return operator(fusion=BROADCAST, infer=infer, reference=reference, traits=traits)(define)


def in_f32(value: Callable[[Expr], Expr]) -> Callable[[Expr], Expr]:
    """A formula of several steps that small floats take in f32, so that they are rounded once."""

    def apply(v: Expr) -> Expr:
        if v.dtype.is_float and v.dtype.bits < 32:
            return value(v.astype("f32")).astype(v.dtype)
        return value(v)

    return apply


def two_operands(
    name: str,
    value: Callable[[Expr, Expr], Expr],
    reference: Callable[..., Any],
    doc: str,
    infer: Callable[..., Type] = broadcast,
    traits: Trait = NO_TRAIT,
) -> Operator:
    """Register z[i] = value(x[i], y[i])."""

    def define(x: Any, y: Any) -> Any:
        shape = broadcast_shape(x.shape, y.shape)
        return te.compute(shape, lambda *i: value(element(x, i), element(y, i)), name=name)

    define.__name__, define.__doc__ = name, doc
    return operator(fusion=BROADCAST, infer=infer, reference=reference, traits=traits)(define)


def keeping_dtype(reference: Callable[..., Any]) -> Callable[..., Any]:
    """`reference` with floats given back in the dtype they came in; small ones are f32 inside."""

    def apply(x: np.ndarray, **attrs: Any) -> np.ndarray:
        small = x.dtype.itemsize < 4 and dtype(x.dtype).is_float
        y = np.asarray(reference(x.astype(np.float32) if small else x, **attrs))
        return y if y.dtype == x.dtype or y.dtype == np.bool_ else y.astype(x.dtype)

    return apply


def sum_type(of: DType) -> str:
    """The dtype in which sums of `of` are accumulated, of 32 bits at least: small floats are then
    rounded once, and sums of small integers do not wrap before they are divided."""
    if of.bits >= 32 or of.is_bool:
        return of.name
    return "f32" if of.is_float else "i32" if of.is_signed else "u32"


def narrowed(x: Any, of: DType) -> Any:
    """x, a tensor of sums in `sum_type(of)`, rounded once to `of`."""
    if x.dtype is of:
        return x
    return te.compute(x.shape, lambda *i: x[i].astype(of), name=f"{x.name}_{of}")


def zero(x: Expr) -> Expr:
    return te.const(0, x.dtype)


def number(value: float, like: Expr) -> Expr:
    return te.const(value, like.dtype)


_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: np.ndarray) -> np.ndarray:
    """The error function (float results)."""
    return np.asarray(_erf(np.asarray(x, np.float64)), np.float64)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + e^-x) without overflow."""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def softplus(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def te_softplus(x: Expr) -> Expr:
    return te.maximum(x, zero(x)) + te.log1p(te.exp(-te.abs(x)))


def _quietly(f: Callable[..., Any]) -> Callable[..., Any]:
    def apply(*xs: Any) -> Any:
        with np.errstate(all="ignore"):
            return f(*xs)

    return apply


def _power(x: Expr, y: Expr) -> Expr:
    if x.dtype.is_float:
        return te.power(x, y)
    one, two, most = (te.const(v, x.dtype) for v in (1, 2, x.dtype.bits - 1))
    # a greater power fits for -1, 0 and 1 alone: what counts is whether the exponent is odd
    left = te.select(y > most, y % two + (most - one), te.maximum(y, zero(y)))
    result, square = one, x
    for _ in range(x.dtype.bits.bit_length() - 1):
        result = result * te.select(te.eq(left % two, one), square, one)
        square, left = square * square, left // two
    if not x.dtype.is_signed:
        return result
    sign = te.select(te.eq(y % two, zero(y)), one, x)
    return te.select(y < zero(y), te.select(te.eq(te.abs(x), one), sign, zero(x)), result)


def _pow(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Whole numbers to negative powers are 0, but for 1 and -1."""
    if y.dtype.kind != "i":
        return np.power(x, y)
    unit = np.where(np.abs(x) == 1, np.power(x, np.abs(y) % 2), 0).astype(x.dtype)
    return np.where(y < 0, unit, np.power(x, np.maximum(y, 0)))


def _mish(x: Expr) -> Expr:
    """x tanh(log(1 + e^x)) by one exponential: tanh(log(1 + e)) is (e² + 2e) / (e² + 2e + 2), which
    is 1 from e^20 on."""
    e, two = te.exp(te.minimum(x, number(20, x))), number(2, x)
    part = e * (e + two)
    return x * (part / (part + two))


for _name, _doc in {
    "exp": "e^x",
    "exp2": "2^x",
    "expm1": "e^x - 1",
    "log": "natural logarithm",
    "log2": "base-2 logarithm",
    "log1p": "log(1 + x)",
    "sqrt": "square root",
    "sin": "sine",
    "cos": "cosine",
    "tan": "tangent",
    "sinh": "hyperbolic sine",
    "cosh": "hyperbolic cosine",
    "ceil": "rounded up",
    "floor": "rounded down",
    "trunc": "rounded towards zero",
    "round": "rounded, halves to even",
}.items():
    one_operand(_name, getattr(te, _name), _quietly(getattr(np, _name)), _doc)
for _name in ("asin", "acos", "atan", "asinh", "acosh", "atanh"):
    one_operand(
        _name,
        getattr(te, _name),
        _quietly(getattr(np, _name.replace("a", "arc", 1))),
        f"inverse of {_name[1:]}",
    )
one_operand("neg", lambda x: -x, np.negative, "-x", same, traits=CHEAP | FINITE)
one_operand("abs", te.abs, np.abs, "absolute value", same, traits=CHEAP | FINITE)
one_operand("sign", te.sign, np.sign, "-1, 0 or 1", same)
one_operand(
    "rounded",
    lambda x: Call("rounded", (x,), x.dtype),
    lambda x: x,
    "x, rounded to its dtype where it is made: a product is not fused with the sum that takes it",
)
one_operand("rsqrt", te.rsqrt, _quietly(lambda x: 1 / np.sqrt(x)), "1 / sqrt(x)")
one_operand("reciprocal", lambda x: number(1, x) / x, _quietly(lambda x: 1 / x), "1 / x")
one_operand("erf", te.erf, erf, "error function", traits=FINITE)
one_operand("tanh", te.tanh, _quietly(np.tanh), "hyperbolic tangent", traits=FINITE)
one_operand("sigmoid", te.sigmoid, sigmoid, "1 / (1 + e^-x)", traits=FINITE)
one_operand(
    "relu",
    lambda x: te.maximum(x, zero(x)),
    lambda x: np.maximum(x, 0),
    "max(x, 0)",
    same,
    traits=CHEAP | FINITE,
)
one_operand(
    "silu",
    in_f32(lambda x: x * te.sigmoid(x)),
    lambda x: x * sigmoid(x),
    "x sigmoid(x), also called swish",
    traits=FINITE,
)
one_operand("softplus", in_f32(te_softplus), softplus, "log(1 + e^x)", traits=FINITE)
one_operand(
    "softsign",
    in_f32(lambda x: x / (te.abs(x) + number(1, x))),
    lambda x: x / (1 + np.abs(x)),
    "x / (1 + |x|)",
    traits=FINITE,
)
one_operand(
    "mish",
    in_f32(_mish),
    lambda x: x * np.tanh(softplus(x)),
    "x tanh(softplus(x))",
)
one_operand(
    "hard_swish",
    in_f32(  # x + 3 is exact where it is small
        lambda x: (
            te.maximum(zero(x), te.minimum(number(6, x), x + number(3, x))) * number(1 / 6, x) * x
        )
    ),
    lambda x: x * (np.clip(x + 3, 0, 6) / 6),
    "x hard_sigmoid(x) with slope 1/6. Source: ONNX HardSwish",
    traits=FINITE,
)
one_operand("logical_not", lambda x: ~x, np.logical_not, "not x", logic, traits=CHEAP)
one_operand("bit_not", lambda x: ~x, np.invert, "every bit flipped", broadcast_bits)
one_operand("isnan", te.isnan, np.isnan, "is x not a number?", truth)


def _truncated(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x / y; for integers rounded towards zero, 0 where y is 0."""
    with np.errstate(all="ignore"):
        if np.asarray(x).dtype.kind not in "iu":
            return np.asarray(x / y)
        whole = np.floor_divide(x, y)
        return np.where((np.remainder(x, y) != 0) & ((x < 0) != (y < 0)), whole + 1, whole).astype(
            x.dtype
        )


def _divide(x: Expr, y: Expr) -> Expr:
    return x / y if x.dtype.is_float else truncdiv(x, y)


def _floormod(x: Expr, y: Expr) -> Expr:
    if not x.dtype.is_float:
        return x % y
    rest = te.fmod(x, y)
    zero = te.const(0, x.dtype)
    return te.select(te.ne(rest, zero) & te.ne(rest < zero, y < zero), rest + y, rest)


def _fmod(x: Expr, y: Expr) -> Expr:
    return te.fmod(x, y) if x.dtype.is_float else truncmod(x, y)


two_operands("add", lambda x, y: x + y, np.add, "x + y", traits=CHEAP | FINITE)
two_operands("sub", lambda x, y: x - y, np.subtract, "x - y", traits=CHEAP | FINITE)
two_operands("mul", lambda x, y: x * y, _quietly(np.multiply), "x y", traits=CHEAP | FINITE)
two_operands("div", _divide, _truncated, "x / y; integers round towards zero. Source: ONNX Div")
two_operands("floormod", _floormod, _quietly(np.mod), "x modulo y with the sign of y", broadcast)
two_operands("fmod", _fmod, _quietly(np.fmod), "x modulo y with the sign of x, as C's fmod")
two_operands("pow", _power, _quietly(_pow), "x to the power y; integers: exact where it fits")
two_operands("atan2", te.atan2, np.arctan2, "the angle of the point (y, x)", broadcast_float)
two_operands(
    "minimum", te.minimum, np.minimum, "the lesser; NaN if either is", traits=CHEAP | FINITE
)
two_operands(
    "maximum", te.maximum, np.maximum, "the greater; NaN if either is", traits=CHEAP | FINITE
)
two_operands("equal", te.eq, np.equal, "x = y", comparison, traits=CHEAP)
two_operands("not_equal", te.ne, np.not_equal, "x ≠ y", comparison, traits=CHEAP)
two_operands("less", lambda x, y: x < y, np.less, "x < y", comparison, traits=CHEAP)
two_operands("less_equal", lambda x, y: x <= y, np.less_equal, "x ≤ y", comparison, traits=CHEAP)
two_operands("greater", lambda x, y: x > y, np.greater, "x > y", comparison, traits=CHEAP)
two_operands(
    "greater_equal", lambda x, y: x >= y, np.greater_equal, "x ≥ y", comparison, traits=CHEAP
)
two_operands("logical_and", lambda x, y: x & y, np.logical_and, "x and y", logic, traits=CHEAP)
two_operands("logical_or", lambda x, y: x | y, np.logical_or, "x or y", logic, traits=CHEAP)
two_operands("logical_xor", te.ne, np.logical_xor, "either x or y", logic)
two_operands("bit_and", lambda x, y: x & y, np.bitwise_and, "bitwise and", broadcast_bits)
two_operands("bit_or", lambda x, y: x | y, np.bitwise_or, "bitwise or", broadcast_bits)
two_operands("bit_xor", lambda x, y: x ^ y, np.bitwise_xor, "bitwise exclusive or", broadcast_bits)
two_operands("shift_left", lambda x, y: x << y, np.left_shift, "x 2^y", broadcast_bits)
two_operands(
    "shift_right", lambda x, y: x >> y, np.right_shift, "x / 2^y rounded down", broadcast_bits
)
two_operands(
    "prelu",
    lambda x, slope: te.select(x < zero(x), x * slope, x),
    lambda x, slope: np.where(x < 0, x * slope, x),
    "x, scaled by `slope` where it is negative. Source: ONNX PRelu-16",
)


def each(x: Any, value: Callable[[Expr], Expr], name: str) -> Any:
    """The tensor of value(x[i])."""
    return te.compute(x.shape, lambda *i: value(x[i]), name=name)


@operator(
    fusion=BROADCAST,
    infer=same_float,
    reference=keeping_dtype(lambda x, alpha: np.where(x < 0, x * alpha, x)),
    traits=FINITE,
)
def leaky_relu(x: Any, *, alpha: float = 0.01) -> Any:
    """x, times `alpha` where it is negative."""
    return each(x, lambda v: te.select(v < zero(v), v * number(alpha, v), v), "leaky_relu")


@operator(
    fusion=BROADCAST,
    infer=same_float,
    reference=keeping_dtype(
        lambda x, alpha: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x)
    ),
    traits=FINITE,
)
def elu(x: Any, *, alpha: float = 1.0) -> Any:
    """x, or alpha (e^x - 1) where x is negative."""

    def value(v: Expr) -> Expr:
        return te.select(v < zero(v), number(alpha, v) * te.expm1(v), v)

    return each(x, in_f32(value), "elu")


@operator(
    fusion=BROADCAST,
    infer=same_float,
    reference=keeping_dtype(
        lambda x, alpha, gamma: gamma * np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x)
    ),
    traits=FINITE,
)
def selu(x: Any, *, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> Any:
    """gamma times elu(x, alpha)."""

    def value(v: Expr) -> Expr:
        return number(gamma, v) * te.select(v < zero(v), number(alpha, v) * te.expm1(v), v)

    return each(x, in_f32(value), "selu")


@operator(
    fusion=BROADCAST,
    infer=same_float,
    reference=keeping_dtype(
        lambda x, alpha: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0) / alpha), x)
    ),
)
def celu(x: Any, *, alpha: float = 1.0) -> Any:
    """x, or alpha (e^(x / alpha) - 1) where x is negative."""

    def value(v: Expr) -> Expr:
        return te.select(v < zero(v), number(alpha, v) * te.expm1(v / number(alpha, v)), v)

    return each(x, in_f32(value), "celu")


@operator(
    fusion=BROADCAST,
    infer=same_float,
    reference=keeping_dtype(lambda x, alpha, beta: np.clip(x * alpha + beta, 0, 1)),
    traits=FINITE,
)
def hard_sigmoid(x: Any, *, alpha: float = 0.2, beta: float = 0.5) -> Any:
    """alpha x + beta, held within 0 and 1."""
    shift = beta / alpha if alpha else math.inf
    exact = np.float32(shift) == shift  # then nothing cancels where the result is small

    def value(v: Expr) -> Expr:
        slope = number(alpha, v)
        line = (v + number(shift, v)) * slope if exact else v * slope + number(beta, v)
        return te.maximum(zero(v), te.minimum(number(1, v), line))

    return each(x, in_f32(value), "hard_sigmoid")


@operator(
    fusion=BROADCAST,
    infer=same_float,
    reference=keeping_dtype(lambda x, alpha: np.where(x > alpha, x, 0)),
)
def thresholded_relu(x: Any, *, alpha: float = 1.0) -> Any:
    """x where it exceeds `alpha`, else 0."""
    return each(x, lambda v: te.select(v > number(alpha, v), v, zero(v)), "thresholded_relu")


@operator(
    fusion=BROADCAST,
    infer=same,
    reference=keeping_dtype(
        lambda x, bias, lambd: np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0))
    ),
)
def shrink(x: Any, *, bias: float = 0.0, lambd: float = 0.5) -> Any:
    """x moved by `bias` towards 0; 0 within [-lambd, lambd]. Source: ONNX Shrink."""

    def value(v: Expr) -> Expr:
        b, l = number(bias, v), number(lambd, v)
        return te.select(v < number(-lambd, v), v + b, te.select(v > l, v - b, zero(v)))

    return each(x, value, "shrink")


def _clip(x: np.ndarray, low: float | None, high: float | None) -> np.ndarray:
    x = x if low is None else np.maximum(x, np.asarray(low, x.dtype))
    return x if high is None else np.minimum(x, np.asarray(high, x.dtype))


@operator(fusion=BROADCAST, infer=same, reference=_clip, traits=CHEAP | FINITE)
def clip(x: Any, *, low: float | None = None, high: float | None = None) -> Any:
    """x held within [low, high]; None is no bound."""

    def value(v: Expr) -> Expr:
        v = v if low is None else te.maximum(v, number(low, v))
        return v if high is None else te.minimum(v, number(high, v))

    return each(x, value, "clip")


def _cast_type(x: Any, to: str) -> Type:
    return dtype(to), x.shape


def _cast(x: np.ndarray, to: str) -> np.ndarray:
    """As the IR: float → int truncates and saturates, NaN → 0."""
    goal = dtype(to)
    if goal.is_int and x.dtype.kind not in "iub":
        wide = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0, posinf=np.inf, neginf=-np.inf)
        inside = np.where((wide > goal.lowest) & (wide < goal.highest), wide, 0).astype(goal.numpy)
        ends = np.where(
            wide <= goal.lowest, goal.numpy.type(goal.lowest), goal.numpy.type(goal.highest)
        )
        return np.where((wide > goal.lowest) & (wide < goal.highest), inside, ends)
    return x.astype(goal.numpy)


@operator(fusion=BROADCAST, infer=_cast_type, reference=_cast, traits=CHEAP | MOVES)
def cast(x: Any, *, to: str) -> Any:
    """x converted to dtype `to` (float → int truncates and saturates, NaN → 0; int → int wraps)."""
    return each(x, lambda v: v.astype(to), "cast")


def _bitcast_type(x: Any, *, to: str) -> Type:
    need(x.dtype.bits == dtype(to).bits >= 8, f"{x.dtype} and {to} are not equally wide")
    return dtype(to), x.shape


@operator(
    fusion=BROADCAST,
    infer=_bitcast_type,
    reference=lambda x, to: np.ascontiguousarray(x).view(dtype(to).numpy).reshape(x.shape),
)
def bitcast(x: Any, *, to: str) -> Any:
    """The bits of x read as a dtype of the same width."""
    goal = dtype(to)

    def read(v: Expr) -> Expr:
        if v.dtype.is_bool:
            v = v.astype("u8")
        return v.astype(goal) if goal.is_bool else Call("reinterpret", (v,), goal)

    return each(x, lambda v: v if v.dtype is goal else read(v), "bitcast")


def _where_type(condition: Any, x: Any, y: Any) -> Type:
    need(condition.dtype.is_bool, f"the condition holds {condition.dtype}, not bool")
    need(x.dtype is y.dtype, f"the branches have dtypes {x.dtype} and {y.dtype}")
    return x.dtype, broadcast_shape(condition.shape, x.shape, y.shape)


@operator(fusion=BROADCAST, infer=_where_type, reference=np.where, traits=CHEAP)
def where(condition: Any, x: Any, y: Any) -> Any:
    """x where the condition holds, else y."""
    shape = broadcast_shape(condition.shape, x.shape, y.shape)
    return te.compute(
        shape,
        lambda *i: te.select(element(condition, i), element(x, i), element(y, i)),
        name="where",
    )


@operator(
    fusion=BROADCAST,
    infer=truth,
    reference=lambda x, positive, negative: (
        np.isinf(x) & (((x > 0) & positive) | ((x < 0) & negative))
    ),
)
def isinf(x: Any, *, positive: bool = True, negative: bool = True) -> Any:
    """Is x infinite (of the chosen signs)?"""

    def value(v: Expr) -> Expr:
        if positive and negative:
            return te.isinf(v)
        sign = v > zero(v) if positive else v < zero(v)
        return te.isinf(v) & sign if positive or negative else te.const(False, "bool")

    return each(x, value, "isinf")
