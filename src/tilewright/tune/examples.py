"""Examples: what the records say of a workload, seen from its default schedule.

In: a database. Out: for each workload, machine and number of threads that was tuned an `Example`,
which knows the function, what today's formulas make of it, and how many times as fast as that other
points were. The one idea: a ratio of two times that one build took beside each other outlives the
build, whatever became of the times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import Func
from tilewright.schedule.trace import Plain
from tilewright.strategy.learned import Row, Table, Words, machine_class, traits
from tilewright.strategy.roles import family
from tilewright.strategy.select import default
from tilewright.strategy.space import decisions
from tilewright.support.errors import TilewrightError
from tilewright.target.target import Target, target
from tilewright.tune.database import Database
from tilewright.tune.records import OK, Crowned, Measured, point_text

FAILED = 0.25  # as fast as the default is what did not run, or was wrong
EMPTY = Table()

Point = Mapping[str, Plain]


class Example:
    """A workload on a machine. func: in canonical names; role, machine_class, traits: by which rows
    ask for it; ratios: by the text of points, how many times as fast as the formulas' own they
    were."""

    def __init__(self, crowned: Crowned, machine: Target) -> None:
        self.key, self.machine, self.threads = crowned.workload, machine, crowned.threads
        self.func: Func = parse_func(crowned.text)
        self.role, self.machine_class = family(self.func), machine_class(machine)
        self.traits = traits(self.func, self.threads)
        self.build, self.words = crowned.build, Words(self.func)
        self.default = decisions(default(self.func, machine, self.threads, learned=EMPTY))
        self.ratios: dict[str, float] = {point_text(self.default): 1.0}
        self.points: dict[str, Point] = {point_text(self.default): self.default}
        self.seen: set[str] = {*self.ratios}  # points that ran in turns with the default
        self._by_row: dict[Any, Point] = {}

    def note(self, point: Point, ratio: float, *, beside: bool = True) -> None:
        """A point was so many times as fast as the default; whether it ran in turns with it."""
        text = point_text(point)
        self.points[text], self.ratios[text] = point, ratio
        self.seen |= {text} if beside else set()

    def is_seen(self, row: Row) -> bool:
        """Is what a row makes of it known from turns with the default?"""
        return point_text(self.followed(row)) in self.seen

    def followed(self, row: Row) -> Point:
        """The point that a row makes of the default."""
        known = tuple(sorted(row.take.items()))
        if known not in self._by_row:
            table = Table([Row(self.role, self.machine_class, {}, row.take)])
            made = default(self.func, self.machine, self.threads, learned=table)
            self._by_row[known] = decisions(made)
        return self._by_row[known]

    def ratio(self, row: Row | None) -> float | None:
        """How many times as fast as by the formulas it is by a row; None where nobody knows."""
        return 1.0 if row is None else self.ratios.get(point_text(self.followed(row)))

    def by(self, table: Table) -> Row | None:
        """The row of a table that fits."""
        return table.fitting(self.func, self.machine, self.threads)

    def differences(self, point: Point) -> dict[str, Plain]:
        """What a point decides otherwise than the default, in the words of rows."""
        if point.get("strategy") != self.default.get("strategy"):
            return {"strategy": point.get("strategy")}
        return {
            self.words(name): value
            for name, value in point.items()
            if self.words(name) and self.default.get(name) != value
        }


def examples(database: Database) -> list[Example]:
    """What a database knows, of each workload the newest build. Those whose functions or machines
    this compiler cannot read any more, and those of open sizes, are left out."""
    found: dict[tuple[str, str, int], Example] = {}
    trials: dict[tuple[str, str, int, str], list[Measured]] = {}
    for t in database.trials(every_build=True):
        trials.setdefault((t.workload, t.machine, t.threads, t.build), []).append(t)
    for c in database.crowned():
        with suppress(TilewrightError, ValueError):
            made = Example(c, target(c.machine))
            tried = trials.get((c.workload, c.machine, c.threads, c.build), [])
            if made.traits is not None and _learn(made, c, tried, database.build.key):
                found[c.workload, c.machine, c.threads] = made
    return [*found.values()]


def _learn(example: Example, crowned: Crowned, tried: list[Measured], build: str) -> bool:
    """Note the ratios of what was tried; False where it is not known what the formulas' own pick
    took then."""
    champion = crowned.champion
    then = champion.seconds * champion.ratio  # that build's default, by its own rows
    times = [(t.point, min(t.samples) if t.status == OK and t.samples else math.inf) for t in tried]
    own = point_text(example.default)
    known = [then / s for point, s in times if point_text(point) == own and s > 0]
    known += [champion.ratio] * (point_text(champion.point) == own)
    now: Point | None = None
    if crowned.build == build:
        now = decisions(default(example.func, example.machine, example.threads))
        known += [1.0] * (point_text(now) == own)
    if not known:
        return False
    before = then / max(known)
    for point, seconds in times:
        ratio = before / seconds if math.isfinite(seconds) else FAILED
        example.note(point, ratio, beside=False)
    # Those two ran in turns: that is better than the times of single trials.
    if now is not None:
        example.note(now, before / then)
    example.note(champion.point, before / champion.seconds)
    example.note(example.default, 1.0)
    return True
