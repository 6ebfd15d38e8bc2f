"""tile: split nested loops; outer parts outside, inner parts inside."""

import pytest

from tests.schedule.programs import conv2d, matmul
from tilewright.schedule import Schedule


def test_rewrite_keeps_the_result(same_result, replays):
    start = matmul(5, 7, 4).func
    s = Schedule(start)
    assert s.tile(["i", "j"], [2, 4]) == ("i_o", "j_o", "i_i", "j_i")
    assert s.loops("C") == ("i_o", "j_o", "i_i", "j_i", "k")
    same_result(start, s.func)
    replays(start, s)


def test_three_loops_of_a_convolution(same_result):
    start = conv2d(2, 3, 5, 4).func
    s = Schedule(start)
    s.tile(["o", "y_1", "x_1"], [2, 2, 3])
    same_result(start, s.func)


@pytest.mark.parametrize(("loops", "sizes"), [(["i"], [2, 3]), (["i", "j"], [2])])
def test_P1_a_size_for_each(loops, sizes, refused):
    refused("P1", Schedule(matmul(3, 4, 5).func).tile, loops, sizes)


def test_P2_chain(refused):
    s = Schedule(matmul(3, 4, 5).func)
    s.decompose_reduction("C", "k")
    refused("P2", s.tile, ["j", "k"], [2, 2])
