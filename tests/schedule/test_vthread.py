"""vthread: iterations interleaved in one instruction stream."""

import pytest

from tests.schedule.loops import COPY, DEPENDENT, SYMBOLIC
from tests.schedule.programs import matmul
from tilewright.ir.parse import parse_func
from tilewright.schedule import Schedule


def test_rewrite(same_result, replays):
    start = matmul(4, 3, 5).func
    s = Schedule(start)
    s.split("i", (2, None))
    s.vthread("i_o")
    same_result(start, s.func)
    replays(start, s)


def test_P1_serial(refused):
    s = Schedule(parse_func(COPY))
    s.parallel("i")
    refused("P1", s.vthread, "i")


@pytest.mark.parametrize("case", DEPENDENT)
def test_P2_independent(case, refused):
    refused("P2", Schedule(parse_func(DEPENDENT[case])).vthread, "i")


def test_P3_constant_extent(refused):
    refused("P3", Schedule(parse_func(SYMBOLIC)).vthread, "j")
