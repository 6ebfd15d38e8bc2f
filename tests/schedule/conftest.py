"""Support of the schedule tests: golden text, refusals, and what every rewrite must keep."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.ir import interp
from tilewright.ir.expr import Const
from tilewright.ir.stmt import Func
from tilewright.ir.verify import verify
from tilewright.ir.walk import stores
from tilewright.schedule import Schedule, Trace, replay
from tilewright.support.errors import ScheduleError


@pytest.fixture
def replays():
    """Assert that a schedule's trace, through JSON, gives the same function again."""

    def check(start: Func, schedule: Schedule) -> None:
        again = replay(start, Trace.from_json(schedule.trace.to_json()))
        assert again.func == schedule.func
        assert again.trace == schedule.trace

    return check


@pytest.fixture
def refused():
    """Assert that a call is refused under a precondition, with a message of four parts."""

    def check(rule: str, call, *args, **named) -> ScheduleError:
        with pytest.raises(ScheduleError) as caught:
            call(*args, **named)
        error = caught.value
        assert error.rule == rule, str(error)
        assert error.what.startswith("cannot ") and error.why and error.remedy
        assert error.where
        return error

    return check


@pytest.fixture
def same_result():
    """Assert that two functions give the same outputs on random inputs (whole numbers, so exactly).

    Parameters that a function only reads are inputs; all others start as NaN or as nonsense.
    """

    def check(before: Func, after: Func, seed: int = 0, **symbols: int) -> None:
        assert after.params == before.params
        verify(after, "blocks")
        written = {s.buffer for s in stores(before.body)}
        random = np.random.default_rng(seed)
        first: list[np.ndarray] = []
        for b in before.buffers:
            shape = [e.value if isinstance(e, Const) else symbols[e.name] for e in b.shape]
            data = random.integers(-4, 5, shape).astype(b.dtype.numpy)
            if b in written:
                data = np.full(shape, np.nan if b.dtype.is_float else 77).astype(b.dtype.numpy)
            first.append(data)
        second = [a.copy() for a in first]
        interp.run(before, *first, symbols=symbols)
        interp.run(after, *second, symbols=symbols)
        for b, x, y in zip(before.buffers, first, second, strict=True):
            np.testing.assert_array_equal(x, y, err_msg=f"buffer {b.name}")

    return check
