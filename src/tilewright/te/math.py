"""Functions of expressions, by the names NumPy users know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir.dtype import dtype
from tilewright.ir.expr import (
    BinaryOp,
    Expr,
    UnaryOp,
    binary,
    choose,
    const,
    eq,
    maximum,
    minimum,
    ne,
    select,
    unary,
)
from tilewright.ir.expr import (
    cast as _cast,
)


def _unary(op: UnaryOp) -> Callable[[Any], Expr]:
    def apply(x: Any) -> Expr:
        return unary(op, x)

    apply.__name__ = op.name
    apply.__doc__ = f"{op.name} of a value, in its dtype."
    return apply


def _binary(op: BinaryOp) -> Callable[[Any, Any], Expr]:
    def apply(x: Any, y: Any) -> Expr:
        return binary(op, x, y)

    apply.__name__ = op.name
    apply.__doc__ = f"{op.name} of two values of one dtype."
    return apply


abs = _unary(UnaryOp.abs)
sign = _unary(UnaryOp.sign)
floor = _unary(UnaryOp.floor)
ceil = _unary(UnaryOp.ceil)
round = _unary(UnaryOp.round)
trunc = _unary(UnaryOp.trunc)
sqrt = _unary(UnaryOp.sqrt)
rsqrt = _unary(UnaryOp.rsqrt)
exp = _unary(UnaryOp.exp)
exp2 = _unary(UnaryOp.exp2)
expm1 = _unary(UnaryOp.expm1)
log = _unary(UnaryOp.log)
log2 = _unary(UnaryOp.log2)
log1p = _unary(UnaryOp.log1p)
sin = _unary(UnaryOp.sin)
cos = _unary(UnaryOp.cos)
tan = _unary(UnaryOp.tan)
asin = _unary(UnaryOp.asin)
acos = _unary(UnaryOp.acos)
atan = _unary(UnaryOp.atan)
sinh = _unary(UnaryOp.sinh)
cosh = _unary(UnaryOp.cosh)
tanh = _unary(UnaryOp.tanh)
asinh = _unary(UnaryOp.asinh)
acosh = _unary(UnaryOp.acosh)
atanh = _unary(UnaryOp.atanh)
erf = _unary(UnaryOp.erf)
sigmoid = _unary(UnaryOp.sigmoid)
gelu = _unary(UnaryOp.gelu)
isnan = _unary(UnaryOp.isnan)
isinf = _unary(UnaryOp.isinf)
popcount = _unary(UnaryOp.popcount)
power = _binary(BinaryOp.pow)
atan2 = _binary(BinaryOp.atan2)
fmod = _binary(BinaryOp.fmod)


def cast(x: Any, to: Any) -> Expr:
    """`x` converted to the dtype `to`, as in `te.cast(x, "f32")`."""
    return _cast(dtype(to), x)


def if_then_else(cond: Any, then: Any, other: Any) -> Expr:
    """`then` where `cond`, else `other`; the other side is not evaluated, so it may guard an
    access.
    """
    return select(cond, then, other)


__all__ = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cast",
    "ceil",
    "choose",
    "const",
    "cos",
    "cosh",
    "eq",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "fmod",
    "gelu",
    "if_then_else",
    "isinf",
    "isnan",
    "log",
    "log1p",
    "log2",
    "maximum",
    "minimum",
    "ne",
    "popcount",
    "power",
    "round",
    "rsqrt",
    "select",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
]
