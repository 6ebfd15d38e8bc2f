"""skip_unread: write nothing of a buffer that is not read."""

import pytest

from tests.schedule.test_skip_zeros import convolution
from tilewright.schedule import Schedule
from tilewright.support.errors import ScheduleError


def padded(size: int, apart: int, pad: int) -> tuple[object, Schedule]:
    """A row under taps far apart, those in the padding left out, its padded copy in chunks."""
    start, s = convolution(size, apart, pad)
    s.decompose_reduction("Y", "r")
    s.skip_zeros("P", "r")
    s.split("p", 4)
    return start, s


@pytest.mark.parametrize(("size", "apart", "pad"), [(10, 20, 20), (7, 13, 13), (13, 32, 31)])
def test_what_lies_far_from_the_image_is_not_written(size, apart, pad, same_result, replays):
    start, s = padded(size, apart, pad)
    s.skip_unread("P", "p_o")
    columns = -(-(size + 2 * (pad - apart)) // 5) * 5  # of whole tiles, under the tap in the middle
    asked = f"if p_o >= {apart // 4} and p_o < {(apart + columns - 1) // 4 + 1}:"
    assert asked in s.show(), s.show()
    same_result(start, s.func)
    replays(start, s)


def test_nothing_is_asked_where_all_is_read():
    _, s = padded(10, 4, 4)
    before = s.func
    s.skip_unread("P", "p_o")
    assert s.func == before


def test_a_read_without_conditions_reads_all():
    _, s = convolution(10, 20, 20)
    s.split("p", 4)
    before = s.func
    s.skip_unread("P", "p_o")
    assert s.func == before


def test_P1_a_loop_that_writes_more():
    _, s = padded(10, 20, 20)
    with pytest.raises(ScheduleError, match="it writes more than 'P'") as caught:
        s.skip_unread("P", "x_o")
    assert caught.value.rule == "P1"


def test_P2_a_result():
    _, s = padded(10, 20, 20)
    with pytest.raises(ScheduleError, match="comes from outside") as caught:
        s.skip_unread("Y", "x_i_init")
    assert caught.value.rule == "P2"
