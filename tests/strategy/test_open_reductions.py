"""Reductions of open axes inside axes of a known size: scheduled, none takes the generic one."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from tilewright.driver.compile import compile_observed, kernel_jobs, prepare
from tilewright.driver.kernels import KernelPool
from tilewright.driver.observe import Watch
from tilewright.graph.builder import Builder
from tilewright.ir.stmt import For, If
from tilewright.ir.walk import contains, statements
from tilewright.lower.pipeline import lower
from tilewright.strategy.select import default
from tilewright.support.errors import ScheduleWarning
from tilewright.target.target import target


@pytest.mark.parametrize("axes", [(1, 2), (0, 1, 2)])
def test_an_open_axis_inside_a_known_one(axes: tuple[int, ...]) -> None:
    """What is around an open loop is not unrolled with it."""
    build = Builder("m")
    n, h, w = (build.symbol(s) for s in "nhw")
    x = build.input("x", "f32", (n, 3, h, w))
    graph = build.finish({"y": build.emit("reduce_max", x, axes=axes)})
    with warnings.catch_warnings():
        warnings.simplefilter("error", ScheduleWarning)
        run = compile_observed(graph, cache=False, pool=KernelPool(1))
    for shape in ((2, 3, 7, 19), (1, 3, 1, 1), (3, 3, 33, 16)):
        given = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
        np.testing.assert_array_equal(run(given)[0], given.max(axes))


def test_levels_of_a_long_row_ask_for_no_end() -> None:
    """The last round, which may not be whole, stands behind the levels of a sum: one branch."""
    machine = target("cpu -mcpu=haswell")
    build = Builder("m")
    x = build.input("x", "f32", (build.symbol("n"), build.symbol("t")))
    graph = build.finish({"y": build.emit("reduce_sum", x, axes=(1,))})
    *_, (job,) = kernel_jobs(prepare(graph, machine, 3, []), machine, 1, Watch())
    made = lower(default(job.func, machine, 1, strict=True).func, machine)
    body = made.body
    assert sum(isinstance(s, If) and contains(s.then, For) for s in statements(body)) == 1


@pytest.mark.parametrize(("axes", "vectors"), [((3,), 2), ((2, 3), 4)])
def test_rows_are_shorter_than_planes(axes: tuple[int, ...], vectors: int) -> None:
    """How many vectors of partial results they have: open rows are many and may be short."""
    machine = target("cpu -mcpu=haswell")
    build = Builder("m")
    x = build.input("x", "f32", (1, 8, build.symbol("h"), build.symbol("w")))
    graph = build.finish({"y": build.emit("reduce_sum", x, axes=axes)})
    *_, (job,) = kernel_jobs(prepare(graph, machine, 3, []), machine, 1, Watch())
    made = default(job.func, machine, 1, strict=True).trace.decisions
    assert [v for name, v in made.items() if name.endswith(".interleave")] == [vectors]


def test_columns_of_open_rows_are_one_vector() -> None:
    """The last tile of each row is whole and begins earlier: no lane is asked in it."""
    machine = target("cpu -mcpu=haswell")
    build = Builder("m")
    x = build.input("x", "f32", (1, 8, build.symbol("h"), build.symbol("w")))
    graph = build.finish({"y": build.emit("softmax", x, axis=2)})
    *_, (job,) = kernel_jobs(prepare(graph, machine, 3, []), machine, 1, Watch())
    scheduled = default(job.func, machine, 1, strict=True)
    assert scheduled.trace.decisions["softmax.tile_n"] == machine.lanes(32)
    lanes = [s for s in statements(lower(scheduled.func, machine).body) if isinstance(s, For)]
    whole, *_ = [s for s in lanes if s.kind == "vectorize"]
    assert not [s for s in statements(whole.body) if isinstance(s, If)]


@pytest.mark.parametrize("machine", ["cpu", "cpu -mcpu=haswell"])
@pytest.mark.parametrize("op", ["reduce_max", "reduce_sum"])
@pytest.mark.parametrize("axis", [1, 2])
def test_columns_of_any_width_from_one_compilation(axis: int, op: str, machine: str) -> None:
    """All but the last of the vectors that a row leaves over are whole; on one thread and two."""
    build = Builder("m")
    x = build.input("x", "f32", (3, build.symbol("c"), build.symbol("h"), build.symbol("w")))
    graph = build.finish({"y": build.emit(op, x, axes=(axis,))})
    runs = [
        compile_observed(graph, target(machine), threads=n, cache=False, pool=KernelPool(1))
        for n in (1, 2)
    ]
    rng = np.random.default_rng(5)
    for width in (0, 1, 2, 7, 15, 16, 17, 33, 50, 64, 65, 79, 81, 97, 100, 113, 127, 128, 129, 300):
        given = rng.standard_normal((3, 3, 5, width)).astype(np.float32)
        given[rng.random(given.shape) < 0.01] = np.nan
        reference = np.max if op == "reduce_max" else np.sum
        one, two = (run(given)[0] for run in runs)
        np.testing.assert_allclose(one, reference(given, axis), rtol=1e-5, atol=1e-5)
        assert one.tobytes() == two.tobytes()


@pytest.mark.parametrize(("op", "vectors"), [("exp", 1), ("abs", 8)])
def test_functions_of_open_columns_go_one_vector_at_a_time(op: str, vectors: int) -> None:
    """They take longer than a sum waits for the one before it."""
    machine = target("cpu -mcpu=skylake-avx512")
    build = Builder("m")
    x = build.input("x", "f32", (1, 8, build.symbol("h"), build.symbol("w")))
    graph = build.finish({"y": build.emit("reduce_sum", build.emit(op, x), axes=(2,))})
    *_, (job,) = kernel_jobs(prepare(graph, machine, 3, []), machine, 1, Watch())
    made = default(job.func, machine, 1, strict=True).trace.decisions
    assert made["sum.tile_m"] == vectors
