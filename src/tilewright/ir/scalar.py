"""What each operation does to one value: the arithmetic of the IR, exact in every dtype.

In: an operator and a dtype. Out: a Python function on scalars. Whole numbers are Python ints,
booleans Python's, floats the NumPy or ml_dtypes scalar of their dtype, so that every operation
rounds once to its dtype. The one idea: functions that are not exact compute in f64 and round the
result, and a conversion rounds once whatever the distance between its ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ir.dtype import DType
from tilewright.ir.expr import BinaryOp, UnaryOp, wrap

One = Callable[[Any], Any]
Two = Callable[[Any, Any], Any]
_EXACT = 1 << 53  # whole numbers up to here are exact in f64
_EXACT_F32 = 1 << 24


def scalar(value: Any, of: DType) -> Any:
    """A number as the interpreter holds a value of dtype `of`."""
    if of.is_float:
        return of.numpy.type(of.round(float(value)))
    return bool(value) if of.is_bool else wrap(int(value), of)


def conversion(start: DType, to: DType) -> One:
    """The function that converts a value of dtype `start` to `to`.

    float → int truncates, saturates at the ends and sends NaN to 0; anything → bool is `!= 0`;
    anything → float rounds to nearest, ties to even, once; int → int wraps.
    """
    if to.is_bool:
        return lambda x: bool(x != 0)
    if start.is_float:
        return _saturate(to) if to.is_int else _from_float(start, to)
    return _from_int(to) if to.is_float else lambda x: wrap(int(x), to)


def _saturate(to: DType) -> One:
    low, high = int(to.lowest), int(to.highest)

    def convert(x: Any) -> int:
        x = float(x)
        if x != x:
            return 0
        return low if x <= low else high if x >= high else int(x)

    return convert


def _from_float(start: DType, to: DType) -> One:
    make = to.numpy.type
    if start.bits == 64 and to.numpy.kind != "f":
        return lambda x: make(to.round(float(x)))
    return lambda x: make(float(x))


def _from_int(to: DType) -> One:
    make = to.numpy.type
    if to.bits == 64:
        return lambda x: make(float(x))  # Python rounds to nearest

    def convert(x: Any) -> Any:
        x = int(x)
        if abs(x) <= _EXACT_F32:
            return make(x)
        if abs(x) > _EXACT:  # keep 53 bits, the last one sticky: then rounding again is harmless
            drop = abs(x).bit_length() - 53
            x = (x >> drop | (x & ((1 << drop) - 1) != 0)) << drop
        return make(to.round(float(x)))

    return convert


def reinterpretation(start: DType, to: DType) -> One:
    """The function that reads the bits of a `start` as a `to`; both are equally wide."""
    if start.bits != to.bits or start.is_packed:
        raise TypeError(f"cannot reinterpret {start} as {to}: they are not equally wide")
    kind = to.numpy.type
    back: One = kind if to.is_float else int
    bits: One = start.numpy.type
    return lambda x: back(bits(x).view(to.numpy))


# Operations of one operand ---------------------------------------------------


def _sigmoid(x: float) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


def _gelu(x: float) -> Any:
    return 0.0 if x == -math.inf else 0.5 * x * math.erfc(-x / math.sqrt(2))


_FLOAT_FUNCTIONS: dict[UnaryOp, One] = {
    UnaryOp.sign: np.sign,
    UnaryOp.floor: np.floor,
    UnaryOp.ceil: np.ceil,
    UnaryOp.round: np.rint,
    UnaryOp.trunc: np.trunc,
    UnaryOp.sqrt: np.sqrt,
    UnaryOp.rsqrt: lambda x: 1.0 / np.sqrt(x),
    UnaryOp.exp: np.exp,
    UnaryOp.exp2: np.exp2,
    UnaryOp.expm1: np.expm1,
    UnaryOp.log: np.log,
    UnaryOp.log2: np.log2,
    UnaryOp.log1p: np.log1p,
    UnaryOp.sin: np.sin,
    UnaryOp.cos: np.cos,
    UnaryOp.tan: np.tan,
    UnaryOp.asin: np.arcsin,
    UnaryOp.acos: np.arccos,
    UnaryOp.atan: np.arctan,
    UnaryOp.sinh: np.sinh,
    UnaryOp.cosh: np.cosh,
    UnaryOp.tanh: np.tanh,
    UnaryOp.asinh: np.arcsinh,
    UnaryOp.acosh: np.arccosh,
    UnaryOp.atanh: np.arctanh,
    UnaryOp.erf: math.erf,
    UnaryOp.sigmoid: _sigmoid,
    UnaryOp.gelu: _gelu,
}


def unary_function(op: UnaryOp, of: DType) -> One:
    """The function of `op` on an operand of dtype `of`."""
    if op is UnaryOp.isnan:
        return lambda x: bool(x != x)
    if op is UnaryOp.isinf:
        return lambda x: math.isinf(float(x))
    if op is UnaryOp.logical_not:
        return lambda x: not x
    if op is UnaryOp.bit_not:
        return (lambda x: not x) if of.is_bool else lambda x: wrap(~x, of)
    if of.is_float:
        return _float_unary(op, of)
    whole: dict[UnaryOp, One] = {
        UnaryOp.neg: lambda x: wrap(-x, of),
        UnaryOp.abs: lambda x: wrap(abs(x), of),
        UnaryOp.sign: lambda x: (x > 0) - (x < 0),
        UnaryOp.popcount: lambda x: (x & ((1 << of.bits) - 1)).bit_count(),
    }
    return whole[op]


def _float_unary(op: UnaryOp, of: DType) -> One:
    if op is UnaryOp.neg:
        return lambda x: -x
    if op is UnaryOp.abs:
        return lambda x: abs(x)
    f, make = _FLOAT_FUNCTIONS[op], of.numpy.type
    if of.numpy.kind == "f":
        return lambda x: make(f(float(x)))
    return lambda x: make(of.round(float(f(float(x)))))


# Operations of two operands --------------------------------------------------


def _least(a: Any, b: Any) -> Any:
    return a if a < b or a != a else b


def _greatest(a: Any, b: Any) -> Any:
    return a if a > b or a != a else b


def truncated_quotient(a: int, b: int) -> int:
    """a / b rounded towards zero."""
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


_TWO_FLOATS: dict[BinaryOp, Two] = {
    BinaryOp.pow: np.power,
    BinaryOp.atan2: np.arctan2,
    BinaryOp.fmod: np.fmod,
}


def binary_function(op: BinaryOp, of: DType) -> Two:
    """The function of `op` on operands of dtype `of`, for the operators Python has no sign for."""
    if op is BinaryOp.min:
        return _least
    if op is BinaryOp.max:
        return _greatest
    if op is BinaryOp.truncdiv:
        return lambda a, b: wrap(truncated_quotient(a, b), of)
    if op is BinaryOp.truncmod:
        return lambda a, b: a - b * truncated_quotient(a, b)
    f, make = _TWO_FLOATS[op], of.numpy.type
    if of.numpy.kind == "f":
        return lambda a, b: make(f(float(a), float(b)))
    return lambda a, b: make(of.round(float(f(float(a), float(b)))))


# Values between arrays and the interpreter -----------------------------------


def values_of(array: Any, of: DType) -> list[Any]:
    """The elements of an array in row-major order, each as the interpreter holds it."""
    flat: Any = array.reshape(-1)
    if of.is_packed:
        return [wrap(v, of) for v in flat.astype(np.int8).tolist()]
    return list(flat) if of.is_float else flat.tolist()


def array_of(values: list[Any], of: DType) -> Any:
    """The one-dimensional array of these values."""
    if of.is_packed:
        return np.array(values, np.int8).astype(of.numpy)
    return np.array(values, of.numpy)
