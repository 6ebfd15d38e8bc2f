"""The index of the greatest element along an outer axis, and what is made of it: in vectors."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.driver.compile import compile_observed, kernel_jobs, prepare
from tilewright.driver.kernels import KernelPool
from tilewright.driver.observe import Watch
from tilewright.graph import Builder
from tilewright.graph.graph import Graph
from tilewright.ir.expr import Var
from tilewright.ir.stmt import For, Store
from tilewright.ir.walk import visit
from tilewright.lower.pipeline import lower
from tilewright.strategy.select import default
from tilewright.target.target import target

POOL = KernelPool(1)
AVX2 = target("cpu -mcpu=haswell")
SHAPES = [((1, 21, 30, 41), 1), ((5, 67), 0), ((3, 9, 64), 1), ((7, 2, 5, 33), 0)]


def labels(shape: tuple[int | Var, ...], axis: int, op: str = "argmax") -> Graph:
    build = Builder("g")
    index = build.emit(op, build.input("x", "f32", shape), axis=axis)
    return build.finish({"y": build.emit("cast", index, to="f32")})


@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_a_lane_for_each_result(shape, axis):
    *_, jobs = kernel_jobs(prepare(labels(shape, axis), AVX2, 3, []), AVX2, 1, Watch())
    (job,) = jobs
    func = lower(default(job.func, AVX2, 1, strict=True).func, AVX2)
    lanes = [n for n in visit(func.body) if isinstance(n, For) and n.kind == "vectorize"]
    inside = {id(n) for loop in lanes for n in visit(loop) if isinstance(n, Store)}
    assert all(id(n) in inside for n in visit(func.body) if isinstance(n, Store))


@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_the_first_of_equals_and_of_what_is_not_a_number(shape, axis, opened, op):
    x = np.random.default_rng(5).integers(-3, 4, shape).astype(np.float32)
    x[np.random.default_rng(6).random(shape) < 0.02] = np.nan
    sizes = (
        tuple(n if d == axis else Var(f"n{d}") for d, n in enumerate(shape)) if opened else shape
    )
    exe = compile_observed(labels(sizes, axis, op), cache=False, pool=POOL, threads=2)
    np.testing.assert_array_equal(exe(x)[0], getattr(np, op)(x, axis=axis))
