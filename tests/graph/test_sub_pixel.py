"""sub_pixel: a transposed convolution to few channels becomes one plain convolution."""

import itertools

import numpy as np
import pytest

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.graph import Builder, Graph
from tilewright.graph.evaluate import evaluate
from tilewright.graph.passes.sub_pixel import FEW, sub_pixel
from tilewright.ir.expr import Var


def graph(image, channels, kernel, rank=2, groups=1, **attrs) -> Graph:
    rng = np.random.default_rng(0)
    b = Builder("g")
    x = b.input("x", "f32", image)
    weights = rng.standard_normal((image[1], channels, *([kernel] * rank))).astype(np.float32)
    bias = rng.standard_normal(channels * groups).astype(np.float32)
    y = b.emit("conv_transpose", x, b.constant(weights), b.constant(bias), groups=groups, **attrs)
    return b.finish({"y": y})


def operators(g: Graph) -> list[str]:
    return [node.op for node in g.nodes]


SHAPES = [
    (kernel, stride, pad, extra, channels)
    for kernel, stride, pad, extra, channels in itertools.product(
        (1, 2, 3, 4, 5), (2, 3), (0, 1, 2), (0, 1), (1, 3)
    )
    if pad < kernel and (5 - 1) * stride + kernel - 2 * pad + extra > 0
]


@pytest.mark.parametrize(("kernel", "stride", "pad", "extra", "channels"), SHAPES)
def test_the_result_stays(kernel, stride, pad, extra, channels):
    """Kernels that the stride divides and others, pixels cut off and added."""
    before = graph(
        (2, 5, 5, 6), channels, kernel,
        strides=(stride, stride), pads=((pad, pad), (pad, pad)), extra=(extra, extra),
    )  # fmt: skip
    after = sub_pixel(before)
    assert after.outputs[0].shape == before.outputs[0].shape
    x = np.random.default_rng(kernel).standard_normal((2, 5, 5, 6)).astype(np.float32)
    (want,), (got,) = evaluate(before, [x]), evaluate(after, [x])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_decoder_s_last_layer_is_one_convolution():
    before = graph((1, 64, 32, 32), 3, 4, strides=(2, 2), pads=((1, 1), (1, 1)))
    after = sub_pixel(before)
    assert operators(after) == ["conv", "reshape", "transpose", "reshape", "slice"]
    conv = after.nodes[0]
    assert conv.inputs[1].static_shape == (12, 64, 2, 2)  # four taps a phase: none is zero


def test_sizes_of_the_batch_may_be_open():
    before = graph((Var("n"), 8, 4, 4), 1, 2, strides=(2, 2))
    assert "conv" in operators(sub_pixel(before))


@pytest.mark.parametrize(("kernel", "pad", "extra"), [(2, 0, 0), (4, 1, 0), (3, 1, 1), (5, 2, 1)])
def test_an_image_may_be_open(kernel, pad, extra):
    before = graph(
        (1, 8, Var("h"), Var("w")), 2, kernel,
        strides=(2, 2), pads=((pad, pad),) * 2, extra=(extra, extra),
    )  # fmt: skip
    after = sub_pixel(before)
    assert "conv" in operators(after)
    for size in ((3, 5), (6, 1)):
        x = np.random.default_rng(kernel).standard_normal((1, 8, *size)).astype(np.float32)
        (want,), (got,) = evaluate(before, [x]), evaluate(after, [x])
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_one_axis_and_three():
    for rank in (1, 3):
        image = (1, 4, *([5] * rank))
        before = graph(image, 2, 4, rank=rank, strides=(2,) * rank, pads=((1, 1),) * rank)
        after = sub_pixel(before)
        assert "conv" in operators(after)
        x = np.random.default_rng(rank).standard_normal(image).astype(np.float32)
        (want,), (got,) = evaluate(before, [x]), evaluate(after, [x])
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "before",
    [
        graph((1, 8, 4, 4), FEW + 1, 4, strides=(2, 2)),  # channels fill vectors by themselves
        graph((1, 8, 4, 4), 1, 4, groups=8, strides=(2, 2)),  # each channel by itself
        graph((1, 8, 4, 4), 3, 3, strides=(2, 2), dilations=(2, 2)),
    ],
)
def test_others_stay(before):
    assert sub_pixel(before) is before


@pytest.mark.parametrize(("kernel", "pad"), [(1, 0), (2, 1), (3, 1), (5, 0)])
@pytest.mark.parametrize("groups", [1, 2, 8])
def test_one_phase_is_a_plain_convolution(kernel, pad, groups):
    before = graph((2, 8, 6, 5), 12, kernel, groups=groups, pads=((pad, pad), (0, 0)))
    after = sub_pixel(before)
    assert operators(after) == ["conv"]
    x = np.random.default_rng(kernel).standard_normal((2, 8, 6, 5)).astype(np.float32)
    (want,), (got,) = evaluate(before, [x]), evaluate(after, [x])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("kernel", "stride", "pad"), [(4, 2, 1), (3, 2, 1), (2, 2, 0), (5, 3, 1)])
@pytest.mark.parametrize("groups", [2, 4])
def test_groups_are_those_of_a_plain_convolution(kernel, stride, pad, groups, threads):
    before = graph(
        (2, 8, 6, 5), 12, kernel, groups=groups, strides=(stride,) * 2, pads=((pad, pad),) * 2
    )
    after = sub_pixel(before)
    assert operators(after)[0] == "conv" and after.nodes[0]["groups"] == groups
    x = np.random.default_rng(kernel).standard_normal((2, 8, 6, 5)).astype(np.float32)
    (want,), (got,) = evaluate(before, [x]), evaluate(after, [x])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    run = compile_observed(before, threads=threads, cache=False, pool=KernelPool(1))
    np.testing.assert_allclose(run(x)[0], want, rtol=1e-4, atol=1e-4)
