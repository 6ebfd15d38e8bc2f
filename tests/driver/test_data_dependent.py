"""Sizes that only the run can tell: one compilation takes every value, and refuses what is no
size."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Builder, evaluate
from tilewright.ir.expr import Var
from tilewright.support.errors import InputError


def reshaped():
    """A graph whose shape is its second input, with work before and after."""
    build = Builder("reshaped")
    x, shape = build.input("x", "f32", (4, 6)), build.input("s", "i64", (2,))
    build.emit("measure", shape, symbols=("a", "b"), what="the shape")
    y = build.emit("view_as", build.emit("relu", x), shape=(Var("a"), Var("b")))
    z = build.emit("add", y, y)
    w = build.emit("softmax", build.emit("reduce_sum", z, axes=(1,)), axis=0)
    return build.finish({"z": z, "w": w})


def kept():
    """The positions of x that are above 0, then as many numbers computed from them."""
    build = Builder("kept")
    x = build.input("x", "f32", (Var("n"),))
    zero = build.constant(np.float32(0))
    positions, count = build.emit("nonzero", build.emit("greater", x, zero))
    build.emit("measure", count, symbols=("m",), what="the count")
    some = build.emit("slice", positions, starts=(0,), shape=(Var("m"),))
    values = build.emit("exp", build.emit("gather", x, some))
    table = build.emit("matmul", build.emit("reshape", values, shape=(Var("m"), 1)),
                       build.emit("reshape", values, shape=(1, Var("m"))))  # fmt: skip
    return build.finish({"values": values, "table": table})


@pytest.mark.parametrize("opt_level", [0, 3])
def test_one_compilation_takes_every_shape(opt_level: int):
    graph = reshaped()
    model = tw.compile(graph, cache=False, opt_level=opt_level)
    x = np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32)
    for shape in ((3, 8), (24, 1), (1, 24), (2, 12), (3, 8)):
        given = np.array(shape)
        for got, want in zip(model(x, given), evaluate(graph, [x, given]), strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_counts_from_nothing_to_everything():
    graph = kept()
    model = tw.compile(graph, cache=False)
    random = np.random.default_rng(2)
    for n in (1, 5, 70, 300):
        for shift in (-9, 0, 9):  # none, some, all
            x = (random.standard_normal(n) + shift).astype(np.float32)
            for got, want in zip(model(x), evaluate(graph, [x]), strict=True):
                assert got.shape == want.shape
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_what_is_no_size_is_refused():
    model = tw.compile(reshaped(), cache=False)
    x = np.zeros((4, 6), np.float32)
    with pytest.raises(InputError, match="the shape: these values do not fit"):
        model(x, np.array([-1, 24]))
    model(x, np.array([4, 6]))  # and the next run works


def test_results_are_the_callers_own():
    model = tw.compile(kept(), cache=False)
    first = model(np.ones(4, np.float32))
    again = [r.copy() for r in first]
    model(np.full(50, 2, np.float32))
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)


def test_outputs_cannot_be_given_beforehand():
    model = tw.compile(kept(), cache=False)
    with pytest.raises(InputError, match="only known after a call"):
        model.run_into([np.zeros(4, np.float32)] * 2, [np.ones(4, np.float32)])


def test_saved_artifacts_measure_too(tmp_path):
    model = tw.compile(kept(), cache=False)
    loaded = tw.load(model.save(tmp_path / "kept.tw"))
    x = np.array([1, -1, 2], np.float32)
    for got, want in zip(loaded(x), model(x), strict=True):
        np.testing.assert_array_equal(got, want)
    assert [s.data_dependent for s in loaded.manifest.symbols] == [False, True]


def windowed():
    """Means of four of as many numbers as are above 0."""
    build = Builder("windowed")
    x = build.input("x", "f32", (Var("n"),))
    above = build.emit("greater", x, build.constant(np.float32(0)))
    positions, count = build.emit("nonzero", above)
    build.emit("measure", count, symbols=("m",), what="the count")
    some = build.emit("slice", positions, starts=(0,), shape=(Var("m"),))
    row = build.emit("reshape", build.emit("gather", x, some), shape=(1, 1, Var("m")))
    return build.finish({"y": build.emit("avg_pool", row, kernel=(4,))})


def test_a_size_that_comes_out_negative_is_named():
    model = tw.compile(windowed(), cache=False)
    assert model(np.ones(6, np.float32))[0].shape == (1, 1, 3)
    assert model(np.ones(3, np.float32))[0].shape == (1, 1, 0)
    with pytest.raises(InputError, match=r"the size m - 3 of 'avg_pool"):
        model(np.ones(2, np.float32))


def test_a_constant_is_a_size():
    """As passes may leave one: of x - x, whatever x is."""
    build = Builder("known")
    x = build.input("x", "f32", (4, 6))
    shape = build.constant(np.array([3, 8]), "shape")
    build.emit("measure", shape, symbols=("a", "b"), what="the shape")
    y = build.emit("view_as", build.emit("relu", x), shape=(Var("a"), Var("b")))
    model = tw.compile(build.finish({"y": build.emit("add", y, y)}), cache=False)
    given = np.random.default_rng(3).standard_normal((4, 6)).astype(np.float32)
    np.testing.assert_array_equal(model(given)[0], 2 * np.maximum(given, 0).reshape(3, 8))
