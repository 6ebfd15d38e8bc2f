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


def test_what_is_read_is_not_overwritten_before_all_have_read_it() -> None:
    func = parse_func("""
def twice(A: f32[8], B: f32[8], C: f32[8], D: f32[8]):
    for t in thread("threadIdx.x", 0, 8):
        S = alloc(f32[8], "shared")
        S[t] = A[t]
        C[t] = S[7 - t]
        S[t] = B[t]
        D[t] = S[7 - t]
""")
    made = insert_barriers(func)
    assert sum(n == BARRIER for n in visit(made.body)) == 3
    same_meaning(made, made)


@pytest.mark.parametrize("around", ["if n < 4:", "for k in serial(0, n):"])
def test_what_may_not_be_run_does_not_wait_for_all(around: str) -> None:
    """S is written before it and read behind it, and it may have waited for R, or not."""
    func = parse_func(f"""
def some(A: f32[8], B: f32[8], C: f32[8], n: i64):
    for t in thread("threadIdx.x", 0, 8):
        S = alloc(f32[8], "shared")
        R = alloc(f32[8], "shared")
        S[t] = A[t]
        {around}
            R[t] = A[t]
            C[t] = R[7 - t]
        B[t] = S[7 - t]
""")
    made = insert_barriers(func)
    alloc = made.body.body.body
    assert alloc.body.stmts[-2] == BARRIER
    for n in (0, 2, 9):
        same_meaning(made, made, n=n)


def test_what_both_sides_wait_for_is_done() -> None:
    func = parse_func("""
def either(A: f32[8], B: f32[8], C: f32[8], n: i64):
    for t in thread("threadIdx.x", 0, 8):
        S = alloc(f32[8], "shared")
        R = alloc(f32[8], "shared")
        S[t] = A[t]
        if n < 4:
            R[t] = A[t]
            C[t] = R[7 - t]
        else:
            R[t] = 2.0
            C[t] = R[6 - t % 4]
        B[t] = S[7 - t]
""")
    made = insert_barriers(func)
    assert sum(n == BARRIER for n in visit(made.body)) == 2
