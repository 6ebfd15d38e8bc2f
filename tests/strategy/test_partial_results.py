"""Reductions along the last axis: vectors of partial results that stay in registers, of known and
of open lengths."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.driver.compile import compile_observed, kernel_jobs, prepare
from tilewright.driver.kernels import KernelPool
from tilewright.driver.observe import Watch
from tilewright.graph import Builder, evaluate
from tilewright.graph.graph import Graph
from tilewright.ir.expr import Var, as_int
from tilewright.ir.stmt import Alloc, For
from tilewright.ir.walk import blocks, visit
from tilewright.lower.pipeline import lower
from tilewright.strategy.select import default
from tilewright.target.target import target

FEW = 64  # numbers that registers hold
CPU = target("cpu")
AXES = {"softmax": {"axis": -1}, "reduce_sum": {"axes": (1,)}, "reduce_max": {"axes": (1,)}}


def graph(op: str, columns: int | None) -> Graph:
    build = Builder("g")
    size = build.symbol("n") if columns is None else columns
    x = build.input("x", "f32", (6, size))
    return build.finish({"y": build.emit(op, x, **AXES[op])})


def dots(rows: int, deep: int) -> Graph:
    """A row of x with each row of w, in two batches."""
    build = Builder("g")
    x, w = build.input("x", "f32", (2, 1, deep)), build.input("w", "f32", (2, rows, deep))
    return build.finish({"y": build.emit("matmul", x, w, transpose_b=True)})


@pytest.mark.parametrize(
    "made",
    [
        *(graph(op, n) for op in AXES for n in (8, 17, 24, 64, 197, None)),
        dots(40, 64),
        dots(40, 77),
    ],
    ids=str,
)
def test_few_are_kept_and_vectors_of_them(made):
    *_, jobs = kernel_jobs(prepare(made, CPU, 3, []), CPU, 1, Watch())
    for job in jobs:
        func = lower(default(job.func, CPU, 1, strict=True).func, CPU)
        made_of = [n.buffer for n in visit(func.body) if isinstance(n, Alloc)]
        kept = [as_int(b.shape[0]) for b in made_of if "_rf" in b.name]
        assert kept and all(size is not None and size <= FEW for size in kept)
        kinds = {n.kind for n in visit(func.body) if isinstance(n, For)}
        assert "vectorize" in kinds


@pytest.mark.parametrize("op", AXES)
def test_an_open_length(op):
    run = compile_observed(graph(op, None), cache=False, pool=KernelPool(1))
    for columns in (1, 7, 8, 31, 64, 197, 1000):
        x = np.random.default_rng(columns).standard_normal((6, columns), np.float32)
        wide = x.astype(np.float64)
        if op == "softmax":
            powers = np.exp(wide - wide.max(1, keepdims=True))
            wanted = powers / powers.sum(1, keepdims=True)
        else:
            wanted = wide.sum(1) if op == "reduce_sum" else wide.max(1)
        found = run(x)[0].reshape(wanted.shape)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows, deep", [(1, 64), (40, 77), (129, 512), (3, 5)])
def test_products_with_rows(rows, deep):
    run = compile_observed(dots(rows, deep), cache=False, pool=KernelPool(1))
    draw = np.random.default_rng(rows).standard_normal
    x, w = draw((2, 1, deep), np.float32), draw((2, rows, deep), np.float32)
    wanted = x.astype(np.float64) @ w.swapaxes(1, 2)
    np.testing.assert_allclose(run(x, w)[0], wanted, rtol=1e-5, atol=1e-5)


def test_a_sum_over_all_axes_of_a_tensor():
    """One run of memory, in vectors: equal numbers one after the other would lose digits."""
    build = Builder("g")
    x = build.input("x", "f32", (5, 10, 9, 6))
    made = build.finish({"y": build.emit("reduce_sum", x, axes=(0, 1, 2, 3))})
    numbers = np.full((5, 10, 9, 6), 0.8367, np.float32)
    found = compile_observed(made, cache=False, pool=KernelPool(1))(numbers)[0]
    np.testing.assert_allclose(found, numbers.astype(np.float64).sum(), rtol=2e-6)


def image_norms(*sizes: int | str) -> Graph:
    """The means of images, and the images less their means over their deviations."""
    build = Builder("g")
    h, w = (build.symbol(s) if isinstance(s, str) else s for s in sizes)
    x = build.input("x", "f32", (2, 3, h, w))
    ones = build.constant(np.ones(3, np.float32))
    norm = build.emit("group_norm", x, ones, ones, groups=3)
    return build.finish({"mean": build.emit("reduce_mean", x, axes=(2, 3)), "norm": norm})


@pytest.mark.parametrize("sizes", [("h", "w"), (33, 33)])
def test_images_are_walked_as_one_run(sizes):
    """Both sums, and what is made of them: no vector ends with a row."""
    *_, jobs = kernel_jobs(prepare(image_norms(*sizes), CPU, 3, []), CPU, 1, Watch())
    for job in jobs:
        func = default(job.func, CPU, 1, strict=True).func
        (last,) = [b for b in blocks(func.body) if b.name in ("group_norm", "mean_sum_rf")]
        rows = [a for a in last.axes if a.extent in (job.func.buffers[0].shape[2],)]
        assert all(not isinstance(a.value, Var) for a in rows)


def test_images_of_open_sizes():
    run = compile_observed(image_norms("h", "w"), cache=False, pool=KernelPool(1))
    for h, w in ((1, 1), (33, 33), (7, 50), (64, 3), (1, 129), (90, 70)):
        x = np.random.default_rng(w).standard_normal((2, 3, h, w), np.float32) + 3
        wide = x.astype(np.float64)
        mean = wide.mean((2, 3), keepdims=True)
        norm = (wide - mean) / np.sqrt(wide.var((2, 3), keepdims=True) + 1e-5) + 1
        found = run(x)
        np.testing.assert_allclose(found[0].ravel(), mean.ravel(), rtol=1e-6)
        np.testing.assert_allclose(found[1], norm, rtol=1e-5, atol=2e-5)


def rounded_layer() -> Graph:
    """An LSTM of open length whose weights are computed, with the state's range in every step."""
    build = Builder("g")
    steps, batch = build.symbol("t"), build.symbol("n")
    gates = build.input("x", "f32", (steps, batch, 4 * 24))
    weights = build.emit("tanh", build.input("w", "f32", (4 * 24, 24)))
    start = build.emit("full", shape=(batch, 24), value=0.0, of="f32")
    made = build.emit("lstm", gates, weights, start, start, rounds=True)
    return build.finish({"y": made[0], "c": made[2]})


