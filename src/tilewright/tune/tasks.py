"""Tasks: the functions of a model, tuned in the order of what that is likely to bring.

In: functions, how often a call launches each and what that takes; seconds. Out: a champion of each,
or why there is none. The one idea: the next seconds go where they are expected to shorten a call
most, which is weight times what may still be gained, by a bound and by what the last seconds
brought; whatever was found is decided before the next task has its turn, so that an end at any
moment leaves a result.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from tilewright.ir.stmt import Func
from tilewright.schedule.trace import Plain
from tilewright.strategy.select import default
from tilewright.strategy.space import decisions
from tilewright.support.errors import TilewrightError
from tilewright.support.record import record
from tilewright.target.processors import host_cores
from tilewright.target.target import Target
from tilewright.tune.effects import Effect, effects
from tilewright.tune.farm.bench import FarmBench, profiled
from tilewright.tune.farm.farm import Deserted, Farm
from tilewright.tune.ledger import Ledger
from tilewright.tune.measure import Bench
from tilewright.tune.process import Process
from tilewright.tune.records import Champion
from tilewright.tune.search import BATCH, WORKERS, Search
from tilewright.tune.workload import Workload, workload

START = 0.3  # seconds that a bench takes before its first candidate
SHORTEST, LONGEST = 2.5, 6.0  # seconds of candidates in one turn
DECIDING = 0.25  # part of a turn's seconds that is for finals, where there is somebody for them
HOPED = 0.15  # part of what a bound leaves that a first turn is thought to find
DOUBT = 0.4  # by which factor that shrinks with each turn that found nothing
FLOOR = 0.02  # of the time: what a bound is off by, so that it never forbids a turn
OF_NOTE = 0.01  # part of all seconds from which a task belongs to the first round

Progress = Callable[["Standing"], None]  # told whose candidates were just measured


@record
class Task:
    """A function to tune. name: for people; launches: in a call; seconds: of a launch as it is
    scheduled now, about; bound: seconds below which no schedule gets it, 0 where nobody knows."""

    name: str
    func: Func
    launches: float = 1.0
    seconds: float = 1.0
    bound: float = 0.0


@record
class Found:
    """What became of a task. default, tuned: seconds of a launch, measured beside each other; what
    the task said, where nothing was measured. point: of the champion, None for the default's.
    decided: in words. trials: that were measured. course: of each candidate that was the fastest so
    far, after how many seconds of the campaign it was timed, and its seconds; effects: which
    decisions mattered among the trials."""

    task: Task
    default: float
    tuned: float
    trials: int
    champion: Champion | None
    decided: str
    course: tuple[tuple[float, float], ...] = ()
    effects: tuple[Effect, ...] = ()

    @property
    def is_better(self) -> bool:
        """Whether a schedule beat the default."""
        return self.champion is not None and self.champion.ratio > 1


def merged(tasks: Iterable[Task]) -> list[Task]:
    """The tasks, those of one workload as one: launches add up, and seconds are their mean."""
    found: dict[str, Task] = {}
    for task in tasks:
        key = workload(task.func).key
        known = found.get(key)
        if known is not None:
            launches = known.launches + task.launches
            spent = known.seconds * known.launches + task.seconds * task.launches
            task = replace(known, launches=launches, seconds=spent / max(launches, 1e-9))
        found[key] = task
    return [*found.values()]


class Standing:
    """How far a task is. known: the database had its champion before this run."""

    def __init__(self, task: Task, known: Champion | None = None) -> None:
        self.task, self.known = task, known
        self.workload: Workload = workload(task.func)
        self.best = task.seconds if known is None else task.seconds / max(1.0, known.ratio)
        self.turns = self.fruitless = 0
        self.rate = 0.0  # part of its time that the last turns took off in a second
        self.search: Search | None = None
        self.seen = 0.0  # seconds of the default as benches saw it; 0: none did
        self.decided_at = math.inf  # the best time that finals decided on
        self.is_over = False
        self.why = ""

    @property
    def left(self) -> float:
        """The part of its time that a schedule might still take off."""
        return min(1.0, max(FLOOR, 1 - self.task.bound / self.best)) if self.best > 0 else 0.0

    def expected(self, seconds: float) -> float:
        """Seconds of a call that a turn of so many seconds is expected to save, for each of
        them."""
        hoped = HOPED * self.left / (START + seconds)
        part = hoped if self.turns == 0 else 0.5 * (self.rate + hoped * DOUBT**self.fruitless)
        return self.task.launches * self.best * min(part, self.left / seconds)

    def note(self, before: float, seconds: float) -> None:
        """A turn took so many seconds, and the best was `before` then."""
        gained = max(0.0, 1 - self.best / before) if before > 0 else 0.0
        self.turns += 1
        self.fruitless = 0 if gained > 0.005 else self.fruitless + 1
        self.rate = 0.5 * (self.rate if self.turns > 1 else gained / seconds) + (
            0.5 * gained / seconds
        )


def chosen(standings: Sequence[Standing], seconds: float) -> Standing | None:
    """Whose turn of so many seconds it is: first, each once, those that nothing is known of and
    that take a part of the time worth the name; then whoever is expected to save most."""
    left = [s for s in standings if not s.is_over]
    total = sum(s.task.launches * s.task.seconds for s in standings)
    first = [
        s
        for s in left
        if s.turns == 0 and s.known is None and s.task.launches * s.task.seconds >= OF_NOTE * total
    ]
    return max(first or left, key=lambda s: s.expected(seconds), default=None)


class Campaign:
    """Tunes tasks of one machine and number of threads: `run`, then look at `found`.

    Args:
        tasks: see `merged`.
        machine, threads: for which.
        ledger: where trials and champions go, and what is known comes from.
        seed: of arrays and candidates.
        farm: the devices that measure; None: this machine.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        machine: Target,
        threads: int,
        ledger: Ledger | None = None,
        seed: int = 0,
        farm: Farm | None = None,
    ) -> None:
        self.machine, self.threads, self.seed, self.farm = machine, threads, seed, farm
        self.ledger = ledger or Ledger()
        self.standings = [Standing(t) for t in tasks]
        for s in self.standings:
            s.known = self.ledger.champion(s.workload, machine, threads)
            if s.known is not None:
                s.best /= max(1.0, s.known.ratio)
        self.is_interrupted = False
        self.began = time.monotonic()
        compiling = WORKERS if farm is None else host_cores()
        self._workers = [Process() for _ in range(compiling)]  # of all tasks, one after another

    @property
    def trials(self) -> int:
        """Candidates that were measured."""
        return sum(s.search.trials for s in self.standings if s.search)

    def run(
        self,
        seconds: float,
        trials: int | None = None,
        progress: Progress = lambda standing: None,
    ) -> None:
        """Tune for so many seconds, or so many trials if these are fewer. An interrupt ends it
        after what was just measured met the default; a second one at once. progress: told after
        each batch whose it was. Raises `Deserted` when no device of the farm is left: what was
        found till then is in the ledger."""
        self.began = time.monotonic()
        end = self.began + seconds
        many = self._of_note()  # all of them get a turn, if that can be
        turn = min(LONGEST, max(SHORTEST, seconds / many - START))
        each = math.inf if trials is None else max(BATCH, math.ceil(trials / many))
        try:
            while (left := end - time.monotonic()) > 0 and not self.is_interrupted:
                if trials is not None and self.trials >= trials:
                    break
                standing = chosen(self.standings, turn)
                is_first = not any(s.turns for s in self.standings)
                if standing is None or (left < START + SHORTEST / 2 and not is_first):
                    break
                room = end - time.monotonic() - (START if standing.search is None else 0.0)
                most = each if trials is None else min(each, trials - self.trials)
                self._turn(standing, max(0.0, min(turn, room)), most, progress)
        except KeyboardInterrupt:
            self.is_interrupted = True
        finally:
            self._end_workers()

    def _end_workers(self) -> None:
        for process in self._workers:
            process.end()

    def _of_note(self) -> int:
        """How many tasks belong to the first round; one at least."""
        unknown = [s for s in self.standings if s.known is None]
        total = sum(s.task.launches * s.task.seconds for s in self.standings)
        return max(1, sum(s.task.launches * s.task.seconds >= OF_NOTE * total for s in unknown))

    def _turn(self, standing: Standing, seconds: float, trials: float, progress: Progress) -> None:
        """One task's turn of so many seconds or trials: candidates, then those that seem faster
        beside the default."""
        began, before = time.monotonic(), standing.best
        try:
            search = self._search(standing)
            end = time.monotonic() + seconds
            try:
                self._candidates(standing, search, end - DECIDING * seconds, trials, progress)
            except KeyboardInterrupt:
                self.is_interrupted = True
            left = 0.0 if self.is_interrupted else end - time.monotonic()
            self._decide(standing, search, max(DECIDING * seconds, left))
        except Deserted:
            raise
        except TilewrightError as fault:
            standing.is_over, standing.why = True, str(fault).split("\n")[0]
        standing.note(before, max(1e-3, time.monotonic() - began))

    def _candidates(
        self,
        standing: Standing,
        search: Search,
        end: float,
        trials: float,
        progress: Progress,
    ) -> None:
        """Measure candidates till then, or so many; one batch at least."""
        last = search.trials + trials
        while not standing.is_over and search.trials < last:
            standing.is_over = not search.step(int(min(search.batch, last - search.trials)))
            progress(standing)
            if time.monotonic() >= end:
                break

    def _decide(self, standing: Standing, search: Search, seconds: float) -> None:
        """Let those meet the default that seem faster and have not met it."""
        asked = standing.workload, self.machine, self.threads
        if search.best < min(standing.seen, standing.decided_at):
            standing.decided_at = search.best
            tuned = search.finish(seconds)
            standing.seen = min(standing.seen, tuned.default)
            if not tuned.is_default:
                standing.best = min(standing.best, standing.task.seconds / tuned.champion.ratio)
        elif search.trials or standing.is_over:
            self.ledger.crown(*asked, _default(search.default, standing.seen))

    def _search(self, standing: Standing) -> Search:
        """The task's search, on a bench of its own with the workers of all."""
        if standing.search is None:
            func = standing.task.func
            bench = self._bench(func).__enter__()
            seen = bench.measure([None])[0].best
            standing.seen = min(standing.seen or math.inf, seen)
            own = func, self.machine, self.threads, bench, self.ledger, self.seed
            standing.search = Search(*own)
        return standing.search

    def _bench(self, func: Func) -> Bench:
        """What measures a function."""
        asked = func, self.machine, self.threads
        if self.farm is None:
            return Bench(*asked, workers=self._workers, seed=self.seed)
        return FarmBench(*asked, self.farm, workers=self._workers, seed=self.seed)

    def profile(self) -> None:
        """Have the defaults measured, where nobody knows yet what they take: the tasks' seconds
        then are those. Raises `Deserted`."""
        assert self.farm is not None
        asked = self.machine, self.threads, self.farm, self.seed
        for s, outcome in zip(
            self.standings, profiled([s.task.func for s in self.standings], *asked), strict=True
        ):
            s.seen = outcome.best
            if not outcome.seconds:
                s.is_over, s.why, s.seen = True, outcome.why, 0.0
                continue
            s.task = replace(s.task, seconds=s.seen)
            s.best = s.seen / (1.0 if s.known is None else max(1.0, s.known.ratio))

    def found(self) -> list[Found]:
        """What became of each task, in their order."""
        return [self._found(s) for s in self.standings]

    def _found(self, s: Standing) -> Found:
        champion = self.ledger.champion(s.workload, self.machine, self.threads)
        tried = s.search.trials if s.search else 0
        before = after = min(s.seen or math.inf, s.task.seconds)
        if champion is not None and champion.ratio > 1:
            before, after = champion.seconds * champion.ratio, champion.seconds
            word = "known" if champion == s.known else "beat the default"
            decided = f"{word}: {champion.low:.2f} to {champion.high:.2f} times as fast"
        elif s.why:
            decided = f"given up: {s.why}"
        elif tried:
            decided = "nothing beat the default"
        elif champion is not None:
            decided = "known: nothing beat the default"
        else:
            decided = "not tried: no time was left"
        told = s.task, before, after, tried, champion, decided
        if s.search is None:
            return Found(*told)
        start = s.search.began - self.began
        course = tuple((start + at, seconds) for at, _, seconds in s.search.history)
        return Found(*told, course, tuple(effects(s.search.timed)))

    def retract(self) -> None:
        """Let the default be every task's champion."""
        for s in self.standings:
            known = self.ledger.champion(s.workload, self.machine, self.threads)
            if known is not None and known.ratio > 1:
                point = decisions(default(s.task.func, self.machine, self.threads))
                own = _default(point, known.seconds * known.ratio)
                self.ledger.retract(s.workload, self.machine, self.threads, own)


def _default(point: Mapping[str, Plain], seconds: float) -> Champion:
    """The default as a champion."""
    return Champion(point, seconds, 1.0, 1.0, 1.0, verified=True)
