"""Every conversion between two dtypes: all patterns of up to 16 bits, the edges of wider types."""

from __future__ import annotations

import bisect
import functools
import itertools
import math

import numpy as np
import pytest

from tilewright.ir.dtype import (
    ALL,
    FINITE,
    DType,
    bool_,
    f16,
    f32,
    f64,
    i1,
    i32,
    i64,
    u32,
    u64,
)
from tilewright.ir.expr import wrap
from tilewright.ir.interp import run
from tilewright.ir.parse import parse_func
from tilewright.ir.scalar import array_of

NARROW = [d for d in ALL if d.bits <= 16]
WIDE = [d for d in ALL if d.bits > 16]
SMALL_FLOATS = [d for d in ALL if d.is_float and d.bits <= 16]


@functools.cache
def patterns(of: DType) -> np.ndarray:
    """Every value of a narrow dtype."""
    if of is bool_:
        return np.array([False, True])
    if of.is_float:
        return np.arange(1 << of.bits, dtype=f"u{of.bits // 8}").view(of.numpy)
    return array_of(list(range(int(of.lowest), int(of.highest) + 1)), of)


def converted(values: np.ndarray, start: DType, to: DType) -> np.ndarray:
    """`values` as the interpreter casts them."""
    count = len(values)
    inner = f"{to}(A[i])" if start is not to else "A[i]"
    func = parse_func(
        f"def f(A: {start}[{count}], B: {to}[{count}]):\n"
        f"    for i in serial(0, {count}):\n        B[i] = {inner}\n"
    )
    out = np.zeros(count, to.numpy)
    run(func, values, out)
    return out


def expected(values: np.ndarray, start: DType, to: DType) -> np.ndarray:
    """What ml_dtypes and NumPy make of them, where they define it; else our rule."""
    with np.errstate(all="ignore"):
        return _expected(values, start, to)


def _expected(values: np.ndarray, start: DType, to: DType) -> np.ndarray:
    if to is bool_:
        return values.astype(np.float64) != 0
    if start.is_float and to.is_int:
        exact = np.nan_to_num(
            np.trunc(values.astype(np.float64)), nan=0.0, posinf=1e30, neginf=-1e30
        )
        clipped = [min(max(int(v), int(to.lowest)), int(to.highest)) for v in exact]
        return array_of(clipped, to)
    if to.is_int:
        return array_of([wrap(int(v), to) for v in values.tolist()], to)
    if start.is_float:
        return values.astype(to.numpy)
    return values.astype(np.float64).astype(to.numpy)  # narrow: exact in f64 and in f32


def same(a: np.ndarray, b: np.ndarray, of: DType) -> None:
    """Equal to the bit, NaN being NaN."""
    if of.is_float:
        bits = f"u{of.bits // 8}"
        with np.errstate(all="ignore"):
            nan = np.isnan(a.astype(np.float64))
            np.testing.assert_array_equal(nan, np.isnan(b.astype(np.float64)))
        np.testing.assert_array_equal(a.view(bits)[~nan], b.view(bits)[~nan])
    else:
        np.testing.assert_array_equal(a.astype(np.float64), b.astype(np.float64))


@pytest.mark.parametrize("start", NARROW, ids=str)
def test_every_pattern_to_every_dtype(start: DType) -> None:
    values = patterns(start)
    for to in ALL:
        same(converted(values, start, to), expected(values, start, to), to)


def test_whole_numbers_wrap_as_ml_dtypes_and_numpy_do() -> None:
    for start, to in itertools.product(NARROW, ALL):
        if start.is_int and to.is_int and i1 not in (start, to):
            wide = patterns(start).astype(np.int64)
            if not to.is_packed:
                same(converted(patterns(start), start, to), wide.astype(to.numpy), to)


# Wide sources: an oracle of its own that knows the values of the narrow target in order -----


@functools.cache
def ladder(of: DType) -> list[float]:
    """The values ≥ 0 of a small float in the order of their patterns, and one after the last."""
    values = patterns(of).astype(np.float64)[: 1 << (of.bits - 1)].tolist()
    finite = list(itertools.takewhile(math.isfinite, values))
    return [*finite, 2 * finite[-1] - finite[-2]]


