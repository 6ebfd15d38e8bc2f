"""Annealing: many walks through a space at once, which a model leads downhill.

In: a plan, a model and what was measured. Out: rows to measure. The one idea: a walk takes every
step to a better row and some to worse ones, fewer as it cools; walks go on where they stood when
more was measured, so that what they climbed over once they need not climb over again.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.strategy.sketch.plan import Plan, Rows
from tilewright.tune.explore import Explorer, Guided, History
from tilewright.tune.model import Model, Numbers
from tilewright.tune.smooth import Smooth

WALKS = 64
STEPS = 24  # of each walk between two measurements
HOT = 0.3  # a row that takes that much longer (as a logarithm) is taken at one in e, at first


class Annealing(Guided):
    """Simulated annealing on a model, with walks that persist."""

    def __init__(
        self,
        plan: Plan,
        random: np.random.Generator,
        model: Callable[[Plan, np.random.Generator], Model] = Smooth,
        first: Explorer | None = None,
    ) -> None:
        super().__init__(plan, random, model, first)
        self.walks: Rows = np.empty((0, len(plan.decisions)), np.int64)

    def _proposed(self, history: History, count: int) -> Rows:
        if not len(self.walks):
            drawn = self.plan.draw(WALKS, self.random)
            self.walks = np.concatenate([history.best(len(history.rows)), drawn])[:WALKS]
        visited, expected = self._walked()
        ranked = history.unseen(visited[np.argsort(expected, kind="stable")])
        return self._and_some_at_random(ranked, history, count)

    def _walked(self) -> tuple[Rows, Numbers]:
        """All rows that the walks come by, and what is expected of them."""
        here = self.model.predict(self.walks)[0]
        visited, expected = [self.walks], [here]
        for heat in HOT * np.linspace(1, 0, STEPS, endpoint=False):
            there = self.plan.moved(self.walks, self.random)
            found = self.model.predict(there)[0]
            worse = np.maximum(found - here, 0)
            goes = self.random.random(len(here)) < np.exp(-worse / heat)
            self.walks = np.where(goes[:, None], there, self.walks)
            here = np.where(goes, found, here)
            visited.append(there)
            expected.append(found)
        return np.concatenate(visited), np.concatenate(expected)
