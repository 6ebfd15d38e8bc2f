"""Elementwise kernels of open sizes: what is costly is inlined, as it is at fixed sizes, and
indices are told without divisions."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.codegen.llvm import emit
from tilewright.driver.compile import kernel_jobs, prepare
from tilewright.driver.observe import Watch
from tilewright.graph.builder import Builder
from tilewright.ir.expr import Binary, BinaryOp
from tilewright.ir.walk import blocks, distinct
from tilewright.lower.pipeline import lower
from tilewright.strategy.select import default
from tilewright.strategy.space import decisions
from tilewright.target.target import target


@pytest.mark.parametrize(("rows", "vectors"), [("n", 1), (64, 4)])
def test_costly_functions_are_inlined(rows: str | int, vectors: int) -> None:
    """Tails of several independent vectors would call them more often than is worth inlining; where
    the size tells that there are none, several are independent."""
    machine = target("cpu -mcpu=haswell")
    build = Builder("g")
    count = build.symbol(rows) if isinstance(rows, str) else rows
    x = build.input("x", "f32", (count, build.symbol("t")))
    graph = build.finish({"y": build.emit("sigmoid", x)})
    *_, (job,) = kernel_jobs(prepare(graph, machine, 3, []), machine, 1, Watch())
    scheduled = default(job.func, machine, 1, strict=True)
    interleaved = [v for k, v in decisions(scheduled).items() if k.endswith(".interleave")]
    assert interleaved == [vectors]
    made = emit(lower(scheduled.func, machine), machine)
    assert made.module.functions
    assert all(") #1 {" in f for f in made.module.functions)


@pytest.mark.parametrize("upper", [False, True])
def test_what_asks_for_a_diagonal_walks_rows(upper: bool) -> None:
    """No element divides to know its row; there may be no row, or none with an element."""
    build = Builder("g")
    x = build.input("x", "f32", (2, build.symbol("n"), build.symbol("t")))
    graph = build.finish({"y": build.emit("trilu", x, upper=upper)})
    machine = target("cpu -mcpu=haswell")
    *_, (job,) = kernel_jobs(prepare(graph, machine, 3, []), machine, 1, Watch())
    (block,) = blocks(default(job.func, machine, 1, strict=True).func.body)
    assert not {b.op for b in distinct(a.value for a in block.axes) if isinstance(b, Binary)} & {
        BinaryOp.floordiv,
        BinaryOp.floormod,
    }
    exe = tw.compile(graph, cache=False, threads=2)
    for shape in [(0, 3), (1, 1), (3, 0), (5, 1), (1, 9), (17, 33), (40, 7)]:
        values = np.random.default_rng(1).standard_normal((2, *shape)).astype(np.float32)
        np.testing.assert_array_equal(exe(values)[0], (np.triu if upper else np.tril)(values))
