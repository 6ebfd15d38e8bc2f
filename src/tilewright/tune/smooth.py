"""Smooth: what schedules take, learnt as something that is similar where schedules are similar.

In: rows of a plan and the seconds that some took. Out: a `Model`. The one idea: by how much the
prior is wrong is a Gaussian process over decisions and traits, so that with ten measurements as
with a hundred what is expected, and how sure that is, follow from one small system of equations;
nothing is drawn, nothing is iterated.
"""

from __future__ import annotations

import numpy as np

from tilewright.strategy.sketch.plan import Plan, Rows
from tilewright.tune.model import Model, Numbers, Prior

OF_DECISIONS = 0.2  # of the logarithm of time: what a sum over decisions may explain
OF_TRAITS = 0.4  # and what smooth functions of traits may
REACH = 0.7  # within what part of the common distance schedules are similar
NOISE = 0.06  # what neither explains
COMMON = 256  # rows that tell how much traits differ in a plan


class Smooth:
    """A Gaussian process on what a prior leaves over."""

    def __init__(self, plan: Plan, random: np.random.Generator, prior: Model | None = None) -> None:
        self.plan, self.prior = plan, prior or Prior(plan)
        common = self._traits(plan.draw(COMMON, random))
        self.center, self.spread = common.mean(0), common.std(0)
        self.spread[self.spread < 1e-9] = np.inf  # a trait that is always the same tells nothing
        self.rows: Rows = np.empty((0, len(plan.decisions)), np.int64)
        self.at: Numbers = np.empty((0, len(self.center)))
        self.weights: Numbers = np.empty(0)
        self.inverse: Numbers = np.empty((0, 0))

    def _traits(self, rows: Rows) -> Numbers:
        return np.stack(list(self.plan.traits(rows).values()), 1)

    def _similarity(self, rows: Rows, at: Numbers, others: Rows, there: Numbers) -> Numbers:
        """Covariances of rows with others: logarithms of time, squared."""
        same = (rows[:, None] == others[None]).mean(2)
        squares = (at**2).sum(1)[:, None] + (there**2).sum(1) - 2 * at @ there.T
        common = 2 * np.isfinite(self.spread).sum() * REACH**2
        near = np.exp(-np.maximum(squares, 0) / common)
        return OF_DECISIONS**2 * same + OF_TRAITS**2 * near

    def learn(self, rows: Rows, seconds: Numbers) -> None:
        """See `Model`."""
        self.prior.learn(rows, seconds)
        left = np.log(seconds) - self.prior.predict(rows)[0]
        self.rows, self.at = rows, (self._traits(rows) - self.center) / self.spread
        own = self._similarity(rows, self.at, rows, self.at) + NOISE**2 * np.eye(len(rows))
        self.inverse = np.linalg.inv(own).astype(np.float64)
        self.weights = self.inverse @ left

    def predict(self, rows: Rows) -> tuple[Numbers, Numbers]:
        """See `Model`."""
        at = (self._traits(rows) - self.center) / self.spread
        shared = self._similarity(rows, at, self.rows, self.at)
        known = (shared @ self.inverse * shared).sum(1)
        unsure = np.sqrt(np.maximum(OF_DECISIONS**2 + OF_TRAITS**2 - known, 0))
        return self.prior.predict(rows)[0] + shared @ self.weights, unsure
