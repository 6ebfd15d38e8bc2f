"""Products of few open rows: their panels are jammed, whatever their elements are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import inprocess
from tilewright.driver.compile import compile_observed, kernel_jobs, prepare
from tilewright.driver.kernels import KernelPool
from tilewright.driver.observe import Watch
from tilewright.graph import Builder
from tilewright.graph.graph import Graph
from tilewright.ir.expr import Load, Var, as_int
from tilewright.ir.stmt import For, Store
from tilewright.ir.walk import blocks, free_vars, visit
from tilewright.lower.pipeline import lower
from tilewright.schedule.locate import find_loop
from tilewright.strategy.absorb import role
from tilewright.strategy.select import default
from tilewright.strategy.space import decisions
from tilewright.target.target import target

HASWELL = target("cpu -mcpu=haswell")


def product(of: str, rows: str | int) -> Graph:
    build = Builder()
    size = build.symbol(rows) if isinstance(rows, str) else rows
    x = build.input("x", of, (size, 64))
    return build.finish({"y": build.emit("matmul", x, build.input("w", of, (64, 128)))})


def rows_of_tiles(s: Any, rounds: tuple[For, ...] = ()) -> list[int]:
    """How many numbers of the first operand one step of each reduction reads."""
    if isinstance(s, For):
        rounds = (*rounds, s)
    if isinstance(s, Store):
        read = {v for n in visit(s.value) if isinstance(n, Load) and n.buffer.name == "x0"
                for i in n.indices for v in free_vars(i)}  # fmt: skip
        kept = {v for i in s.indices for v in free_vars(i)}
        counts = [as_int(r.extent) or 1 for r in rounds if r.kind == "unroll" and r.var in read]
        steps = [as_int(r.extent) or 1 for r in rounds if r.kind == "unroll" and r.var not in kept]
        return [int(np.prod(counts)) // int(np.prod(steps))] if read else []
    return [n for c in s.children() for n in rows_of_tiles(c, rounds)]


@pytest.mark.parametrize("of", ["f16", "f64"])
def test_a_row_by_itself_is_one_row(of: str) -> None:
    """Its panels are jammed, where one of them took as long as several rows of it."""
    *_, (job,) = kernel_jobs(prepare(product(of, "n"), HASWELL, 3), HASWELL, 1, Watch())
    made = lower(default(job.func, HASWELL, 1, strict=True).func, HASWELL)
    assert min(rows_of_tiles(made.body)) == 1


def test_many_rows_go_by_in_chunks_that_stay_in_L1() -> None:
    """Else each panel would read all of them from memory. Of 64 numbers of f64, 32 rows fill half
    of it."""
    *_, (job,) = kernel_jobs(prepare(product("f64", "n"), HASWELL, 3), HASWELL, 1, Watch())
    made = default(job.func, HASWELL, 1, strict=True)
    (block,) = (b for b in blocks(made.func.body) if role(b) == "matmul")
    chunk, panel, tile = made.loops(block.name)[:3]
    outer, beside, inner = (as_int(find_loop(made.func, n).extent) for n in (chunk, panel, tile))
    assert outer is None and beside and inner
    rows = inner * int(str(made.trace.decisions["matmul.tile_m"]))
    assert HASWELL.cache(0).size // 4 < rows * 64 * 8 <= HASWELL.cache(0).size // 2


@pytest.mark.parametrize("threads", [1, 2])
def test_few_rows(threads: int) -> None:
    run = compile_observed(product("f16", "n"), threads=threads, cache=False, pool=KernelPool(1))
    rng = np.random.default_rng(threads)
    w = rng.standard_normal((64, 128)).astype(np.float16)
    for rows in (1, 2, 3, 5, 7, 13, 203, 1000):
        x = rng.standard_normal((rows, 64)).astype(np.float16)
        wanted = x.astype(np.float32) @ w.astype(np.float32)
        np.testing.assert_allclose(run(x, w)[0], wanted, rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize("threads", [1, 2])
def test_few_rows_of_a_recurrence(threads: int) -> None:
    """Of a step's rows the last few have tiles of their own, too, in which panels are jammed."""
    rows, steps = Var("rows"), Var("steps")
    first, w = te.placeholder((rows, 64), "f32", "first"), te.placeholder((64, 128), "f32", "w")

    def step(_: Any, state: Any) -> Any:
        k = te.reduce_axis((0, 64), "k")
        sums = te.compute((rows, 128), lambda b, j: te.sum(state[b, k] * w[k, j], k), name="sums")
        return te.compute((rows, 64), lambda b, j: te.maximum(sums[b, j], sums[b, j + 64]))

    func = te.func("f", [first, w], [te.scan(step, first, steps, stacks=False)])
    made = default(func, target("cpu"), threads, strict=True)
    assert decisions(made)["sums.order"] == "columns"
    kernel = inprocess.load(made.func, target("cpu"))
    rng = np.random.default_rng(threads)
    weights = rng.standard_normal((64, 128)).astype(np.float32)
    for count in (1, 2, 7):
        x = rng.standard_normal((count, 64)).astype(np.float32)
        got = np.empty_like(x)
        kernel(x, weights, got, symbols={"rows": count, "steps": 2})
        for _ in range(2):
            x = np.maximum(*np.split(x @ weights, 2, axis=1))
        np.testing.assert_allclose(got, x, rtol=1e-4, atol=1e-4)
