"""Model: what the schedules of a space take, learnt from those that were measured.

In: rows of a plan and the seconds that some of them took. Out: for any rows the seconds expected,
and how sure that is. The one idea: the plan's own formula knows most of it; what is learnt is by
how much it is wrong, as a sum over decisions, and several members that each saw another part of the
measurements tell by their disagreement what is not known yet.

The members are ridge regressions on which value each decision has: a few milliseconds for some
hundred measurements, in NumPy alone.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from tilewright.strategy.sketch.plan import Plan, Rows

Numbers = np.ndarray[Any, np.dtype[np.float64]]
MEMBERS = 8
DOUBT = 0.25  # of a decision's effect on the logarithm of time, before anything is measured
NOISE = 0.1  # of that logarithm, which no sum over decisions explains


class Model(Protocol):
    """What explorers ask: `learn` from rows and their seconds, then `predict`."""

    def learn(self, rows: Rows, seconds: Numbers) -> None:
        """Take all that was measured so far."""
        ...

    def predict(self, rows: Rows) -> tuple[Numbers, Numbers]:
        """The logarithm of the seconds expected of each row, and its standard deviation."""
        ...


class Prior:
    """What the plan's formula says by itself, at the level of what was measured."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.level = plan, 0.0

    def learn(self, rows: Rows, seconds: Numbers) -> None:
        """Only the level is learnt."""
        self.level = float(np.median(np.log(seconds) - np.log(self.plan.cycles(rows))))

    def predict(self, rows: Rows) -> tuple[Numbers, Numbers]:
        """See `Model`."""
        return np.log(self.plan.cycles(rows)) + self.level, np.zeros(len(rows))


class Ensemble:
    """Ridge regressions on the decisions' values, of what the plan's formula leaves over."""

    def __init__(
        self,
        plan: Plan,
        random: np.random.Generator,
        prior: Model | None = None,
        members: int = MEMBERS,
    ) -> None:
        self.plan, self.random, self.members = plan, random, members
        self.prior = prior or Prior(plan)
        self.weights = np.zeros((members, self._width))

    @property
    def _width(self) -> int:
        return sum(len(d.values) for d in self.plan.decisions)

    def features(self, rows: Rows) -> Numbers:
        """A column for each value of each decision: 1 where a row has it."""
        found = np.zeros((len(rows), self._width))
        at = 0
        for n, decision in enumerate(self.plan.decisions):
            found[np.arange(len(rows)), at + rows[:, n]] = 1.0
            at += len(decision.values)
        return found

    def learn(self, rows: Rows, seconds: Numbers) -> None:
        """Fit each member to measurements that are drawn from all of them, with repetition."""
        self.prior.learn(rows, seconds)
        left = np.log(seconds) - self.prior.predict(rows)[0]
        known, ridge = self.features(rows), np.eye(self._width) * (NOISE / DOUBT) ** 2
        for member in range(self.members):
            often = self.random.multinomial(len(rows), np.full(len(rows), 1 / len(rows)))
            weighted = known * often[:, None]
            self.weights[member] = np.linalg.solve(weighted.T @ known + ridge, weighted.T @ left)

    def predict(self, rows: Rows) -> tuple[Numbers, Numbers]:
        """See `Model`."""
        expected = self.features(rows) @ self.weights.T
        return self.prior.predict(rows)[0] + expected.mean(1), expected.std(1)