def test_sums_inside_the_steps_of_a_recurrence():
    """Over a whole state, in lanes; and of products whose weights are transposed."""
    graph = rounded_layer()
    *_, jobs = kernel_jobs(prepare(graph, CPU, 3, []), CPU, 1, Watch())
    for job in jobs:
        default(job.func, CPU, 1, strict=True)
    run = compile_observed(graph, cache=False, pool=KernelPool(1))
    for steps, batch in ((1, 1), (9, 2), (17, 5)):
        draw = np.random.default_rng(steps).standard_normal
        arrays = [draw((steps, batch, 96), np.float32), draw((96, 24), np.float32)]
        for found, wanted in zip(run(*arrays), evaluate(graph, arrays), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-2)  # a rounding apart


def columns_softmax(axis: int, *shape: int | str) -> Graph:
    build = Builder("g")
    x = build.input("x", "f32", tuple(build.symbol(d) if isinstance(d, str) else d for d in shape))
    return build.finish({"y": build.emit("softmax", x, axis=axis)})


@pytest.mark.parametrize(("axis", "shape", "tile"), [(1, (8, "h", "w"), 32), (1, (1, 64, "n"), 64)])
def test_rows_of_open_length_are_short_where_they_are_many(axis, shape, tile):
    """A tile of columns wider than the row is masked for the most part."""
    machine = target("cpu -mcpu=skylake-avx512")
    graph = columns_softmax(axis, *shape)
    *_, jobs = kernel_jobs(prepare(graph, machine, 3, []), machine, 1, Watch())
    (job,) = jobs
    func = default(job.func, machine, 1, strict=True).func
    loops = {
        int(n.extent.value) for n in visit(func.body) if isinstance(n, For) and n.kind == "unroll"
    }
    assert loops == {tile // 16}


def test_columns_of_open_images():
    run = compile_observed(columns_softmax(1, 3, "h", "w"), cache=False, pool=KernelPool(1))
    for h, w in ((1, 1), (7, 7), (20, 20), (5, 31), (300, 33), (4, 100)):
        x = np.random.default_rng(w).standard_normal((3, h, w), np.float32)
        wide = np.exp(x.astype(np.float64))
        np.testing.assert_allclose(run(x)[0], wide / wide.sum(1, keepdims=True), rtol=2e-6)
