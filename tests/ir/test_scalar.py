"""What operators do to values: rounding once per operation, special values, signs and ends."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest

from tilewright.ir.dtype import ALL, FINITE, DType, f8e4m3, f8e5m2, f16, f32, f64, i8, i64
from tilewright.ir.expr import COMPARISONS, BinaryOp, UnaryOp, fold_int, wrap
from tilewright.ir.interp import run
from tilewright.ir.parse import parse_func

FLOATS = [d for d in ALL if d.is_float]
INF, NAN = math.inf, math.nan
RNG = np.random.default_rng(11)


def computed(
    expression: str, of: DType, *inputs: np.ndarray, to: DType | None = None
) -> np.ndarray:
    """The interpreter's value of `expression` for each element of A (and B)."""
    to, count = to or of, len(inputs[0])
    names = "AB"[: len(inputs)]
    params = ", ".join(f"{n}: {of}[{count}]" for n in names)
    func = parse_func(
        f"def f({params}, Y: {to}[{count}]):\n"
        f"    for i in serial(0, {count}):\n        Y[i] = {expression}\n"
    )
    out = np.zeros(count, to.numpy)
    run(func, *inputs, out)
    return out


def assert_same(got: np.ndarray, wanted: list[float]) -> None:
    """Equal, zeros by sign, NaN being NaN."""
    got = got.astype(np.float64)
    np.testing.assert_array_equal(got, wanted)
    number = ~np.isnan(got)
    np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(wanted)[number])


def quotient(a: float, b: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float64(a) / np.float64(b))


ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": quotient}


@pytest.mark.parametrize("sign", ARITHMETIC)
@pytest.mark.parametrize("of", FLOATS, ids=str)
def test_arithmetic_rounds_once(of: DType, sign: str) -> None:
    if of.bits == 8:  # all pairs; sums and products of small floats are exact in f64
        each = np.arange(256, dtype=np.uint8).view(of.numpy)
        a, b = np.repeat(each, 256), np.tile(each, 256)
    else:
        patterns = RNG.integers(0, 1 << of.bits, (2, 3000), np.uint64, endpoint=False)
        a, b = patterns.astype(f"u{of.bits // 8}").view(of.numpy)
    with np.errstate(all="ignore"):
        if of.bits == 64 or of is f32:
            wanted = ARITHMETIC[sign](a, b) if sign != "/" else a / b
        else:
            exact = map(
                ARITHMETIC[sign], a.astype(np.float64).tolist(), b.astype(np.float64).tolist()
            )
            wanted = np.array([of.round(v) for v in exact])
    assert_same(computed(f"A[i] {sign} B[i]", of, a, b), np.asarray(wanted, np.float64))


@pytest.mark.parametrize("of", FLOATS, ids=str)
def test_min_max_and_comparisons_with_nan(of: DType) -> None:
    a = np.array([1, 2, NAN, 1, NAN], of.numpy)
    b = np.array([2, 1, 1, NAN, NAN], of.numpy)
    assert_same(computed("min(A[i], B[i])", of, a, b), [1, 1, NAN, NAN, NAN])
    assert_same(computed("max(A[i], B[i])", of, a, b), [2, 2, NAN, NAN, NAN])
    assert_same(computed("f32(A[i] < B[i])", of, a, b, to=f32), [1, 0, 0, 0, 0])
    assert_same(computed("f32(A[i] == A[i])", of, a, b, to=f32), [1, 1, 0, 1, 0])
    assert_same(computed("f32(A[i] != A[i])", of, a, b, to=f32), [0, 0, 1, 0, 1])


