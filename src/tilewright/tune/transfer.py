"""Transfer: what was learnt of some functions, said of another one.

In: rows and seconds of many plans. Out: `Known`, and from it a `Model` for a plan that is none of
them. The one idea: how far the prior is off is a function of traits, which mean the same for every
nest; the level of a function's times is its own, and only fast schedules have to be told apart.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.strategy.sketch.plan import Plan, Rows
from tilewright.support.record import record
from tilewright.tune.model import Numbers
from tilewright.tune.trees import Trees

ROUNDS, DEPTH, RATE, RIDGE = 60, 2, 0.1, 20.0
TRUST = 0.5  # part of what was learnt of others that is believed of a new one
EACH = 100.0  # rows that every function counts for, however many there are


@record
class Known:
    """What was learnt: trees on the traits named."""

    names: tuple[str, ...]
    trees: Trees

    def correction(self, plan: Plan, rows: Rows) -> Numbers:
        """By how much the logarithm of time is above the prior's, but for a constant."""
        told = plan.traits(rows)
        return TRUST * self.trees.predict(np.stack([told[name] for name in self.names], 1))


def learnt(samples: Sequence[tuple[Plan, Rows, Numbers]]) -> Known:
    """Learn from rows of plans and their seconds."""
    names = tuple(samples[0][0].traits(samples[0][1]))
    features, wanted, weights = list[Numbers](), list[Numbers](), list[Numbers]()
    for plan, rows, seconds in samples:
        told = plan.traits(rows)
        features.append(np.stack([told[name] for name in names], 1))
        left = np.log(seconds) - np.log(plan.cycles(rows))
        weight = (seconds.min() / seconds) ** 2
        wanted.append(left - np.average(left, weights=weight))
        weights.append(EACH * weight / weight.sum())
    trees = Trees(ROUNDS, DEPTH, RATE, RIDGE)
    trees.fit(np.concatenate(features), np.concatenate(wanted), np.concatenate(weights))
    return Known(names, trees)


class Transferred:
    """The prior corrected by what is known of other functions, at the level of what was
    measured."""

    def __init__(self, plan: Plan, known: Known) -> None:
        self.plan, self.known, self.level = plan, known, 0.0

    def learn(self, rows: Rows, seconds: Numbers) -> None:
        """See `Model`. Only the level is learnt."""
        self.level = float(np.median(np.log(seconds) - self._expected(rows)))

    def predict(self, rows: Rows) -> tuple[Numbers, Numbers]:
        """See `Model`."""
        return self._expected(rows) + self.level, np.zeros(len(rows))

    def _expected(self, rows: Rows) -> Numbers:
        return np.log(self.plan.cycles(rows)) + self.known.correction(self.plan, rows)
