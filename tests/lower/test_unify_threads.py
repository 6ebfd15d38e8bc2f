"""unify_threads: one loop for each thread axis of a kernel."""

from __future__ import annotations

from tests.lower.programs import same_meaning
from tilewright.ir.parse import parse_func
from tilewright.ir.text import print_func
from tilewright.ir.verify import verify
from tilewright.lower.unify_threads import unify_threads


def test_loops_of_one_axis_become_one() -> None:
    func = parse_func("""
def reverse(A: f32[4, 8], B: f32[4, 8]):
    for i in thread("blockIdx.x", 0, 4):
        S = alloc(f32[8], "shared")
        for j in thread("threadIdx.x", 0, 8):
            S[j] = A[i, j]
        barrier("shared")
        for k in thread("threadIdx.x", 0, 8):
            B[i, k] = S[7 - k]
""")
    made = unify_threads(func)
    verify(made, "blocks")
    assert (
        print_func(made).strip()
        == """
def reverse(A: f32[4, 8], B: f32[4, 8]):
    for i in thread("blockIdx.x", 0, 4):
        for j in thread("threadIdx.x", 0, 8):
            S = alloc(f32[8], "shared")
            S[j] = A[i, j]
            barrier("shared")
            B[i, j] = S[7 - j]
""".strip()
    )
    same_meaning(func, made)


def test_kernels_stay_apart() -> None:
    func = parse_func("""
def two(A: f32[4], B: f32[8]):
    T = alloc(f32[4])
    for i in thread("blockIdx.x", 0, 4):
        T[i] = A[i] * 2.0
    for j in thread("blockIdx.x", 0, 8):
        B[j] = T[j // 2]
""")
    made = unify_threads(func)
    assert made is func or made == func
    same_meaning(func, made)


def test_fewer_threads_are_guarded() -> None:
    func = parse_func("""
def some(A: f32[8], B: f32[8], C: f32[2]):
    for i in serial(0, 1):
        for j in thread("blockIdx.x", 0, 8):
            B[j] = A[j]
        for k in thread("blockIdx.x", 0, 2):
            C[k] = A[k]
""")
    made = unify_threads(func)
    verify(made, "blocks")
    assert (
        print_func(made).strip()
        == """
def some(A: f32[8], B: f32[8], C: f32[2]):
    for j in thread("blockIdx.x", 0, 8):
        for i in serial(0, 1):
            B[j] = A[j]
            if j < 2:
                C[j] = A[j]
""".strip()
    )
    same_meaning(func, made)


def test_without_threads_nothing_changes() -> None:
    func = parse_func("""
def plain(A: f32[4], B: f32[4]):
    for i in parallel(0, 4):
        B[i] = A[i]
""")
    assert unify_threads(func) is func
