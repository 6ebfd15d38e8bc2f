"""split: make one loop several, nested."""

import pytest

from tests.schedule.programs import matmul
from tilewright.ir.parse import parse_func
from tilewright.ir.text import print_func
from tilewright.schedule import Schedule
from tilewright.schedule.primitives.split import split

DOUBLE = """\
def f(A: f32[60], B: f32[60]):
    for i in serial(0, 60):
        with block("B"):
            vi = spatial(60, i)
            reads(A[vi])
            writes(B[vi])
            B[vi] = A[vi] * 2.0
"""
SYMBOLIC = DOUBLE.replace("60", "n").replace("B: f32[n])", "B: f32[n], n: i64)")


@pytest.mark.parametrize("factors", [32, (None, 7), (3, 20), (4, None, 5), (8, 8), (1, None), 1])
def test_rewrite_keeps_the_result(factors, same_result, replays):
    start = parse_func(DOUBLE)
    s = Schedule(start)
    names = s.split("i", factors)
    assert s.loops("B") == names
    same_result(start, s.func)
    replays(start, s)


def test_names():
    s = Schedule(parse_func(DOUBLE))
    assert s.split("i", 4) == ("i_o", "i_i")
    assert s.split("i_o", (2, None, 2)) == ("i_o_0", "i_o_1", "i_o_2")


def test_even_split_has_no_guard():
    assert "where" not in print_func(split(parse_func(DOUBLE), "i", (None, 12))[0])
    assert "where" not in print_func(split(parse_func(DOUBLE), "i", (5, 12))[0])


def test_symbolic_extent_is_guarded(same_result):
    start = parse_func(SYMBOLIC)
    done, _ = split(start, "i", 8)
    assert "for i_o in serial(0, (n + 7) // 8)" in print_func(done)
    assert "where=i_o * 8 + i_i < n" in print_func(done)
    same_result(start, done, n=13)
    same_result(start, done, n=1)


def test_symbolic_multiple_has_no_guard(same_result):
    start = parse_func(SYMBOLIC.replace("(0, n)", "(0, n * 8)").replace("[n]", "[n * 8]"))
    start = parse_func(print_func(start).replace("spatial(n,", "spatial(n * 8,"))
    assert "where" not in print_func(split(start, "i", 8)[0])


def test_loop_that_does_not_start_at_zero(same_result, replays):
    start = parse_func(DOUBLE)
    s = Schedule(start)
    s.partition_loop("i", [11])
    s.split("i_1", 6)
    assert "vi_1 = spatial(60, 11 + (i_1_o * 6 + i_1_i))" in s.show()
    same_result(start, s.func)
    replays(start, s)


def test_plain_statements_are_guarded_by_if(same_result):
    start = parse_func("""\
def f(A: f32[10], B: f32[10]):
    for i in serial(0, 10):
        B[i] = A[i] + 1.0
""")
    done, _ = split(start, "i", 4)
    assert "if i_o * 4 + i_i < 10:" in print_func(done)
    same_result(start, done)


def test_splits_of_splits(same_result, replays):
    start = matmul(5, 7, 6).func
    s = Schedule(start)
    s.split("i", 3)
    s.split("i_o", (2, None))
    s.split("k", (2, None, 2))
    s.split("k_1", 2)
    same_result(start, s.func)
    replays(start, s)


def test_P1_serial(refused):
    s = Schedule(parse_func(DOUBLE))
    s.parallel("i")
    refused("P1", s.split, "i", 4)


@pytest.mark.parametrize("factors", [(4,), (), (None, None), (0, 4), (None, -1), 0])
def test_P2_factors(factors, refused):
    refused("P2", Schedule(parse_func(DOUBLE)).split, "i", factors)


@pytest.mark.parametrize("factors", [(2, 4), (7, 8), (3, 4, 4)])
def test_P3_factors_reach_the_extent(factors, refused):
    refused("P3", Schedule(parse_func(DOUBLE)).split, "i", factors)


def test_P3_symbolic(refused):
    refused("P3", Schedule(parse_func(SYMBOLIC)).split, "i", (4, 4))


def test_message(refused):
    error = refused("P3", Schedule(parse_func(DOUBLE)).split, "i", (2, 4))
    assert (
        str(error)
        == """\
cannot split loop 'i' by (2, 4): the factors make 8 iterations, the loop has 60

    def f(A: f32[60], B: f32[60]):
        for i in serial(0, 60):
        ^^^^^^^^^^^^^^^^^^^^^^
            with block("B"):
                vi = spatial(60, i)
                reads(A[vi])
                writes(B[vi])
                B[vi] = A[vi] * 2.0

  leave one factor open with None, it takes the rest"""
    )
