"""Sizes are followed through what models compute with them: comparisons, choices, floats."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graph import sizes
from tilewright.graph.folding import Folding
from tilewright.ir.dtype import dtype

I64 = dtype("i64")


@pytest.fixture
def build():
    return Folding()


def vector(build, *values):
    return build.from_sizes(np.array(values, object), I64)


def content(build, value):
    constant = build.constants.get(value)
    return None if constant is None else constant.array.tolist()


def test_comparisons_that_hold_at_every_size(build):
    n = build.symbol("n")
    asked = vector(build, n, n + 2, 3)
    found = build.emit("equal", asked, build.constant(np.array([-1, 1, 3])))
    assert content(build, found) == [False, False, True]
    found = build.emit("less", asked, vector(build, n + 1, n + 2, 5))
    assert content(build, found) == [True, False, True]
    found = build.emit("greater", asked, vector(build, -1, n, 3))
    assert content(build, found) == [True, True, False]
    open_ = build.emit("equal", asked, build.constant(np.array([4, 4, 3])))
    assert content(build, open_) is None


def test_a_choice_between_sizes_is_a_size(build):
    n = build.symbol("n")
    asked = vector(build, -1, n, 4)
    wild = build.emit("equal", asked, build.constant(np.array([-1, -1, -1])))
    goal = build.emit("where", wild, build.constant(np.array([1, 1, 1])), asked)
    assert list(build.sizes_in(goal)) == [1, n, 4]


def test_the_greater_of_sizes_where_one_always_is(build):
    n, m = build.symbol("n"), build.symbol("m")
    pair = vector(build, n, n + 2, -1), vector(build, n, n, 8)
    assert list(build.sizes_in(build.emit("maximum", *pair))) == [n, n + 2, 8]
    assert list(build.sizes_in(build.emit("minimum", *pair))) == [n, n, -1]
    assert build.sizes_in(build.emit("maximum", pair[0], vector(build, n, m, 8))) is None


@pytest.mark.parametrize("of, most", [("f32", 1 << 24), ("f64", 1 << 53)])
def test_sizes_held_as_floats(build, of, most):
    n = build.symbol("n")
    floats = build.emit("cast", vector(build, n, 7), to=of)
    assert build.sizes_in(floats) is None  # no whole numbers
    first = build.emit("slice", floats, starts=(0,), shape=(1,))
    more = build.constant(np.array([400.0], dtype(of).numpy))
    back = build.emit("cast", build.emit("concat", first, more, axis=0), to="i32")
    assert list(build.sizes_in(back)) == [n, 400]
    ((needed, told),) = build.required.items()
    assert needed == sizes.size(most - n) and str(most) in told
    halves = build.emit("mul", floats, build.constant(np.array([0.5, 0.5], dtype(of).numpy)))
    assert build.sizes_in(build.emit("cast", halves, to="i64")) is None
