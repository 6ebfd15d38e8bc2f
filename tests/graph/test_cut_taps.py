"""cut_taps: taps that read nothing but padding are cut off, and nothing else changes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.graph import Builder
from tilewright.graph.evaluate import evaluate
from tilewright.graph.graph import Graph
from tilewright.graph.passes.cut_taps import cut_taps
from tilewright.graph.passes.pipeline import optimise


def convolution(space, kernel, strides, pads, dilations, groups=1, w=None) -> Graph:
    build, draw = Builder("g"), np.random.default_rng(7)
    x = build.input("x", "f32", (2, 4, *space))
    if w is None:
        w = draw.standard_normal((6, 4 // groups, *kernel), np.float32)
    bias = build.constant(draw.standard_normal(6, np.float32))
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups}
    return build.finish({"y": build.emit("conv", x, build.constant(w), bias, **attrs)})


def kernel_of(graph: Graph) -> tuple[int, ...]:
    (conv,) = (node for node in graph.nodes if node.op == "conv")
    return tuple(int(s) for s in conv.inputs[1].static_shape[2:])


CASES = [
    (size, taps, step, (before, after), apart)
    for size, taps, step, before, after, apart in product(
        (1, 2, 3, 5), (1, 2, 3, 4, 7), (1, 2, 3), (0, 1, 2, 5), (0, 1, 3), (1, 2, 4)
    )
    if size + before + after > (taps - 1) * apart
]


def test_every_axis():
    """Sizes, taps, steps, pads and dilations in all combinations, beside NumPy."""
    cut = 0
    for size, taps, step, pads, apart in CASES:
        graph = convolution((size,), (taps,), (step,), (pads,), (apart,))
        after = cut_taps(graph)
        assert after.outputs[0].shape == graph.outputs[0].shape
        x = np.random.default_rng(taps).standard_normal((2, 4, size), np.float32)
        (want,), (got,) = evaluate(graph, [x]), evaluate(after, [x])
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, err_msg=f"{kernel_of(after)}")
        cut += kernel_of(after) != (taps,)
    assert cut > 100


@pytest.mark.parametrize(
    ("space", "kernel", "pads", "dilations", "left"),
    [
        ((1, 7, 7), (3, 3, 3), ((1, 1),) * 3, (1, 1, 1), (3, 3)),
        ((1, 1), (3, 3), ((1, 1),) * 2, (1, 1), (1, 1)),
        ((2, 9), (7, 7), ((3, 3),) * 2, (1, 1), (3, 7)),
        ((5, 5), (3, 3), ((6, 6),) * 2, (6, 6), (1, 1)),  # taps further apart than there is image
        ((5, 5), (3, 3), ((1, 1),) * 2, (1, 1), (3, 3)),
    ],
)
def test_what_is_left(space, kernel, pads, dilations, left):
    one = (1,) * len(kernel)
    graph = convolution(space, kernel, one, pads, dilations)
    assert kernel_of(optimise(graph)) == left
    x = np.random.default_rng(5).standard_normal((2, 4, *space), np.float32)
    found = compile_observed(graph, cache=False, pool=KernelPool(1))(x)[0]
    np.testing.assert_allclose(found, evaluate(graph, [x])[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_weight_that_is_no_number_stays(value):
    """Padding times it is NaN."""
    w = np.random.default_rng(1).standard_normal((6, 4, 3, 3), np.float32)
    w[2, 1, 0, 1] = value
    graph = convolution((1, 1), (3, 3), (1, 1), ((1, 1),) * 2, (1, 1), w=w)
    after = cut_taps(graph)
    assert kernel_of(after) == (3, 1)
    x = np.ones((2, 4, 1, 1), np.float32)
    with np.errstate(invalid="ignore"):
        (want,), (got,) = evaluate(graph, [x]), evaluate(after, [x])
    assert np.isnan(want[:, 2]).all()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
