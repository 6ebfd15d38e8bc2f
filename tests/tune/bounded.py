"""Numbers as NumPy has them in float64, each with how far a kernel's may be from it.

In: the operations of an expression. Out: values and bounds. The one idea: the bound is 0 as long as
every intermediate result is a number of the dtype whatever the order, so that kernels of small
whole numbers are compared exactly; it is infinite where nothing can be said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
EPS = {"f32": 2.0**-23, "f64": 2.0**-50, "f16": 2.0**-10, "bf16": 2.0**-7}
LARGEST, SMALLEST = {"f16": 6e4}, {"f16": 7e-5}  # beyond them nothing is said; of others:
LARGE, SMALL = 1e30, 1e-30
FINE = 64.0  # the parts of 1 that a sum without rounding may have
ROOM = {"f32": 2.0**24, "f64": 2.0**50, "f16": 2.0**11, "bf16": 2.0**8}
WHOLE = {"i8": np.int8, "u8": np.uint8, "i16": np.int16, "i32": np.int32, "i64": np.int64}


class Number:
    """An array of a dtype: float64 or int64 values, and bounds for floats."""

    def __init__(self, value: Any, bound: Any, dtype: str) -> None:
        self.value, self.dtype = np.asarray(value), dtype
        self.bound: Array = np.broadcast_to(np.asarray(bound, np.float64), self.value.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype in EPS

    def _other(self, other: Any) -> Number:
        return other if isinstance(other, Number) else constant(other, self.dtype)

    def __add__(self, other: Any) -> Number:
        b = self._other(other)
        return rounded(self.value + b.value, self.bound + b.bound, self.dtype)

    def __sub__(self, other: Any) -> Number:
        b = self._other(other)
        return rounded(self.value - b.value, self.bound + b.bound, self.dtype)

    def __mul__(self, other: Any) -> Number:
        b = self._other(other)
        bound = _times(self.value, b.bound) + _times(b.value, self.bound) + self.bound * b.bound
        return rounded(self.value * b.value, bound, self.dtype)

    def __truediv__(self, other: Number) -> Number:
        least = np.maximum(np.abs(other.value) - other.bound, 0)
        value = self.value / other.value
        return rounded(value, (self.bound + _times(value, other.bound)) / least, self.dtype)

    def __abs__(self) -> Number:
        return rounded(np.abs(self.value), self.bound, self.dtype)

    def __xor__(self, other: Number) -> Number:
        return rounded(self.value ^ other.value, 0.0, self.dtype)

    def at(self, indices: tuple[Any, ...], clipped: bool) -> Number:
        """Elements; indices may be outside where a condition chooses something else."""
        if clipped:
            pairs = zip(indices, self.value.shape, strict=True)
            indices = tuple(np.clip(i, 0, n - 1) for i, n in pairs)
        assert all((np.asarray(i) >= 0).all() for i in indices)
        return Number(self.value[indices], self.bound[indices], self.dtype)


def _times(value: Array, bound: Array) -> Array:
    return np.where(bound == 0, 0.0, np.abs(value) * bound)


def constant(value: float, dtype: str) -> Number:
    return Number(np.asarray(value, np.float64 if dtype in EPS else np.int64), 0.0, dtype)


def rounded(value: Array, bound: Array | float, dtype: str, units: float = 1.0) -> Number:
    """A result of an operation whose operands were within `bound`; `units` in the last place."""
    value = np.asarray(value)
    if dtype == "bool":
        return Number(value, 0.0, dtype)
    if dtype in WHOLE:
        return Number(value.astype(WHOLE[dtype]).astype(np.int64), 0.0, dtype)
    bound = np.broadcast_to(np.asarray(bound, np.float64), value.shape)
    scaled = np.ldexp(np.frexp(value)[0], int(np.log2(ROOM[dtype])))
    exact = (units == 1.0) & (bound == 0) & (scaled == np.rint(scaled))
    size = np.abs(value)
    bound = np.where(exact, 0.0, bound + units * EPS[dtype] * size)
    large, small = LARGEST.get(dtype, LARGE), SMALLEST.get(dtype, SMALL)
    strange = (size > large) | ((size < small) & (size > 0)) | np.isnan(bound)
    bound = np.where(strange & np.isfinite(value), np.inf, bound)
    return Number(value, np.where(np.isfinite(value) | (bound == 0), bound, np.inf), dtype)


def cast(x: Number, dtype: str) -> Number:
    if dtype in EPS:
        return rounded(x.value.astype(np.float64), x.bound, dtype)
    return rounded(x.value, 0.0, dtype)


def chosen(condition: Any, x: Number, other: float) -> Number:
    value, bound = np.where(condition, x.value, other), np.where(condition, x.bound, 0.0)
    return Number(value.astype(x.value.dtype), bound, x.dtype)


def extreme(a: Number, other: Any, greatest: bool) -> Number:
    b = other if isinstance(other, Number) else constant(other, a.dtype)
    value = (np.maximum if greatest else np.minimum)(a.value, b.value)
    return Number(value, np.maximum(a.bound, b.bound), a.dtype)


def smooth(x: Number, f: Callable[[Array], Array], slope: Callable[[Array], Array]) -> Number:
    """A function of floats, whose bound grows by at most `slope` where the result is."""
    value = f(x.value)
    bound = np.where(x.bound == 0, 0.0, slope(value) * x.bound)
    return rounded(value, bound + 8 * EPS[x.dtype], x.dtype, units=8.0)


def exp(x: Number) -> Number:
    value = np.exp(x.value)
    return rounded(value, np.where(x.bound == 0, 0.0, value * np.expm1(x.bound)), x.dtype, 8.0)


# Reductions along the last axis: from numbers to numbers ----------------------------------------


def total(x: Number) -> Number:
    value, size = x.value.sum(-1), np.abs(x.value).sum(-1)
    if not x.is_float:
        return rounded(value, 0.0, x.dtype)
    parts = x.value * FINE
    finite = np.isfinite(parts)
    plain = ((parts == np.rint(parts)) | ~finite).all(-1) & (x.bound == 0).all(-1)
    plain &= np.where(finite, np.abs(parts), 0).sum(-1) < ROOM[x.dtype]
    bound = x.bound.sum(-1) + (x.value.shape[-1] + 2) * EPS[x.dtype] * size
    return _reduced(value, np.where(plain, 0.0, bound), x.dtype)


def product(x: Number) -> Number:
    value, size = x.value.prod(-1), np.abs(x.value)
    if not x.is_float:
        return rounded(value, 0.0, x.dtype)
    powers = ((np.frexp(size)[0] == 0.5) | (size == 0) | ~np.isfinite(size)).all(-1)
    some = np.where((size == 0) | ~np.isfinite(size), 1.0, size)
    most, least = np.maximum(some, 1).prod(-1), np.minimum(some, 1).prod(-1)
    relative = (x.bound / some).sum(-1) + x.value.shape[-1] * EPS[x.dtype]
    bound = np.where(powers & (x.bound == 0).all(-1), 0.0, most * np.expm1(relative))
    bound = np.where((most > LARGE) | (least < SMALL), np.inf, bound)
    return _reduced(value, bound, x.dtype)


def _reduced(value: Array, bound: Array, dtype: str) -> Number:
    return Number(value, np.where(np.isfinite(value) | (bound == 0), bound, np.inf), dtype)


def greatest(x: Number) -> Number:
    return Number(x.value.max(-1), x.bound.max(-1), x.dtype)


def least(x: Number) -> Number:
    return Number(x.value.min(-1), x.bound.max(-1), x.dtype)


def place(x: Number, is_greatest: bool) -> Number:
    """The first place of the extreme one; NaN is more extreme than all. Free if values may be
    others."""
    found = (np.argmax if is_greatest else np.argmin)(x.value, -1)
    return Number(found, np.where((x.bound == 0).all(-1), 0.0, np.inf), "i64")


def folded(x: Number) -> Number:
    """Of a + b + a*b: one less than the product of what is one more."""
    if not x.is_float:
        return rounded((1 + x.value).prod(-1) - 1, 0.0, x.dtype)
    most = (1 + np.abs(x.value) + x.bound).prod(-1)
    units = (4 * x.value.shape[-1] + 4) * EPS[x.dtype]
    whole = (x.value == np.rint(x.value)).all(-1) & (x.bound == 0).all(-1)
    bound = most * (units + x.bound.sum(-1))
    bound = np.where(whole & (most * 4 < ROOM[x.dtype]), 0.0, bound)
    strange = ~np.isfinite(x.value).all(-1) | (most > LARGE)
    return Number((1 + x.value).prod(-1) - 1, np.where(strange, np.inf, bound), x.dtype)


def complex_product(re: Number, im: Number) -> tuple[Number, Number]:
    z = np.prod(re.value + 1j * im.value, -1)
    most = np.maximum(1, np.abs(re.value) + np.abs(im.value)).prod(-1)
    whole = np.logical_and.reduce([x.value == np.rint(x.value) for x in (re, im)]).all(-1)
    whole &= (re.bound == 0).all(-1) & (im.bound == 0).all(-1) & (most * 4 < ROOM[re.dtype])
    bound = most * (8 * re.value.shape[-1] * EPS[re.dtype] + (re.bound + im.bound).sum(-1))
    bound = np.where(most > LARGE, np.inf, np.where(whole, 0.0, bound))
    bound = np.where(np.isfinite(most), bound, np.inf)
    return Number(z.real, bound, re.dtype), Number(z.imag, bound, re.dtype)


def exclusive(x: Number) -> Number:
    return rounded(np.bitwise_xor.reduce(x.value, -1), 0.0, x.dtype)


def broadcast(numbers: Sequence[Number], shape: tuple[int, ...]) -> list[Number]:
    return [
        Number(np.broadcast_to(x.value, shape), np.broadcast_to(x.bound, shape), x.dtype)
        for x in numbers
    ]


def is_wrong(got: Array, want: Number) -> Array:
    """Where an array of results is not what it should be."""
    if want.dtype in WHOLE or want.dtype == "bool":
        return (got != want.value) & (want.bound == 0)
    value = got.astype(np.float64)
    with np.errstate(invalid="ignore"):
        near = np.abs(value - want.value) <= want.bound
    same = (value == want.value) | (np.isnan(value) & np.isnan(want.value))
    return ~(near | same | np.isinf(want.bound))
