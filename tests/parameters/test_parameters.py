"""Some draws of some operators in the fast suite, all operators in the slow one."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

import numpy as np
import pytest

from tests.parameters import judge
from tests.parameters.guard import Guarded
from tests.parameters.subjects import Subject, subjects

SUBJECTS = {s.name: s for s in subjects()}
FEW, MANY = 100, 700  # draws
SOME = ("Slice", "Range float64")


def run(name: str, count: int) -> list[judge.Failure]:
    subject = SUBJECTS[name]
    return judge.run_draws(subject, judge.compiled(subject), 0, 0, count)


@pytest.mark.parametrize("name", SOME)
def test_draws_end_right_or_with_an_error(name: str):
    assert run(name, FEW) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_many_draws_end_right_or_with_an_error(name: str, draws: Callable[[int], int]):
    assert run(name, draws(MANY)) == []


def test_the_pages_beside_an_array_end_who_touches_them():
    held = Guarded()
    for at_end, place in ((True, 4), (False, -1)):
        array = held.hold(np.arange(4), at_end)
        assert array.tolist() == [0, 1, 2, 3]
        child = os.fork()
        if child == 0:
            ctypes.c_int64.from_address(array.ctypes.data + 8 * place).value = 0
            os._exit(0)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) in (signal.SIGSEGV, signal.SIGBUS)


def test_a_run_that_ends_its_process_is_told():
    class Ends:
        """Stands for a model that crashes in its third run."""

        calls = 0

        def __call__(self, *arrays):
            self.calls += 1
            if self.calls == 3:
                os.kill(os.getpid(), signal.SIGSEGV)
            return [SUBJECTS["CumSum"].want(*arrays)]

    sound: Subject = SUBJECTS["CumSum"]
    found = judge.run_draws(sound, Ends(), 0, 0, 4)
    assert "CRASH: SIGSEGV" in next(f.why for f in found if f.number == 2)
