"""Products whose rows are a few numbers long: the accumulators are registers all the same."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen.llvm import emit
from tilewright.codegen.llvm_compile import compile_assembly
from tilewright.driver.compile import compile_observed, kernel_jobs, prepare
from tilewright.driver.kernels import KernelPool
from tilewright.driver.observe import Watch
from tilewright.graph import Builder
from tilewright.graph.graph import Graph
from tilewright.lower.pipeline import lower
from tilewright.strategy.select import default
from tilewright.target.target import Target, target

MACHINE = target("cpu -mcpu=skylake-avx512")


def product(columns: int, of: str = "f32") -> Graph:
    build = Builder("g")
    x, w = build.input("x", of, (2, 61, 40)), build.input("w", of, (2, 40, columns))
    return build.finish({"y": build.emit("matmul", x, w)})


def attention(keys: int, width: int) -> Graph:
    build = Builder("g")
    q, k = build.input("q", "f32", (2, 61, 40)), build.input("k", "f32", (2, keys, 40))
    v = build.input("v", "f32", (2, keys, width))
    weights = build.emit("softmax", build.emit("matmul", q, k, transpose_b=True), axis=-1)
    return build.finish({"y": build.emit("matmul", weights, v)})


def in_float64(*operands: np.ndarray) -> np.ndarray:
    x, w, *v = (a.astype(np.float64) for a in operands)
    if not v:
        return x @ w
    scores = np.exp(x @ w.swapaxes(1, 2))
    return scores / scores.sum(-1, keepdims=True) @ v[0]


def test_a_batch_of_single_numbers():
    """The tile is one number: what is around it is none of its loops."""
    build = Builder("g")
    x, w = build.input("x", "f32", (7, 1)), build.input("w", "f32", (3, 7, 1))
    product = build.emit("relu", build.emit("matmul", x, w, transpose_a=True))
    made = build.finish({"y": product})
    for threads in (1, 2):
        *_, jobs = kernel_jobs(prepare(made, MACHINE, 3, []), MACHINE, threads, Watch())
        for job in jobs:
            assert default(job.func, MACHINE, threads, strict=True).func


def all_in_registers(made: Graph, machine: Target) -> bool:
    """Is no number of a product's kernels on the stack?"""
    *_, jobs = kernel_jobs(prepare(made, machine, 3, []), machine, 1, Watch())
    lines: list[str] = []
    for job in jobs:
        func = lower(default(job.func, machine, 1, strict=True).func, machine)
        lines += compile_assembly(emit(func, machine).text, machine).splitlines()
    vectors = [line for line in lines if "vfmadd" in line or "vmov" in line]
    return any("vfmadd" in line for line in lines) and not any("rsp" in v for v in vectors)


@pytest.mark.parametrize("columns", [2, 3, 4, 7, 8, 12])
def test_no_sum_lies_on_the_stack(columns):
    assert all_in_registers(product(columns), MACHINE)


@pytest.mark.parametrize("cpu", ["haswell", "skylake-avx512"])
def test_no_sum_of_f64_lies_on_the_stack(cpu):
    """Of f64 half as many numbers fill a register."""
    assert all_in_registers(product(32, "f64"), target(f"cpu -mcpu={cpu}"))


@pytest.mark.parametrize(
    "made", [*map(product, (2, 3, 5, 8, 9)), attention(197, 4), attention(7, 5)], ids=str
)
@pytest.mark.parametrize("threads", [1, 2])
def test_right_at_every_width(made, threads):
    draw = np.random.default_rng(threads).standard_normal
    given = [draw([int(s) for s in v.static_shape], np.float32) / 4 for v in made.inputs]
    run = compile_observed(made, threads=threads, cache=False, pool=KernelPool(1))
    np.testing.assert_allclose(run(*given)[0], in_float64(*given), rtol=1e-4, atol=1e-5)
