"""Rules that users register: their points, and what becomes of rules that raise."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.tune.functions import product, scaled
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.learned import Table
from tilewright.strategy.rules import rule, rules_for, unregister
from tilewright.strategy.select import default
from tilewright.strategy.space import decisions, partial, point, sample
from tilewright.support.errors import InputError, RuleWarning, ScheduleError
from tilewright.target.target import target

HERE = target("cpu")


def by_rows(schedule: Schedule, machine: Any, threads: int) -> None:
    rows = schedule.decide("C.rows", 4, (1, 2, 4, 48))
    i, j, *_ = schedule.loops("C")
    schedule.unroll(schedule.split(i, (None, rows))[1])
    schedule.vectorize(schedule.split(j, (None, machine.lanes(32)))[1])


def is_product(func: Any) -> bool:
    return func.name == "product"


@pytest.fixture(autouse=True)
def no_rules() -> Iterator[None]:
    """Each test registers its own."""
    yield
    for name in ("by_rows", "other", "wrong"):
        unregister(name)


def test_a_rule_is_a_part_of_the_space_and_of_no_default() -> None:
    func, plain = product(), decisions(default(product(), HERE, 1, learned=Table()))
    with pytest.raises(ScheduleError, match="strategy"):
        point(func, HERE, 1, {"strategy": "by_rows", "C.rows": 2})
    rule(when=is_product)(by_rows)
    assert [r.name for r in rules_for(func)] == ["by_rows"] and not rules_for(scaled())
    assert decisions(default(func, HERE, 1, learned=Table())) == plain
    made = partial(func, HERE, 1, {"strategy": "by_rows"})
    assert decisions(made) == {"strategy": "by_rows", "C.rows": 4}
    drawn = [decisions(sample(func, HERE, 1, Random(n), "by_rows"))["C.rows"] for n in range(9)]
    assert len({*drawn}) > 2
    with pytest.raises(ScheduleError, match="one of 1, 2, 4, 48"):
        point(func, HERE, 1, {"strategy": "by_rows", "C.rows": 3})
    a, b = np.random.default_rng(0).random((2, 96, 96), np.float32)
    a, b = a[:48].copy(), b[:, :64].copy()
    (d,) = tw.build(made, HERE, threads=1)(a, b)
    np.testing.assert_allclose(d, np.maximum(a.astype(float) @ b + 1.5, 0), rtol=1e-5)


def test_rules_that_raise_are_told_and_left_out() -> None:
    @rule(name="wrong")
    def other(schedule: Schedule, machine: Any, threads: int) -> None:
        raise KeyError("oh")

    with (
        pytest.warns(RuleWarning, match=r"'wrong' is left out: applied to 'product', .*KeyError"),
        pytest.raises(ScheduleError, match="cannot follow the rule 'wrong'"),
    ):
        partial(product(), HERE, 1, {"strategy": "wrong"})

    @rule(name="other", when=lambda func: 1 / 0)
    def another(schedule: Schedule, machine: Any, threads: int) -> None:
        raise AssertionError("it is for no function")

    with pytest.warns(RuleWarning, match="'other' is left out: asked whether"):
        assert [r.name for r in rules_for(product())] == ["wrong"]


def test_names_of_rules() -> None:
    for name in ("family", "sketch", "by rows", "-"):
        with pytest.raises(InputError, match="another one"):
            rule(name=name)(by_rows)
    with pytest.raises(InputError):
        rule(lambda schedule, machine, threads: None)
    assert rule(by_rows) is by_rows
    first = rules_for(product())[0].digest
    rule(name="by_rows")(lambda schedule, machine, threads: None)
    (again,) = rules_for(product())
    assert again.digest != first is not None
