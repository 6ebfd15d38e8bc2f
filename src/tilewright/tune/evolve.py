"""Evolution: rows that are crossed and changed, of which a model lets the better ones live.

In: a plan, a model and what was measured. Out: rows to measure. The one idea: good schedules are
made of good parts, so that what two of them have, taken from either by chance, is worth more than
what chance draws alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.strategy.sketch.plan import Plan, Rows
from tilewright.tune.explore import Explorer, Guided, History
from tilewright.tune.model import Model
from tilewright.tune.smooth import Smooth

POPULATION = 128
MEASURED = 0.2  # part of the first population that was measured
GENERATIONS = 4
MUTATED = 0.7  # part of the children in which a decision changes


class Evolution(Guided):
    """Crossover and mutation on a model."""

    def __init__(
        self,
        plan: Plan,
        random: np.random.Generator,
        model: Callable[[Plan, np.random.Generator], Model] = Smooth,
        first: Explorer | None = None,
    ) -> None:
        super().__init__(plan, random, model, first)

    def _proposed(self, history: History, count: int) -> Rows:
        known = history.best(int(POPULATION * MEASURED))
        drawn = self.plan.draw(POPULATION - len(known), self.random)
        population = np.concatenate([known, drawn])
        every = [population]
        for _ in range(GENERATIONS):
            population = self._next(population)
            every.append(population)
        found = history.unseen(np.concatenate(every))
        ranked = found[np.argsort(self.model.predict(found)[0], kind="stable")]
        return self._and_some_at_random(ranked, history, count)

    def _next(self, population: Rows) -> Rows:
        """The next generation: children of pairs, a better row being a parent more often."""
        rank = np.argsort(np.argsort(self.model.predict(population)[0], kind="stable"))
        chances = 1.0 / (1 + rank)
        parents = self.random.choice(len(population), (2, POPULATION), p=chances / chances.sum())
        either = self.random.random((POPULATION, population.shape[1])) < 0.5
        children = np.where(either, population[parents[0]], population[parents[1]])
        children = self.plan.mended(children, self.random)
        if not len(children):
            return population
        changed = self.random.random(len(children)) < MUTATED
        moved = self.plan.moved(children, self.random)
        return np.where(changed[:, None], moved, children)
