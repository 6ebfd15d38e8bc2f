"""Ledger: what one run of tuning finds, kept in a database for as long as that takes it.

In: trials and champions, a database or none. Out: the same questions answered as by a database.
The one idea: a disk that is full must not end a run whose results are in hand, so the first fault
of the database is a warning, and from then on the run goes on without it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from typing import TypeVar

from tilewright.target.target import Target
from tilewright.tune.database import Database
from tilewright.tune.records import Champion, RecordsFault, Suggestion, Trial
from tilewright.tune.workload import Workload

T = TypeVar("T")


class RecordsWarning(UserWarning):
    """What a run of tuning finds is not recorded any more, and why."""


class Ledger:
    """Champions of one machine and number of threads, and where they are recorded.

    Args:
        database: where trials and champions go, and suggestions come from; None for none.
    """

    def __init__(self, database: Database | None = None) -> None:
        self.database = database
        self.won: dict[str, Champion] = {}  # in this run, by the workloads' keys

    def add(
        self, workload: Workload, machine: Target, threads: int, trials: Iterable[Trial]
    ) -> None:
        """Record trials, if anything still does."""
        self._asked(lambda d: d.add(workload, machine, threads, trials), None)

    def champion(self, workload: Workload, machine: Target, threads: int) -> Champion | None:
        """The champion: of this run, else of this build."""
        won = self.won.get(workload.key)
        return won or self._asked(lambda d: d.champion(workload, machine, threads), None)

    def suggestions(self, workload: Workload, machine: Target, threads: int) -> list[Suggestion]:
        """Points that won elsewhere."""
        return self._asked(lambda d: d.suggestions(workload, machine, threads), [])

    def crown(self, workload: Workload, machine: Target, threads: int, champion: Champion) -> None:
        """Note who won. That nothing beat the default this time takes no crown from a point that
        once did: this was seen beside the default twice, and few seconds show little."""
        known = self.champion(workload, machine, threads)
        if champion.ratio > 1 or known is None or known.ratio <= 1:
            self._crowned(workload, machine, threads, champion)

    def retract(self, workload: Workload, machine: Target, threads: int, default: Champion) -> None:
        """Let the default be the champion, whoever was."""
        self._crowned(workload, machine, threads, default)

    def _crowned(self, workload: Workload, machine: Target, threads: int, who: Champion) -> None:
        if not math.isfinite(who.seconds):  # it never ran, or nobody had time to see it
            return
        self.won[workload.key] = who
        self._asked(lambda d: d.crown(workload, machine, threads, who), None)

    def _asked(self, ask: Callable[[Database], T], otherwise: T) -> T:
        if self.database is None:
            return otherwise
        try:
            return ask(self.database)
        except RecordsFault as fault:
            self.database = None
            told = f"tuning goes on, and records nothing more: {fault}"
            warnings.warn(told, RecordsWarning, stacklevel=4)
            return otherwise
