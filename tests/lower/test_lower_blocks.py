"""lower_blocks: axes become values, guards become conditions, the init of a reduction is peeled or
guarded.
"""

from __future__ import annotations

from tests.lower.programs import MATMUL, same_meaning
from tilewright.ir.parse import parse_func
from tilewright.ir.text import print_func
from tilewright.ir.verify import verify
from tilewright.lower.lower_blocks import lower_blocks


def check(before: str, after: str) -> None:
    func = parse_func(before)
    made = lower_blocks(func)
    verify(made, "loops")
    assert print_func(made).strip() == after.strip()
    same_meaning(func, made)


def test_init_stands_in_front_of_the_reduction() -> None:
    check(
        MATMUL,
        """
def matmul(A: f32[10, 12], B: f32[12, 7], C: f32[10, 7]):
    for i_o in parallel(0, 3):
        for i_i in unroll(0, 4):
            for j in vectorize(0, 7):
                if i_o * 4 + i_i < 10:
                    C[i_o * 4 + i_i, j] = 0.0
        for k in serial(0, 12):
            for i_i in unroll(0, 4):
                for j in vectorize(0, 7):
                    if i_o * 4 + i_i < 10:
                        C[i_o * 4 + i_i, j] = C[i_o * 4 + i_i, j] + A[i_o * 4 + i_i, k] * B[k, j]
""",
    )


def test_guard_of_the_reduction_alone_does_not_guard_the_init() -> None:
    check(
        """
def total(A: f32[3, 10], B: f32[3]):
    for i in serial(0, 3):
        for k_o in serial(0, 3):
            for k_i in serial(0, 4):
                with block("B", where=k_o * 4 + k_i < 10):
                    vi = spatial(3, i)
                    vk = reduce(10, k_o * 4 + k_i)
                    reads(A[vi, vk])
                    writes(B[vi])
                    with init():
                        B[vi] = 0.0
                    B[vi] = B[vi] + A[vi, vk]
""",
        """
def total(A: f32[3, 10], B: f32[3]):
    for i in serial(0, 3):
        B[i] = 0.0
        for k_o in serial(0, 3):
            for k_i in serial(0, 4):
                if k_o * 4 + k_i < 10:
                    B[i] = B[i] + A[i, k_o * 4 + k_i]
""",
    )


def test_fused_loop_keeps_the_init_inside() -> None:
    check(
        """
def rows(A: f32[3, 4], B: f32[3]):
    for f in serial(0, 12):
        with block("B"):
            vi = spatial(3, f // 4)
            vk = reduce(4, f % 4)
            reads(A[vi, vk])
            writes(B[vi])
            with init():
                B[vi] = 0.0
            B[vi] = B[vi] + A[vi, vk]
""",
        """
def rows(A: f32[3, 4], B: f32[3]):
    for f in serial(0, 12):
        if f % 4 == 0:
            B[f // 4] = 0.0
        B[f // 4] = B[f // 4] + A[f // 4, f % 4]
""",
    )


def test_condition_between_keeps_the_init_inside() -> None:
    check(
        """
def some(A: f32[3, 4], B: f32[3]):
    for i in serial(0, 3):
        B[i] = 5.0
        for k in serial(0, 4):
            if i < 2:
                with block("B"):
                    vi = spatial(3, i)
                    vk = reduce(4, k)
                    reads(A[vi, vk])
                    writes(B[vi])
                    with init():
                        B[vi] = 0.0
                    B[vi] = B[vi] + A[vi, vk]
""",
        """
def some(A: f32[3, 4], B: f32[3]):
    for i in serial(0, 3):
        B[i] = 5.0
        for k in serial(0, 4):
            if i < 2:
                if k == 0:
                    B[i] = 0.0
                B[i] = B[i] + A[i, k]
""",
    )
