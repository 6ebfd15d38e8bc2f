"""Draws of element-wise operators."""

from __future__ import annotations

import numpy as np

from tests.differential.growth import (
    ALL,
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    FLOATS,
    I8,
    I32,
    I64,
    INTS,
    U8,
    U32,
    U64,
    Growth,
    Value,
    within,
)
from tests.differential.reference import is_float, type_of
from tests.differential.table import draws

SIGNED = (I8, I32, I64)
NUMBERS = (*FLOATS, I32, I64)


DOMAINS = {
    "Log": (0.05, 1e4), "Sqrt": (0.0, 1e4), "Reciprocal": (0.05, 1e4), "Asin": (-1, 1),
    "Acos": (-1, 1), "Atanh": (-0.95, 0.95), "Acosh": (1, 1e3), "Exp": (-9, 6), "Sinh": (-6, 6),
    "Cosh": (-6, 6), "Tan": (-1.4, 1.4), "Softplus": (-50, 50), "Sin": (-500, 500),
    "Cos": (-500, 500),
}  # fmt: skip
EXACT = {"Abs", "Neg", "Relu", "Ceil", "Floor", "Round", "Sign", "IsNaN", "IsInf", "Not", "Max"}


@draws(
    *"Abs Neg Exp Log Sqrt Sin Cos Tan Asin Acos Atan Tanh Sigmoid Relu Softplus Softsign Ceil"
    " Floor Reciprocal".split(),
    weight=9,
    empties=True,
)
@draws(*"Sinh Cosh Asinh Acosh Atanh Erf Sign IsNaN".split(), weight=3, since=9)
@draws("Round", weight=0.7, since=11)
@draws("HardSwish", weight=0.7, since=14)
@draws("Mish", weight=0.7, since=18)
@draws("IsInf", weight=0.3, since=10)
def unary(g: Growth, op: str) -> None:
    low, high = DOMAINS.get(op, (-1e5, 1e5))
    types = FLOATS
    if op in ("Abs", "Neg", "Sign") and g.chance(0.3):
        types = SIGNED
    if op in ("Abs", "Neg", "Relu", "Exp", "Sqrt", "Tanh", "Sigmoid") and g.version > 12:
        types = types if g.chance(0.9) else (BF16,)
    if op == "IsInf":
        types = (F32, F64)
    if op == "HardSwish":  # f64 by constants of f32, in the specification's own definition
        types = (F16, F32)
    x = g.value(types, where=lambda a: within(a, low, high), low=max(low, -3), high=min(high, 3))
    g.apply(op, x, exact=op in EXACT)


@draws("Not", weight=0.6, empties=True)
def negation(g: Growth, op: str) -> None:
    g.apply(op, g.value((BOOL,)), exact=True)


# f64 by constants of f32, in the specification's own definitions or in onnxruntime
NARROW = {"Celu": (F32,), "Shrink": (F32,), "Gelu": (F16, F32), "Swish": (F16, F32)}


@draws(
    *"LeakyRelu Elu Selu HardSigmoid ThresholdedRelu Celu Gelu Shrink Swish".split(),
    weight=5,
    empties=True,
)
def activation(g: Growth, op: str) -> None:
    since = {"ThresholdedRelu": 10, "Celu": 12, "Gelu": 20, "Swish": 24}
    if g.version < since.get(op, 1):
        op = "LeakyRelu"
    attrs: dict[str, object] = {}
    if op in ("LeakyRelu", "Elu", "Selu", "ThresholdedRelu", "Celu", "HardSigmoid", "Swish"):
        if g.chance(0.6):
            attrs["alpha"] = g.number(0.1, 1.5)
    if op == "Selu" and g.chance(0.5):
        attrs["gamma"] = g.number(0.5, 2)
    if op == "HardSigmoid" and g.chance(0.5):
        attrs["beta"] = g.number(0.2, 0.8)
    if op == "Gelu" and g.chance(0.5):
        attrs["approximate"] = g.among(["none", "tanh"])
    if op == "Shrink":
        attrs = {"bias": g.number(-1, 1), "lambd": g.number(0, 1)}
    x = g.value(NARROW.get(op, FLOATS), where=lambda a: within(a, -80, 80))
    g.apply(op, x, rough=op in ("Elu", "Celu", "Selu", "Gelu"), **attrs)


@draws("PRelu", weight=0.5)
def prelu(g: Growth, op: str) -> None:
    x = g.value(FLOATS, range(1, 5))
    shape = [g.among([d, g.same(1)]) if g.declarable((d,)) else g.same(1) for d in x.dims]
    shape = shape[g.int(0, len(shape) - 1) :]
    g.apply(op, x, g.fresh(x.dtype, tuple(shape)))


@draws("Clip", weight=0.9, since=6, empties=True)
def clip(g: Growth, op: str) -> None:
    x = g.value(FLOATS if g.version < 12 else (*FLOATS, I8, U8, I32, I64))
    low, high = sorted((g.number(-2, 1), g.number(0, 3)))
    if g.version < 11:
        g.apply(op, x, exact=True, min=g.among([low, None]), max=g.among([high, None]))
        return
    if x.dtype.kind == "u":
        low, high = max(low, 0), max(high, 0)
    ends: list[Value | None] = [g.constant(low, x.dtype), g.constant(high, x.dtype)]
    if g.chance(0.1):
        end = g.fresh(x.dtype, (), -1, 0, fixed=False)
        ends[0] = end
    g.apply(op, x, *(end if g.chance(0.75) else None for end in ends), exact=True)


