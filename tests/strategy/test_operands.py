"""What a reduction needs often is made before it, whatever extents its axes have by chance."""

import numpy as np
import pytest

from tests.strategy.random_shapes import judge
from tilewright.driver.compile import kernel_jobs, prepare
from tilewright.driver.observe import Watch
from tilewright.graph import Builder
from tilewright.graph.graph import Graph
from tilewright.ir.stmt import For
from tilewright.ir.walk import visit
from tilewright.schedule.locate import find_loop
from tilewright.strategy.select import default
from tilewright.target.target import target

HASWELL = target("cpu -mcpu=haswell")


def convolution(channels: int, made: int, stride: int) -> Graph:
    """A convolution whose weights are an input, so that its channels are plain, and a relu."""
    build = Builder()
    x = build.input("x", "f32", (1, channels, 14, 14))
    w = build.input("w", "f32", (made, channels, 3, 3))
    y = build.emit("conv", x, w, strides=(stride, stride), pads=((1, 1), (1, 1)))
    return build.finish({"y": build.emit("relu", build.emit("mul", y, y))})


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("channels", "made"), [(24, 24), (16, 40)])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_padded_image_is_made_once(stride, channels, made, threads):
    """As many channels read as made are no common rows."""
    graph = convolution(channels, made, stride)
    *_, jobs = kernel_jobs(prepare(graph, HASWELL, 3), HASWELL, threads, Watch())
    (job,) = [job for job in jobs if "conv" in job.func.name]
    schedule = default(job.func, HASWELL, threads, strict=True)
    pad = schedule.loops("conv_pad")
    assert not {*pad} & {*schedule.loops(schedule.blocks()[-1])}
    kinds = {find_loop(schedule.func, n).kind for n in pad}
    assert "vectorize" in kinds
    loops = [n for n in visit(schedule.func.body) if isinstance(n, For)]
    assert any(n.kind == "parallel" for n in loops) == (threads > 1)
    rng = np.random.default_rng(stride)
    inputs = [
        rng.standard_normal(s, np.float32) for s in ((1, channels, 14, 14), (made, channels, 3, 3))
    ]
    assert judge(graph, inputs, threads) == ""
