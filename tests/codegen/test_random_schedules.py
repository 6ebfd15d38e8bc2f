"""Random legal schedules: compiled code agrees with NumPy."""

from __future__ import annotations

import pytest

from tests.schedule.random_schedules import SIZES, Tally, run_one
from tilewright.codegen import inprocess
from tilewright.ir.stmt import For
from tilewright.ir.walk import visit

COUNT = 6  # for each family; `python -m tests.schedule.random_schedules --compiled` runs thousands


def build(func):
    """The compiled function; what is bound to a device's threads is not for this machine."""
    if any(isinstance(n, For) and n.kind == "thread" for n in visit(func.body)):
        return None
    return inprocess.load(func)


@pytest.mark.parametrize("family", list(SIZES))
def test_compiled(family: str) -> None:
    for seed in range(1000, 1000 + COUNT):
        tally = Tally()
        schedule, error = run_one(family, seed, 14, tally, None)
        assert error is None, f"seed {seed}: {error}"
        if build(schedule.func) is None:
            continue
        _, error = run_one(family, seed, 14, tally, build)
        assert error is None, f"seed {seed}: {error}\n{schedule.trace.to_json()}"
