"""Elementwise kernels of open sizes: what is costly is inlined, as it is at fixed sizes."""

from __future__ import annotations

import pytest

from tilewright.codegen.llvm import emit
from tilewright.driver.compile import kernel_jobs, prepare
from tilewright.driver.observe import Watch
from tilewright.graph.builder import Builder
from tilewright.lower.pipeline import lower
from tilewright.strategy.select import default
from tilewright.strategy.space import decisions
from tilewright.target.target import target


@pytest.mark.parametrize(("rows", "flight"), [("n", 1), (64, 4)])
def test_costly_functions_are_inlined(rows: str | int, flight: int) -> None:
    """Tails of several vectors in flight would call them more often than is worth inlining; where
    the size tells that there are none, several are in flight."""
    machine = target("cpu -mcpu=haswell")
    build = Builder("g")
    count = build.symbol(rows) if isinstance(rows, str) else rows
    x = build.input("x", "f32", (count, build.symbol("t")))
    graph = build.finish({"y": build.emit("sigmoid", x)})
    *_, (job,) = kernel_jobs(prepare(graph, machine, 3, []), machine, 1, Watch())
    scheduled = default(job.func, machine, 1, strict=True)
    in_flight = [v for k, v in decisions(scheduled).items() if k.endswith(".flight")]
    assert in_flight == [flight]
    made = emit(lower(scheduled.func, machine), machine)
    assert made.module.functions
    assert all(") #1 {" in f for f in made.module.functions)
