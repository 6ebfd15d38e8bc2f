"""merge_reduction: the inverse of decompose_reduction."""

import pytest

from tests.schedule.programs import argmax, conv2d, matmul
from tilewright.ir.parse import parse_func
from tilewright.schedule import Schedule

PARTS = """\
def f(A: f32[4, 8], C: f32[4]):
    for i in serial(0, 4):
        with block("start"):
            ui = spatial(4, i)
            writes(C[ui])
            C[ui] = 0.0
    for j in serial(0, 4):
        for k in serial(0, 8):
            with block("C"):
                vi = spatial(4, j)
                vk = reduce(8, k)
                reads(A[vi, vk])
                writes(C[vi])
                C[vi] = C[vi] + A[vi, vk]
"""
BETWEEN = """\
    for m in serial(0, 4):
        with block("again"):
            wi = spatial(4, m)
            writes(C[wi])
            C[wi] = 1.0
    for j in serial(0, 4):
"""


@pytest.mark.parametrize("loop", ["i", "j", "k"])
def test_undoes_decompose(loop, same_result, replays):
    start = matmul(3, 4, 5).func
    s = Schedule(start)
    s.decompose_reduction("C", loop)
    s.merge_reduction("C_init", "C")
    assert s.func == start
    replays(start, s)


def test_undoes_decompose_under_guards():
    s = Schedule(conv2d(2, 3, 5, 4).func)
    s.split("x_1", 3)
    s.split("ry", 2)
    start = s.func
    s.decompose_reduction("C", "y_1")
    s.merge_reduction("C_init", "C")
    assert s.func == start


def test_several_results():
    start = argmax(3, 6).func
    s = Schedule(start)
    s.decompose_reduction("V", "i")
    s.merge_reduction("V_init", "V")
    assert s.func == start


def test_blocks_written_by_hand(same_result):
    start = parse_func(PARTS)
    s = Schedule(start)
    s.merge_reduction("start", "C")
    assert s.blocks() == ("C",)
    same_result(start, s.func)


def test_P1_no_reduction(refused):
    refused("P1", Schedule(parse_func(PARTS)).merge_reduction, "C", "start")


def test_P1_has_an_init_already(refused):
    refused("P1", Schedule(matmul().func).merge_reduction, "E", "C")


def test_P2_other_elements(refused):
    start = parse_func(
        PARTS.replace("C[ui] = 0.0", "C[3 - ui] = 0.0").replace("(C[ui])", "(C[3 - ui])")
    )
    refused("P2", Schedule(start).merge_reduction, "start", "C")


def test_P3_order(refused):
    head, first, second = PARTS.partition("    for i")[0], *PARTS.split("    for j")
    first = first.removeprefix(head)
    start = parse_func(head + "    for j" + second + first)
    refused("P3", Schedule(start).merge_reduction, "start", "C")


def test_P3_touched_between(refused):
    start = parse_func(PARTS.replace("    for j in serial(0, 4):\n", BETWEEN))
    refused("P3", Schedule(start).merge_reduction, "start", "C")


@pytest.mark.parametrize("range_", ["(0, 3)", "(1, 4)"])
def test_P4_other_iterations_started(range_, refused):
    start = parse_func(PARTS.replace("for i in serial(0, 4)", f"for i in serial{range_}"))
    refused("P4", Schedule(start).merge_reduction, "start", "C")


def test_P4_guarded(refused):
    start = parse_func(PARTS.replace('block("start")', 'block("start", where=i < 3)'))
    refused("P4", Schedule(start).merge_reduction, "start", "C")


def test_P4_loops_in_another_order(refused):
    s = Schedule(matmul(3, 4, 5).func)
    s.decompose_reduction("C", "i")
    s.reorder("j_init", "i_init")
    refused("P4", s.merge_reduction, "C_init", "C")


def test_P5_started_in_every_step(refused):
    text = PARTS.replace(
        "for i in serial(0, 4):", "for k in serial(0, 8):\n        for i in serial(0, 4):"
    )
    head, body = text.split("    for k", 1)
    lines = body.split("\n")
    start = parse_func("""\
def f(A: f32[4, 8], C: f32[4]):
    for k in serial(0, 8):
        for i in serial(0, 4):
            with block("start"):
                ui = spatial(4, i)
                writes(C[ui])
                C[ui] = 0.0
        for j in serial(0, 4):
            with block("C"):
                vi = spatial(4, j)
                vk = reduce(8, k)
                reads(A[vi, vk])
                writes(C[vi])
                C[vi] = C[vi] + A[vi, vk]
""")
    assert head and lines
    refused("P5", Schedule(start).merge_reduction, "start", "C")


def test_P5_reduction_that_starts_later(refused):
    start = parse_func(PARTS.replace("serial(0, 8)", "serial(2, 8)"))
    refused("P5", Schedule(start).merge_reduction, "start", "C")
