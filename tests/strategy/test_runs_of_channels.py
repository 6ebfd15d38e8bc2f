"""Rows of channels that a packed image holds in runs: reductions walk each run in vectors."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.driver.compile import compile_observed, kernel_jobs, prepare
from tilewright.driver.kernels import KernelPool
from tilewright.driver.observe import Watch
from tilewright.graph import Builder, evaluate
from tilewright.graph.graph import Graph
from tilewright.ir.expr import const
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import For
from tilewright.ir.walk import blocks, visit
from tilewright.strategy.cpu.contiguous import contiguous
from tilewright.strategy.select import default
from tilewright.target.target import target

PACKED = """
def sums(A: f32[3, 5, 16], C: f32[5]):
    for i in serial(0, 5):
        for k in serial(0, 48):
            with block("C"):
                vi = spatial(5, i)
                vk = reduce(48, k)
                reads(A[vk // 16, vi, vk % 16])
                writes(C[vi])
                with init():
                    C[vi] = 0.0
                C[vi] = C[vi] + A[vk // 16, vi, vk % 16]
"""


@pytest.mark.parametrize(("run", "walks"), [(0, False), (8, True), (16, True), (32, False)])
def test_runs_are_parts_of_blocks(run: int, walks: bool) -> None:
    (block,) = blocks(parse_func(PACKED).body)
    assert contiguous(block, block.axes[1].var, run=run) is walks


def normalised(channels: int) -> Graph:
    """A convolution of each channel, and a norm over the channels of each pixel (ConvNeXt)."""
    build, draw = Builder(), np.random.default_rng(channels)

    def weights(*shape: int):
        return build.constant(draw.standard_normal(shape).astype("f"))

    x = build.input("x", "f32", (2, channels, 6, 9))
    around = {"pads": ((3, 3), (3, 3)), "groups": channels}
    y = build.emit("conv", x, weights(channels, 1, 7, 7), **around)
    y = build.emit("transpose", y, perm=(0, 2, 3, 1))
    return build.finish([build.emit("layer_norm", y, weights(channels), weights(channels))])


@pytest.mark.parametrize("channels", [16, 24, 32, 40])
@pytest.mark.parametrize("machine", ["znver4", "haswell", "skylake-avx512"])
def test_no_reduction_goes_one_by_one(channels: int, machine: str) -> None:
    on = target(f"cpu -mcpu={machine}")
    *_, jobs = kernel_jobs(prepare(normalised(channels), on, 3), on, 1, Watch())
    func = default(jobs[-1].func, on).func
    serial = [n for n in visit(func.body) if isinstance(n, For) and n.kind == "serial"]
    assert not any(n.extent == const(channels) and n.var.name.startswith("k") for n in serial)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("channels", [8, 16, 24, 40, 64])
def test_the_result(channels: int, threads: int) -> None:
    graph = normalised(channels)
    x = np.random.default_rng(1).standard_normal((2, channels, 6, 9)).astype("f")
    (wanted,) = evaluate(graph, [x], precise=True)
    run = compile_observed(graph, threads=threads, cache=False, pool=KernelPool(1))
    np.testing.assert_allclose(run(x)[0], wanted, rtol=1e-4, atol=1e-4)
