"""What moves or reduces pixels leaves images packed, and what it may cut them into."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.rewriting import ops, rewritten
from tilewright.graph import Builder, Graph, Value
from tilewright.graph.passes.canonicalise import canonicalise
from tilewright.graph.passes.choose_layouts import choose_layouts
from tilewright.strategy.cpu.layouts import Layouts


def filters(build: Builder, *shape: int) -> Value:
    draw = np.random.default_rng(sum(shape))
    return build.constant(draw.standard_normal(shape, np.float32) / 10)


def laid_out(before: Graph) -> list[str]:
    return ops(rewritten(lambda g: choose_layouts(g, Layouts(64)), before, 1e-4))


@pytest.mark.parametrize(
    ("first", "count", "packed"),
    [
        (0, 16, True),
        (16, 32, True),
        (32, 24, True),  # to the end, which fills no vector
        (0, 56, True),
        (16, 8, False),  # a part of a vector
        (8, 16, False),  # parts of two
    ],
)
def test_whole_vectors_of_channels_are_taken_as_they_are_packed(first, count, packed):
    """And rows and columns of them, in steps or backwards."""
    build = Builder("g")
    x = build.input("x", "f32", (2, 16, 7, 9))
    y = build.emit("conv", x, filters(build, 56, 16, 1, 1))
    part = (2, count, 3, 4)
    y = build.emit("slice", y, starts=(0, first, 1, 8), shape=part, steps=(1, 1, 2, -2))
    y = build.emit("conv", build.emit("tanh", y), filters(build, 16, count, 1, 1))
    made = laid_out(build.finish([y]))
    assert (made.count("unpack_channels") == made.count("pack_channels") == 1) == packed


@pytest.mark.parametrize("op", ["reduce_sum", "reduce_max", "reduce_min", "reduce_prod"])
@pytest.mark.parametrize("channels", [32, 20])
def test_pixels_are_reduced_as_they_are_packed(op, channels):
    build = Builder("g")
    x = build.input("x", "f32", (2, 16, 3, 5))
    y = build.emit("conv", x, filters(build, channels, 16, 1, 1))
    gate = build.emit("sigmoid", build.emit(op, y, axes=(3, 2), keepdims=True))
    y = build.emit("conv", build.emit("mul", y, gate), filters(build, 16, channels, 1, 1))
    made = laid_out(build.finish([y]))
    assert made.count("unpack_channels") == made.count("pack_channels") == 1


@pytest.mark.parametrize(
    ("old", "new"), [((2, 6, 1, 8), (2, 6, 8)), ((6, 8), (1, 6, 1, 8)), ((2, 6, 8), (2, 6, 8, 1))]
)
def test_slices_move_before_views_that_keep_the_axes(old, new):
    build = Builder("g")
    y = build.emit("tanh", build.input("x", "f32", old))
    y = build.emit("reshape", y, shape=new)
    starts, part = tuple(s // 2 for s in new), tuple(-(-s // 2) for s in new)
    y = build.emit("slice", y, starts=starts, shape=part)
    assert ops(rewritten(canonicalise, build.finish([y]))) == ["tanh", "slice", "reshape"]


def test_slices_of_views_that_join_axes_stay():
    build = Builder("g")
    y = build.emit("reshape", build.emit("tanh", build.input("x", "f32", (4, 6))), shape=(24,))
    y = build.emit("slice", y, starts=(3,), shape=(7,))
    assert ops(rewritten(canonicalise, build.finish([y]))) == ["tanh", "reshape", "slice"]


def test_nothing_of_an_axis_of_one_pixel_is_nothing():
    """As a fuzzer drew it: an empty slice of a batch of one, after a view of it."""
    build = Builder("g")
    y = build.emit("tanh", build.input("x", "f32", (1, 32, 1, 5)))
    y = build.emit("reshape", y, shape=(1, 32, 5))
    y = build.emit("slice", y, starts=(0, 0, 0), shape=(0, 32, 5))
    assert ops(rewritten(canonicalise, build.finish([y]))) == ["tanh", "reshape", "slice"]
