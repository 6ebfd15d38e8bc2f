"""Sources: where candidates come from, each with its own idea of what is worth a measurement.

In: a function, a machine, and what became of earlier candidates. Out: points to try. The one idea:
a source proposes and is told what it took; which one to ask, a `Bandit` learns from who improved on
the best so far.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Protocol

import numpy as np

from tilewright.ir.stmt import Func
from tilewright.schedule.trace import Plain
from tilewright.strategy.select import FAMILY, GENERIC, ONE_THREAD, SKETCH, default, scheduled
from tilewright.strategy.sketch.plan import Plan, Rows
from tilewright.strategy.space import decisions, partial, sample
from tilewright.support.errors import ScheduleError
from tilewright.target.target import Target
from tilewright.tune.explore import Explorer, History

Point = Mapping[str, Plain]
CURIOSITY = 0.5  # how much a source that was asked rarely counts beside one that improved often
MEMORY = 48  # proposals of a source that count
ATTEMPTS = 12  # random points that are drawn for each new one


class Source(Protocol):
    """Proposes points, which may leave decisions to their strategy, and is told the seconds that
    each took (infinite: it did not run), with all that was decided."""

    name: str

    def propose(self, count: int) -> list[Point]:
        """At most so many points that it did not propose before; none where it has no more."""
        ...

    def told(self, points: Sequence[Point], seconds: Sequence[float]) -> None:
        """What became of points, of this source or another one."""
        ...


class Sketched:
    """Points of a plan, by an explorer."""

    def __init__(self, plan: Plan, explorer: Explorer, name: str = SKETCH) -> None:
        self.name = name
        self.plan, self.explorer, self.history = plan, explorer, History(plan)

    def propose(self, count: int) -> list[Point]:
        """See `Source`."""
        return [self._point(row) for row in self.explorer.propose(self.history, count)]

    def told(self, points: Sequence[Point], seconds: Sequence[float]) -> None:
        """See `Source`."""
        pairs = [(self._row(p), s) for p, s in zip(points, seconds, strict=True)]
        known = [(row, s) for row, s in pairs if row is not None]
        if known:
            rows = np.stack([row for row, _ in known])
            self.history.add(rows, [s for _, s in known])

    def _point(self, row: Rows) -> Point:
        return {"strategy": SKETCH, **self.plan.point(row)}

    def _row(self, point: Point) -> Rows | None:
        try:
            return self.plan.row(point)
        except ScheduleError:
            return None  # another space's


class Family:
    """Points of the strategy that was written for such functions: the neighbours of the best, its
    own pick's first, and any others."""

    name = strategy = FAMILY

    def __init__(self, func: Func, machine: Target, threads: int, random: Random) -> None:
        self.func, self.machine, self.threads, self.random = func, machine, threads, random
        self._seen: set[Any] = set()
        self._best: tuple[float, Point] = (math.inf, decisions(default(func, machine, threads)))
        self._around: list[Point] | None = None  # neighbours of the best that are left

    def propose(self, count: int) -> list[Point]:
        """See `Source`."""
        found: list[Point] = []
        for _ in range(ATTEMPTS * count):
            point = self._next()
            if point is not None and _key(point) not in self._seen:
                self._seen.add(_key(point))
                found.append(point)
            if len(found) == count:
                break
        return found

    def told(self, points: Sequence[Point], seconds: Sequence[float]) -> None:
        """See `Source`."""
        for point, took in zip(points, seconds, strict=True):
            self._seen.add(_key(point))
            if took < self._best[0] and self._is_own(point):
                self._best, self._around = (took, point), None

    def _is_own(self, point: Point) -> bool:
        return point.get("strategy", FAMILY) in (FAMILY, ONE_THREAD, GENERIC)

    def _next(self) -> Point | None:
        if self._around is None:
            self._around = self._neighbours(self._best[1])
        try:
            if self._around:
                wanted = self._around.pop()
                return decisions(partial(self.func, self.machine, self.threads, wanted))
            given = self.func, self.machine, self.threads, self.random, self.strategy
            return decisions(sample(*given))
        except ScheduleError:
            return None

    def _neighbours(self, point: Point) -> list[Point]:
        """Points that differ in one decision; what is decided after it is the strategy's own."""
        asked: list[tuple[str, tuple[Any, ...]]] = []

        def choose(name: str, pick: Any, values: tuple[Any, ...]) -> Any:
            asked.append((name, values))
            return point.get(name, pick)

        try:
            scheduled(self.func, self.machine, self.threads, choose)
        except ScheduleError:
            return []
        found: list[Point] = []
        for n, (name, values) in enumerate(asked):
            before = {k: point[k] for k, _ in asked[:n] if k in point}
            if name != "strategy":
                found += [{**before, name: v} for v in values if v != point.get(name)]
        self.random.shuffle(found)
        return found


class Ruled(Family):
    """Points of a user's rule: its own pick, the neighbours of its best, and any others."""

    def __init__(
        self, rule: str, func: Func, machine: Target, threads: int, random: Random
    ) -> None:
        super().__init__(func, machine, threads, random)
        self.name = self.strategy = rule
        self._best, self._around = (math.inf, {"strategy": rule}), [{"strategy": rule}]

    def _is_own(self, point: Point) -> bool:
        return point.get("strategy") == self.strategy


class Suggested:
    """Points that won elsewhere, in their order."""

    name = "suggested"

    def __init__(self, points: Sequence[Point]) -> None:
        self._left = list(points)

    def propose(self, count: int) -> list[Point]:
        """See `Source`."""
        taken, self._left = self._left[:count], self._left[count:]
        return taken

    def told(self, points: Sequence[Point], seconds: Sequence[float]) -> None:
        """It learns nothing."""


class Bandit:
    """Shares trials out among sources: who improved on the best lately, and who was asked least."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = list(sources)
        self._gains: dict[str, list[float]] = {s.name: [] for s in sources}

    def order(self) -> list[Source]:
        """The sources, the one to ask first."""
        total = 1 + sum(map(len, self._gains.values()))

        def worth(source: Source) -> float:
            gains = self._gains[source.name]
            if not gains:
                return math.inf
            return sum(gains) / len(gains) + CURIOSITY * math.sqrt(math.log(total) / len(gains))

        return sorted(self.sources, key=worth, reverse=True)

    def told(self, source: Source, improved: Sequence[bool]) -> None:
        """Which of a source's candidates improved on the best so far."""
        gains = self._gains[source.name]
        gains += [float(i) for i in improved]
        del gains[:-MEMORY]


def _key(point: Point) -> Any:
    return tuple(sorted(point.items()))
