"""Search: the best schedule of one function that so many seconds find.

In: a function of known sizes, a machine, a budget, perhaps a database. Out: a champion, which is
the default unless another beat it in a duel. The one idea: candidates come from several sources in
small batches, cheap times tell which source to ask next, and who wins is decided at the end, in
turns beside the default.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from random import Random

import numpy as np

from tilewright.ir.stmt import Func
from tilewright.strategy.learned import Table
from tilewright.strategy.rules import rules_for
from tilewright.strategy.select import default
from tilewright.strategy.sketch.tiles import plans
from tilewright.strategy.space import decisions
from tilewright.support.errors import InputError
from tilewright.support.record import record
from tilewright.target.target import Target
from tilewright.tune.database import Database
from tilewright.tune.explore import Descent
from tilewright.tune.ledger import Ledger
from tilewright.tune.measure import CONFIRMED, Arrays, Bench
from tilewright.tune.records import OK, Champion, Trial
from tilewright.tune.sources import Bandit, Family, Point, Ruled, Sketched, Source, Suggested
from tilewright.tune.stand import Outcome
from tilewright.tune.workload import Workload, workload

BATCH = 6  # candidates between two decisions of what to measure next
EACH = 12  # the same for each device, where there are several: their last ones end apart
FINALISTS = 4  # that are measured beside the default at the end
DUEL = 0.25  # seconds that one of them should have: in less, even those twice as fast may not win
FINALS = 0.2  # part of the seconds that is for them, at most MOST
MOST = 8.0  # seconds
WORKERS = min(2, os.cpu_count() or 1)  # that compile; more have too little to do in a batch
CLOSE = 1.06  # times the best so far: who is that close may be a finalist


@record
class Tuned:
    """What a search found. champion: the best point, the default's where none beat it; default:
    its seconds; trials: candidates that were measured; seconds: that the search took; history: for
    each improvement, after how many seconds and trials what was the best."""

    champion: Champion
    default: float
    trials: int
    seconds: float
    history: tuple[tuple[float, int, float], ...]

    @property
    def is_default(self) -> bool:
        """Whether nothing beat the default schedule."""
        return self.champion.ratio == 1.0


class Search:
    """A search that goes on for as long as it is told to: `run`, then `finish`.

    Args:
        func: what to schedule.
        machine, threads: for which.
        bench: what measures it.
        database: where trials go, and suggestions come from; None for none.
        seed: two searches of one seed draw the same candidates while times are the same.
    """

    def __init__(
        self,
        func: Func,
        machine: Target,
        threads: int,
        bench: Bench,
        database: Database | Ledger | None = None,
        seed: int = 0,
    ) -> None:
        self.func, self.machine, self.threads = func, machine, threads
        self.bench, self.database = bench, database
        self.workload: Workload = workload(func)
        self.best, self.trials, self.began = math.inf, 0, time.monotonic()
        self.history: list[tuple[float, int, float]] = []
        self.timed: list[tuple[float, Point]] = []
        self.default = decisions(default(func, machine, threads))
        self.bandit = Bandit(self._sources(seed))
        # Of one function as many as keep all devices busy, though they end at different times.
        self.batch = BATCH if bench.lanes == 1 else EACH * bench.lanes

    def _sources(self, seed: int) -> list[Source]:
        found: list[Source] = []
        won: list[Point] = []
        if self.database is not None:
            asked = self.workload, self.machine, self.threads
            known = self.database.champion(*asked)
            won += [] if known is None else [known.point]
            won += [s.point for s in self.database.suggestions(*asked)]
        plain = decisions(default(self.func, self.machine, self.threads, learned=Table()))
        if plain != self.default:  # what a learned row replaced stays on trial
            won.append(plain)
        if won:
            found.append(Suggested(won))
        given = self.func, self.machine, self.threads, Random(seed)
        found += [Ruled(rule.name, *given) for rule in rules_for(self.func)]
        for n, own in enumerate(plans(self.func, self.machine, self.threads)):
            found.append(Sketched(own, Descent(own, np.random.default_rng(seed)), f"sketch {n}"))
        found.append(Family(self.func, self.machine, self.threads, Random(seed)))
        return found

    def step(self, trials: int | None = None) -> int:
        """Measure the next candidates, at most so many and a batch; gives how many there were, 0
        where nobody has any."""
        trials = self.batch if trials is None else min(trials, self.batch)
        for source in self.bandit.order():
            if points := source.propose(trials):
                self._measure(source, points)
                return len(points)
            self.bandit.told(source, [False] * BATCH)
        return 0

    def _measure(self, source: Source, points: Sequence[Point]) -> None:
        """Measure points, which may leave decisions to their strategy; what is told and recorded
        says all of them."""
        outcomes: dict[int, Outcome] = {}
        try:
            self.bench.measure(points, outcomes.__setitem__, partial=True)
        finally:  # an interrupt loses nothing that was measured
            order = sorted(outcomes)
            told = [outcomes[n] for n in order]
            whole = [outcomes[n].point or points[n] for n in order]
            self._note(source, whole, told)
            self._record(whole, told)

    def _note(self, source: Source, points: Sequence[Point], outcomes: Sequence[Outcome]) -> None:
        improved, took = list[bool](), [o.best for o in outcomes]
        self.trials += sum(o.status != "refused" for o in outcomes)
        for point, seconds in zip(points, took, strict=True):
            improved.append(seconds < self.best)
            if seconds < self.best:
                self.best = seconds
                self.history.append((time.monotonic() - self.began, self.trials, seconds))
            if math.isfinite(seconds):
                self.timed.append((seconds, point))
        for other in self.bandit.sources:
            other.told(points, took)
        self.bandit.told(source, improved)

    def _record(self, points: Sequence[Point], outcomes: Sequence[Outcome]) -> None:
        if self.database is None:
            return
        trials = [
            Trial(p, o.seconds, OK if o.status == "timed" else o.status, o.compiled)
            for p, o in zip(points, outcomes, strict=True)
            if o.status != "refused"
        ]
        self.database.add(self.workload, self.machine, self.threads, trials)

    def finish(self, seconds: float) -> Tuned:
        """Let the best candidates meet the default, for so many seconds, and keep who won."""
        self.timed.sort(key=lambda found: found[0])
        count = max(1, min(FINALISTS, round(seconds / DUEL) - CONFIRMED))
        close = [p for took, p in self.timed[:count] if took <= CLOSE * self.best]
        finals = self.bench.finals(close, seconds)
        own = next(f.outcome.best for f in finals if f.point is None)
        winner = finals[0]
        if winner.point is None:
            champion = Champion(self.default, own, 1.0, 1.0, 1.0, verified=True)
        else:
            v = winner.verdict
            took = winner.outcome.best
            told = 1 / v.ratio, 1 / v.high, 1 / v.low
            champion = Champion(winner.point, took, *told, verified=True)
        if self.database is not None and math.isfinite(champion.seconds):
            self.database.crown(self.workload, self.machine, self.threads, champion)
        spent = time.monotonic() - self.began
        return Tuned(champion, own, self.trials, spent, tuple(self.history))


def tune_function(
    func: Func,
    machine: Target,
    threads: int,
    *,
    seconds: float,
    trials: int | None = None,
    database: Database | None = None,
    inputs: Arrays | None = None,
    seed: int = 0,
    progress: Callable[[Search], None] = lambda search: None,
) -> Tuned:
    """Search the schedule of one function for so many seconds, or so many trials if these are
    fewer. An interrupt ends the search; what was found till then meets the default.

    Raises InputError for a budget that is none, CompileError for a function or machine that cannot
    be measured.
    """
    if not seconds > 0 or (trials is not None and trials < 1):
        raise InputError(
            f"cannot tune '{func.name}'",
            f"a budget of {seconds:g} seconds and {trials} trials measures nothing",
            remedy="give it a few seconds at least, and one trial",
        )
    began = time.monotonic()
    reserved = min(MOST, FINALS * seconds)
    with Bench(func, machine, threads, inputs=inputs, workers=WORKERS, seed=seed) as bench:
        search = Search(func, machine, threads, bench, database, seed)
        try:
            while time.monotonic() - began < seconds - reserved:
                left = None if trials is None else trials - search.trials
                if (left is not None and left <= 0) or not search.step(left):
                    break
                progress(search)
        except KeyboardInterrupt:
            pass
        return search.finish(max(0.5, seconds - (time.monotonic() - began)))
