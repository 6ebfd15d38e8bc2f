"""prefetch: ask for memory some iterations before it is read."""

import pytest

from tests.schedule.programs import conv2d, matmul
from tilewright.ir.parse import parse_func
from tilewright.schedule import Schedule

SYMBOLIC = """\
def f(A: f32[8, n], B: f32[8, n], n: i64):
    for i in serial(0, 8):
        for j in serial(0, n):
            with block("B"):
                vi = spatial(8, i)
                vj = spatial(n, j)
                reads(A[vi, vj])
                writes(B[vi, vj])
                B[vi, vj] = A[vi, vj] * 2.0
"""


@pytest.mark.parametrize(("buffer", "loop"), [("A", "i"), ("B", "k"), ("B", "j"), ("A", "k")])
def test_matmul(buffer, loop, same_result, replays):
    start = matmul(5, 40, 20).func
    s = Schedule(start)
    s.reorder("i", "k", "j")
    s.prefetch(buffer, loop, 1)
    assert f"prefetch({buffer}[" in s.show()
    same_result(start, s.func)
    replays(start, s)


def test_one_request_a_line():
    s = Schedule(matmul(4, 40, 3).func)
    s.reorder("i", "k", "j")
    s.prefetch("B", "k", 2)
    assert "if k + 2 < 3:" in s.show()
    assert "for p_1 in serial(0, 3):" in s.show()  # 40 floats lie in three lines
    assert "prefetch(B[k + 2, p_1 * 16])" in s.show()


def test_stays_inside_the_buffer():
    s = Schedule(conv2d(2, 2, 5, 5).func)
    s.prefetch("P", "y_1", 1)
    assert "min(" in s.show()


def test_P1_not_read(refused):
    refused("P1", Schedule(matmul().func).prefetch, "A", "i_1", 1)


def test_P1_lives_inside(refused):
    s = Schedule(conv2d(2, 2, 5, 5).func)
    s.compute_at("P", "y_1")
    s.parallel("y_1")
    refused("P1", s.prefetch, "P", "y_1", 1)


def test_P2_distance(refused):
    refused("P2", Schedule(matmul().func).prefetch, "A", "i", 0)


def test_P3_no_order(refused):
    s = Schedule(matmul().func)
    s.parallel("i")
    refused("P3", s.prefetch, "A", "i", 1)


def test_P5_inside_a_block(refused):
    s = Schedule(matmul(4, 4, 6).func)
    s.split("i", 2)
    s.blockize("i_i")
    refused("P5", s.prefetch, "B", "i_i", 1)


def test_P4_size_not_constant(refused):
    refused("P4", Schedule(parse_func(SYMBOLIC)).prefetch, "A", "i", 1)
