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
from tilewright.ir.parse import parse_func
from tilewright.ir.race import RaceError
from tilewright.ir.stmt import Alloc, Eval, Func
from tilewright.ir.verify import verify
from tilewright.ir.walk import rewrite, visit
from tilewright.lower.insert_barriers import BARRIER
from tilewright.lower.pipeline import lower
from tilewright.schedule.schedule import Schedule
from tilewright.support.errors import CompileError
from tilewright.target.target import target

N, M, K = 32, 32, 24
TILE, STEP = 16, 8


def scheduled(rows: int = N, columns: int = M, depth: int = K) -> Func:
    """C = A B: a block computes 16 × 16 elements with 8 × 8 threads, in steps of 8 over k."""
    a, b = te.placeholder((rows, depth), name="A"), te.placeholder((depth, columns), name="B")
    k = te.reduce_axis(depth, "k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], k), name="C")
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
    up, along = [i_t, y_t], [j_t, x_t]  # a block's threads copy together, compute, and store
    for name in ("A", "B"):
        copy = s.cache_read("C", name, "shared")
        s.compute_at(copy, k_o)
        fused = s.fuse(*s.loops(copy)[-2:])
        _, y, x = s.split(fused, (None, 8, 8))
        up.append(y)
        along.append(x)
    for loop in (y_e, x_e, i_e, j_e):
        s.unroll(loop)
    s.bind(up, "threadIdx.y")
    s.bind(along, "threadIdx.x")
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
    assert kernel.shared_bytes == 2 * TILE * STEP * 4
    text = compile_assembly(emitted.text, machine)
    for pattern in (
        r"\.target sm_80", r"\.visible \.entry matmul\(",
        r"%ctaid\.x", r"%ctaid\.y", r"%tid\.x", r"%tid\.y",
        r"ld\.global\.", r"st\.shared\.", r"ld\.shared\.", r"fma\.rn\.f32", r"st\.global\.",
        r"\.extern \.shared \.align 16 \.b8", r"\.reqntid 8, 8",
    ):  # fmt: skip
        assert re.search(pattern, text), f"no {pattern} in:\n{text}"
    assert len(re.findall(r"bar(rier)?\.(cta\.)?sync", text)) == 2
    # from the start of a row on, as the assembler must see to join neighbours
    assert not re.findall(r"ld\.shared\.\S+\s+%r\d+, \[%rd\d+\+-", text)


def test_tails_take_little_more_shared_memory() -> None:
    """Blocks of the last row or column have code and buffers of their own, in the same place; the
    last step over k has buffers beside those of the others.
    """
    machine = target("cuda -arch=sm_80")
    (kernel,) = emit_device(lower(scheduled(33, 31, 25), machine, verify=verify), machine).kernels
    assert kernel.shared_bytes <= 2 * 2 * TILE * STEP * 4


def assembly(text: str) -> str:
    machine = target("cuda -arch=sm_80")
    return compile_assembly(emit_device(lower(parse_func(text), machine), machine).text, machine)


def test_rounded_products_are_not_fused() -> None:
    """`mul.f32` lets the assembler fuse it with a sum, `mul.rn.f32` does not."""
    text = assembly("""
def f(A: f32[64], B: f32[64]):
    for t in thread("threadIdx.x", 0, 64):
        B[t] = A[t] * f32(3.0) + rounded(A[t] * f32(3.0), dtype=f32)
""")
    assert "mul.rn.f32" in text


def test_large_local_buffers_are_each_thread_s_own() -> None:
    text = assembly("""
def f(A: f32[65536], B: f32[64]):
    for t in thread("threadIdx.x", 0, 64):
        T = alloc(f32[32768], "local")
        for k in serial(0, 32768):
            T[k] = A[k + t]
        for k_1 in serial(0, 32768):
            B[t] = B[t] + T[32767 - k_1]
""")
    assert ".local .align 64 .b8 \t__local_depot0[131072];" in text


def test_what_threads_cannot_do_is_refused() -> None:
    with pytest.raises(CompileError, match="several i4 share a byte"):
        assembly("""
def f(A: i8[64], B: i4[64]):
    for t in thread("threadIdx.x", 0, 64):
        B[t] = i4(A[t])
""")
    with pytest.raises(CompileError, match="a thread of a GPU has 524288 bytes of its own"):
        assembly("""
def f(A: f32[262144], B: f32[64]):
    for t in thread("threadIdx.x", 0, 64):
        T = alloc(f32[131073], "local")
        for k in serial(0, 131073):
            T[k] = A[k + t]
        B[t] = T[t]
""")
    with pytest.raises(CompileError, match="cannot allocate global memory"):
        assembly("""
def f(A: f32[64], B: f32[64]):
    for t in thread("threadIdx.x", 0, 64):
        T = alloc(f32[64], "global")
        T[t] = A[t]
        B[t] = T[t]
""")


@pytest.mark.parametrize(
    ("of", "lanes", "row", "access"),
    [
        ("f32", 4, 256, "v4.b32"), ("f32", 4, 258, "v2.b32"), ("f32", 4, 257, "b32"),
        ("f16", 8, 256, "v4.b32"), ("f64", 2, 256, "v2.b64"),
    ],
)  # fmt: skip
def test_vectors_are_as_wide_as_their_places_are_known_to_allow(
    of: str, lanes: int, row: int, access: str
) -> None:
    """Buffers start at multiples of 16 bytes; where rows do is a matter of their length."""
    text = assembly(f"""
def f(A: {of}[{4 * row}], B: {of}[{4 * row}]):
    for b in thread("blockIdx.x", 0, 4):
        for t in thread("threadIdx.x", 0, 32):
            for v in vectorize(0, {lanes}):
                B[b * {row} + t * {lanes} + v] = A[b * {row} + t * {lanes} + v]
""")
    assert set(re.findall(r"(?:ld|st)\.global\.(\S+)", text)) == {access}