def nearest(value: float | int, of: DType) -> float:
    """The value of a small float nearest to an exact number; ties go to the even pattern."""
    if value != value:
        return math.nan
    if value < 0 or (value == 0 and math.copysign(1, value) < 0):
        return -nearest(-value, of)
    rungs = ladder(of)
    above = bisect.bisect_left(rungs, value)
    overflow = math.nan if of.name in FINITE else math.inf
    if above == len(rungs):
        return overflow
    if rungs[above] != value:
        lower, upper = rungs[above - 1], rungs[above]
        twice = 2 * value if isinstance(value, int) else value - lower - (upper - value)
        far = twice - (int(lower) + int(upper)) if isinstance(value, int) else twice
        up = far > 0 or (far == 0 and above % 2 == 0)
        above = above if up else above - 1
    return overflow if above == len(rungs) - 1 else rungs[above]


def near_the_rungs(of: DType) -> list[float]:
    """Values at, halfway between, and a hair away from neighbours of a small float."""
    rungs = ladder(of)
    tight = {0, 1, 2, 3, len(rungs) // 2, len(rungs) - 2}
    found = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e300, 1e-300, 5e-324]
    for n in sorted(tight):
        middle = (rungs[n] + rungs[n + 1]) / 2
        for v in (rungs[n], middle, rungs[n + 1]):
            hairs = (v, np.nextafter(v, 0), np.nextafter(v, np.inf), v * (1 + 2.0**-30))
            found += [s * float(h) for h in hairs for s in (1, -1)]
    return found


@pytest.mark.parametrize("to", SMALL_FLOATS, ids=str)
def test_wide_floats_round_once(to: DType) -> None:
    for start in (f64, f32):
        with np.errstate(all="ignore"):
            values = np.array(near_the_rungs(to)).astype(start.numpy)
        wanted = np.array([nearest(float(v), to) for v in values]).astype(to.numpy)
        same(converted(values, start, to), wanted, to)
    with np.errstate(all="ignore"):  # f32 → small is also what ml_dtypes does
        same(converted(values, f32, to), values.astype(to.numpy), to)


def edges(of: DType) -> list[int]:
    """Whole numbers around powers of two, halfway marks of small floats, and the ends."""
    found = {0, 1, -1, int(of.lowest), int(of.highest)}
    for power in range(of.bits):
        for drop in (0, 3, 4, 8, 9, 11, 12, 24, 25, 53, 54):
            middle = (1 << power) + (1 << max(0, power - drop))
            found |= {s * (middle + d) for s in (1, -1) for d in (-1, 0, 1)}
    return sorted(v for v in found if of.lowest <= v <= of.highest)


@pytest.mark.parametrize("start", [i32, u32, i64, u64], ids=str)
def test_wide_whole_numbers(start: DType) -> None:
    given = edges(start)
    values = np.array(given, start.numpy)
    for to in ALL:
        if to.is_float and to.bits <= 16:
            wanted = np.array([nearest(v, to) for v in given]).astype(to.numpy)
        elif to.is_float:
            wanted = values.astype(to.numpy)  # one conversion instruction: rounds once
        elif to is bool_:
            wanted = values != 0
        else:
            wanted = array_of([wrap(v, to) for v in given], to)
        same(converted(values, start, to), wanted, to)


@pytest.mark.parametrize("start", [f32, f64], ids=str)
def test_wide_floats_to_whole_numbers_truncate_and_saturate(start: DType) -> None:
    for to in ALL:
        if not to.is_int:
            continue
        found = [0.5, -0.5, 0.999, -0.999, 1e30, -1e30, math.inf, -math.inf, math.nan, -0.0]
        for end in (float(to.lowest), float(to.highest)):
            found += [end + d for d in (-1.5, -1, -0.5, 0, 0.5, 1, 1.5)]
            found += [float(np.nextafter(start.numpy.type(end), s * np.inf)) for s in (1, -1)]
        values = np.array(found, start.numpy)
        same(converted(values, start, to), expected(values, start, to), to)


def test_f64_to_f32_and_f16_are_ieee() -> None:
    rng = np.random.default_rng(3)
    values = (rng.standard_normal(4000) * 2.0 ** rng.integers(-160, 160, 4000)).astype(np.float64)
    for to in (f32, f16):
        with np.errstate(all="ignore"):
            same(converted(values, f64, to), values.astype(to.numpy), to)
