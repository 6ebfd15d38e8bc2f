"""The mathematical functions, compiled, against references of more precision.

In f32 every exponent and sign is sampled and the error is at most 2 units in the last place, in
lanes and in scalar code; in f64 4 units (pow: 1100).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

from tilewright import te
from tilewright.codegen import inprocess
from tilewright.codegen.math import FUNCTIONS
from tilewright.schedule.schedule import Schedule

Array = np.ndarray[Any, Any]
LANES = 16
PRECISE = {"f32": np.float64, "f64": np.longdouble}
NUMPY = {"f32": np.float32, "f64": np.float64}

ONE: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1,
    "log": np.log, "log2": np.log2, "log1p": np.log1p,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh, "erf": lambda x: scipy.special.erf(x.astype(np.float64)),
    "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
}  # fmt: skip
TWO: dict[str, Callable[[Array, Array], Array]] = {
    "pow": np.power, "atan2": np.arctan2, "fmod": np.fmod,
}  # fmt: skip
BOUND = {"f32": dict.fromkeys([*ONE, *TWO], 2.0), "f64": dict.fromkeys([*ONE, *TWO], 4.0)}
BOUND["f32"]["fmod"] = 0.0  # the remainder of two floats is a float
BOUND["f64"]["pow"] = 1100.0  # the error of y log2 x, of up to 2^10, becomes one of the exponent


def of_every_exponent(random: np.random.Generator) -> Array:
    """f32: each exponent with each sign, by edges and random mantissas; more where functions bend;
    special values.
    """
    edges = np.array([0, 1, 0x400000, 0x7FFFFF], np.uint32)
    mantissas = np.concatenate([edges, random.integers(0, 1 << 23, 28, dtype=np.uint32)])
    tops = np.arange(512, dtype=np.uint32) << 23  # sign and exponent
    every = (tops[:, None] | mantissas).reshape(-1).view(np.float32)
    bent = random.standard_normal(12000) * np.exp2(random.integers(-6, 6, 12000))
    steps = np.arange(-300, 300) * 0.25
    halves = np.arange(-40, 41) * (np.pi / 4)  # where sines and cosines vanish
    special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3.4e38,
                        88.72, 88.73, -87.3, -103.97, -104.1, 9.01, 20.0, 127.99, 128.0, -149.0,
                        -150.0, 1e10, 1e22, -1e22, 0.99999994, 1.0000001])  # fmt: skip
    with np.errstate(over="ignore"):
        values = [every, *(v.astype(np.float32) for v in (bent, steps, halves, special))]
    return whole_vectors(np.concatenate(values))


def of_doubles(random: np.random.Generator) -> Array:
    """f64: exponents from the least to 2^26 (sin's and cos's range), special values."""
    wide = random.choice([-1, 1], 8000) * np.exp2(random.uniform(-1074, 26, 8000))
    near = random.standard_normal(24000) * np.exp2(random.integers(-8, 9, 24000))
    special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 5e-324, 709.5, -710.3,
                        -745.0, -746.0, 711.0])  # fmt: skip
    return whole_vectors(np.concatenate([wide, near, special]))


def whole_vectors(values: Array) -> Array:
    return np.resize(values, (len(values) + LANES - 1) // LANES * LANES)


@functools.cache
def operands(dtype: str) -> tuple[Array, Array]:
    """Two arrays; pairs for functions of two operands."""
    random = np.random.default_rng(1)
    x = of_every_exponent(random) if dtype == "f32" else of_doubles(random)
    y = random.permutation(x)
    small, whole = random.random(len(x)) < 0.5, random.random(len(x)) < 0.3
    y = np.where(small, random.uniform(-10, 10, len(x)), y)
    return x, np.where(whole, np.round(y), y).astype(x.dtype)


def compiled(names: list[str], dtype: str, vectorized: bool, x: Array, y: Array) -> list[Array]:
    """What our code makes of the operands: one function with an output for each name."""
    a = te.placeholder(x.shape, dtype, name="X")
    b = te.placeholder(x.shape, dtype, name="Y")
    outputs = []
    for name in names:
        f = te.power if name == "pow" else getattr(te, name)
        body = (lambda i, f=f: f(a[i], b[i])) if name in TWO else (lambda i, f=f: f(a[i]))
        outputs.append(te.compute(x.shape, body, name=f"Z_{name}"))
    s = Schedule(te.func("functions", [a, b], outputs))
    for out in outputs if vectorized else []:
        _, lane = s.split(s.loops(out.name)[0], (None, LANES))
        s.vectorize(lane)
    results = [np.zeros_like(x) for _ in names]
    inprocess.run(s.func, x, y, *results)
    return results


@functools.cache
def results(dtype: str, vectorized: bool) -> dict[str, Array]:
    names = [*ONE, *TWO]
    return dict(zip(names, compiled(names, dtype, vectorized, *operands(dtype)), strict=True))


def reference(name: str, dtype: str, x: Array, y: Array) -> Array:
    precise = PRECISE[dtype]
    with np.errstate(all="ignore"):
        if name in TWO:
            return TWO[name](x.astype(precise), y.astype(precise)).astype(precise)
        return ONE[name](x.astype(precise)).astype(precise)


def errors(got: Array, want: Array) -> Array:
    """The distance in units in the last place of the nearest float; inf where a NaN, an infinity
    or the sign of a zero is wrong.
    """
    with np.errstate(all="ignore"):
        near = want.astype(got.dtype)
        same = ((got == near) & (np.signbit(got) == np.signbit(near))) | (
            np.isnan(got) & np.isnan(near)
        )
        unit = np.spacing(np.minimum(np.abs(near), np.finfo(got.dtype).max)).astype(want.dtype)
        distance = np.abs(got.astype(want.dtype) - want) / unit
        distance = np.where(np.isfinite(distance), distance, np.inf)
        wrong = (got == 0) & (near == 0)  # zeros of different sign
        return np.where(same, 0.0, np.where(wrong, np.inf, distance)).astype(np.float64)


def check(name: str, dtype: str, got: Array, x: Array, y: Array) -> None:
    want = reference(name, dtype, x, y)
    off = errors(got, want)
    worst = int(np.argmax(off))
    assert off[worst] <= BOUND[dtype][name], (
        f"{name}({x[worst]!r}{f', {y[worst]!r}' if name in TWO else ''}) = {got[worst]!r},"
        f" not {want[worst]!r}: {off[worst]:.3g} ulp"
    )


def test_every_function_is_covered() -> None:
    assert set(FUNCTIONS) <= {*ONE, *TWO, "gelu"}  # which is accurate in other ways: test_gelu


@pytest.mark.parametrize("vectorized", [True, False], ids=["lanes", "scalar"])
@pytest.mark.parametrize("name", [*ONE, *TWO])
def test_f32(name: str, vectorized: bool) -> None:
    check(name, "f32", results("f32", vectorized)[name], *operands("f32"))


@pytest.mark.parametrize("name", [*ONE, *(n for n in TWO if n != "fmod")])
def test_f64(name: str) -> None:
    check(name, "f64", results("f64", True)[name], *operands("f64"))


@pytest.mark.parametrize("vectorized", [True, False], ids=["lanes", "scalar"])
@pytest.mark.parametrize("name", ["asin", "acos", "atan"])
def test_inverse_functions_in_one_precision(name: str, vectorized: bool) -> None:
    """They do not compute in f64 on the way: densely where their parts meet."""
    random = np.random.default_rng(11)
    x = np.float32(random.uniform(-1, 1, 1 << 17))
    x = np.concatenate([x, np.float32(random.uniform(0.49, 0.51, 1 << 12)), 1 / x[: 1 << 12]])
    check(name, "f32", compiled([name], "f32", vectorized, x, x)[0], x, x)
    if name != "atan":
        outside = np.array([1.0000001, -1.0000001, 2, -np.inf] * LANES, np.float32)
        assert np.isnan(compiled([name], "f32", vectorized, outside, outside)[0]).all()


def test_samples_have_every_exponent() -> None:
    x, y = operands("f32")
    for sample in (x, y):
        assert len(np.unique(sample.view(np.uint32) >> 23)) == 512


@pytest.mark.parametrize("name", list(TWO))
def test_pairs_of_special_values(name: str) -> None:
    """Every pair: C's rules for NaN, infinities, zeros and whole exponents."""
    edges = np.array([0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 2.5, -2.5, np.inf,
                      -np.inf, np.nan, 1e-45, -1e-45, 1e-38, 3.4e38, -3.4e38, 16777215.0,
                      -16777215.0, 16777216.0, 1e10, 0.99999994, 1.0000001])  # fmt: skip
    pairs = np.array(np.meshgrid(edges, edges), np.float32).reshape(2, -1)
    x, y = whole_vectors(pairs[0]), whole_vectors(pairs[1])
    for vectorized in (True, False):
        check(name, "f32", compiled([name], "f32", vectorized, x, y)[0], x, y)


def test_fmod_of_distant_exponents_is_exact() -> None:
    random = np.random.default_rng(3)
    bits = random.integers(0, 1 << 32, (2, 16000), dtype=np.uint32)
    x, y = bits.view(np.float32)
    with np.errstate(all="ignore"):
        want = np.fmod(x, y)
    np.testing.assert_array_equal(compiled(["fmod"], "f32", True, x, y)[0], want)


def test_sine_of_huge_arguments() -> None:
    """Arguments beyond 10^8 need more bits of π than a double has."""
    x = whole_vectors(np.array([1e8, 1e15, 3.4e38, 1.7e38, -2.5e30, 6381956970095103 * 2.0**63],
                               np.float32))  # fmt: skip
    for name in ("sin", "cos", "tan"):
        check(name, "f32", compiled([name], "f32", True, x, x)[0], x, x)
