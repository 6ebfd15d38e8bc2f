"""Spaces of which everything is known: where the best row is, and how far the prior is off."""

from __future__ import annotations

import numpy as np

from benchmarks.tuning.replay import Replayed
from benchmarks.tuning.tables import DRAWN, SEARCHED, Task, named
from tilewright.strategy.sketch.plan import Columns, Decision, Flags, Numbers, Plan, Rows

VALUES = (1, 2, 3, 4, 6, 8, 12, 16)
BEST = {"a": 2, "b": 5, "c": 1, "d": 6}  # positions of values
MOST = 11  # of a's and b's positions together


class Bowl:
    """A part whose time grows with the distance from the best values; the prior believes in others
    that are `off` away."""

    def __init__(self, name: str = "bowl", off: int = 2, rotated: int = 0) -> None:
        self.name, self.off, self.rotated = name, off, rotated
        self.decisions = tuple(Decision(name, what, VALUES) for what in BEST)

    def distances(self, columns: Columns, off: int = 0) -> Numbers:
        """How far rows are from the best one, or from what the prior takes for it."""
        found = 0.0
        for what, position in BEST.items():
            wanted = (position + self.rotated) % len(VALUES)
            moved = abs(wanted - off) if what in "ab" else wanted
            found = found + np.abs(np.searchsorted(VALUES, columns[what]) - moved)
        return np.asarray(found, np.float64)

    def is_legal(self, columns: Columns) -> Flags:
        positions = [np.searchsorted(VALUES, columns[what]) for what in "ab"]
        return positions[0] + positions[1] <= MOST

    def cycles(self, columns: Columns) -> Numbers:
        return 1000 * (1 + 0.2 * self.distances(columns, self.off))

    def seconds(self, columns: Columns) -> Numbers:
        """What a row takes in truth."""
        return 1e-4 * (1 + 0.2 * self.distances(columns))

    def traits(self, columns: Columns) -> dict[str, Numbers]:
        pairs = [(what, np.log(columns[what])) for what in BEST]
        missed = np.log(self.seconds(columns) / self.cycles(columns))
        return {"above_least": np.log(self.cycles(columns)), "missed": missed, **dict(pairs)}

    def mended(self, columns: Columns, random: np.random.Generator) -> Columns:
        positions = [np.searchsorted(VALUES, columns[what]) for what in "ab"]
        return {**columns, "b": np.asarray(VALUES)[np.minimum(positions[1], MOST - positions[0])]}


def bowl(off: int = 2, rotated: int = 0) -> Plan:
    """A plan of one bowl."""
    return Plan([Bowl(off=off, rotated=rotated)])


def seconds(plan: Plan, rows: Rows) -> Numbers:
    """What rows of such a plan take."""
    (part,) = plan.parts
    assert isinstance(part, Bowl)
    return part.seconds(plan.columns(rows)[0])


def frozen_bowl(count: int = 300, default: float = 2e-4, off: int = 2) -> Replayed:
    """A table of some rows of a bowl, half of them drawn by chance."""
    plan = bowl(off)
    rows = plan.draw(count, np.random.default_rng(1))
    origin = np.where(np.arange(len(rows)) < len(rows) // 2, DRAWN, SEARCHED)
    task = Task("bowl", {}, named(plan), default)
    return Replayed(plan, task, rows, seconds(plan, rows), origin)
