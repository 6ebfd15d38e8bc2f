"""Paired measurement: turns, ratios within rounds, and errors relative to the largest value."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tilewright.driver.report.compare import OURS, Times, difference, engine, take_turns
from tilewright.support.errors import CompileError


def test_everyone_has_a_turn_in_every_round():
    order = []
    told = []
    calls = {name: lambda name=name: order.append(name) for name in "abc"}
    found = take_turns(calls, seconds=1e-9, rounds=3, progress=told.append)
    # of each slice the first call is not counted; who begins changes from round to round
    assert "".join(order) == "aabbcc" + "bbccaa" + "ccaabb"
    assert all(len(times.rounds) == 3 for times in found.values())
    assert told == [1, 2, 3]


def test_slow_calls_have_fewer_rounds():
    found = take_turns({"slow": lambda: time.sleep(0.02)}, seconds=0.01)
    assert len(found["slow"].rounds) == 3


def test_ratios_compare_within_a_round():
    # the machine slows down fivefold in the second round, and both engines with it
    ours, theirs = Times([[1.0, 1.0], [5.0, 6.0], [1.0]]), Times([[2.0], [10.0, 12.0], [2.0]])
    assert ours.over(theirs) == 0.5
    assert (ours.minimum, ours.median) == (1.0, 1.0)


def test_errors_are_relative_to_the_largest_value():
    got = [np.array([1.0, 100.0]), np.zeros(3)]
    assert difference(got, [np.array([2.0, 100.0]), np.zeros(3)]) == 0.01
    assert difference(got, got) == 0.0
    assert difference([np.zeros(2)], [np.zeros(3)]) == np.inf


def test_an_engine_that_is_missing_or_refuses_is_told(tmp_path, monkeypatch):
    path = tmp_path / "noise.onnx"
    path.write_bytes(b"noise")
    pytest.importorskip("onnxruntime")
    with pytest.raises(CompileError, match="cannot compare with onnxruntime: it refuses the model"):
        engine("onnxruntime", str(path), 1)
    monkeypatch.setitem(__import__("sys").modules, "openvino", None)
    with pytest.raises(CompileError, match="the package 'openvino' is not installed"):
        engine("openvino", str(path), 1)
    assert OURS == "tilewright"
