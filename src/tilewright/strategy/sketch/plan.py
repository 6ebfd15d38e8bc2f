"""Plan: a space of schedules as columns of numbers.

In: parts, each with decisions, which rows of them are legal and what each would take. Out: rows
drawn at random, their neighbours, the best by the model, and rows as points. The one idea: no
schedule is made to find out what one would be; drawing and weighing are arithmetic on columns, a
microsecond or so a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Plain
from tilewright.support.errors import ScheduleError
from tilewright.support.record import record

Columns = Mapping[str, np.ndarray[Any, Any]]
Rows = np.ndarray[Any, np.dtype[np.int64]]  # a schedule each: the number of each decision's value
Flags = np.ndarray[Any, np.dtype[np.bool_]]
Numbers = np.ndarray[Any, np.dtype[np.float64]]
DRAWN, KEPT, ROUNDS = 2048, 6, 12  # for the plan's own pick
FEWEST = 256  # rows that are drawn at once
TRIES = 12  # draws for each row that is wanted, where few are legal


@record
class Decision:
    """What is decided of a block, and what it may be, the least value first."""

    block: str
    what: str
    values: tuple[int, ...]

    @property
    def name(self) -> str:
        """As schedules ask for it."""
        return f"{self.block}.{self.what}"

    def number(self, value: Plain) -> int:
        """Where a value stands among those that it may be; -1 for another one."""
        return next((n for n, v in enumerate(self.values) if v == value), -1)


class Part(Protocol):
    """What a plan says of one block. Columns are by `what` is decided.

    name: of the block; decisions: in the order in which a schedule takes them.
    """

    name: str
    decisions: tuple[Decision, ...]

    def is_legal(self, columns: Columns) -> Flags:
        """Which rows are schedules."""
        ...

    def cycles(self, columns: Columns) -> Numbers:
        """What each row takes, by a model."""
        ...

    def traits(self, columns: Columns) -> Mapping[str, Numbers]:
        """What a model that knows other functions may know of each row, by names."""
        ...

    def mended(self, columns: Columns, random: np.random.Generator) -> Columns:
        """Columns drawn at random, changed so that most rows are schedules."""
        ...

    def prepare(self, schedule: Schedule, at: dict[str, int]) -> None:
        """Do to a schedule what is done before all else, by `what`."""
        ...

    def apply(self, schedule: Schedule, at: dict[str, int], around: Sequence[str]) -> None:
        """Do to a schedule what was decided, by `what`, inside of loops."""
        ...


class Plan:
    """A space of schedules: what is decided of each of its parts. given: what all of them have
    decided in the same way, which is a part of their points. within: a plan whose pick this one's
    follows, with what it does not decide besides."""

    def __init__(
        self,
        parts: Sequence[Part],
        given: Mapping[str, int] | None = None,
        within: Plan | None = None,
    ) -> None:
        self.parts, self.given, self.within = tuple(parts), dict(given or {}), within
        self.decisions = tuple(d for part in parts for d in part.decisions)
        self._values = [np.asarray(d.values) for d in self.decisions]

    def columns(self, rows: Rows) -> list[Columns]:
        """The values that rows stand for, part by part."""
        found: list[Columns] = []
        n = 0
        for part in self.parts:
            own: dict[str, Any] = {}
            for d in part.decisions:
                own[d.what] = self._values[n][rows[:, n]]
                n += 1
            found.append(own)
        return found

    def _rows(self, columns: Sequence[Columns]) -> Rows:
        found = [c[d.what] for p, c in zip(self.parts, columns, strict=True) for d in p.decisions]
        pairs = zip(self._values, found, strict=True)
        return np.stack([np.searchsorted(values, column) for values, column in pairs], 1)

    def is_legal(self, rows: Rows) -> Flags:
        """Which rows are schedules."""
        return self._legal(self.columns(rows))

    def _legal(self, columns: Sequence[Columns]) -> Flags:
        pairs = zip(self.parts, columns, strict=True)
        return np.logical_and.reduce([part.is_legal(own) for part, own in pairs])

    def cycles(self, rows: Rows) -> Numbers:
        """Modelled cycles of each row; infinite for what is no schedule."""
        columns = self.columns(rows)
        total = sum(part.cycles(own) for part, own in zip(self.parts, columns, strict=True))
        return np.where(self._legal(columns), total, np.inf)

    def draw(self, count: int, random: np.random.Generator) -> Rows:
        """At most so many different legal rows, every decision by equal chance."""
        found = np.empty((0, len(self.decisions)), np.int64)
        for _ in range(TRIES):
            size = max(count, FEWEST)
            drawn = np.stack([random.integers(0, len(v), size) for v in self._values], 1)
            rows, before = self.mended(drawn, random), len(found)
            found = np.unique(np.concatenate([found, rows]), axis=0)
            if len(found) >= count or 50 * (len(found) - before) < before:
                break  # or there are hardly more
        return random.permutation(found)[:count]

    def mended(self, rows: Rows, random: np.random.Generator) -> Rows:
        """Legal rows that are little else than those given, which may be none; not always one for
        each of them."""
        pairs = zip(self.parts, self.columns(rows), strict=True)
        columns = [part.mended(own, random) for part, own in pairs]
        return self._rows(columns)[self._legal(columns)]

    def moved(self, rows: Rows, random: np.random.Generator) -> Rows:
        """For each row another legal one that differs in a decision drawn at random, or the same
        where what was drawn is none."""
        changed, every = rows.copy(), np.arange(len(rows))
        several = [n for n, values in enumerate(self._values) if len(values) > 1]
        at = random.choice(several, len(rows))
        sizes = np.asarray([len(values) for values in self._values])[at]
        changed[every, at] = (rows[every, at] + random.integers(1, sizes)) % sizes
        return np.where(self.is_legal(changed)[:, None], changed, rows)

    def traits(self, rows: Rows) -> dict[str, Numbers]:
        """What of each row means the same for all functions, by names: of several parts the mean,
        each weighed with its cycles."""
        columns = self.columns(rows)
        cycles = [part.cycles(own) for part, own in zip(self.parts, columns, strict=True)]
        shares = np.stack(cycles) / np.sum(cycles, 0)
        told = [part.traits(own) for part, own in zip(self.parts, columns, strict=True)]
        return {name: (shares * [one[name] for one in told]).sum(0) for name in told[0]}

    def neighbours(self, row: Rows) -> Rows:
        """The legal rows that differ from one in a single decision."""
        found = [np.tile(row, (len(values), 1)) for values in self._values]
        for n, (rows, values) in enumerate(zip(found, self._values, strict=True)):
            rows[:, n] = np.arange(len(values))
        rows = np.concatenate(found)
        rows = rows[(rows != row).any(1)]
        return rows[self.is_legal(rows)]

    @cached_property
    def has_points(self) -> bool:
        """Whether any schedule that is drawn is one."""
        return bool(len(self.draw(1, np.random.default_rng(0))))

    @cached_property
    def pick(self) -> Rows:
        """The row of least modelled time that a search by the model finds; always the same."""
        if self.within is not None:
            return self._following(self.within.point(self.within.pick))
        rows = self.draw(DRAWN, np.random.default_rng(0))
        if not len(rows):
            names = ", ".join(part.name for part in self.parts)
            raise ScheduleError(f"cannot plan {names}", "no point of the space is legal")
        rows = rows[np.argsort(self.cycles(rows), kind="stable")[:KEPT]]
        return min((self._descended(row) for row in rows), key=lambda found: found[1])[0]

    def _following(self, point: Mapping[str, Plain]) -> Rows:
        """The best row with these decisions."""
        row = np.zeros(len(self.decisions), np.int64)
        free: list[int] = []
        for n, d in enumerate(self.decisions):
            if d.name in point:
                row[n] = d.number(point[d.name])
            else:
                free.append(n)
        for n in free:
            rows = np.tile(row, (len(self._values[n]), 1))
            rows[:, n] = np.arange(len(rows))
            row = rows[int(self.cycles(rows).argmin())]
        return row

    def _descended(self, row: Rows) -> tuple[Rows, float]:
        """From neighbour to better neighbour, while there is one."""
        best = float(self.cycles(row[None])[0])
        for _ in range(ROUNDS):
            around = self.neighbours(row)
            if not len(around):
                break
            cycles = self.cycles(around)
            if cycles.min() >= best:
                break
            row, best = around[int(cycles.argmin())], float(cycles.min())
        return row, best

    def point(self, row: Rows) -> dict[str, int]:
        """A row as decisions by name."""
        pairs = zip(self.decisions, self._values, row, strict=True)
        return {**self.given, **{d.name: int(values[n]) for d, values, n in pairs}}

    def row(self, point: Mapping[str, Plain]) -> Rows:
        """The row that a point of the space is. Raises ScheduleError if it leaves a decision out,
        or says what none may be."""
        for name, value in self.given.items():
            if point.get(name) != value:
                told = f"it says {point.get(name)} where all points of the plan have {value}"
                raise ScheduleError(f"cannot find the point at decision '{name}'", told)
        found: list[int] = []
        for d in self.decisions:
            value = point.get(d.name)
            number = d.number(value)
            if number < 0:
                told = ", ".join(map(str, d.values))
                raise ScheduleError(
                    f"cannot find the point at decision '{d.name}'",
                    f"it says {value}; it may be one of {told}",
                )
            found.append(number)
        return np.asarray(found)

    def decide(self, schedule: Schedule) -> list[dict[str, int]]:
        """Take all decisions: their answers by `what`, part by part. Raises ScheduleError for
        answers that are no schedule together."""
        own = self.point(self.pick)
        made: list[dict[str, int]] = []
        for part in self.parts:
            asked = [(d, own[d.name]) for d in part.decisions]
            at = {d.what: int(schedule.decide(d.name, pick, d.values)) for d, pick in asked}
            if not part.is_legal({what: np.asarray([value]) for what, value in at.items()})[0]:
                raise ScheduleError(
                    f"cannot schedule '{part.name}' by this point",
                    "it is no schedule that makes good code: it needs more registers than there "
                    "are, unrolls what does not divide, or says what another point says",
                )
            made.append(at)
        return made
