"""prove: what it must see, and that it never claims a falsehood."""

from __future__ import annotations

import itertools
import random

import pytest
from index_programs import (
    Undefined,
    evaluate,
    random_condition,
    random_index,
    random_point,
    random_ranges,
)

from tilewright.arith.prove import (
    bounds,
    can_prove,
    difference,
    prove_divides,
    prove_equal,
    prove_less,
    prove_less_equal,
)
from tilewright.arith.simplify import Facts
from tilewright.ir.dtype import f32
from tilewright.ir.expr import Var, eq, maximum, minimum
from tilewright.ir.parse import parse_expr
from tilewright.ir.text import print_expr

x, y, n, m, i_o, i_i, s, t = (Var(v) for v in ("x", "y", "n", "m", "i_o", "i_i", "s", "t"))
RANGES = {
    x: (0, 99),
    y: (0, 55),
    n: (1, None),
    m: (1, None),
    i_o: (0, (n + 15) // 16 - 1),
    i_i: (0, 15),
    s: (0, n - 1),
    t: (0, m - 1),
}

PROVED = """
    x * 56 + y < 5600
    i_o * 16 < n
    i_o * 16 + i_i < n + 15
    min(16, n - i_o * 16) >= 1
    min(i_o * 16 + 16, n) - i_o * 16 <= 16
    min(i_o * 16 + 16, n) - i_o * 16 == min(16, n - i_o * 16)
    max(x, y) >= y
    min(x, y) <= x and min(x, y) <= y
    s < n and s <= n and s != n
    s * m + t < n * m
    n // 2 <= n
    n // 16 * 16 <= n
    (n + 15) // 16 * 16 >= n
    (n + 15) // 16 <= n // 16 + 1
    (n + 3) // 16 + 1 - max((n + 2) // 16, 1) <= 2
    (n * m - 3) // 4 >= n * m // 4 - 1
    n % 16 <= n
    n * m >= 1
    (s * m + t) // m == s
    x // 2 + x // 2 <= x
    select(x < 5, x, 5) <= 5
    n + m > n
    not (x < 0)
    x < 0 or y >= 0
    x >= 50 or x < 50
    x % 2 == 0 or x % 2 == 1
    x * 4 + 2 != y * 4
"""
NOT_PROVED = """
    i_o * 16 + i_i < n
    x < 99
    s * m + t < n * m - 1
    n // 2 < n // 3
    (n + 16) // 16 <= n // 16
    (n + 17) // 16 <= n // 16 + 1
    min(x, y) < x
    n > 1
    n * m > n
    x == y
    x % 3 == 0
"""


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


@pytest.mark.parametrize("claim", lines(PROVED))
def test_proves(claim: str) -> None:
    assert can_prove(parse_expr(claim, tuple(RANGES)), RANGES)


@pytest.mark.parametrize("claim", lines(NOT_PROVED))
def test_does_not_prove(claim: str) -> None:
    assert not can_prove(parse_expr(claim, tuple(RANGES)), RANGES)


def test_never_claims_a_falsehood() -> None:
    proved = 0
    for seed in range(1200):
        rng = random.Random(seed)
        ranges = random_ranges(rng)
        cond = random_condition(rng)
        if not can_prove(cond, ranges):
            continue
        proved += 1
        for _ in range(20):
            at = random_point(rng, ranges)
            try:
                assert evaluate(cond, at), f"{print_expr(cond)} at {at}"
            except Undefined:
                continue
    assert proved > 150


def test_conditions_never_prove_a_falsehood() -> None:
    proved = 0
    for seed in range(600):
        rng = random.Random(seed)
        ranges = random_ranges(rng)
        given, claim = random_condition(rng, 2), random_condition(rng, 2)
        known = Facts(ranges).under(given)
        if not can_prove(claim, known):
            continue
        proved += 1
        for _ in range(20):
            at = random_point(rng, ranges)
            try:
                if evaluate(given, at):
                    assert evaluate(claim, at), f"{print_expr(given)} => {print_expr(claim)}, {at}"
            except Undefined:
                continue
    assert proved > 40


def test_comparing_functions_agree_with_values() -> None:
    claims = 0
    for seed in range(600):
        rng = random.Random(seed)
        ranges = random_ranges(rng)
        a, b = random_index(rng, 3), random_index(rng, 2)
        less, at_most, same = (p(a, b, ranges) for p in (prove_less, prove_less_equal, prove_equal))
        gap = difference(a, b, ranges)
        lo, hi = bounds(a, ranges)
        divides = prove_divides(4, a, ranges)
        claims += less + at_most + same + divides + (gap is not None)
        for _ in range(8):
            at = random_point(rng, ranges)
            try:
                va, vb = evaluate(a, at), evaluate(b, at)
            except Undefined:
                continue
            assert not less or va < vb
            assert not at_most or va <= vb
            assert not same or va == vb
            assert gap is None or va - vb == gap
            assert (lo is None or lo <= va) and (hi is None or va <= hi)
            assert not divides or va % 4 == 0
    assert claims > 120


def test_products_of_open_ranges_are_never_compared_falsely() -> None:
    """A factor may stand for the end of its range only where the others cannot be negative."""
    proved = 0
    for seed in range(300):
        rng = random.Random(seed)
        low = rng.choice((-2, -1, 0, 0, 1))
        ranges = {n: (1, None), m: (low, None), s: (0, n - 1)}
        times, less, more = rng.choice((-2, -1, 1, 2)), rng.randint(-1, 2), rng.randint(-1, 3)
        sides = [s * m * times, (n - less) * m * times + more]
        rng.shuffle(sides)
        low_side, high_side = sides
        if not prove_less_equal(low_side, high_side, ranges):
            continue
        proved += 1
        for count, factor in itertools.product(range(1, 6), range(low, low + 6)):
            for at in range(count):
                a, b = (evaluate(e, {n: count, m: factor, s: at}) for e in sides)
                assert a <= b, (sides, count, factor, at)
    assert proved > 20


def test_numbers_and_expressions_mix() -> None:
    assert prove_less(0, n, RANGES) and prove_less_equal(x, 99, RANGES)
    assert prove_equal(3, 3) and not prove_equal(3, 4)
    assert can_prove(True) and not can_prove(False)
    assert difference(n + 3, n) == 3 and difference(n, m) is None
    assert prove_divides(8, n * 16 + 24) and not prove_divides(8, n * 4)


def test_values_of_other_dtypes_are_equal_as_text_only() -> None:
    u = Var("u", f32)
    assert prove_equal(u * 2.0, u * 2.0) and not prove_equal(u + u, u * 2.0)


def test_bounds() -> None:
    assert bounds(x * 56 + y, RANGES) == (0, 5599)
    assert bounds(minimum(x, y) - maximum(x, y), RANGES) == (-99, 55)
    assert bounds(n, RANGES) == (1, None)
    assert bounds(x - x, RANGES) == (0, 0)
    assert bounds(eq(x, y), RANGES) == (0, 1)
