"""Reductions along rows too short to fill a vector: a lane for each row."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.driver.compile import compile_observed, kernel_jobs, prepare
from tilewright.driver.kernels import KernelPool
from tilewright.driver.observe import Watch
from tilewright.graph import OPERATORS, Builder
from tilewright.graph.graph import Graph
from tilewright.ir.expr import as_int
from tilewright.ir.stmt import For
from tilewright.ir.walk import visit
from tilewright.lower.pipeline import lower
from tilewright.strategy.select import default
from tilewright.target.target import target

POOL = KernelPool(1)
AVX512 = target("cpu -mcpu=skylake-avx512")
AVX2 = target("cpu -mcpu=haswell")
SHAPES = [(40, 3), (16, 16), (3, 100, 7), (1, 33, 1, 5), (2, 50, 1, 1, 2), (5, 2, 17, 12)]
OPS = {
    "softmax": {"axis": -1},
    "reduce_max": {"axes": (-1,), "keepdims": True},
    "reduce_mean": {"axes": (-1,)},
    "argmax": {"axis": -1},
}


def graph(op: str, shape: tuple[int, ...], dtype: str = "f32") -> Graph:
    """The operator and what is done to each of its results."""
    build = Builder("g")
    attrs = dict(OPS[op])
    if "axes" in attrs:
        attrs["axes"] = (len(shape) - 1,)
    made = build.emit(op, build.input("x", dtype, shape), **attrs)
    return build.finish({"y": build.emit("cast", made, to="f64") if op == "argmax" else made})


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_a_lane_for_each_row(op, shape):
    *_, jobs = kernel_jobs(prepare(graph(op, shape), AVX512, 3, []), AVX512, 1, Watch())
    for job in jobs:
        func = lower(default(job.func, AVX512, 1, strict=True).func, AVX512)
        kinds = [(n.kind, as_int(n.extent)) for n in visit(func.body) if isinstance(n, For)]
        lanes = 8 if op == "argmax" else 16
        if shape[-1] <= (15 if op == "softmax" else lanes):  # whose rows of 16 are a vector each
            assert all(size == lanes for kind, size in kinds if kind == "vectorize")
            assert sum(kind == "serial" and size != 1 for kind, size in kinds) < len(shape)


@pytest.mark.parametrize("op", ["softmax", "reduce_mean"])
@pytest.mark.parametrize("columns", [5, 8, 11, 15, 16, 17])
def test_rows_longer_than_a_vector_have_a_lane_each_where_there_are_no_masks(op, columns):
    *_, jobs = kernel_jobs(prepare(graph(op, (40, columns)), AVX2, 3, []), AVX2, 1, Watch())
    for job in jobs:
        func = default(job.func, AVX2, 1, strict=True).func
        loops = [n for n in visit(func.body) if isinstance(n, For)]
        across_rows = columns < 16 and not (op == "softmax" and columns == 8)
        assert any(as_int(n.extent) == columns and n.kind == "unroll" for n in loops) == across_rows


@pytest.mark.parametrize("shape", [(3, 1, 9000, 7), (1, 3, 1, 9000, 1, 5)], ids=str)
@pytest.mark.parametrize("op", OPS)
def test_axes_of_size_one_do_not_part_the_loops_that_run_in_parallel(op, shape):
    *_, jobs = kernel_jobs(prepare(graph(op, shape), AVX512, 3, []), AVX512, 2, Watch())
    for job in jobs:
        func = lower(default(job.func, AVX512, 2, strict=True).func, AVX512)
        assert "parallel" in {n.kind for n in visit(func.body) if isinstance(n, For)}


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("shape", [*SHAPES, (7, 5), (2, 300, 17)], ids=str)
@pytest.mark.parametrize("op", OPS)
def test_the_result(op, shape, dtype):
    made = graph(op, shape, dtype)
    x = np.random.default_rng(3).standard_normal(shape).astype(dtype.replace("f", "float"))
    wanted = OPERATORS[op].reference(x.astype(np.float64), **dict(made.nodes[0].attrs))
    found = compile_observed(made, cache=False, pool=POOL, threads=2)(x)[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