def _gelu(x: float) -> float:
    return x * math.erfc(-x / math.sqrt(2)) / 2


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, INF, -INF, NAN]
FUNCTIONS: dict[str, list[float]] = {
    "-": [-0.0, 0.0, -1, 1, -0.5, 2.5, -INF, INF, NAN],
    "abs": [0.0, 0.0, 1, 1, 0.5, 2.5, INF, INF, NAN],
    "floor": [0.0, -0.0, 1, -1, 0.0, -3, INF, -INF, NAN],
    "ceil": [0.0, -0.0, 1, -1, 1, -2, INF, -INF, NAN],
    "round": [0.0, -0.0, 1, -1, 0.0, -2, INF, -INF, NAN],
    "trunc": [0.0, -0.0, 1, -1, 0.0, -2, INF, -INF, NAN],
    "sqrt": [0.0, -0.0, 1, NAN, math.sqrt(0.5), NAN, INF, NAN, NAN],
    "rsqrt": [INF, -INF, 1, NAN, math.sqrt(2), NAN, 0.0, NAN, NAN],
    "exp": [1, 1, math.e, 1 / math.e, math.exp(0.5), math.exp(-2.5), INF, 0.0, NAN],
    "exp2": [1, 1, 2, 0.5, math.sqrt(2), 2.0**-2.5, INF, 0.0, NAN],
    "expm1": [
        0.0,
        -0.0,
        math.expm1(1),
        math.expm1(-1),
        math.expm1(0.5),
        math.expm1(-2.5),
        INF,
        -1,
        NAN,
    ],
    "log": [-INF, -INF, 0.0, NAN, math.log(0.5), NAN, INF, NAN, NAN],
    "log2": [-INF, -INF, 0.0, NAN, -1, NAN, INF, NAN, NAN],
    "log1p": [0.0, -0.0, math.log(2), -INF, math.log(1.5), NAN, INF, NAN, NAN],
    "sin": [0.0, -0.0, *map(math.sin, (1, -1, 0.5, -2.5)), NAN, NAN, NAN],
    "cos": [1, 1, *map(math.cos, (1, -1, 0.5, -2.5)), NAN, NAN, NAN],
    "tan": [0.0, -0.0, *map(math.tan, (1, -1, 0.5, -2.5)), NAN, NAN, NAN],
    "asin": [0.0, -0.0, *map(math.asin, (1, -1, 0.5)), NAN, NAN, NAN, NAN],
    "acos": [*map(math.acos, (0, 0)), 0.0, *map(math.acos, (-1, 0.5)), NAN, NAN, NAN, NAN],
    "atan": [0.0, -0.0, *map(math.atan, (1, -1, 0.5, -2.5, INF, -INF)), NAN],
    "sinh": [0.0, -0.0, *map(math.sinh, (1, -1, 0.5, -2.5)), INF, -INF, NAN],
    "cosh": [1, 1, *map(math.cosh, (1, -1, 0.5, -2.5)), INF, INF, NAN],
    "tanh": [0.0, -0.0, *map(math.tanh, (1, -1, 0.5, -2.5)), 1, -1, NAN],
    "asinh": [0.0, -0.0, *map(math.asinh, (1, -1, 0.5, -2.5)), INF, -INF, NAN],
    "acosh": [NAN, NAN, 0.0, NAN, NAN, NAN, INF, NAN, NAN],
    "atanh": [0.0, -0.0, INF, -INF, math.atanh(0.5), NAN, NAN, NAN, NAN],
    "erf": [0.0, -0.0, *map(math.erf, (1, -1, 0.5, -2.5)), 1, -1, NAN],
    "sigmoid": [0.5, 0.5, *(1 / (1 + math.exp(-x)) for x in (1, -1, 0.5, -2.5)), 1, 0.0, NAN],
    "gelu": [0.0, -0.0, *map(_gelu, (1, -1, 0.5, -2.5)), INF, 0.0, NAN],
    "sign": [0.0, 0.0, 1, -1, 1, -1, 1, -1, NAN],
}


