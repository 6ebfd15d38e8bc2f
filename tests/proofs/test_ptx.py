"""The matmul with grid, blocks, threads and shared memory, as PTX through LLVM.

The schedule's primitives are those of CPUs; lowering inserts the barriers. The interpreter runs
what is compiled, thread by thread, and calls a removed barrier a race.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen.llvm_compile import compile_assembly
from tilewright.codegen.llvm_gpu import emit_device
from tilewright.ir import interp
from tilewright.ir.race import RaceError
from tilewright.ir.stmt import Alloc, Eval, Func
from tilewright.ir.verify import verify
from tilewright.ir.walk import rewrite, visit
from tilewright.lower.insert_barriers import BARRIER
from tilewright.lower.pipeline import lower
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import target

N, M, K = 32, 32, 24
TILE, STEP = 16, 8


def scheduled() -> Func:
    """C = A B: a block computes 16 × 16 elements with 8 × 8 threads, in steps of 8 over k."""
    a, b = te.placeholder((N, K), name="A"), te.placeholder((K, M), name="B")
    k = te.reduce_axis(K, "k")
    c = te.compute((N, M), lambda i, j: te.sum(a[i, k] * b[k, j], k), name="C")
    s = Schedule(te.func("matmul", [a, b], [c]))
    out = s.cache_write("C", "C", "local")
    i, j = s.loops(out)
    i_b, i_t, i_e = s.split(i, (None, 8, 2))
    j_b, j_t, j_e = s.split(j, (None, 8, 2))
    s.reorder(i_b, j_b, i_t, j_t, i_e, j_e)
    s.bind(i_b, "blockIdx.y")
    s.bind(j_b, "blockIdx.x")
    s.compute_at("C", j_b)
    *_, y, x, k = s.loops("C")
    y_t, y_e = s.split(y, (None, 2))
    x_t, x_e = s.split(x, (None, 2))
    k_o, k_i = s.split(k, (None, STEP))
    s.reorder(k_o, y_t, x_t, k_i, y_e, x_e)
    rows, columns = [i_t, y_t], [j_t, x_t]  # a block's threads copy together, compute, and store
    for name in ("A", "B"):
        copy = s.cache_read("C", name, "shared")
        s.compute_at(copy, k_o)
        fused = s.fuse(*s.loops(copy)[-2:])
        _, y, x = s.split(fused, (None, 8, 8))
        rows.append(y)
        columns.append(x)
    for loop in (y_e, x_e, i_e, j_e):
        s.unroll(loop)
    s.bind(rows, "threadIdx.y")
    s.bind(columns, "threadIdx.x")
    return s.func


@pytest.fixture(scope="module")
def lowered() -> Func:
    machine = target("cuda -arch=sm_80")
    return lower(scheduled(), machine, verify=verify)


def run(func: Func) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    a = random.integers(-4, 5, (N, K)).astype(np.float32)
    b = random.integers(-4, 5, (K, M)).astype(np.float32)
    c = np.zeros(N * M, np.float32)
    interp.run(func, a.reshape(-1), b.reshape(-1), c)
    return c.reshape(N, M), a @ b


def test_interpreter_agrees(lowered: Func) -> None:
    got, want = run(lowered)
    np.testing.assert_array_equal(got, want)


def test_shared_memory_holds_one_step(lowered: Func) -> None:
    shared = [
        n.buffer for n in visit(lowered.body) if isinstance(n, Alloc) and n.buffer.scope == "shared"
    ]
    assert sorted(int(b.shape[0].value) for b in shared) == [TILE * STEP, TILE * STEP]


def test_without_its_barriers_it_is_a_race(lowered: Func) -> None:
    assert sum(n == BARRIER for n in visit(lowered.body)) == 2
    nothing = BARRIER.replace(value=BARRIER.value.replace(name="prefetch"))
    changed = rewrite(lowered.body, (Eval,), lambda n: nothing if n == BARRIER else n)
    broken = lowered.replace(body=changed)
    with pytest.raises(RaceError):
        run(broken)


def test_ptx(lowered: Func) -> None:
    machine = target("cuda -arch=sm_80")
    emitted = emit_device(lowered, machine)
    (kernel,) = emitted.kernels
    assert [int(e.value) for e in (*kernel.grid, *kernel.block)] == [2, 2, 1, 8, 8, 1]
    text = compile_assembly(emitted.text, machine)
    for pattern in (
        r"\.target sm_80", r"\.visible \.entry matmul\(",
        r"%ctaid\.x", r"%ctaid\.y", r"%tid\.x", r"%tid\.y",
        r"ld\.global\.", r"st\.shared\.", r"ld\.shared\.", r"fma\.rn\.f32", r"st\.global\.",
        r"\.shared \.align 16 \.b8",
    ):  # fmt: skip
        assert re.search(pattern, text), f"no {pattern} in:\n{text}"
    assert len(re.findall(r"bar(rier)?\.(cta\.)?sync", text)) == 2