@draws("Add", "Sub", "Mul", weight=8, empties=True)
def plain_pair(g: Growth, op: str) -> None:
    types = NUMBERS if g.version < 14 else (*FLOATS, BF16, BF16, *INTS)
    x = g.value(FLOATS if g.chance(0.7) else types)
    y = g.partner(x)
    if g.chance(0.4):
        x, y = y, x
    g.apply(op, x, y, exact=not is_float(x.dtype))


def nonzero(a: np.ndarray) -> bool:
    return bool((np.abs(a.astype(np.float64)) >= 0.05).all())


@draws("Div", weight=1.6)
def division(g: Growth, op: str) -> None:
    y = g.value(FLOATS if g.chance(0.7) else NUMBERS, where=nonzero, low=1, high=4)
    g.apply(op, g.partner(y), y)


@draws("Mod", weight=0.6, since=10)
def modulo(g: Growth, op: str) -> None:
    floating = g.chance(0.4)
    types = (F32, F64) if floating else INTS
    y = g.value(types, where=nonzero, low=1, high=7)
    fmod = 1 if floating or g.chance(0.3) else g.among([0, None])
    g.apply(op, g.partner(y), y, fmod=fmod)


@draws("Pow", weight=0.8)
def power(g: Growth, op: str) -> None:
    x = g.value(FLOATS, where=lambda a: within(a, 0.1, 20), low=0.2, high=3)
    if g.chance(0.5):
        dtype = x.dtype if g.version < 12 or g.chance(0.6) else g.among([F32, I32, I64])
        y = g.constant(g.among([2, 3, 1, 0, -1, 0.5]) if dtype.kind == "f" else g.int(0, 3), dtype)
        if g.version < 12 or g.chance(0.5):
            x = g.value(
                (x.dtype,),
                where=(lambda a: within(a, 0.1, 20)) if "." in str(y.worlds[0]) else None,
                low=0.2,
            )
        g.apply(op, x, y)
    else:
        g.apply(op, x, g.partner(x, low=-2, high=2))


@draws("Max", "Min", "Sum", "Mean", weight=2, empties=True)
def several(g: Growth, op: str) -> None:
    types = (F32, F64, I32, I64) if op in ("Max", "Min") and g.version >= 12 else (F32, F64)
    x = g.value(types if g.chance(0.4) else (F32, F64))
    operands = [x, *(g.partner(x) for _ in range(g.int(0, 3)))]
    g.apply(op, *operands, exact=op in ("Max", "Min"))


@draws("Greater", "Less", "Equal", "GreaterOrEqual", "LessOrEqual", weight=2, empties=True)
def comparison(g: Growth, op: str) -> None:
    if g.version < 12 and op.endswith("OrEqual"):
        op = "Greater"
    types = (*FLOATS, I32, I64)
    if op == "Equal" and g.version < 11:
        types = (I32, I64, BOOL)
    x = g.value(types)
    g.apply(op, x, g.partner(x), exact=True)


@draws("And", "Or", "Xor", weight=1.2, empties=True)
def logical(g: Growth, op: str) -> None:
    x = g.value((BOOL,))
    g.apply(op, x, g.partner(x), exact=True)


@draws("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", weight=1, since=18)
def bitwise(g: Growth, op: str) -> None:
    x = g.value(INTS)
    g.apply(op, x, *(() if op == "BitwiseNot" else (g.partner(x),)), exact=True)


@draws("BitShift", weight=0.4, since=11)
def shift(g: Growth, op: str) -> None:
    x = g.value((U8, U32, U64))
    y = g.partner(x, low=0, high=6)
    g.apply(op, x, y, exact=True, direction=g.among(["LEFT", "RIGHT"]))


@draws("Where", weight=1.2, since=9, empties=True)
def where(g: Growth, op: str) -> None:
    condition = g.value((BOOL,))
    dtype = g.among([F32, F32, F16, F64, I64, I32, U8])
    x = g.partner(condition, dtype)
    y = g.partner(x if x.rank >= condition.rank else condition, dtype)
    g.apply(op, condition, x, y, exact=True)


@draws("Cast", weight=2.4, empties=True)
def cast(g: Growth, op: str) -> None:
    x = g.value(ALL)
    to = g.among(ALL)
    if is_float(x.dtype) and to.kind in "iu":
        info = np.iinfo(to)
        if not x.all(lambda a: within(a, info.min, info.max)):
            to = I32
    g.apply(op, x, to=type_of(np.zeros(0, to)), exact=not is_float(to))


@draws("Identity", weight=0.3)
def identity(g: Growth, op: str) -> None:
    g.apply(op, g.value(ALL if g.version > 12 else FLOATS), exact=True)


@draws("Dropout", weight=0.2)
def dropout(g: Growth, op: str) -> None:
    g.apply(op, g.value((F32, F64)), exact=True, outputs=g.among([1, 2]) if g.version > 11 else 1)
