"""One open row is in runs for threads, and a run away from the row's ends asks nothing."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.arith.simplify import simplify
from tilewright.driver.compile import kernel_jobs, prepare
from tilewright.driver.observe import Watch
from tilewright.graph import Builder
from tilewright.graph.graph import Graph
from tilewright.ir.expr import Select, Var, as_int, const
from tilewright.ir.stmt import Alloc, For, Func, If
from tilewright.ir.walk import substitute, visit
from tilewright.lower.pipeline import lower
from tilewright.strategy.select import default
from tilewright.target.target import target

AVX2 = target("cpu -mcpu=znver3")


FILTERS = {"conv": (80, 6, (37, 43)), "resample": (28, 2, (13, 15))}  # taps, stride, padding


def over_rows(op: str, sizes: tuple[Var, Var] | tuple[int, int]) -> Graph:
    """Windows over (batch, 1, pixels)."""
    build = Builder()
    x = build.input("x", "f32", (sizes[0], 1, sizes[1]))
    if op in FILTERS:
        taps, step, pads = FILTERS[op]
        weights = np.random.default_rng(3).standard_normal((1, 1, taps)).astype(np.float32)
        y = build.emit("conv", x, build.constant(weights), strides=(step,), pads=(pads,))
    else:
        y = build.emit(op, x, kernel=(5,), strides=(2,), pads=((2, 2),))
    return build.finish({"y": y})


def kernel(graph: Graph) -> Func:
    *_, (job,) = kernel_jobs(prepare(graph, AVX2, 3), AVX2, 2, Watch())
    return default(job.func, AVX2, 2, strict=True).func


def test_a_long_filter_over_one_row_of_an_open_batch_has_chunks_for_threads() -> None:
    batch, pixels = Var("batch"), Var("pixels")
    func = kernel(over_rows("conv", (batch, pixels)))
    outer = [n for n in visit(func.body) if isinstance(n, For) and n.kind == "parallel"]
    assert outer
    for loop in outer:
        chunks = simplify(substitute(loop.extent, {batch: const(1), pixels: const(100_000)}))
        assert (as_int(chunks) or 0) >= 4


def test_one_sum_is_no_region() -> None:
    build = Builder()
    x = build.input("x", "f32", (1, 100_000))
    func = kernel(build.finish({"y": build.emit("reduce_sum", x, axes=(1,), keepdims=True)}))
    assert not any(isinstance(n, For) and n.kind == "parallel" for n in visit(func.body))


@pytest.mark.parametrize("op", ["avg_pool", "max_pool"])
def test_runs_of_a_row_ask_nothing_away_from_its_ends(op: str) -> None:
    func = lower(kernel(over_rows(op, (Var("batch"), Var("pixels")))), AVX2)
    rounds = [n for n in visit(func.body) if isinstance(n, For) and n.kind == "serial"]
    assert any(not any(isinstance(m, Select | If) for m in visit(n)) for n in rounds)


def test_rounds_of_the_middle_are_computed_together() -> None:
    """A sum of 28 taps waits for each of them, the next round's does not wait for it."""
    func = lower(kernel(over_rows("resample", (Var("batch"), Var("pixels")))), AVX2)
    held = {as_int(n.buffer.shape[0]) for n in visit(func.body) if isinstance(n, Alloc)}
    assert held == {8, 2 * 8}


@pytest.mark.parametrize("op", ["avg_pool", "max_pool", "conv", "resample"])
def test_rows_in_runs_are_what_one_thread_makes(op: str) -> None:
    run = tw.compile(over_rows(op, (Var("batch"), Var("pixels"))), threads=2, cache=False)
    for batch, pixels in ((1, 1), (1, 2), (3, 16), (2, 257), (1, 511), (2, 4100)):
        fixed = tw.compile(over_rows(op, (batch, pixels)), threads=1, cache=False)
        x = np.random.default_rng(pixels).standard_normal((batch, 1, pixels), np.float32)
        np.testing.assert_allclose(run(x)[0], fixed(x)[0], rtol=1e-5, atol=1e-5)
