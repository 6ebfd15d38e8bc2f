"""skip_zeros: leave out the steps of a sum in which one factor is padding."""

import pytest

from tilewright import te
from tilewright.ir.expr import const
from tilewright.ir.stmt import Func
from tilewright.schedule import Schedule
from tilewright.schedule.primitives.skip_zeros import padding
from tilewright.support.errors import ScheduleError


def convolution(
    size: int = 10, apart: int = 4, pad: int = 4, value: float = 0.0
) -> tuple[Func, Schedule]:
    """A row of numbers under three taps that are `apart`, in tiles of five."""
    a, w = te.placeholder((size,), name="A"), te.placeholder((3,), name="W")
    padded = te.compute(
        (size + 2 * pad,),
        lambda p: te.if_then_else(
            (p >= pad) & (p < size + pad), a[p - pad], te.const(value, "f32")
        ),
        name="P",
    )
    r = te.reduce_axis(3, "r")
    results = size + 2 * pad - 2 * apart
    y = te.compute((results,), lambda x: te.sum(padded[x + r * apart] * w[r], r), name="Y")
    start = te.func("f", [a, w], [y])
    s = Schedule(start)
    s.split("x", 5)
    s.reorder("x_o", "r", "x_i")
    return start, s


@pytest.mark.parametrize(("size", "apart", "pad"), [(10, 8, 8), (7, 9, 9), (13, 6, 7), (9, 7, 6)])
def test_taps_in_the_padding_are_left_out(size, apart, pad, same_result, replays):
    start, s = convolution(size, apart, pad)
    s.decompose_reduction("Y", "r")
    s.skip_zeros("P", "r")
    assert "if " in s.show().split('"Y_init"')[1]
    same_result(start, s.func)
    replays(start, s)


def test_nothing_is_asked_where_every_tap_meets_the_image():
    _, s = convolution(apart=1, pad=1)
    s.decompose_reduction("Y", "r")
    before = s.func
    s.skip_zeros("P", "r")
    assert s.func == before


def test_bounds_of_the_image():
    _, s = convolution()
    assert padding(s.func, "P") == {0: (const(4), const(14))}


def test_P1_a_loop_that_begins_the_sum():
    _, s = convolution()
    with pytest.raises(ScheduleError, match="it does more than to add products") as caught:
        s.skip_zeros("P", "r")
    assert caught.value.rule == "P1"


def test_P1_a_sum_of_other_things():
    _, s = convolution()
    s.decompose_reduction("Y", "r")
    with pytest.raises(ScheduleError, match="it does more") as caught:
        s.skip_zeros("P", "p")
    assert caught.value.rule == "P1"


@pytest.mark.parametrize("of", ["W", "ones"])
def test_P2_a_buffer_without_zeros_around(of):
    _, s = convolution(value=1.0 if of == "ones" else 0.0)
    s.decompose_reduction("Y", "r")
    with pytest.raises(ScheduleError, match="not written once, with zeros") as caught:
        s.skip_zeros("P" if of == "ones" else "W", "r")
    assert caught.value.rule == "P2"
