"""Random candidates: a few of them here, and that what is wrong with one would be found. Many:
`python -m tests.tune.candidates`."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections import Counter
from contextlib import closing

import numpy as np
import pytest

from tests.parameters.guard import Guarded
from tests.tune import candidate_runs
from tests.tune.bounded import Number, is_wrong, product, total
from tests.tune.candidate_runs import Kernel, Runs, Trial, run_cases
from tests.tune.drawn import draw

RUNS = Runs(1, (1, 2), ("native", "haswell", "nehalem"))


def first_verdict(number=0):
    with closing(run_cases(RUNS, number)) as verdicts:
        return next(verdicts)


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Few candidates of a function, none of them long to compile."""
    monkeypatch.setattr(candidate_runs, "QUICK", 1)
    monkeypatch.setattr(candidate_runs, "SLOW", 0)
    monkeypatch.setattr(candidate_runs, "POINTS", 1)


def test_candidates_compute_what_numpy_does(monkeypatch):
    monkeypatch.setattr(candidate_runs, "QUICK", 6)
    counts, failures = Counter(), []
    with closing(run_cases(RUNS, 0)) as verdicts:
        while counts["run"] < 36:
            verdict = next(verdicts)
            counts += verdict.counts
            failures += verdict.failures
    assert not failures


@pytest.mark.parametrize("number", range(6))
def test_the_interpreter_agrees_with_numpy(number):
    assert Trial(RUNS, number, ()).interpreted() == ""


def test_the_same_number_draws_the_same():
    assert draw(7, 3).func == draw(7, 3).func
    assert draw(7, 3).func != draw(8, 3).func


def instead(monkeypatch, do):
    """Kernels run, and then do this with their arrays."""
    run = Kernel.run

    def changed(kernel, arrays, *others):
        run(kernel, arrays, *others)
        do(arrays)

    monkeypatch.setattr(Kernel, "run", changed)


def test_a_wrong_element_is_found(monkeypatch):
    instead(monkeypatch, lambda arrays: arrays[-1].reshape(-1)[-1:].fill(7777))
    verdict = first_verdict()
    assert verdict.counts["wrong"] == verdict.counts["run"] >= 3
    assert "7777" in verdict.failures[0]


def test_a_changed_input_is_found(monkeypatch):
    instead(monkeypatch, lambda arrays: arrays[0].view(np.uint8).__ixor__(1))
    assert "changes an input" in first_verdict().failures[0]


def test_a_crash_is_the_candidate_s(monkeypatch):
    instead(monkeypatch, lambda _: os.kill(os.getpid(), signal.SIGKILL))
    with closing(run_cases(RUNS, 0)) as verdicts:
        for number in range(2):  # and the next child goes on behind it
            verdict = next(verdicts)
            assert verdict.number == number
            assert verdict.failures[0].startswith(f"CRASH 9 case {number}: ")
            assert '"strategy": "sketch"' in verdict.failures[0]


def test_a_read_behind_an_array_is_a_crash(monkeypatch):
    def behind(arrays):
        for array in arrays:
            ctypes.string_at(array.ctypes.data + array.nbytes, 1)

    instead(monkeypatch, behind)
    assert first_verdict().failures[0].startswith("CRASH 11")


def test_a_hang_is_ended(monkeypatch):
    monkeypatch.setattr(candidate_runs, "SECONDS", 0.5)
    instead(monkeypatch, lambda _: time.sleep(60))
    assert first_verdict().failures[0].startswith("HANG case 0: ")


def test_held_arrays_end_at_the_guard():
    held = Guarded().hold(np.arange(5, dtype="f4"), True)
    assert (held.ctypes.data + held.nbytes) % 4096 == 0


def test_whole_sums_are_exact_and_others_bounded():
    whole = total(Number(np.array([[1.0, -2.5, 3.0]]), 0.0, "f32"))
    other = total(Number(np.array([[0.1, 0.2, 0.3]]), 0.0, "f32"))
    assert (whole.value, whole.bound) == (1.5, 0.0)
    assert 0 < other.bound < 1e-5
    assert is_wrong(np.float32([1.5 + 1e-6]), whole).all()
    assert not is_wrong(np.float32([0.6 + 1e-7]), other).any()
    assert is_wrong(np.float32([0.61, np.nan][1:]), other).all()


def test_large_products_say_nothing():
    large = product(Number(np.full((1, 40), 16.0), 0.0, "f32"))
    assert np.isinf(large.bound).all()
    assert not is_wrong(np.float32([np.inf]), large).any()
