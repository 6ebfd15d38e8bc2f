"""storage_gap: gaps between the rows of a buffer, which stay when it is cut down."""

import pytest

import tilewright.te as te
from tests.schedule.test_storage_align import strides, two_steps
from tilewright.lower.compact_buffers import compact_buffers
from tilewright.schedule import Schedule
from tilewright.schedule.primitives.storage_gap import storage_gap


@pytest.mark.parametrize(
    ("gaps", "wanted"),
    [([(1, 4)], [512, 64, 1]), ([(0, 16)], [496, 60, 1]), ([(0, 16), (1, 4)], [528, 64, 1])],
)
def test_rewrite(same_result, replays, gaps, wanted) -> None:
    before = two_steps()
    s = Schedule(before)
    for axis, gap in gaps:
        s.storage_gap("B", axis, gap)
    assert strides(s.func) == wanted
    same_result(before, s.func)
    replays(before, s)


def test_stays_when_the_buffer_is_cut_down_from_symbolic_rows(same_result) -> None:
    before = two_steps(te.var("n"))
    s = Schedule(before)
    s.storage_gap("B", 0, 16)
    same_result(before, s.func, n=5)
    _, rows, _ = s.loops("C")
    outer, _ = s.split(rows, (None, 4))
    s.compute_at("B", outer)
    assert strides(compact_buffers(s.func)) == [4 * 60 + 16, 60, 1]


def test_P1_a_parameter(refused) -> None:
    refused("P1", storage_gap, two_steps(), "A", 1, 32)


@pytest.mark.parametrize("axis", [-1, 2, 7])
def test_P2_no_outer_dimension(refused, axis) -> None:
    refused("P2", storage_gap, two_steps(), "B", axis, 32)


def test_P3_rows_that_overlap(refused) -> None:
    refused("P3", storage_gap, two_steps(), "B", 1, -1)
