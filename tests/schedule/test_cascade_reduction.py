"""cascade_reduction: an accumulator for each iteration of a loop of a sum."""

import pytest

from tests.schedule.programs import argmax, conv2d, matmul
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import For, If
from tilewright.ir.walk import statements, visit
from tilewright.schedule import Schedule
from tilewright.schedule.locate import find_loop


@pytest.mark.parametrize("loop", ["k_o", "k_i"])
def test_levels_of_a_product(loop, same_result, replays):
    start = matmul(3, 4, 12).func
    s = Schedule(start)
    s.split("k", 3)
    s.decompose_reduction("C", "k_o")
    s.vectorize("j")
    assert s.cascade_reduction("C", loop) == "C_local"
    same_result(start, s.func)
    replays(start, s)


def test_levels_of_levels(same_result, replays):
    start = conv2d(2, 3, 5, 4).func
    s = Schedule(start)
    s.decompose_reduction("C", "rc")
    s.cascade_reduction("C", "rc")
    s.cascade_reduction("C", "ry")
    same_result(start, s.func)
    replays(start, s)


def test_a_loop_between_that_is_not_summed(same_result):
    """Each of its elements gets an accumulator."""
    start = matmul(3, 4, 6).func
    s = Schedule(start)
    s.split("k", 2)
    s.reorder("k_o", "j", "k_i")
    s.decompose_reduction("C", "k_o")
    s.cascade_reduction("C", "k_o")
    same_result(start, s.func)
    inside = visit(find_loop(s.func, "k_o").body)
    assert [n.var.name[0] for n in inside if isinstance(n, For)].count("j") == 3


@pytest.mark.parametrize("n", [1, 7, 8, 13])
def test_guards_and_open_sizes(n, same_result):
    start = parse_func(
        """\
def f(A: f32[n, 3], C: f32[3], n: i64):
    for i in serial(0, 3):
        for k in serial(0, n):
            with block("C"):
                vi = spatial(3, i)
                vk = reduce(n, k)
                reads(A[vk, vi])
                writes(C[vi])
                with init():
                    C[vi] = 0.0
                C[vi] = C[vi] + A[vk, vi]
"""
    )
    s = Schedule(start)
    s.split("k", 4)
    s.split("i", 2)
    s.reorder("i_o", "k_o", "k_i", "i_i")
    s.decompose_reduction("C", "k_o")
    s.cascade_reduction("C", "k_o")
    same_result(start, s.func, n=n)


def test_prefetches_may_stand_between(same_result):
    start = matmul(3, 4, 8).func
    s = Schedule(start)
    s.split("k", 2)
    s.reorder("k_o", "k_i", "j")
    s.decompose_reduction("C", "k_o")
    s.prefetch("A", "k_i", 2)
    s.cascade_reduction("C", "k_o")
    same_result(start, s.func)


def test_a_branch_may_stand_between(same_result):
    start = parse_func(
        """\
def f(A: f32[9, 6], C: f32[6]):
    P = alloc(f32[12, 6], "global")
    for p in serial(0, 12):
        for q in serial(0, 6):
            with block("P"):
                vp = spatial(12, p)
                vq = spatial(6, q)
                reads(A[vp - 2, vq])
                writes(P[vp, vq])
                P[vp, vq] = select(vp >= 2 and vp < 11, A[vp - 2, vq], 0.0)
    for k_o in serial(0, 3):
        for k_i in serial(0, 4):
            for i in serial(0, 6):
                with block("C"):
                    vi = spatial(6, i)
                    vk = reduce(12, k_o * 4 + k_i)
                    reads(P[vk, vi])
                    writes(C[vi])
                    with init():
                        C[vi] = 0.0
                    C[vi] = C[vi] + P[vk, vi] * 2.0
"""
    )
    s = Schedule(start)
    s.decompose_reduction("C", "k_o")
    s.skip_zeros("P", "k_i")
    s.cascade_reduction("C", "k_o")
    assert any(isinstance(n, If) for n in statements(s.func.body))
    same_result(start, s.func)


def test_P1_a_sum_without_init(refused):
    s = Schedule(matmul(3, 4, 6).func)
    refused("P1", s.cascade_reduction, "C", "k")
    s = Schedule(argmax(3, 6).func)
    s.decompose_reduction("V", "k")
    refused("P1", s.cascade_reduction, "V", "k")


@pytest.mark.parametrize("loop", ["i", "j", "x"])
def test_P2_a_loop_of_the_sum(loop, refused):
    s = Schedule(matmul(3, 4, 6).func)
    s.decompose_reduction("C", "k")
    refused("P2", s.cascade_reduction, "C", loop)


def test_P3_nothing_else_around(refused):
    s = Schedule(matmul(3, 4, 6).func)
    s.split("k", 2)
    s.decompose_reduction("C", "k_o")
    s.cascade_reduction("C", "k_i")
    refused("P3", s.cascade_reduction, "C", "k_o")


def test_P4_bounds_that_read_the_sum(refused):
    s = Schedule(
        parse_func(
            """\
def f(A: f32[4, 6], C: f32[6]):
    for k in serial(0, 4):
        for l in serial(0, 2):
            for i in serial(l, 6):
                with block("C"):
                    vi = spatial(6, i)
                    vk = reduce(4, k)
                    vl = reduce(2, l)
                    reads(A[vk, vi])
                    writes(C[vi])
                    C[vi] = C[vi] + A[vk, vi]
"""
        )
    )
    refused("P4", s.cascade_reduction, "C", "k")
