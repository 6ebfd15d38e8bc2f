"""simplify: what it sees, that it keeps the meaning, and that it has a fixed point."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_programs import (
    Undefined,
    evaluate,
    random_condition,
    random_index,
    random_point,
    random_ranges,
)

from tilewright.arith.simplify import Facts, simplify, simplify_func, simplify_stmt
from tilewright.ir.dtype import bool_, f32, i8, i32
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Var,
    binary,
    const,
    eq,
    expr,
)
from tilewright.ir.parse import parse_expr, parse_func
from tilewright.ir.text import print_expr, print_func

RANGES = {
    Var("x"): (0, 99),
    Var("y"): (0, 55),
    Var("f"): (0, 3135),
    Var("i"): (0, 15),
    Var("j"): (0, 3),
    Var("k"): (0, 2),
    Var("i_o"): (0, 3),
    Var("i_i"): (0, 15),
    Var("a"): (None, None),
    Var("b"): (None, None),
    Var("n"): (1, None),
    Var("m"): (1, None),
    Var("s"): (0, Var("n") - 1),
    Var("t"): (0, Var("m") - 1),
}

SEEN = """
    (x * 56 + y) // 56                          x
    (x * 56 + y) % 56                           y
    (x * 56 + y) // 28                          x * 2 + y // 28
    (x * 56 + y) // 8 % 7                       y // 8
    (i_o * 16 + i_i) // 16                      i_o
    (i_o * 16 + i_i) % 16                       i_i
    (i * 16 + i_i) % 32 // 16                   i % 2
    f // 56 * 56 + f % 56                       f
    (f // 56 * 56 + f % 56) // 56               f // 56
    f // 56 % 56                                f // 56
    f // 8 % 7 * 8 + f % 8                      f % 56
    f % 56 // 8 * 8 + f % 8                     f % 56
    f - f // 56 * 56                            f % 56
    (f // 4 + 1) % 8 // 2                       (f // 4 + 1) // 2 % 4
    ((x * 56 + y) * 12 + j) // 12 // 56         x
    (x * 12 + y) % 4                            y % 4
    (x * 12 + j) // 48                          x // 4
    (x * 4 + j) % 16                            x % 4 * 4 + j
    (x * 2 + 1) % 2                             1
    x // -4                                     -x // 4
    (a * 6 + 4) // 4                            a + a // 2 + 1
    x // 4 * 4 + x % 4 - x                      0
    x + y - (y + x)                             0
    (x + y) * 3 - y * 3                         x * 3
    5 - x + y                                   y - x + 5
    min(16, n - i * 16)                         min(16, n - i * 16)
    min(x, x + 1)                               x
    max(x - 100, 0)                             0
    min(x + y, x) - x                           0
    min(max(y, 0), 55)                          y
    (a * n + s) // n                            a
    (a * n + s) % n                             s
    (a * n + b) // n                            a + b // n
    b // n * n + b % n                          b
    (s * m + t) // m                            s
    (s * m + t) // m * m + (s * m + t) % m      s * m + t
    (a * n * m + s * m + t) // (n * m)          a
    (a * n * m + s * m + t) // m % n            s
    (n + 15) // 16 * 16 - n                     15 - (n + 15) % 16
    (n + 1) * m - m                             n * m
    n * 8 // 8                                  n
    n // 16 < (n + 15) // 16                    n % 16 >= 1
    (n + 15) // 16 >= 2                         n >= 17
    (n + 15) // 16 <= 2                         n < 33
    n // 16 >= 2                                n // 16 >= 2
    x << 3                                      x * 8
    (x * 8 + j) >> 3                            x
    x & 7                                       x % 8
    i & 15                                      i
    truncdiv(x, 4)                              x // 4
    truncmod(x - 100, 4)                        truncmod(x - 100, 4)
    abs(x)                                      x
    abs(x - 200)                                200 - x
    i * 4 + j < 64                              True
    i_o * 16 + i_i < 64                         True
    i_o * 16 + i_i < 60                         i_o * 16 + i_i < 60
    i_o * 16 + i_i < 48                         i_o < 3
    x * 2 + 1 == y * 2                          False
    x * 2 == y * 2                              x == y
    x * 4 >= 7                                  x >= 2
    0 <= x                                      True
    x > 99                                      False
    x != x + 1                                  True
    s < n                                       True
    s * m + t < n * m                           True
    x < 50 and x < 40                           x < 40
    x < 50 and x > 60                           False
    x < 50 or x < 40                            x < 50
    not (x < 50)                                x >= 50
    not (x < 50 and i == 3)                     not (x < 50 and i == 3)
    select(x < 100, x, y)                       x
    select(x < 5, x % 5, 0)                     select(x < 5, x, 0)
    select(x < y, x, y)                         min(x, y)
    i * 2 + k - 1 >= 0 and i * 2 + k - 1 < 56   i * 2 + k >= 1
"""


def pairs() -> list[tuple[str, str]]:
    return [
        tuple(part.strip() for part in line.strip().split("   ", 1))  # type: ignore[misc]
        for line in SEEN.strip().splitlines()
    ]


@pytest.mark.parametrize(("before", "after"), pairs())
def test_sees(before: str, after: str) -> None:
    names = tuple(RANGES)
    got = simplify(parse_expr(before, names), RANGES)
    assert print_expr(got) == after
    assert simplify(got, RANGES) == got


def check(e: Expr, ranges: dict, points: list[dict]) -> None:
    """`simplify` keeps the value at the points where there is one."""
    got = simplify(e, ranges)
    assert simplify(got, ranges) == got, f"{print_expr(e)} -> {print_expr(got)}"
    for at in points:
        try:
            want = evaluate(e, at)
        except Undefined:
            continue
        assert evaluate(got, at) == want, f"{print_expr(e)} -> {print_expr(got)} at {at}"


@pytest.mark.parametrize("make", [random_index, random_condition])
def test_random_programs_keep_their_value(make) -> None:
    for seed in range(600):
        rng = random.Random(seed)
        ranges = random_ranges(rng)
        check(make(rng), ranges, [random_point(rng, ranges) for _ in range(10)])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.randoms(use_true_random=False), st.booleans())
def test_drawn_programs_keep_their_value(rng: random.Random, condition: bool) -> None:
    ranges = random_ranges(rng)
    e = random_condition(rng) if condition else random_index(rng)
    check(e, ranges, [random_point(rng, ranges) for _ in range(5)])


def test_symbolic_ranges_keep_the_value() -> None:
    """Bounds that are expressions: 0 ≤ x < n, 0 ≤ y < z."""
    x, y, z, n = Var("x"), Var("y"), Var("z"), Var("n")
    for seed in range(600):
        rng = random.Random(seed)
        given_ranges = {n: (1, None), z: (1, 9), x: (0, n - 1), y: (0, z * 2 - 1)}
        for v in (Var("i"), Var("j")):
            given_ranges[v] = (0, 7)
        points = []
        for _ in range(8):
            at = {n: rng.randint(1, 20), z: rng.randint(1, 9), Var("i"): rng.randint(0, 7)}
            at |= {Var("j"): rng.randint(0, 7)}
            at |= {x: rng.randint(0, at[n] - 1), y: rng.randint(0, at[z] * 2 - 1)}
            points.append(at)
        check((random_index, random_condition)[seed % 2](rng), given_ranges, points)


def test_the_same_object_comes_back() -> None:
    x, y = Var("x"), Var("y")
    for e in (x, const(3), x * 2 + y, x // 3, x < y, Binary(BinaryOp.min, x, y)):
        assert simplify(e) is e


# ---- values


def test_floats_keep_every_bit() -> None:
    a = Buffer("A", (expr(100),), f32)
    load = Load(a, ((Var("x") * 56 + Var("y")) // 56,))
    tidy = Load(a, (Var("x"),))
    assert simplify(load + 0.0, RANGES) == Binary(BinaryOp.add, tidy, const(0.0, f32))
    assert simplify(load * 1.0, RANGES) == tidy
    assert simplify(load - load, RANGES) == tidy - tidy
    assert simplify(const(2.0, f32) * const(4.0, f32)) == const(8.0, f32)


def test_narrow_numbers_wrap() -> None:
    v = Var("v", i8)
    assert simplify((v * const(4, i8)) // const(4, i8)) == (v * const(4, i8)) // const(4, i8)
    assert simplify((v + const(100, i8)) + const(100, i8)) == v + const(-56, i8)
    assert simplify(v < v + const(1, i8)) == (v < v + const(1, i8))


def test_intervals_decide_narrow_clamps() -> None:
    wide = Cast(i32, Var("v", i8))
    assert simplify(Binary(BinaryOp.max, wide, const(-128, i32))) == wide
    assert simplify(Binary(BinaryOp.min, wide, const(127, i32))) == wide
    assert simplify(wide < const(128, i32)) == const(True, bool_)


def test_loaded_sizes_may_overflow() -> None:
    a = Buffer("A", (expr(100),), Var("n").dtype)
    data = Load(a, (Var("x"),))
    wrapped = Cast(f32, (data * 4) // 4)
    assert simplify(wrapped, RANGES) == wrapped
    assert simplify((data * 4) // 4, RANGES) == data  # as an index it does not overflow


def test_operands_of_and_are_read_whatever_the_others_say() -> None:
    """`and` has no order: an index that keeps a read inside stays; comparisons are decided."""
    text = """
def f(A: f32[6], B: bool[6]):
    for i in serial(0, 6):
        B[i] = i > 0 and A[max(i - 1, 0)] > f32(1.0) and i > -1
"""
    made = print_func(simplify_func(parse_func(text)))
    assert "i >= 1 and A[max(i - 1, 0)] > 1.0\n" in made


def test_a_guard_is_known_inside_select() -> None:
    x = Var("x")
    a = Buffer("A", (expr(100),), f32)
    zero = const(0.0, f32)
    e = Select(x < 8, Load(a, (x % 8,)), zero)
    assert simplify(e, RANGES) == Select(x < 8, Load(a, (x,)), zero)
    once = Select(x < 8, Select(x < 9, Load(a, (x,)), zero), zero)
    assert simplify(once, RANGES) == Select(x < 8, Load(a, (x,)), zero)


def test_facts_from_conditions() -> None:
    n, i_o, i_i = Var("n"), Var("i_o"), Var("i_i")
    known = Facts({n: (1, None), i_o: (0, None), i_i: (0, 15)})
    tail = known.under(i_o * 16 + i_i < n)
    assert tail.simplify(i_o * 16 + i_i < n) == const(True, bool_)
    assert tail.simplify(i_o * 16 < n) == const(True, bool_)
    assert isinstance(tail.simplify(i_o * 16 + 15 < n), Binary)
    several = known.under(parse_expr("(n + 1) // 2 >= 17", (n,)))  # n + 1 is 34 or more
    assert several.simplify(i_i * 2 + 3 <= n) == const(True, bool_)
    assert isinstance(several.simplify(i_i * 2 + 4 <= n), Binary)
    fixed = Facts({i_o: (0, 25)}).under(parse_expr("i_o % 13 < 12", (i_o,)))
    edge = fixed.under(parse_expr("i_o // 13 == 1", (i_o,)))
    assert edge.simplify(i_o % 13 < 12) == const(True, bool_)
    multiple = known.under(parse_expr("n % 16 == 0", (n,)))
    assert multiple.simplify(n // 16 * 16) == n
    assert multiple.simplify(n // 16 * 32 + i_i) == i_i + n * 2


# ---- statements

BEFORE = """
def kernel(A: f32[n, 56], B: f32[n, 56], n: i64):
    for f in serial(0, n * 56):
        if f // 56 * 56 + f % 56 < n * 56:
            B[f // 56, f % 56] = A[f // 56, f - f // 56 * 56] * 1.0
        else:
            B[0, 0] = 0.0
    for i in serial(0, n // 1):
        for j in serial(0, 60):
            if j < 56 and i < n:
                B[i, j] = select(j < 56, A[i, j], 0.0)
    for u in serial(0, 1):
        for w in serial(3, 3):
            B[u, w] = 0.0
        x: i64 = n + n
        if x > n * 2:
            B[0, 0] = 1.0
"""

AFTER = """
def kernel(A: f32[n, 56], B: f32[n, 56], n: i64):
    for f in serial(0, n * 56):
        B[f // 56, f % 56] = A[f // 56, f % 56]
    for i in serial(0, n):
        for j in serial(0, 60):
            if j < 56:
                B[i, j] = A[i, j]
"""


def test_statements() -> None:
    func = simplify_func(parse_func(BEFORE), remove_unit_loops=True)
    assert print_func(func).strip() == AFTER.strip()
    assert simplify_func(func) is func


def test_loops_keep_their_names_unless_asked() -> None:
    func = parse_func(
        """
def kernel(A: f32[4]):
    for i in serial(0, 1):
        for j in parallel(0, 1):
            A[i + j] = 0.0
"""
    )
    assert simplify_stmt(func.body) is not None
    assert "for i in serial(0, 1)" in print_func(simplify_func(func))
    removed = print_func(simplify_func(func, remove_unit_loops=True))
    assert "for i" not in removed and "for j in parallel(0, 1)" in removed


def test_constants_stay_constants() -> None:
    assert isinstance(simplify(const(7) * 6 - 42), Const)


def test_a_long_chain_takes_no_longer_than_its_parts():
    i = Var("i")
    chain = eq(i, const(0))
    for k in range(1, 200):
        chain = binary(BinaryOp.logical_or, chain, eq(i, const(3 * k)))
    assert simplify(chain) == chain  # and in no time: each part is looked at twice


GATHERED = """
def kernel(a: f32[n], b: f32[k * m], x: i64[k * m + n], y: f32[k * m + n], n: i64, k: i64, m: i64):
    for o in serial((k * m + n) // 8, (k * m + n + 7) // 8):
        for i in vectorize(0, 8):
            if o * 8 + i < k * m + n:
                y[o * 8 + i] = select(INDEX < n, a[INDEX], b[INDEX - n])
"""


def test_conditions_on_what_an_index_loads_end() -> None:
    """To bound the index in a condition asks for a loop's range, its proof for the condition."""
    load = "x[o * 8 + i]"
    index = f"min(max(select({load} < 0, {load} + k * m + n, {load}), 0), k * m + n - 1)"
    func = simplify_func(parse_func(GATHERED.replace("INDEX", index)))
    assert simplify_func(func) is func


@pytest.mark.parametrize("order", [("h", "w"), ("w", "h")])
def test_positions_of_open_sizes_join(order: tuple[str, str]) -> None:
    """A fused loop's digits, multiplied by strides that only the run knows, are the loop again."""
    f, a, b = Var("f"), *map(Var, order)
    row, column = f // b, f % b
    position = row // a * a * b + row % a * b + column
    assert simplify(position, {f: (0, None), a: (1, None), b: (1, None)}) == f
    twice = row // (a * 2) * a * b * 4 + row % (a * 2) * b * 2 + column * 2
    assert simplify(twice, {f: (0, None), a: (1, None), b: (1, None)}) == f * 2
    c = b - 2
    cut = f // c // (a - 1) * (a - 1) * c + f // c % (a - 1) * c + f % c
    assert simplify(cut, {f: (0, None), a: (2, None), b: (3, None)}) == f
    deep = row // a // a * a * a * b + row // a % a * a * b + row % a * b + column
    assert simplify(deep, {f: (0, None), a: (1, None), b: (1, None)}) == f


ASKED = """
def f(n: i64, A: f32[40], B: f32[40]):
    for i in {kind}(0, 4):
        for j in vectorize(0, 8):
            if {condition}:
                B[i * 8 + j] = A[i * 8 + j]
"""


@pytest.mark.parametrize(
    ("condition", "outside", "inside"),
    [
        ("n < 3", ["if n < 3:"], []),
        ("n < 3 and i < n", ["if n < 3:"], ["if i < n:"]),
        ("j < n and n >= 7", ["if n >= 7:"], ["if j < n:"]),
        ("i + j < n", [], ["if i + j < n:"]),
        ("A[n] > 0.0", [], ["if A[n] > 0.0:"]),
    ],
)
def test_unrolled_loops_ask_once(condition: str, outside: list[str], inside: list[str]) -> None:
    text = ASKED.format(kind="unroll", condition=condition)
    lines = print_func(simplify_func(parse_func(text), remove_unit_loops=True)).splitlines()
    loop = next(n for n, line in enumerate(lines) if "unroll" in line)
    asked = [
        [line.strip() for line in part if " if " in line] for part in (lines[:loop], lines[loop:])
    ]
    assert asked == [outside, inside]


def test_other_loops_ask_as_before() -> None:
    func = parse_func(ASKED.format(kind="serial", condition="n < 3"))
    lines = print_func(simplify_func(func, remove_unit_loops=True)).splitlines()
    assert [line.split()[0] for line in lines if line] == [
        "def",
        "for",
        "if",
        "for",
        lines[-1].split()[0],
    ]
