"""reorder: put perfectly nested loops in another order."""

import itertools

import pytest

from tests.schedule.programs import matmul, scan
from tilewright.ir.parse import parse_func
from tilewright.schedule import Schedule

TRIANGLE = """\
def f(A: f32[4, 6], B: f32[4, 6]):
    for i in serial(0, 4):
        for j in serial(0, i + 1):
            B[i, j] = A[i, j]
"""
SKEWED = """\
def f(A: f32[8], B: f32[8, 8]):
    for i in serial(1, 7):
        for j in serial(0, 6):
            B[i, j] = B[i - 1, j + 1] + A[j]
"""
COLUMNS = """\
def f(A: f32[8], B: f32[8, 8]):
    for i in serial(1, 8):
        for j in serial(0, 8):
            B[i, j] = B[i - 1, j] + A[j]
"""
AGAIN = """\
def f(A: f32[4], C: f32[1]):
    for u in serial(0, 3):
        for k in serial(0, 4):
            with block("C"):
                v0 = spatial(1, 0)
                vk = reduce(4, k)
                reads(A[vk])
                writes(C[v0])
                with init():
                    C[v0] = 0.0
                C[v0] = C[v0] + A[vk]
"""


@pytest.mark.parametrize("order", list(itertools.permutations("ijk")))
def test_all_orders_of_a_matmul(order, same_result, replays):
    start = matmul(3, 4, 5).func
    s = Schedule(start)
    s.reorder(*order)
    assert s.loops("C") == order
    same_result(start, s.func)
    replays(start, s)


def test_loops_that_are_not_named_stay():
    s = Schedule(matmul(3, 4, 5).func)
    s.reorder("k", "i")
    assert s.loops("C") == ("k", "j", "i")


def test_split_parts(same_result):
    start = matmul(5, 4, 7).func
    s = Schedule(start)
    s.split("i", 2)
    s.split("k", 3)
    s.reorder("k_o", "j", "i_o", "k_i", "i_i")
    assert s.loops("C") == ("k_o", "j", "i_o", "k_i", "i_i")
    same_result(start, s.func)


def test_reduction_of_a_fused_loop(same_result, refused):
    """i and k fused and cut where no row ends: a row would start in its middle."""
    start = matmul(2, 2, 6).func
    s = Schedule(start)
    s.reorder("j", "i", "k")
    s.split(s.fuse("i", "k"), (None, 4))
    refused("P4", s.reorder, "i_k_f_i", "i_k_f_o")
    s.reorder("i_k_f_o", "j")
    same_result(start, s.func)


def test_ordered_loop_may_move_outside(same_result):
    start = parse_func(
        COLUMNS.replace("for i in serial(1, 8):", "for i in serial(0, 7):").replace(
            "            B[i, j] = B[i - 1, j] + A[j]\n",
            """\
            with block("B"):
                vi = ordered(7, i)
                vj = spatial(8, j)
                reads(A[vj])
                writes(B[vi + 1, vj])
                B[vi + 1, vj] = A[vj]
""",
        )
    )
    s = Schedule(start)
    refused_order = pytest.raises(Exception, match="must run in order")
    with refused_order:
        s.reorder("j", "i")


def test_statement_whose_dependence_stays(same_result, refused):
    s = Schedule(parse_func(COLUMNS))
    refused("P4", s.reorder, "j", "i")  # legal, but not proved: a plain statement promises nothing


def test_P1_chain(refused):
    s = Schedule(matmul(3, 4, 5).func)
    s.decompose_reduction("C", "k")
    refused("P1", s.reorder, "k", "j")


def test_P1_named_twice(refused):
    refused("P1", Schedule(matmul(3, 4, 5).func).reorder, "i", "i")


def test_P2_bounds(refused):
    refused("P2", Schedule(parse_func(TRIANGLE)).reorder, "j", "i")


def test_P3_marked(refused):
    s = Schedule(matmul(3, 4, 5).func)
    s.vectorize("j")
    refused("P3", s.reorder, "j", "i")


def test_P4_dependence(refused):
    refused("P4", Schedule(parse_func(SKEWED)).reorder, "j", "i")


def test_P4_reduction_that_starts_again(refused):
    refused("P4", Schedule(parse_func(AGAIN)).reorder, "k", "u")


def test_P4_producer_and_consumer(refused):
    s = Schedule(scan(4, 3).func)
    refused("P1", s.reorder, "scan_state_out_0", s.loops("scan_state_out")[0])
    start = parse_func("""\
def f(A: f32[5, 4], T: f32[5, 4], B: f32[5, 4]):
    for i in serial(0, 4):
        for j in serial(0, 4):
            with block("T"):
                vi = spatial(4, i)
                vj = spatial(4, j)
                reads(A[vi, vj])
                writes(T[vi + 1, vj])
                T[vi + 1, vj] = A[vi, vj]
            with block("B"):
                wi = spatial(4, i)
                wj = spatial(4, j)
                reads(T[wi, 3 - wj])
                writes(B[wi, wj])
                B[wi, wj] = T[wi, 3 - wj]
""")
    refused("P4", Schedule(start).reorder, "j", "i")
