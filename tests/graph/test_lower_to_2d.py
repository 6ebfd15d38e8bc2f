"""Convolutions over three axes whose windows are one pixel each along some of them."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.graph import OPERATORS, Builder
from tilewright.graph.graph import Graph
from tilewright.graph.passes.pipeline import optimise

POOL = KernelPool(1)
CASES = {  # kernel, strides, pads, groups: the axes of the image that are left
    "points": ((1, 1, 1), (1, 1, 1), (0, 0, 0), 1, 2),
    "in groups": ((1, 1, 1), (1, 1, 1), (0, 0, 0), 2, 2),
    "some points": ((1, 1, 1), (2, 3, 2), (0, 0, 0), 1, 2),
    "frames": ((3, 1, 1), (2, 1, 1), (1, 0, 0), 1, 2),
    "columns": ((1, 1, 5), (1, 1, 2), (0, 0, 2), 1, 2),
    "images": ((1, 3, 3), (1, 2, 1), (0, 1, 1), 1, 3),
    "points with an edge": ((1, 1, 1), (1, 1, 1), (0, 1, 0), 1, 3),
    "points, steps along an axis with taps": ((3, 1, 1), (1, 2, 1), (1, 0, 0), 1, 3),
}


def convolution(case: str, batch: int | None = 2) -> Graph:
    kernel, strides, pads, groups, _ = CASES[case]
    build, draw = Builder("g"), np.random.default_rng(3)
    x = build.input("x", "f32", (build.symbol("n") if batch is None else batch, 6, 7, 9, 8))
    w = build.constant(draw.standard_normal((10, 6 // groups, *kernel), np.float32))
    b = build.constant(draw.standard_normal(10, np.float32))
    attrs = {"strides": strides, "pads": tuple((p, p) for p in pads), "groups": groups}
    return build.finish({"y": build.emit("relu", build.emit("conv", x, w, b, **attrs))})


@pytest.mark.parametrize("case", CASES)
def test_the_axes_that_are_left(case):
    made = optimise(convolution(case))
    (conv,) = (node for node in made.nodes if node.op == "conv")
    assert conv.inputs[0].rank == 2 + CASES[case][-1]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("batch", [2, None])
def test_the_result(case, batch):
    graph = convolution(case, batch)
    x = np.random.default_rng(5).standard_normal((2, 6, 7, 9, 8), np.float32)
    conv = graph.nodes[0]
    w, b = (graph.constants[v].array.astype(np.float64) for v in conv.inputs[1:])
    wanted = OPERATORS["conv"].reference(x.astype(np.float64), w, b, **dict(conv.attrs))
    found = compile_observed(graph, cache=False, pool=POOL)(x)[0]
    np.testing.assert_allclose(found, np.maximum(wanted, 0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("groups", [1, 6])
@pytest.mark.parametrize("space", [(1, 9, 8), (7, 1, 8), (7, 9, 1), (1, 9, 1)])
def test_an_image_of_one_plane_has_two_axes(space, groups):
    """The taps along it are cut first, as they read padding."""
    build, draw = Builder("g"), np.random.default_rng(3)
    x = build.input("x", "f32", (2, 6, *space))
    w = build.constant(draw.standard_normal((12, 6 // groups, 3, 3, 3), np.float32))
    pads = ((1, 1),) * 3
    graph = build.finish({"y": build.emit("conv", x, w, pads=pads, groups=groups)})
    (conv,) = (node for node in optimise(graph).nodes if node.op == "conv")
    assert conv.inputs[0].rank == 4
    given = draw.standard_normal((2, 6, *space), np.float32)
    wide = given.astype(np.float64), graph.constants[w].array.astype(np.float64)
    wanted = OPERATORS["conv"].reference(*wide, **dict(graph.nodes[0].attrs))
    found = compile_observed(graph, cache=False, pool=POOL)(given)[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
@pytest.mark.parametrize("sizes", [(5, 7), ("h", "w")], ids=["fixed", "open"])
def test_a_softmax_over_channels_sees_one_row_of_pixels(op, sizes):
    build = Builder("g")
    shape = [build.symbol(s) if isinstance(s, str) else s for s in sizes]
    x = build.input("x", "f32", (2, 6, *shape))
    graph = build.finish({"y": build.emit(op, x, axis=1)})
    (made,) = (node for node in optimise(graph).nodes if node.op == op)
    assert made["axis"] == 1 and made.output.rank == 3
    exe = compile_observed(graph, threads=1, cache=False, pool=POOL)
    x = np.random.default_rng(5).standard_normal((2, 6, 5, 7), np.float32)
    power = np.exp(x.astype(np.float64))
    want = power / power.sum(1, keepdims=True)
    np.testing.assert_allclose(exe(x)[0], want if op == "softmax" else np.log(want), atol=1e-6)


@pytest.mark.parametrize("shape", [(2, 6, 5, 1), (2, 6, 5), (6, 5)])
def test_a_softmax_with_one_axis_behind_it_stays(shape):
    build = Builder("g")
    y = build.emit("softmax", build.input("x", "f32", shape), axis=-2 if len(shape) < 4 else 1)
    (made,) = optimise(build.finish({"y": y})).nodes
    assert made.output.shape == y.shape
