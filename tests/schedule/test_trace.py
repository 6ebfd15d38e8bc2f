"""Traces: plain JSON, decisions that a tuner changes, replay."""

import json
import pickle

import pytest

from tests.schedule.programs import matmul
from tilewright.schedule import Decided, Schedule, Step, Trace, replay
from tilewright.support.errors import ScheduleError


def tiled(func, decisions=None):
    """A schedule with two decisions, one of them used through arithmetic as well."""
    s = Schedule(func, decisions)
    m = s.decide("tile_m", 2, among=[2, 3, 4])
    kind = s.decide("outer", "parallel", among=["parallel", "unroll"])
    s.split("i", (None, m))
    s.split("j", (None, m * 2))
    s.annotate("i_o", "kind", kind)
    return s


def test_json_is_plain():
    trace = tiled(matmul().func).trace
    raw = json.loads(trace.to_json())
    assert raw["decisions"]["tile_m"] == {"value": 2, "among": [2, 3, 4]}
    assert raw["steps"][0] == ["split", ["i", [None, {"decision": "tile_m"}]], {}]
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


def test_mutate_changes_the_steps_that_follow_the_decision():
    start = matmul(9, 9, 9).func
    s = replay(start, tiled(start).trace.mutate("tile_m", 3))
    assert "for i_i in serial(0, 3)" in s.show()
    assert "for j_i in serial(0, 4)" in s.show()  # came by arithmetic: it does not follow
    assert s.trace.decisions["tile_m"].value == 3


def test_same_code_with_other_decisions():
    s = tiled(matmul(9, 9, 9).func, {"tile_m": 4})
    assert "for i_i in serial(0, 4)" in s.show() and "for j_i in serial(0, 8)" in s.show()


def test_mutated_words():
    start = matmul().func
    s = replay(start, tiled(start).trace.mutate("outer", "unroll"))
    assert 'kind="unroll"' in s.show()


@pytest.mark.parametrize(("name", "value"), [("tile_m", 5), ("tile_k", 2)])
def test_mutate_refuses(name, value):
    with pytest.raises(ScheduleError, match="cannot"):
        tiled(matmul().func).trace.mutate(name, value)


def test_decision_outside_its_values():
    with pytest.raises(ScheduleError, match="it may be one of 2, 3, 4"):
        tiled(matmul().func, {"tile_m": 7})


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


def test_decided_numbers_survive_pickling():
    n = pickle.loads(pickle.dumps(Decided(3, "tile")))
    assert n == 3 and n.name == "tile"
