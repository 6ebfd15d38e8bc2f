"""software_pipeline: overlap the iterations of a loop."""

import pytest

from tilewright.ir.parse import parse_func
from tilewright.schedule import Schedule

COPY_AND_USE = """\
def f(A: f32[8, 4], B: f32[8, 4]):
    T = alloc(f32[8, 4], "global")
    for i in serial(0, 8):
        for j in serial(0, 4):
            with block("T"):
                vi = spatial(8, i)
                vj = spatial(4, j)
                reads(A[vi, vj])
                writes(T[WHERE, vj])
                T[WHERE, vj] = A[vi, vj]
        for k in serial(0, 4):
            with block("B"):
                ui = spatial(8, i)
                uk = spatial(4, k)
                reads(T[READ, uk])
                writes(B[ui, uk])
                B[ui, uk] = T[READ, uk] * 2.0
"""
ROWS = COPY_AND_USE.replace("WHERE", "vi").replace("READ", "ui")
ONE_ROW = COPY_AND_USE.replace("WHERE", "0").replace("READ", "0")
KEPT = """\
def f(A: f32[8], B: f32[8], T: f32[1]):
    for i in serial(0, 8):
        with block("T"):
            vi = ordered(8, i)
            reads(A[vi])
            writes(T[0])
            T[0] = A[vi]
        with block("B"):
            ui = ordered(8, i)
            reads(T[0])
            writes(B[ui])
            B[ui] = T[0]
"""


@pytest.mark.parametrize("text", [ROWS, ONE_ROW])
@pytest.mark.parametrize("stages", [[0, 1], [0, 2], [0, 0]])
def test_copies_of_a_later_iteration(text, stages, same_result, replays):
    start = parse_func(text)
    s = Schedule(start)
    s.software_pipeline("i", stages)
    assert f'stages="{",".join(map(str, stages))}"' in s.show()
    assert s.show().index("pipeline(") < s.show().index("alloc(")  # a row for each iteration
    same_result(start, s.func)
    replays(start, s)


def test_consumer_first_keeps_one_copy(same_result):
    """In each step the old value is used before the next overwrites it."""
    start = parse_func(KEPT)
    s = Schedule(start)
    s.software_pipeline("i", [0, 1], [1, 0])
    same_result(start, s.func)


def test_P1_serial(refused):
    s = Schedule(parse_func(ROWS))
    s.parallel("i")
    refused("P1", s.software_pipeline, "i", [0, 1])


def test_P2_one_statement(refused):
    refused("P2", Schedule(parse_func(ROWS)).software_pipeline, "j", [0])


@pytest.mark.parametrize(
    ("stages", "order"), [([0], None), ([0, 1, 1], None), ([0, -1], None), ([0, 1], [0, 0])]
)
def test_P3_a_stage_for_each(stages, order, refused):
    refused("P3", Schedule(parse_func(ROWS)).software_pipeline, "i", stages, order)


@pytest.mark.parametrize(("stages", "order"), [([1, 0], None), ([0, 0], [1, 0])])
def test_P4_before_it_is_made(stages, order, refused):
    refused("P4", Schedule(parse_func(ROWS)).software_pipeline, "i", stages, order)


@pytest.mark.parametrize(("stages", "order"), [([0, 1], [0, 1]), ([0, 2], [1, 0])])
def test_P5_overwritten_too_early(stages, order, refused):
    refused("P5", Schedule(parse_func(KEPT)).software_pipeline, "i", stages, order)
