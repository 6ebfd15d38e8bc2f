"""insert_barriers: where threads wait for each other, and where they cannot."""

from __future__ import annotations

import pytest

from tests.lower.programs import same_meaning
from tilewright.ir.parse import parse_func
from tilewright.ir.text import print_func
from tilewright.ir.walk import visit
from tilewright.lower.insert_barriers import BARRIER, insert_barriers
from tilewright.support.errors import CompileError


def check(before: str, after: str) -> None:
    func = parse_func(before)
    made = insert_barriers(func)
    assert print_func(made).strip() == after.strip()
    same_meaning(made, made)


def test_between_write_and_read() -> None:
    check(
        """
def reverse(A: f32[8], B: f32[8]):
    for t in thread("threadIdx.x", 0, 8):
        S = alloc(f32[8], "shared")
        S[t] = A[t]
        B[t] = S[7 - t]
""",
        """
def reverse(A: f32[8], B: f32[8]):
    for t in thread("threadIdx.x", 0, 8):
        S = alloc(f32[8], "shared")
        S[t] = A[t]
        barrier("shared")
        B[t] = S[7 - t]
""",
    )


def test_between_iterations() -> None:
    check(
        """
def reverse(A: f32[3, 8], B: f32[3, 8]):
    for t in thread("threadIdx.x", 0, 8):
        S = alloc(f32[8], "shared")
        for k in serial(0, 3):
            S[t] = A[k, t]
            B[k, t] = S[7 - t]
""",
        """
def reverse(A: f32[3, 8], B: f32[3, 8]):
    for t in thread("threadIdx.x", 0, 8):
        S = alloc(f32[8], "shared")
        for k in serial(0, 3):
            barrier("shared")
            S[t] = A[k, t]
            barrier("shared")
            B[k, t] = S[7 - t]
""",
    )


def test_copies_do_not_wait_for_themselves() -> None:
    func = parse_func("""
def copy(A: f32[16], B: f32[8]):
    for t in thread("threadIdx.x", 0, 8):
        S = alloc(f32[16], "shared")
        for k in serial(0, 2):
            S[k * 8 + t] = A[k * 8 + t]
        B[t] = S[15 - t]
""")
    made = insert_barriers(func)
    assert sum(n == BARRIER for n in visit(made.body)) == 1
    same_meaning(made, made)


def test_writers_of_one_element_wait() -> None:
    func = parse_func("""
def fill(A: f32[8], B: f32[8]):
    for t in thread("threadIdx.x", 0, 8):
        S = alloc(f32[8], "shared")
        S[t] = 0.0
        if t < 4:
            S[7 - t] = A[t]
        B[t] = S[t]
""")
    made = insert_barriers(func)
    assert sum(n == BARRIER for n in visit(made.body)) == 2
    same_meaning(made, made)


def test_private_memory_needs_no_barrier() -> None:
    func = parse_func("""
def alone(A: f32[8], B: f32[8]):
    for t in thread("threadIdx.x", 0, 8):
        S = alloc(f32[1], "local")
        S[0] = A[t]
        B[t] = S[0]
""")
    assert insert_barriers(func) is func


def test_no_barrier_under_a_condition_of_threads() -> None:
    func = parse_func("""
def some(A: f32[8], B: f32[8]):
    for t in thread("threadIdx.x", 0, 8):
        S = alloc(f32[8], "shared")
        if t < 4:
            S[t] = A[t]
            B[t] = S[3 - t]
""")
    with pytest.raises(CompileError, match="threads must wait for each other under a condition"):
        insert_barriers(func)
