"""Traces: plain JSON, replay; decisions, which others may take."""

import json

import pytest

from tests.schedule.programs import matmul
from tilewright.schedule import Schedule, Step, Trace, replay
from tilewright.support.errors import InternalFault, ScheduleError


def tiled(func, answers=None):
    """A schedule with two decisions; `answers` are taken instead of their picks."""
    s = Schedule(func, lambda name, pick, values: (answers or {}).get(name, pick))
    m = s.decide("C.tile_m", 2, [2, 3, 4])
    kind = s.decide("C.outer", "parallel", ["parallel", "unroll"])
    s.split("i", (None, m))
    s.split("j", (None, m * 2))
    s.annotate("i_o", "kind", kind)
    return s


def test_json_is_plain():
    trace = tiled(matmul().func).trace
    raw = json.loads(trace.to_json())
    assert raw["decisions"] == {"C.tile_m": 2, "C.outer": "parallel"}
    assert raw["steps"][0] == ["split", ["i", [None, 2]], {}]
    assert raw["steps"][1] == ["split", ["j", [None, 4]], {}]


def test_round_trip(replays):
    start = matmul().func
    s = tiled(start)
    replays(start, s)
    assert Trace.from_json(s.trace.to_json()).to_json() == s.trace.to_json()


def test_named_arguments_are_kept(replays):
    start = matmul(3, 4, 6).func
    s = Schedule(start)
    s.rfactor("C", loop="k", dim=0)
    replays(start, s)
    assert s.trace.steps[0] == Step("rfactor", ("C",), (("loop", "k"), ("dim", 0)))


def test_same_code_with_other_decisions():
    s = tiled(matmul(9, 9, 9).func, {"C.tile_m": 4})
    assert "for i_i in serial(0, 4)" in s.show() and "for j_i in serial(0, 8)" in s.show()


def test_decision_outside_its_values():
    with pytest.raises(ScheduleError, match="it may be one of 2, 3, 4"):
        tiled(matmul().func, {"C.tile_m": 7})


def test_a_decision_is_taken_once():
    s = tiled(matmul().func)
    with pytest.raises(InternalFault, match=r"'C\.tile_m' is taken twice"):
        s.decide("C.tile_m", 2, [2, 3])


@pytest.mark.parametrize("values", [[], [3, 4]])
def test_a_pick_is_among_its_values(values):
    with pytest.raises(InternalFault, match="picks 2, which is none of its"):
        Schedule(matmul().func).decide("C.tile_m", 2, values)
    with pytest.raises(InternalFault):  # whoever answers
        Schedule(matmul().func, lambda name, pick, of: 3).decide("C.tile_m", 2, values)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"steps": [["split"]], "decisions": {}}', '{"steps": 3}', "null"]
)
def test_text_that_is_no_trace(text):
    with pytest.raises(ScheduleError, match="cannot read a trace"):
        Trace.from_json(text)


def test_unknown_primitive():
    with pytest.raises(ScheduleError, match="the primitives are"):
        replay(matmul().func, Trace((Step("melt", ("i",)),)))


def test_trace_that_does_not_fit():
    trace = tiled(matmul().func).trace
    other = Schedule(matmul().func)
    other.split("i", 2)
    with pytest.raises(ScheduleError, match="there is no loop 'i'"):
        replay(other.func, trace)


def test_wrong_arguments():
    with pytest.raises(ScheduleError, match="cannot apply 'split'"):
        replay(matmul().func, Trace((Step("split", ("i", 2, 3, 4)),)))


def test_a_refused_step_leaves_the_schedule_as_it_was():
    s = Schedule(matmul().func)
    before = s.func, s.trace
    with pytest.raises(ScheduleError):
        s.vectorize("k")
    assert (s.func, s.trace) == before


def test_arguments_that_json_cannot_say():
    with pytest.raises(TypeError, match="numbers, words and lists"):
        Schedule(matmul().func).split("i", {4})
