"""col2im: a transposed convolution to few channels is a product and a sum of shifted pixels."""

import itertools

import numpy as np
import pytest

from tilewright.graph import Builder, Graph
from tilewright.graph.evaluate import evaluate
from tilewright.graph.passes.col2im import DEEP, MOST_ADDED, col2im
from tilewright.graph.passes.sub_pixel import FEW
from tilewright.ir.expr import Var


def graph(image, channels=3, kernel=(4, 4), strides=(2, 2), pads=1, **attrs) -> Graph:
    draw = np.random.default_rng()
    b = Builder("g")
    x = b.input("x", "f32", image)
    weights = draw.standard_normal((image[1], channels, *kernel), np.float32)
    bias = draw.standard_normal(channels * attrs.get("groups", 1), np.float32)
    y = b.emit(
        "conv_transpose", x, b.constant(weights), b.constant(bias), strides=strides,
        pads=((pads, pads),) * len(kernel), **attrs,
    )  # fmt: skip
    return b.finish({"y": y})


def operators(g: Graph) -> list[str]:
    return [node.op for node in g.nodes]


@pytest.mark.parametrize(
    ("kernel", "strides"),
    [((4, 4), (2, 2)), ((3, 3), (2, 2)), ((3, 4), (2, 2)), ((4, 2), (2, 1)), ((2, 3), (2, 2))]
    + [((4,), (2,)), ((2, 4, 3), (1, 2, 2))],
    ids=str,
)
def test_the_result_stays(kernel, strides):
    """Kernels that the stride divides and others, pixels cut off and added, images of one pixel."""
    rank = len(kernel)
    for pads, extra, size in itertools.product((0, 1), (0, 1), ((5, 1, 6), (1, 1, 1), (2, 3, 4))):
        spans = zip(size[:rank], kernel, strides, strict=True)
        if min((n - 1) * s + k + extra - 2 * pads for n, k, s in spans) <= 0:
            continue
        image = (1, DEEP, *size[:rank])
        cut = min(pads, min(strides) - 1)
        before = graph(image, 3, kernel, strides, cut, extra=(extra,) * rank)
        after = col2im(before)
        assert "matmul" in operators(after)
        assert "conv_transpose" not in operators(after)
        assert after.outputs[0].shape == before.outputs[0].shape
        x = np.random.default_rng().standard_normal(image, np.float32)
        (want,), (got,) = evaluate(before, [x]), evaluate(after, [x])
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


def test_an_image_may_be_open():
    assert "matmul" in operators(col2im(graph((1, DEEP, Var("h"), Var("w")))))


@pytest.mark.parametrize(
    "given",
    [
        {"image": (2, DEEP, 8, 8)},
        {"image": (1, DEEP - 1, 8, 8)},
        {"channels": FEW + 1},
        {"kernel": (2, 2)},
        {"kernel": (2 * MOST_ADDED + 1, 4)},
        {"strides": (3, 3)},
        {"strides": (1, 1)},
        {"dilations": (2, 2)},
        {"groups": 2},
        {"pads": 2},
    ],
    ids=str,
)
def test_others_stay(given):
    before = graph(**{"image": (1, DEEP, 8, 8), **given})
    assert col2im(before) is before or "matmul" not in operators(col2im(before))
