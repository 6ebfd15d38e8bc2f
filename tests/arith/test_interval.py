"""Interval rules against every pair of small values."""

from __future__ import annotations

import itertools
import random

import pytest
from index_programs import Undefined, evaluate

from tilewright.arith.interval import bounds
from tilewright.ir.dtype import DType, bool_, f32, i8, i32, i64, u8, u64
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    UnaryOp,
    Var,
)

WHOLE = (
    BinaryOp.add, BinaryOp.sub, BinaryOp.mul, BinaryOp.floordiv, BinaryOp.floormod,
    BinaryOp.truncdiv, BinaryOp.truncmod, BinaryOp.min, BinaryOp.max, BinaryOp.shl, BinaryOp.shr,
    BinaryOp.bit_and, BinaryOp.bit_or, BinaryOp.bit_xor, BinaryOp.eq, BinaryOp.ne, BinaryOp.lt,
    BinaryOp.le, BinaryOp.gt, BinaryOp.ge,
)  # fmt: skip
MONOTONE = (BinaryOp.add, BinaryOp.sub, BinaryOp.mul, BinaryOp.min, BinaryOp.max, BinaryOp.floordiv)
UNARY = (UnaryOp.neg, UnaryOp.abs, UnaryOp.sign, UnaryOp.bit_not)


def check(e: Expr, ranges: dict[Var, tuple[int, int]]) -> tuple[bool, bool]:
    """Assert that the bounds hold; say whether each end is taken."""
    lo, hi = bounds(e, ranges)
    taken = []
    for values in itertools.product(*(range(a, b + 1) for a, b in ranges.values())):
        try:
            taken.append(evaluate(e, dict(zip(ranges, values, strict=True))))
        except Undefined:
            continue
    assert all((lo is None or lo <= v) and (hi is None or v <= hi) for v in taken), (e, ranges)
    return (not taken or lo == min(taken), not taken or hi == max(taken))


def some_ranges(rng: random.Random, of: DType, reach: int) -> tuple[int, int]:
    low = max(-reach, int(of.lowest))
    a, b = rng.randint(low, reach), rng.randint(low, reach)
    return min(a, b), max(a, b)


@pytest.mark.parametrize("of", [i64, i8, u8], ids=str)
@pytest.mark.parametrize("op", WHOLE, ids=lambda op: op.name)
def test_binary(op: BinaryOp, of: DType) -> None:
    x, y = Var("x", of), Var("y", of)
    rng = random.Random(op.name)
    for _ in range(60):
        ranges = {x: some_ranges(rng, of, 9), y: some_ranges(rng, of, 9)}
        exact = check(Binary(op, x, y), ranges)
        safe = op is not BinaryOp.floordiv or ranges[y][0] > 0
        if op in MONOTONE and safe and of is not u8:
            assert exact == (True, True)


@pytest.mark.parametrize("of", [i64, i8, u8], ids=str)
@pytest.mark.parametrize("op", UNARY, ids=lambda op: op.name)
def test_unary(op: UnaryOp, of: DType) -> None:
    x = Var("x", of)
    rng = random.Random(op.name)
    for _ in range(40):
        check(Unary(op, x), {x: some_ranges(rng, of, 12)})


def test_narrow_arithmetic_that_may_wrap_has_the_bounds_of_its_dtype() -> None:
    x = Var("x", i8)
    assert bounds(x + Const(1, i8), {x: (0, 126)}) == (1, 127)
    assert bounds(x + Const(1, i8), {x: (0, 127)}) == (-128, 127)
    assert bounds(x * Const(2, i8), {}) == (-128, 127)
    assert bounds(-Var("u", u8), {}) == (0, 255)
    assert bounds(-Var("u", u8), {Var("u", u8): (1, 2)}) == (0, 255)


def test_casts() -> None:
    x, u = Var("x", i8), Var("u", u64)
    assert bounds(Cast(i32, x), {}) == (-128, 127)
    assert bounds(Cast(u8, x), {x: (0, 5)}) == (0, 5)
    assert bounds(Cast(u8, x), {x: (-1, 5)}) == (0, 255)
    assert bounds(Cast(i64, u), {}) == (None, None)
    assert bounds(Cast(i64, u), {u: (0, 9)}) == (0, 9)
    assert bounds(Cast(bool_, x), {x: (1, 5)}) == (1, 1)
    assert bounds(Cast(i32, Var("f", f32)), {}) == (-(2**31), 2**31 - 1)


def test_selects_and_loads() -> None:
    x, p = Var("x"), Var("p", bool_)
    a = Buffer("A", (Const(4, i64),), u8)
    ranges = {x: (0, 9)}
    assert bounds(Select(p, x, Const(20, i64)), ranges) == (0, 20)
    assert bounds(Select(x < 10, x, Const(20, i64)), ranges) == (0, 9)
    assert bounds(Load(a, (x,)), ranges) == (0, 255)
    assert bounds(Var("f", f32), {}) == (None, None)


def test_open_ends() -> None:
    n, x = Var("n"), Var("x")
    ranges = {n: (1, None), x: (None, 5)}
    assert bounds(n * 2 - x, ranges) == (-3, None)
    assert bounds(n // 4, ranges) == (0, None)
    assert bounds(x % 4, ranges) == (0, 3)
    assert bounds(n % 16, ranges) == (0, 15)
    assert bounds(x * 0, ranges) == (0, 0)
    assert bounds(x // n, ranges) == (None, 5)
    assert bounds(Var("i"), {Var("i"): (0, n - 1), n: (1, 8)}) == (0, 7)


def test_empty_ranges_are_survived() -> None:
    x, y = Var("x"), Var("y")
    for op in WHOLE:
        bounds(Binary(op, x, y), {x: (0, -1), y: (1, 0)})
