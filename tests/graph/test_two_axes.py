"""Convolutions over three axes whose windows are one place each along some of them."""

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
