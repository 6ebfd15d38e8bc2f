"""vectorize: iterations as lanes."""

import pytest

from tests.schedule.loops import COPY, DEPENDENT, SYMBOLIC
from tests.schedule.programs import conv2d, matmul
from tilewright.ir.parse import parse_func
from tilewright.schedule import Schedule


def test_rewrite(same_result, replays):
    start = matmul(3, 9, 5).func
    s = Schedule(start)
    s.split("j", 4)
    s.vectorize("j_i")
    same_result(start, s.func)
    replays(start, s)


def test_P1_serial(refused):
    s = Schedule(parse_func(COPY))
    s.parallel("j")
    refused("P1", s.vectorize, "j")


def test_P2_constant_extent(refused):
    refused("P2", Schedule(parse_func(SYMBOLIC)).vectorize, "j")


@pytest.mark.parametrize("case", DEPENDENT)
def test_P3_independent(case, refused):
    refused("P3", Schedule(parse_func(DEPENDENT[case])).vectorize, "i")


def test_P3_lanes_share_what_is_allocated(refused):
    """Threads would have a copy each; lanes do not."""
    s = Schedule(conv2d(2, 3, 5, 4).func)
    s.compute_at("P", "y_1")
    refused("P3", s.vectorize, "y_1")


@pytest.mark.parametrize(("first", "then"), [("j", "i"), ("i", "j")])
def test_P4_lanes_in_lanes(first, then, refused):
    s = Schedule(parse_func(COPY))
    s.vectorize(first)
    refused("P4", s.vectorize, then)


def test_P4_threads_inside(refused):
    s = Schedule(parse_func(COPY))
    s.parallel("j")
    refused("P4", s.vectorize, "i")
