"""Running sums and products: tiles, or lines side by side, with their state in registers."""

from __future__ import annotations

from typing import Any

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

SHAPES = [
    ((9, 16), 0), ((5, 7, 40), 1), ((3, 4, 5, 150), 1), ((6, 3, 11, 1), 0), ((1, 30, 17), 1),
    ((8, 5, 7), 1), ((19, 33), 1), ((2, 3, 40), 2), ((1, 21), 1), ((37,), 0), ((64, 8), 1),
]  # fmt: skip
SIZES = [0, 1, 2, 7, 15, 16, 17, 33, 50, 64, 100, 300]


def running(op: str, of: str, shape: tuple[int | str, ...], axis: int, **attrs: Any) -> Graph:
    build = Builder()
    sizes = [build.symbol(n) if isinstance(n, str) else n for n in shape]
    return build.finish([build.emit(op, build.input("x", of, sizes), axis=axis, **attrs)])


@pytest.mark.sampled
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


@pytest.mark.sampled
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("of", ["f32", "f16"])
def test_any_sizes_from_one_compilation(of, axis, reverse, exclusive) -> None:
    """The bits of sums one after the other, on one thread and two."""
    attrs = {"exclusive": exclusive, "reverse": reverse}
    graph = running("cumsum", of, ("n", "h", "w"), axis, **attrs)
    runs = [compile_observed(graph, threads=t, cache=False, pool=KernelPool(1)) for t in (1, 2)]
    rng = np.random.default_rng(3)
    for size in SIZES:
        for others in ((1, 1), (3, 5), (2, 17), (5, 13), (7, 1), (1, 83)):
            shape = [*others[:axis], size, *others[axis:]]
            x = rng.standard_normal(shape).astype(dtype(of).numpy)
            wanted = OPERATORS["cumsum"].reference(x, axis=axis, **attrs)
            for run in runs:
                np.testing.assert_array_equal(run(x)[0], wanted)