def test_the_table_has_every_float_function() -> None:
    whole = {"logical_not", "bit_not", "popcount", "isnan", "isinf", "neg"}
    assert set(FUNCTIONS) == {op.name for op in UnaryOp} - whole | {"-"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_at_special_values(name: str) -> None:
    for of in FLOATS:
        keep = [n for n, v in enumerate(SPECIAL) if of.name not in FINITE or not math.isinf(v)]
        values = np.array([SPECIAL[n] for n in keep], of.numpy)
        got = computed(f"{name}(A[i])", of, values).astype(np.float64)
        wanted = np.array([of.round(FUNCTIONS[name][n]) for n in keep])
        ulp = {8: 0.0, 16: 0.0, 32: 2.0**-23, 64: 2.0**-51}[of.bits]
        np.testing.assert_allclose(got, wanted, rtol=ulp, atol=0)
        number = ~np.isnan(wanted) & (name != "sign")
        np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(wanted)[number])


def test_predicates_and_operations_of_two_floats() -> None:
    values = np.array(SPECIAL, np.float32)
    assert computed("f32(isnan(A[i]))", f32, values).tolist() == [0] * 8 + [1]
    assert computed("f32(isinf(A[i]))", f32, values).tolist() == [0] * 6 + [1, 1, 0]
    a = np.array([2, -2, 4, 0, -1, 5.5], np.float32)
    b = np.array([10, 3, 0.5, 0, 0.5, -2], np.float32)
    assert_same(computed("pow(A[i], B[i])", f32, a, b), np.float32([1024, -8, 2, 1, NAN, 5.5**-2]))
    assert_same(computed("fmod(A[i], B[i])", f32, a, b), [2, -2, 0, NAN, -0.0, 1.5])
    wanted = [math.atan2(y, x) for y, x in zip(a.tolist(), b.tolist(), strict=True)]
    assert_same(computed("atan2(A[i], B[i])", f32, a, b), np.float32(wanted))


SIGNS = ["+", "-", "*", "//", "%", "&", "|", "^", "==", "!=", "<", "<=", ">", ">="]
CALLS = ["min", "max", "truncdiv", "truncmod"]


@pytest.mark.parametrize("op", SIGNS + CALLS)
@pytest.mark.parametrize("of", [d for d in ALL if d.is_int], ids=str)
def test_whole_numbers_agree_with_constant_folding(of: DType, op: str) -> None:
    """The interpreter and the folding constructors are two definitions of one meaning."""
    low, high = int(of.lowest), int(of.highest)
    some = sorted(
        {low, high, wrap(low + 1, of), wrap(-1, of), 0, wrap(1, of), wrap(5, of), high // 3}
    )
    pairs = [
        (a, b) for a in some for b in some if b or op not in ("//", "%", "truncdiv", "truncmod")
    ]
    given = [
        np.array([int(p[n]) for p in pairs], "int8" if of.is_packed else of.numpy) for n in (0, 1)
    ]
    a, b = (g.astype(of.numpy) for g in given)
    expression = f"{op}(A[i], B[i])" if op in CALLS else f"A[i] {op} B[i]"
    if of is not i64 or BinaryOp(op) in COMPARISONS:
        expression = f"i64({expression})"
    got = computed(expression, of, a, b, to=i64)
    folded = [fold_int(BinaryOp(op), x, y, of) for x, y in pairs]
    assert got.tolist() == [wrap(int(c.value), i64) for c in folded if c is not None]
    assert None not in folded


def test_shifts() -> None:
    a = np.array([-128, -1, 1, 127], np.int8)
    assert computed("A[i] << i8(7)", i8, a).tolist() == [0, -128, -128, -128]
    assert computed("A[i] >> i8(7)", i8, a).tolist() == [-1, -1, 0, 0]


def test_rounding_of_dtypes() -> None:
    assert f16.round(65519.9) == 65504 and f16.round(65520.0) == INF
    assert f8e4m3.round(464.0) == 448 and math.isnan(f8e4m3.round(464.1))
    assert f8e5m2.round(61439.0) == 57344 and f8e5m2.round(61440.0) == INF
    assert f64.round(0.1) == 0.1 and f32.round(1e39) == INF and math.isnan(f32.round(NAN))
