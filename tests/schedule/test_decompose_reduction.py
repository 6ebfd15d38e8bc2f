"""decompose_reduction: make the start of a reduction a block of its own."""

import pytest

from tests.schedule.programs import argmax, conv2d, matmul
from tilewright.ir.parse import parse_func
from tilewright.schedule import Schedule

TRIANGLE = """\
def f(A: f32[4, 6], C: f32[6]):
    for k in serial(0, 4):
        for i in serial(k, 6):
            with block("C"):
                vi = spatial(6, i)
                vk = reduce(4, k)
                reads(A[vk, vi])
                writes(C[vi])
                with init():
                    C[vi] = 0.0
                C[vi] = C[vi] + A[vk, vi]
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


@pytest.mark.parametrize("loop", ["i", "j", "k"])
def test_at_each_loop(loop, same_result, replays):
    start = matmul(3, 4, 5).func
    s = Schedule(start)
    assert s.decompose_reduction("C", loop) == "C_init"
    same_result(start, s.func)
    replays(start, s)


def test_of_several_results(same_result):
    start = argmax(3, 6).func
    s = Schedule(start)
    s.split("k", 4)
    s.decompose_reduction("V", "k_o")
    assert s.loops("V_init") == ("i",)
    same_result(start, s.func)


def test_guards_go_along(same_result):
    start = conv2d(2, 3, 5, 4).func
    s = Schedule(start)
    s.split("x_1", 3)
    s.split("ry", 2)
    s.reorder("rc", "ry_o", "x_1_i")
    s.decompose_reduction("C", "rc")
    same_result(start, s.func)


def test_lanes_stay_lanes(same_result):
    start = matmul(3, 8, 5).func
    s = Schedule(start)
    s.reorder("i", "k", "j")
    s.vectorize("j")
    s.decompose_reduction("C", "k")
    assert "for j_init in vectorize(0, 8)" in s.show()
    same_result(start, s.func)


def test_P1_no_reduction(refused):
    refused("P1", Schedule(matmul().func).decompose_reduction, "E", "i_1")


def test_P1_no_init(refused):
    s = Schedule(matmul(3, 4, 5).func)
    s.decompose_reduction("C", "k")
    refused("P1", s.decompose_reduction, "C", "k")


def test_P2_loop_of_another_block(refused):
    refused("P2", Schedule(matmul().func).decompose_reduction, "C", "i_1")


def test_P3_loop_inside_the_reduction(refused):
    s = Schedule(matmul(3, 4, 6).func)
    s.split("k", 2)
    refused("P3", s.decompose_reduction, "C", "k_i")


def test_P4_fused_with_a_spatial_loop(refused):
    s = Schedule(matmul(3, 4, 5).func)
    refused("P4", s.decompose_reduction, "C", s.fuse("j", "k"))


def test_P5_reduced_again(refused):
    refused("P5", Schedule(parse_func(AGAIN)).decompose_reduction, "C", "u")


def test_P6_others_touch_the_result(refused):
    s = Schedule(matmul(3, 4, 5).func)
    s.compute_at("C", "j_1")
    refused("P6", s.decompose_reduction, "C", "i_1")


def test_P6_allocated_inside(refused):
    s = Schedule(matmul(3, 4, 5).func)
    s.compute_at("C", "i_1")
    s.parallel("i_1")
    refused("P6", s.decompose_reduction, "C", "i_1")


def test_P7_bounds_that_read_the_reduction(refused):
    refused("P7", Schedule(parse_func(TRIANGLE)).decompose_reduction, "C", "k")
