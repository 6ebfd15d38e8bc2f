"""Windows over images of open sizes: scheduled as those of fixed ones are, and as exact."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.driver.compile import compile_observed, kernel_jobs, prepare
from tilewright.driver.kernels import KernelPool
from tilewright.driver.observe import Watch
from tilewright.graph.builder import Builder
from tilewright.graph.evaluate import evaluate
from tilewright.graph.graph import Graph
from tilewright.strategy.select import default
from tilewright.target.target import target


def convolution(channels: int, results: int, kernel: int, stride: int, groups: int = 1) -> Graph:
    build = Builder("m")
    x = build.input("x", "f32", (1, channels, build.symbol("h"), build.symbol("w")))
    shape = (results, channels // groups, kernel, kernel)
    w = build.constant(np.random.default_rng(3).standard_normal(shape).astype(np.float32))
    pads = ((kernel // 2, kernel // 2),) * 2
    y = build.emit("conv", x, w, pads=pads, strides=(stride, stride), groups=groups)
    return build.finish({"y": y})


@pytest.mark.parametrize(("channels", "groups", "rows"), [(32, 1, 4), (1, 1, 2)])
def test_long_sums_wait_beside_each_other(channels: int, groups: int, rows: int) -> None:
    """A sum over channels, too, waits for itself: of four rows, not of two."""
    machine = target("cpu -mcpu=haswell")
    graph = convolution(channels, 1, 3, 1, groups)
    *_, (job,) = kernel_jobs(prepare(graph, machine, 3, []), machine, 1, Watch())
    made = default(job.func, machine, 1, strict=True).trace.decisions
    assert [v for name, v in made.items() if name.endswith(".tile_m")] == [rows]


@pytest.mark.parametrize(("stride", "inlined"), [(1, False), (2, True)])
def test_a_stride_has_fewer_pixels(stride: int, inlined: bool) -> None:
    """Padding is stored where each pixel of it is read often: of an open image, too, half as many
    rows and columns read a quarter as often."""
    machine = target("cpu -mcpu=haswell")
    graph = convolution(16, 4, 3, stride)
    *_, (job,) = kernel_jobs(prepare(graph, machine, 3, []), machine, 1, Watch())
    assert ("conv_pad" not in default(job.func, machine, 1, strict=True).blocks()) is inlined


@pytest.mark.parametrize(("channels", "results", "stride"), [(32, 1, 1), (16, 4, 2), (10, 10, 1)])
def test_few_channels_of_open_images(channels: int, results: int, stride: int) -> None:
    graph = convolution(channels, results, 5, stride)
    run = compile_observed(graph, cache=False, pool=KernelPool(1))
    for height, width in ((40, 40), (7, 83), (1, 1)):
        draw = np.random.default_rng(height).standard_normal
        given = draw((1, channels, height, width), np.float32)
        (expected,) = evaluate(graph, [given])
        np.testing.assert_allclose(run(given)[0], expected, rtol=1e-4, atol=2e-4)
