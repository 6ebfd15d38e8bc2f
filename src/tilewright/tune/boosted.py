"""Boosted: what schedules take, learnt by boosted trees.

In: rows of a plan and the seconds that some took. Out: a `Model`. The one idea: several sums of
trees, each fitted to measurements drawn with repetition, disagree where little is known. With a
prior they learn what it leaves over; without one, everything, as tuners do that have none.
"""

from __future__ import annotations

import numpy as np

from tilewright.strategy.sketch.plan import Plan, Rows
from tilewright.tune.model import Model, Numbers, Prior
from tilewright.tune.trees import Trees

MEMBERS = 3
ROUNDS = 30  # trees of each member


class Boosted:
    """Boosted trees on decisions and traits."""

    def __init__(
        self,
        plan: Plan,
        random: np.random.Generator,
        prior: Model | None = None,
        knows_prior: bool = True,
    ) -> None:
        self.plan, self.random, self.knows_prior = plan, random, knows_prior
        self.prior, self.level = prior or Prior(plan), 0.0
        self.members = [Trees(ROUNDS) for _ in range(MEMBERS)]

    def features(self, rows: Rows) -> Numbers:
        """A column for each decision, and for each trait where the prior is known."""
        if not self.knows_prior:
            return rows.astype(np.float64)
        traits = self.plan.traits(rows).values()
        return np.concatenate([rows.astype(np.float64), np.stack(list(traits), 1)], 1)

    def _expected(self, rows: Rows) -> Numbers:
        return self.prior.predict(rows)[0] if self.knows_prior else np.full(len(rows), self.level)

    def learn(self, rows: Rows, seconds: Numbers) -> None:
        """See `Model`."""
        self.prior.learn(rows, seconds)
        self.level = float(np.log(seconds).mean())
        left, known = np.log(seconds) - self._expected(rows), self.features(rows)
        for member in self.members:
            often = self.random.multinomial(len(rows), np.full(len(rows), 1 / len(rows)))
            member.fit(known, left, often.astype(np.float64))

    def predict(self, rows: Rows) -> tuple[Numbers, Numbers]:
        """See `Model`."""
        known = self.features(rows)
        told = np.stack([member.predict(known) for member in self.members])
        return self._expected(rows) + told.mean(0), told.std(0)
