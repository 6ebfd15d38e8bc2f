"""Index maps: digits go there and come back; plain sums are bounded quickly and rightly."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.arith import linear
from tilewright.ir.expr import Const, Expr, Var, as_int, const
from tilewright.ir.parse import parse_expr
from tilewright.ir.walk import substitute
from tilewright.schedule import index_map

MAPS = [
    ("x y", (6, 4), "y, x"),
    ("x", (30,), "x // 16, x % 16"),
    ("x", (24,), "x // 8, x // 2 % 4, x % 2"),
    ("x y", (6, 4), "x * 4 + y"),
    ("x y", (6, 4), "(x * 4 + y) // 8, (x * 4 + y) % 8"),
    ("x y", (6, 4), "x // 2 * 4 + y, x % 2"),
    ("x y z", (3, 4, 5), "(x * 4 + y) // 2, z, (x * 4 + y) % 2 + 2"),
    ("x y", (5, 1), "x + 3"),
    ("x y", (1, 5), "0, y"),
    ("x y", (5, 7), "y % 3, x, y // 3"),
]


def value(e: Expr, at: dict[Var, int]) -> int:
    number = as_int(substitute(e, {v: const(n) for v, n in at.items()}))
    assert number is not None
    return number


@pytest.mark.parametrize(("names", "extents", "outputs"), MAPS)
def test_there_and_back(names, extents, outputs) -> None:
    variables = [Var(n) for n in names.split()]
    out = [parse_expr(o, variables) for o in split(outputs)]
    inverse = index_map.invert(variables, [const(e) for e in extents], out)
    assert inverse is not None
    indices = [Var(f"p{n}") for n in range(len(out))]
    back = inverse.values(indices)
    bounds = [const(e.value + r.offset) for e, r in zip(inverse.extents, inverse.rows, strict=True)]
    guard = inverse.guard(indices, bounds)
    reached = set()
    for point in itertools.product(*map(range, extents)):
        here = dict(zip(variables, point, strict=True))
        there = dict(zip(indices, (value(o, here) for o in out), strict=True))
        assert tuple(value(back[v], there) for v in variables) == point
        assert all(value(p, there) < b.value for p, b in zip(indices, bounds, strict=True))
        reached.add(tuple(there.values()))
    assert len(reached) == len(list(itertools.product(*map(range, extents))))
    for position in itertools.product(*(range(b.value) for b in bounds)):
        at = dict(zip(indices, position, strict=True))
        assert (guard is None or bool(value(guard, at))) == (position in reached)


def split(text: str) -> list[str]:
    """Parts of a tuple's text; commas inside parentheses do not count."""
    parts, depth, start = [], 0, 0
    for n, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append(text[start:n])
            start = n + 1
    return [*parts, text[start:]]


@pytest.mark.parametrize(
    ("names", "extents", "outputs"),
    [
        ("x y", (6, 4), "x"),  # y is lost
        ("x y", (6, 4), "x + y"),  # overlaps
        ("x y", (6, 4), "x * 3 + y"),  # too close
        ("x y", (6, 4), "x * 5 + y"),  # gaps
        ("x", (30,), "x // 16, x % 8"),  # a digit is lost
        ("x", (30,), "x % 16"),
        ("x", (30,), "x, x"),  # said twice
        ("x", (30,), "x * x"),
        ("x", (30,), "min(x, 7)"),
    ],
)
def test_no_inverse(names, extents, outputs) -> None:
    variables = [Var(n) for n in names.split()]
    out = [parse_expr(o, variables) for o in split(outputs)]
    assert index_map.invert(variables, [const(e) for e in extents], out) is None


def test_symbolic_extent() -> None:
    n, x = Var("n"), Var("x")
    inverse = index_map.invert([x], [n], [x // 8, x % 8])
    assert inverse is not None
    assert as_int(inverse.extents[1]) == 8
    assert value(inverse.extents[0], {n: 17}) == 3


def test_mapping_text_reads_back() -> None:
    text = index_map.mapping_text(lambda n, c: (n, c // 16, (c % 16) * 2))
    assert text == "lambda n, c: (n, c // 16, c % 16 * 2)"
    variables, outputs = index_map.parse_mapping(text)
    assert [v.name for v in variables] == ["n", "c"] and len(outputs) == 3
    assert index_map.mapping_text(lambda x: x) == "lambda x: (x,)"


terms = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(-4, 4), st.integers(-3, 3)), max_size=4
)


@given(terms, st.tuples(*[st.tuples(st.integers(-3, 3), st.integers(0, 4)) for _ in range(3)]))
def test_quick_bounds_are_the_true_ones(parts, spans) -> None:
    e: Expr = const(0)
    for name, k, rest in parts:
        e = e + Var(name) * k + rest
    ranges = {Var(n): (lo, lo + w) for n, (lo, w) in zip("abc", spans, strict=True)}
    found = linear.linear(e)
    assert found is not None
    seen = [
        value(e, dict(zip(ranges, point, strict=True)))
        for point in itertools.product(*(range(lo, hi + 1) for lo, hi in ranges.values()))
    ]
    assert linear.extremes(*found, ranges) == (min(seen), max(seen))
    for limit in (min(seen) - 1, min(seen), max(seen), max(seen) + 1):
        assert linear.holds(e < limit, ranges) == (max(seen) < limit)
        assert linear.holds(e >= limit, ranges) == (min(seen) >= limit)


@given(terms, st.sets(st.sampled_from("abc")))
def test_spans_start_and_reach(parts, moving) -> None:
    e: Expr = const(0)
    for name, k, rest in parts:
        e = e + Var(name) * k + rest
    ranges = {Var(n): (1, 3) for n in moving}
    span = linear.span(e, ranges)
    assert span is not None
    start, width = span
    still = {Var(n): 2 for n in "abc" if n not in moving}
    seen = [
        value(e, still | dict(zip(ranges, point, strict=True)))
        for point in itertools.product(*[range(1, 4)] * len(ranges))
    ]
    assert value(start, still) == min(seen)
    assert width == max(seen) - min(seen) + 1


def test_what_is_no_plain_sum() -> None:
    x = Var("x")
    assert linear.linear(x // 2) is None
    assert linear.linear(x * x) is None
    assert linear.span(x % 4, {}) is None
    assert isinstance(const(3), Const) and linear.linear(const(3)) == ({}, 3)
