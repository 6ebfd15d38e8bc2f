"""Explorers: which schedules of a space to measure next.

In: a plan and all that was measured of it. Out: rows that were not. The one idea: the space is
smooth around good schedules, so that the neighbours of the best ones are worth most, and a model
says which of them; a part goes to what it has no idea of.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from tilewright.strategy.sketch.plan import Plan, Rows
from tilewright.tune.model import Ensemble, Model, Numbers, Prior

DRAWN = 4096  # rows that are weighed by the model where new ones are looked for
APART = 3  # decisions in which the first rows differ from one another
STARTS = 4  # rows whose neighbours are looked at
OPTIMISM = 1.0  # standard deviations by which what is unsure counts as better
GRID, TRIES = 16, 20  # combinations that are looked at together, and how often for one proposal
GOLDEN = (610, 987)  # the golden part, as a fraction
AT_RANDOM = 0.1  # part of the rows that no model chooses


class History:
    """What was measured of a plan: rows and the seconds they took; no number where one failed."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rows: Rows = np.empty((0, len(plan.decisions)), np.int64)
        self.seconds: Numbers = np.empty(0)
        self._seen: set[bytes] = set()

    def add(self, rows: Rows, seconds: Sequence[float]) -> None:
        """Take what rows took; infinity for what is no schedule."""
        self.rows = np.concatenate([self.rows, rows])
        self.seconds = np.concatenate([self.seconds, np.asarray(seconds, np.float64)])
        self._seen.update(row.tobytes() for row in rows)

    def timed(self) -> tuple[Rows, Numbers]:
        """The rows that ran, and their seconds."""
        ran = np.isfinite(self.seconds)
        return self.rows[ran], self.seconds[ran]

    def best(self, count: int) -> Rows:
        """The fastest rows, the best one first."""
        rows, seconds = self.timed()
        return rows[np.argsort(seconds, kind="stable")[:count]]

    def unseen(self, rows: Rows) -> Rows:
        """Those that were not measured, each once."""
        found: dict[bytes, Any] = {row.tobytes(): row for row in rows}
        new = [row for told, row in found.items() if told not in self._seen]
        return np.stack(new) if new else rows[:0]


class Explorer(Protocol):
    """Proposes at most so many rows that were not measured; none where it has no more."""

    def propose(self, history: History, count: int) -> Rows:
        """The rows to measure next."""
        ...


class Random:
    """Any legal rows."""

    def __init__(self, plan: Plan, random: np.random.Generator) -> None:
        self.plan, self.random = plan, random

    def propose(self, history: History, count: int) -> Rows:
        """See `Explorer`."""
        return history.unseen(self.plan.draw(2 * count, self.random))[:count]


class Grid:
    """Legal rows in an order that has nothing of chance and is even at every length: it goes
    through all combinations by the golden part of their number."""

    def __init__(self, plan: Plan, random: np.random.Generator) -> None:
        self.plan, self.random = plan, random
        self.sizes = [len(d.values) for d in plan.decisions]
        self.total = math.prod(self.sizes)
        self.stride = max(1, self.total * GOLDEN[0] // GOLDEN[1])
        while math.gcd(self.stride, self.total) > 1:
            self.stride += 1
        self.at, self.left = 0, self.total

    def propose(self, history: History, count: int) -> Rows:
        """See `Explorer`."""
        found: Rows = np.empty((0, len(self.sizes)), np.int64)
        for _ in range(TRIES):
            if len(found) >= count or not self.left:
                break
            rows = self._next(min(GRID, self.left))
            rows = history.unseen(self.plan.mended(rows, self.random))
            found = history.unseen(np.concatenate([found, rows]))
        return found[:count]

    def _next(self, count: int) -> Rows:
        """The next combinations, legal or not."""
        rows = np.empty((count, len(self.sizes)), np.int64)
        for row in rows:
            rest = self.at
            for n, size in enumerate(self.sizes):
                rest, row[n] = divmod(rest, size)
            self.at = (self.at + self.stride) % self.total
        self.left -= count
        return rows


class Portfolio:
    """The first rows: those of which a model that has seen none of them expects most, and that
    differ in several decisions."""

    def __init__(self, plan: Plan, random: np.random.Generator, model: Model | None = None) -> None:
        self.plan, self.random, self.model = plan, random, model or Prior(plan)

    def propose(self, history: History, count: int) -> Rows:
        """See `Explorer`."""
        drawn = self.plan.draw(DRAWN, self.random)
        rows = np.concatenate([self.plan.pick[None], drawn])
        rows = rows[np.argsort(self.model.predict(rows)[0], kind="stable")]
        return self._apart(history.unseen(rows), count)

    def _apart(self, rows: Rows, count: int) -> Rows:
        found: list[Any] = []
        for row in rows:
            if all((row != other).sum() >= APART for other in found):
                found.append(row)
            if len(found) == count:
                break
        return np.stack(found) if found else rows[:0]


class Guided(ABC):
    """What explorers have in common that a model leads: it learns all that was measured before each
    proposal, and as long as that is nothing another explorer has its turn, a Portfolio."""

    def __init__(
        self,
        plan: Plan,
        random: np.random.Generator,
        model: Callable[[Plan, np.random.Generator], Model],
        first: Explorer | None = None,
    ) -> None:
        self.plan, self.random, self.model = plan, random, model(plan, random)
        self.first = first or Portfolio(plan, random, self.model)
        self.any = Random(plan, random)

    def propose(self, history: History, count: int) -> Rows:
        """See `Explorer`."""
        rows, seconds = history.timed()
        if not len(rows):
            return self.first.propose(history, count)
        self.model.learn(rows, seconds)
        return self._proposed(history, count)

    @abstractmethod
    def _proposed(self, history: History, count: int) -> Rows:
        """New rows, once the model has learnt."""

    def _and_some_at_random(self, ranked: Rows, history: History, count: int) -> Rows:
        """The first of ranked rows, and those that no model chooses."""
        chance = self.random.binomial(count, AT_RANDOM)
        chosen = [ranked[: count - chance], self.any.propose(history, count)]
        return history.unseen(np.concatenate(chosen))[:count]


class Descent(Guided):
    """Neighbours of the best rows, and what the model thinks best of many others."""

    def __init__(
        self,
        plan: Plan,
        random: np.random.Generator,
        model: Callable[[Plan, np.random.Generator], Model] = Ensemble,
        first: Explorer | None = None,
    ) -> None:
        super().__init__(plan, random, model, first)

    def _proposed(self, history: History, count: int) -> Rows:
        around = [self.plan.neighbours(row) for row in history.best(STARTS)]
        near = self._ranked(history.unseen(np.concatenate(around)))
        far = self._ranked(history.unseen(self.plan.draw(DRAWN // 4, self.random)))
        chance = self.random.binomial(count, AT_RANDOM)
        chosen = [near[: (count - chance + 1) // 2], far[: (count - chance) // 2]]
        chosen.append(self.any.propose(history, chance))
        chosen += [near[(count - chance + 1) // 2 :], far[(count - chance) // 2 :]]
        return history.unseen(np.concatenate(chosen))[:count]

    def _ranked(self, rows: Rows) -> Rows:
        if not len(rows):
            return rows
        expected, unsure = self.model.predict(rows)
        return rows[np.argsort(expected - OPTIMISM * unsure, kind="stable")]
