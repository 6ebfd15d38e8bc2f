"""Replay: searches on frozen tables, thousands in minutes, none of which measures anything.

In: a table, an explorer, a seed. Out: what it tried, in order. The one idea: an explorer asks a
plan for rows and is told seconds; a plan whose space is the table answers both, so that nothing of
the explorer is written for the replay.

What a table cannot know is rows that nobody measured. So the neighbours of a row are the nearest
rows of the table, whatever they differ in, and a row that is made up stands for one of the nearest;
few rows drawn at once are some that chance drew when the table was made, many are any of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchmarks.tuning.tables import DRAWN, Frozen, Task
from tilewright.strategy.sketch.plan import Flags, Numbers, Plan, Rows
from tilewright.tune.explore import Explorer, History

BATCH = 6  # candidates between two decisions, as in `tune.search`
NEAR = 24  # rows of a table that count as the neighbours of one
ANY = 4  # nearest rows, one of which stands for a row that nobody measured
NOISE = 0.02  # of a measured time's logarithm, in a search
FINAL_NOISE = 0.005  # and of a duel's ratio, which is a mean of many
WINS = 0.99  # of the default's time is better than the default
CLOSE, FINALISTS = 1.06, 4  # who is timed beside the default, as in `tune.search`

Maker = Callable[[Plan, np.random.Generator], Explorer]


class Replayed(Plan):
    """A plan whose space is the rows of a table."""

    def __init__(self, own: Plan, task: Task, rows: Rows, seconds: Numbers, origin: Rows) -> None:
        super().__init__(own.parts)
        self.task, self.rows, self.seconds, self.origin = task, rows, seconds, origin
        self.best = float(seconds.min())
        self._positions = {row.tobytes(): n for n, row in enumerate(rows)}
        self._cycles, self._told = own.cycles(rows), own.traits(rows)
        apart = rows[:, None] != rows[None]
        apart = apart.sum(2) + np.abs(rows[:, None] - rows[None]).sum(2) / 1000
        self._nearest = np.argsort(apart, 1, kind="stable")[:, : NEAR + 1]

    def positions(self, rows: Rows) -> Rows:
        """Which rows of the table they are; -1 for those that it has not."""
        return np.asarray([self._positions.get(row.tobytes(), -1) for row in rows], np.int64)

    def is_legal(self, rows: Rows) -> Flags:
        """Which rows the table has."""
        return self.positions(rows) >= 0

    def cycles(self, rows: Rows) -> Numbers:
        """Modelled cycles; infinite for what the table has not."""
        positions = self.positions(rows)
        return np.where(positions >= 0, self._cycles[positions], np.inf)

    def traits(self, rows: Rows) -> dict[str, Numbers]:
        """Traits of rows that the table has."""
        positions = self.positions(rows)
        return {name: column[positions] for name, column in self._told.items()}

    def draw(self, count: int, random: np.random.Generator) -> Rows:
        """Rows that chance drew, and only if more are wanted, others."""
        order = random.permutation(len(self.rows))
        order = order[np.argsort(self.origin[order] != DRAWN, kind="stable")]
        return self.rows[order[:count]]

    def mended(self, rows: Rows, random: np.random.Generator) -> Rows:
        """For each row one of the nearest that the table has."""
        apart = (rows[:, None] != self.rows[None]).sum(2) + random.random((len(rows), 1)) / 2
        nearest = np.argpartition(apart, min(ANY, len(self.rows) - 1), 1)[:, :ANY]
        return self.rows[random.permuted(nearest, axis=1)[:, 0]]

    def moved(self, rows: Rows, random: np.random.Generator) -> Rows:
        """For each row one of its neighbours."""
        chosen = random.integers(1, min(NEAR + 1, len(self.rows)), len(rows))
        return self.rows[self._nearest[self.positions(rows), chosen]]

    def neighbours(self, row: Rows) -> Rows:
        """The nearest rows."""
        (position,) = self.positions(row[None])
        return self.rows[self._nearest[position, 1:]]

    @cached_property
    def pick(self) -> Rows:
        """The row of least modelled time."""
        return self.rows[int(self._cycles.argmin())]


def replayed(frozen: Frozen) -> list[Replayed]:
    """The tables as plans, today's."""
    pairs = zip(frozen.tables, frozen.plans(), strict=True)
    return [Replayed(own, table.task, *table.within(own)) for table, own in pairs]


@dataclass(frozen=True)
class Run:
    """A search that was replayed. seconds: what each trial took, in order, as the table has it;
    seen: as the search was told."""

    seconds: Numbers
    seen: Numbers

    def trials_to(self, best: float, within: float) -> float:
        """After how many trials one was that close to the best; infinite if none was."""
        close = np.flatnonzero(self.seconds <= (1 + within) * best)
        return float(close[0] + 1) if len(close) else np.inf

    def regret(self, best: float, trials: int) -> Numbers:
        """How far the best of the first trials is from the best: 0.05 for 5 %."""
        so_far = np.minimum.accumulate(self.seconds)
        whole = np.concatenate([so_far, np.full(max(0, trials - len(so_far)), so_far[-1])])
        return whole[:trials] / best - 1


def replay(plan: Replayed, maker: Maker, trials: int, seed: int, enough: float = 0.0) -> Run:
    """Search a table; no further than to a row within `enough` of its best."""
    explorer, noise = maker(plan, np.random.default_rng(seed)), np.random.default_rng(seed + 10**6)
    history, positions = History(plan), list[int]()
    while len(positions) < trials:
        rows = explorer.propose(history, min(BATCH, trials - len(positions)))
        if not len(rows):
            break
        found = plan.positions(rows)
        told = plan.seconds[found] * np.exp(NOISE * noise.standard_normal(len(found)))
        history.add(rows, [float(s) for s in told])
        positions += [int(p) for p in found]
        if plan.seconds[found].min() <= (1 + enough) * plan.best:
            break
    return Run(plan.seconds[np.asarray(positions)], history.seconds)


def champion(plan: Replayed, run: Run, seed: int) -> float:
    """Seconds of what a search deploys: the default, unless another beat it in a duel."""
    random = np.random.default_rng(seed)
    order = np.argsort(run.seen, kind="stable")[:FINALISTS]
    close = [n for n in order if run.seen[n] <= CLOSE * run.seen[order[0]]]
    told = {n: run.seconds[n] * np.exp(FINAL_NOISE * random.standard_normal()) for n in close}
    winner = min(told, key=lambda n: told[n])
    is_better = told[winner] < WINS * plan.task.default
    return float(run.seconds[winner]) if is_better else plan.task.default


def zero_trial(plan: Replayed, score: Callable[[Plan, Rows], Numbers], top: int = 1) -> float:
    """What part of the table's best rate the best of the rows of least score reaches."""
    order = np.argsort(score(plan, plan.rows), kind="stable")[:top]
    return plan.best / float(plan.seconds[order].min())


def mean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return float(np.exp(np.mean(np.log(values))))


def interval(ratios: Sequence[float], draws: int = 2000) -> tuple[float, float]:
    """Between what the geometric mean of ratios lies, one for each task, if other tasks like these
    had been taken: 95 % of bootstrap samples."""
    logs, random = np.log(ratios), np.random.default_rng(0)
    means = logs[random.integers(0, len(logs), (draws, len(logs)))].mean(1)
    low, high = np.exp(np.percentile(means, (2.5, 97.5)))
    return float(low), float(high)
