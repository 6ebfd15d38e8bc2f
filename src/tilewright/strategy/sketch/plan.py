"""Plan: a space of schedules as columns of numbers.

In: named decisions with their values, which rows of them are legal and what each would take. Out:
rows drawn at random, their neighbours, the best by the model, and rows as points. The one idea: no
schedule is made to find out what one would be; drawing and weighing are arithmetic on columns, a
microsecond or so a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Plain
from tilewright.support.errors import ScheduleError
from tilewright.support.record import record

Columns = Mapping[str, np.ndarray[Any, Any]]
Rows = np.ndarray[Any, np.dtype[np.int64]]  # a schedule each: the number of each decision's value
DRAWN, KEPT, ROUNDS = 2048, 6, 12  # for the plan's own pick
FEWEST = 256  # rows that are drawn at once
TRIES = 12  # draws for each row that is wanted, where few are legal


@record
class Decision:
    """What is decided, and what it may be, the least value first."""

    what: str
    values: tuple[int, ...]


class Plan:
    """A space of schedules of one block.

    Args:
        block: whose decisions they are; its name begins theirs.
        decisions: in the order in which a schedule takes them.
        is_legal: which rows of columns (by `what`) are schedules.
        cycles: what each row takes, by a model.
        mended: columns drawn at random, changed so that most rows are schedules.
    """

    def __init__(
        self,
        block: str,
        decisions: tuple[Decision, ...],
        is_legal: Callable[[Columns], Any],
        cycles: Callable[[Columns], Any],
        mended: Callable[[Columns, np.random.Generator], Columns],
    ) -> None:
        self.block, self.decisions = block, decisions
        self._is_legal, self._cycles, self._mended = is_legal, cycles, mended
        self._values = [np.asarray(d.values) for d in decisions]

    def columns(self, rows: Rows) -> Columns:
        """The values that rows stand for."""
        found = zip(self.decisions, self._values, strict=True)
        return {d.what: values[rows[:, n]] for n, (d, values) in enumerate(found)}

    def _rows(self, columns: Columns) -> Rows:
        pairs = zip(self.decisions, self._values, strict=True)
        return np.stack([np.searchsorted(values, columns[d.what]) for d, values in pairs], 1)

    def is_legal(self, rows: Rows) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which rows are schedules."""
        return self._is_legal(self.columns(rows))

    def cycles(self, rows: Rows) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Modelled cycles of each row; no number for what is no schedule."""
        columns = self.columns(rows)
        return np.where(self._is_legal(columns), self._cycles(columns), np.inf)

    def draw(self, count: int, random: np.random.Generator) -> Rows:
        """At most so many different legal rows, every decision by equal chance."""
        found = np.empty((0, len(self.decisions)), np.int64)
        for _ in range(TRIES):
            drawn = np.stack(
                [random.integers(0, len(v), max(count, FEWEST)) for v in self._values], 1
            )
            columns = self._mended(self.columns(drawn), random)
            rows = self._rows(columns)[self._is_legal(columns)]
            before = len(found)
            found = np.unique(np.concatenate([found, rows]), axis=0)
            if len(found) >= count or 50 * (len(found) - before) < before:
                break  # or there are hardly more
        return random.permutation(found)[:count]

    def neighbours(self, row: Rows) -> Rows:
        """The legal rows that differ from one in a single decision."""
        found = [np.tile(row, (len(values), 1)) for values in self._values]
        for n, (rows, values) in enumerate(zip(found, self._values, strict=True)):
            rows[:, n] = np.arange(len(values))
        rows = np.concatenate(found)
        rows = rows[(rows != row).any(1)]
        return rows[self.is_legal(rows)]

    @cached_property
    def pick(self) -> Rows:
        """The row of least modelled time that a search by the model finds; always the same."""
        rows = self.draw(DRAWN, np.random.default_rng(0))
        if not len(rows):
            raise ScheduleError(f"cannot plan '{self.block}'", "no point of its space is legal")
        rows = rows[np.argsort(self.cycles(rows), kind="stable")[:KEPT]]
        return min((self._descended(row) for row in rows), key=lambda found: found[1])[0]

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
        return {f"{self.block}.{d.what}": int(values[n]) for d, values, n in pairs}

    def row(self, point: Mapping[str, Plain]) -> Rows:
        """The row that a point of the space is. Raises ScheduleError if it leaves a decision out,
        or says what none may be."""
        found: list[int] = []
        for d in self.decisions:
            value = point.get(f"{self.block}.{d.what}")
            if value not in d.values:
                told = ", ".join(map(str, d.values))
                raise ScheduleError(
                    f"cannot find the point at decision '{self.block}.{d.what}'",
                    f"it says {value}; it may be one of {told}",
                )
            found.append(d.values.index(value))  # type: ignore[arg-type]
        return np.asarray(found)

    def decide(self, schedule: Schedule) -> dict[str, int]:
        """Take all decisions: their answers by `what`. Raises ScheduleError for answers that are no
        schedule together."""
        own = self.point(self.pick)
        at = {
            d.what: int(schedule.decide(name, own[name], d.values))
            for d in self.decisions
            for name in [f"{self.block}.{d.what}"]
        }
        columns = {what: np.asarray([value]) for what, value in at.items()}
        if not bool(self._is_legal(columns)[0]):
            raise ScheduleError(
                f"cannot schedule '{self.block}' by this point",
                "it is no schedule that makes good code: it needs more registers than there are, "
                "unrolls what does not divide, or says what another point says",
            )
        return at
