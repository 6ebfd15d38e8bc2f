"""Elementwise kernels of open sizes: what is costly is inlined, as it is at fixed sizes."""

from __future__ import annotations

from tilewright.codegen.llvm import emit
from tilewright.driver.compile import kernel_jobs, prepare
from tilewright.driver.observe import Watch
from tilewright.graph.builder import Builder
from tilewright.lower.pipeline import lower
from tilewright.strategy.select import default
from tilewright.target.target import target


def test_costly_functions_are_inlined() -> None:
    """Tails of several vectors in flight would call them more often than is worth inlining."""
    machine = target("cpu -mcpu=haswell")
    build = Builder("g")
    x = build.input("x", "f32", (build.symbol("n"), build.symbol("t")))
    graph = build.finish({"y": build.emit("sigmoid", x)})
    *_, (job,) = kernel_jobs(prepare(graph, machine, 3, []), machine, 1, Watch())
    made = emit(lower(default(job.func, machine, 1, strict=True).func, machine), machine)
    assert made.module.functions
    assert all(") #1 {" in f for f in made.module.functions)
