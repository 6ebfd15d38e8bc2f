"""Moves of elements between tensors of open sizes: what lies apart is transposed in registers."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from tilewright.driver.compile import compile_observed, kernel_jobs, prepare
from tilewright.driver.kernels import KernelPool
from tilewright.driver.observe import Watch
from tilewright.graph import OPERATORS, Builder
from tilewright.graph.graph import Graph
from tilewright.ir.stmt import For
from tilewright.ir.walk import visit
from tilewright.strategy.select import default
from tilewright.target.target import target

AVX512 = target("cpu -mcpu=skylake-avx512")
POOL = KernelPool(1)


def transposed(axes: tuple[int, ...]) -> Graph:
    build = Builder()
    x = build.input("x", "f32", (4, build.symbol("h"), 8, build.symbol("w")))
    return build.finish([build.emit("transpose", x, perm=axes)])


@pytest.mark.parametrize("axes", [a for a in permutations(range(4)) if a != (0, 1, 2, 3)], ids=str)
def test_transposes_of_any_size_from_one_compilation(axes: tuple[int, ...]) -> None:
    runs = [compile_observed(transposed(axes), threads=n, cache=False, pool=POOL) for n in (1, 2)]
    rng = np.random.default_rng(6)
    for h, w in ((0, 3), (1, 1), (1, 7), (2, 15), (7, 2), (16, 17), (33, 9), (5, 50), (64, 100)):
        given = rng.standard_normal((4, h, 8, w)).astype(np.float32)
        for run in runs:
            np.testing.assert_array_equal(run(given)[0], given.transpose(axes))


@pytest.mark.parametrize("axes", [(1, 3, 2, 0), (3, 1, 2, 0), (3, 2, 1, 0)], ids=str)
def test_short_vectors_across_open_rows_are_squares(axes: tuple[int, ...]) -> None:
    """The loop along the row that they are read from stands around them, unrolled."""
    *_, (job,) = kernel_jobs(prepare(transposed(axes), AVX512, 3, []), AVX512, 1, Watch())
    made = default(job.func, AVX512, 1, strict=True).func
    unrolled = [n for n in visit(made.body) if isinstance(n, For) and n.kind == "unroll"]
    assert [n.name.partition("_")[0] for n in unrolled] == [f"i{axes.index(3)}"]


@pytest.mark.parametrize("reduction", ["none", "add", "max"])
def test_rows_that_are_scattered(reduction: str) -> None:
    """Rows of any length are copied and updated in vectors, each element once."""
    build = Builder()
    x = build.input("x", "f32", (build.symbol("h"), build.symbol("w")))
    where, new = build.input("i", "i64", (3, 1)), build.input("u", "f32", (3, x.shape[1]))
    graph = build.finish([build.emit("scatter_nd", x, where, new, reduction=reduction)])
    runs = [compile_observed(graph, threads=n, cache=False, pool=POOL) for n in (1, 2)]
    rng, rows = np.random.default_rng(7), np.array([[1], [0], [1]])
    for w in (0, 1, 2, 7, 15, 16, 17, 23, 31, 32, 33, 50, 64, 100, 300):
        given = rng.standard_normal((4, w)).astype(np.float32)
        update = rng.standard_normal((3, w)).astype(np.float32)
        wanted = OPERATORS["scatter_nd"].reference(given, rows, update, reduction=reduction)
        for run in runs:
            np.testing.assert_array_equal(run(given, rows, update)[0], wanted)
