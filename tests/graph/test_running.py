"""Running sums and products along outer axes: strips with their state in registers."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.driver.compile import compile_observed, kernel_jobs, prepare
from tilewright.driver.kernels import KernelPool
from tilewright.driver.observe import Watch
from tilewright.graph import OPERATORS, Builder
from tilewright.graph.graph import Graph
from tilewright.ir.dtype import dtype
from tilewright.ir.stmt import Alloc
from tilewright.ir.walk import visit
from tilewright.target.target import target

SHAPES = [((9, 16), 0), ((5, 7, 40), 1), ((3, 4, 5, 150), 1), ((6, 3, 11, 1), 0), ((1, 30, 17), 1)]


def running(op: str, of: str, shape: tuple[int, ...], axis: int, **attrs: bool) -> Graph:
    build = Builder()
    return build.finish([build.emit(op, build.input("x", of, shape), axis=axis, **attrs)])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_the_result(shape, axis, reverse, exclusive, threads) -> None:
    for op, of in (("cumsum", "f32"), ("cumsum", "i64"), ("cumprod", "f64"), ("cumsum", "f16")):
        attrs = {"exclusive": exclusive, "reverse": reverse}
        graph = running(op, of, shape, axis, **attrs)
        x = np.random.default_rng(2).integers(-3, 4, shape).astype(dtype(of).numpy)
        wanted = OPERATORS[op].reference(x, axis=axis, **attrs)
        found = compile_observed(graph, threads=threads, cache=False, pool=KernelPool(1))(x)[0]
        np.testing.assert_array_equal(found, wanted)


def test_an_element_is_read_once_and_its_result_stored_once() -> None:
    machine = target("cpu -mcpu=haswell")
    *_, (job,) = kernel_jobs(
        prepare(running("cumsum", "f32", (100, 64, 50), 0), machine, 3), machine, 1, Watch()
    )
    (state,) = [n.buffer for n in visit(job.func.body) if isinstance(n, Alloc)]
    assert state.scope == "local" and len(job.func.buffers) == 2
