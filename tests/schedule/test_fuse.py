"""fuse: make nested loops one."""

import pytest

from tests.schedule.programs import matmul
from tilewright.ir.parse import parse_func
from tilewright.schedule import Schedule

COPY = """\
def f(A: f32[4, 6], B: f32[4, 6]):
    for i in serial(0, 4):
        for j in serial(0, 6):
            with block("B"):
                vi = spatial(4, i)
                vj = spatial(6, j)
                reads(A[vi, vj])
                writes(B[vi, vj])
                B[vi, vj] = A[vi, vj]
"""
TRIANGLE = """\
def f(A: f32[4, 6], B: f32[4, 6]):
    for i in serial(0, 4):
        for j in serial(0, i + 1):
            B[i, j] = A[i, j]
"""
SYMBOLIC = COPY.replace("6", "n").replace("B: f32[4, n])", "B: f32[4, n], n: i64)")


def test_fuse_all_of_a_reduction(same_result, replays):
    start = matmul(3, 4, 5).func
    s = Schedule(start)
    assert s.fuse("i", "j", "k") == "i_j_k_f"
    same_result(start, s.func)
    replays(start, s)


def test_fuse_then_split_is_the_loops_again(same_result):
    start = parse_func(COPY)
    s = Schedule(start)
    s.split(s.fuse("i", "j"), (4, 6))
    assert "vi = spatial(4, i_j_f_o)" in s.show() and "vj = spatial(6, i_j_f_i)" in s.show()
    same_result(start, s.func)


def test_fuse_under_an_uneven_split(same_result, replays):
    start = matmul(3, 5, 4).func
    s = Schedule(start)
    s.split("j", 2)
    s.fuse("i", "j_o")
    s.fuse("j_i", "k")
    same_result(start, s.func)
    replays(start, s)


def test_symbolic_extent(same_result):
    start = parse_func(SYMBOLIC)
    s = Schedule(start)
    s.fuse("i", "j")
    same_result(start, s.func, n=5)


def test_loops_that_do_not_start_at_zero(same_result):
    start = parse_func(COPY)
    s = Schedule(start)
    s.partition_loop("j", [2])
    s = Schedule(s.func)
    s.partition_loop("i", [1])
    start = s.func
    s = Schedule(start)
    with pytest.raises(Exception, match="perfectly nested"):
        s.fuse("i_1", "j_2")


@pytest.mark.parametrize("loops", [("i",), ("j", "i"), ("i", "k"), ()])
def test_P1_chain(loops, refused):
    s = Schedule(matmul(3, 4, 5).func)
    if loops:
        refused("P1", s.fuse, *loops)
    else:
        with pytest.raises(Exception, match="fewer than two loops"):
            s.fuse()


def test_P1_other_statements(refused):
    s = Schedule(matmul(3, 4, 5).func)
    s.decompose_reduction("C", "k")
    refused("P1", s.fuse, "j", "k")


def test_P1_different_nests(refused):
    refused("P1", Schedule(matmul(3, 4, 5).func).fuse, "i", "j_1")


def test_P2_bounds_that_read_the_outer_loop(refused):
    refused("P2", Schedule(parse_func(TRIANGLE)).fuse, "i", "j")


def test_P3_serial(refused):
    s = Schedule(parse_func(COPY))
    s.parallel("i")
    refused("P3", s.fuse, "i", "j")
