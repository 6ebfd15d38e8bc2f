"""double_buffer: the next iteration's operand is made while this one's is in use."""

import pytest

import tilewright.te as te
from tilewright.ir.parse import parse_func
from tilewright.ir.text import print_func
from tilewright.schedule import Schedule
from tilewright.schedule.primitives.double_buffer import double_buffer

BEFORE = """\
def f(A: f32[8, 4], C: f32[8, 4]):
    B = alloc(f32[8, 4], "shared")
    for i in serial(0, 8):
        for j in serial(0, 4):
            with block("B"):
                vi = spatial(8, i)
                vj = spatial(4, j)
                reads(A[vi, vj])
                writes(B[vi, vj])
                B[vi, vj] = A[vi, vj]
        for j_1 in serial(0, 4):
            with block("C"):
                vi_1 = spatial(8, i)
                vj_1 = spatial(4, j_1)
                reads(B[vi_1, 3 - vj_1])
                writes(C[vi_1, vj_1])
                C[vi_1, vj_1] = B[vi_1, 3 - vj_1] * 2.0
"""
AFTER = """\
def f(A: f32[8, 4], C: f32[8, 4]):
    B = alloc(f32[2, 8, 4], "shared")
    for j_2 in serial(0, 4):
        with block("B_1"):
            vhalf_2 = ordered(2, 0)
            vi_2 = spatial(8, 0)
            vj_2 = spatial(4, j_2)
            reads(A[vi_2, vj_2])
            writes(B[vhalf_2, vi_2, vj_2])
            B[vhalf_2, vi_2, vj_2] = A[vi_2, vj_2]
    for i in serial(0, 8):
        for j in serial(0, 4):
            with block("B", where=i + 1 < 8):
                vhalf = ordered(2, (i + 1) % 2)
                vi = spatial(8, i + 1)
                vj = spatial(4, j)
                reads(A[vi, vj])
                writes(B[vhalf, vi, vj])
                B[vhalf, vi, vj] = A[vi, vj]
        for j_1 in serial(0, 4):
            with block("C"):
                vhalf_1 = ordered(2, i % 2)
                vi_1 = spatial(8, i)
                vj_1 = spatial(4, j_1)
                reads(B[vhalf_1, vi_1, 3 - vj_1])
                writes(C[vi_1, vj_1])
                C[vi_1, vj_1] = B[vhalf_1, vi_1, 3 - vj_1] * 2.0
"""


def test_rewrite(same_result, replays) -> None:
    before = parse_func(BEFORE)
    s = Schedule(before)
    s.double_buffer("B")
    assert print_func(s.func) == AFTER
    same_result(before, s.func)
    replays(before, s)


@pytest.mark.parametrize("tile", [2, 3])
def test_tiles_of_a_matmul(same_result, replays, tile) -> None:
    """Operands copied for each step of the reduction, one step before it."""
    A, B = te.placeholder((5, 8), "f32", "A"), te.placeholder((8, 6), "f32", "B")
    k = te.reduce_axis(8, "k")
    C = te.compute((5, 6), lambda i, j: te.sum(A[i, k] * B[k, j], k), name="C")
    before = te.func("f", [A, B], [C])
    s = Schedule(before)
    k_o, k_i = s.split("k", tile)
    s.reorder(k_o, "i", "j", k_i)
    for operand in ("A", "B"):
        copy = s.cache_read("C", operand, "shared")
        s.compute_at(copy, k_o)
        s.double_buffer(copy)
    same_result(before, s.func)
    replays(before, s)


def test_P1_a_result(refused) -> None:
    refused("P1", double_buffer, parse_func(BEFORE), "C")


def test_P1_two_makers(refused) -> None:
    text = (
        BEFORE
        + """\
    for z in serial(0, 8):
        with block("D"):
            vz = spatial(8, z)
            reads()
            writes(B[vz, 0])
            B[vz, 0] = 1.0
"""
    )
    refused("P1", double_buffer, parse_func(text), "B")


def test_P2_no_common_loop(refused) -> None:
    A = te.placeholder((5,), "f32", "A")
    B = te.compute((5,), lambda i: A[i] * 2.0, name="B")
    C = te.compute((5,), lambda i: B[i] * 2.0, name="C")
    refused("P2", double_buffer, te.func("f", [A], [C]), "B")


def test_P2_loop_is_not_serial(refused) -> None:
    text = BEFORE.replace("for i in serial", "for i in parallel")
    refused("P2", double_buffer, parse_func(text), "B")


def test_P3_reads_another_iterations_part(refused) -> None:
    text = BEFORE.replace("B[vi_1, 3 - vj_1]", "B[max(vi_1 - 1, 0), vj_1]")
    refused("P3", double_buffer, parse_func(text), "B")


def test_P3_makes_no_known_part(refused) -> None:
    text = BEFORE.replace('with block("B")', 'with block("B", where=j < 3)')
    refused("P3", double_buffer, parse_func(text), "B")


def test_P4_source_is_written(refused) -> None:
    text = BEFORE.replace("C: f32[8, 4]", "D: f32[8, 4]").replace("writes(C[", "writes(A[")
    text = text.replace("C[vi_1, vj_1] =", "A[vi_1, vj_1] =")
    refused("P4", double_buffer, parse_func(text), "B")
