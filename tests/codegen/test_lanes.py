"""What a vectorised loop may hold: each program runs in lanes and agrees with the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from tests.lower.programs import arrays_for
from tilewright.codegen import inprocess
from tilewright.codegen.llvm import emit
from tilewright.ir import interp
from tilewright.ir.parse import parse_func
from tilewright.lower.pipeline import lower
from tilewright.target.target import target

PROGRAMS = {
    "reverse": """
def f(A: f32[16], B: f32[16]):
    for i in vectorize(0, 16):
        B[i] = A[15 - i]
""",
    "reversed_store": """
def f(A: f32[16], B: f32[16]):
    for i in vectorize(0, 16):
        B[15 - i] = A[i]
""",
    "strided": """
def f(A: f32[48], B: f32[48]):
    for i in vectorize(0, 16):
        B[i * 3 + 1] = A[i * 3] * 2.0
""",
    "repeated": """
def f(A: f32[16], B: f32[16]):
    for i in vectorize(0, 16):
        B[i] = A[i // 4] + A[i % 4]
""",
    "indirect": """
def f(A: f32[16], P: i64[16], B: f32[16]):
    for i in vectorize(0, 16):
        B[i] = A[(P[i] + 4) % 16]
""",
    "indirect_store": """
def f(A: f32[16], B: f32[16]):
    for i in vectorize(0, 16):
        B[i * 7 % 16] = A[i]
""",
    "mask": """
def f(A: f32[16], B: f32[16]):
    for i in vectorize(0, 16):
        if i < 11:
            B[i] = A[i] + 1.0
""",
    "mask_of_values": """
def f(A: f32[16], B: f32[16]):
    for i in vectorize(0, 16):
        if A[i] > 0.0:
            B[i] = A[i]
        else:
            B[i] = 0.0 - A[i]
""",
    "mask_on_strides": """
def f(A: f32[64], B: f32[64]):
    for i in vectorize(0, 16):
        if i * 2 < 11:
            B[i * 4] = A[i * 4 + 1]
""",
    "mask_on_a_short_local": """
def f(A: f64[2], B: f64[2]):
    L = alloc(f64[2], "local")
    for i in vectorize(0, 32):
        if i < 2:
            L[i] = f64(0.0)
            L[i] = L[i] + A[i]
    for i in vectorize(0, 32):
        if i < 2:
            B[i] = L[i]
""",
    "nested_masks": """
def f(A: f32[16], B: f32[16]):
    for i in vectorize(0, 16):
        if i < 12:
            if A[i] > 0.0:
                B[i] = 1.0
            if A[0] > 0.0:
                B[i] = 2.0
""",
    "no_lane_runs": """
def f(A: f32[4], n: i64, B: f32[16]):
    for j in serial(0, 3):
        for i in vectorize(0, 16):
            if i + n * 100 < 16:
                B[i] = A[0] * A[n % 4]
""",
    "guarded_reads": """
def f(A: f32[10], B: f32[16]):
    for i in vectorize(0, 16):
        B[i] = select(i >= 3 and i < 13, A[i - 3], 9.0)
""",
    "guarded_by_values": """
def f(A: f32[16], P: i64[16], B: f32[16]):
    for i in vectorize(0, 16):
        B[i] = select(P[i] >= 0 and P[i] < 4, A[P[i]], 0.0)
""",
    "uniform_guard": """
def f(A: f32[16], P: i64[1], B: f32[16]):
    for i in vectorize(0, 16):
        B[i] = select(P[0] < 0, A[i], 3.0)
""",
    "sum": """
def f(A: f32[32], B: f32[1]):
    B[0] = 1.0
    for k in serial(0, 2):
        for i in vectorize(0, 16):
            B[0] = B[0] + A[k * 16 + i]
""",
    "masked_max": """
def f(A: i32[16], B: i32[1]):
    B[0] = i32(-100)
    for i in vectorize(0, 16):
        if i < 13:
            B[0] = max(B[0], A[i])
""",
    "sum_of_bytes": """
def f(A: i8[64], B: i32[1]):
    B[0] = i32(0)
    for i in vectorize(0, 64):
        B[0] = B[0] + cast(i32, A[i])
""",
    "loop_inside": """
def f(A: f32[5, 16], B: f32[16]):
    for i in vectorize(0, 16):
        T = alloc(f32[2], "local")
        T[0] = 0.0
        T[1] = 1.0
        for k in serial(0, 5):
            T[0] = T[0] + A[k, i]
            T[1] = T[1] + T[0]
        B[i] = T[1]
""",
    "let": """
def f(A: f32[16], B: f32[16]):
    for i in vectorize(0, 16):
        x: f32 = A[i] * 2.0
        k: i64 = i + 1
        B[i] = x + A[k % 16] * x
""",
    "small_floats": """
def f(A: bf16[32], S: f16[1], B: bf16[32]):
    for i in vectorize(0, 32):
        B[i] = A[i] * cast(bf16, S[0])
""",
    "packed": """
def f(A: i4[32], B: i4[32], C: i32[32]):
    for i in vectorize(0, 32):
        B[i] = A[31 - i]
        C[i] = cast(i32, A[i]) * i32(3)
""",
    "packed_mask": """
def f(A: u4[32], B: u4[32]):
    for i in vectorize(0, 32):
        if i < 21:
            B[i] = A[i] + A[i]
""",
    "flags": """
def f(A: i32[16], B: bool[16]):
    for i in vectorize(0, 16):
        B[i] = A[i] > i32(1) or i < 3
""",
    "lane_as_value": """
def f(A: f32[16], B: f32[16], n: i64):
    for i in vectorize(0, 16):
        B[i] = cast(f32, i * n + 3) + A[i]
""",
}
APART = ("packed", "packed_mask", "strided", "indirect_store")  # stored lane by lane
MACHINES = ["cpu", "cpu -mcpu=x86-64-v3", "cpu -mcpu=x86-64-v2"]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("machine", MACHINES)
def test_program(name: str, machine: str) -> None:
    func = parse_func(PROGRAMS[name])
    symbols = {"n": 3}
    for seed in range(3):
        want = arrays_for(func, seed, **symbols)
        got = [a.copy() for a in want]
        interp.run(func, *want, symbols=symbols)
        inprocess.run(func, *got, symbols=symbols, target=machine)
        for b, x, y in zip(func.buffers, got, want, strict=True):
            np.testing.assert_array_equal(x.astype(np.float64), y.astype(np.float64), b.name)


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in APART])
def test_lanes_run_together(name: str) -> None:
    """The loop becomes vector instructions, not sixteen copies of its body."""
    machine = target("cpu -mcpu=skylake-avx512")
    text = emit(lower(parse_func(PROGRAMS[name]), machine), machine).text
    assert "<16 x" in text or "<32 x" in text or "<64 x" in text
    assert "extractelement" not in text
