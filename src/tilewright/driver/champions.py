"""Champions: the schedules that tuning found, as compiling takes them.

In: a database, the machines and threads that are compiled for. Out: jobs with the points that won,
or that were learnt from what won elsewhere, and a digest of all that may be used, which is a part
of what a compiled model is known by. The one idea: a point that cannot be followed any more costs
its kernel the gain and nothing else.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.driver.kernels import Job
from tilewright.driver.versions import versions
from tilewright.schedule.trace import Plain
from tilewright.strategy.learned import Table, shipped
from tilewright.strategy.rules import Rule, rule_of
from tilewright.strategy.select import default, strategies_of
from tilewright.strategy.space import decisions
from tilewright.support import knobs
from tilewright.support.cache import make_key
from tilewright.support.errors import InputError, ScheduleError, ScheduleWarning
from tilewright.target.target import Target, target
from tilewright.tune.database import Database
from tilewright.tune.learned_log import Log, beside
from tilewright.tune.workload import workload

if TYPE_CHECKING:
    from tilewright.tune.records import Champion

Points = Mapping[str, Mapping[str, Plain]]  # by the keys of workloads, in canonical names
TOLD = 5  # kernels that a warning names


class Champions:
    """Points by the lines of machines; for the others what a table of learned schedules says of
    them. unbeaten: by the lines of machines, the keys of workloads whose default was seen to be the
    best, which no table changes. left_out: by the names of kernels, why a point was not followed.
    """

    def __init__(
        self,
        of: Mapping[str, Points],
        learned: Table | None = None,
        unbeaten: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        self.of, self.unbeaten = of, unbeaten or {}
        self.learned = learned or Table()
        self.left_out: dict[str, str] = {}
        self.used = 0

    @property
    def digest(self) -> str:
        """Changes with what may be used; empty for nothing."""
        told = [
            (line, key, sorted(point.items()), *_told(rule_of(point)))
            for line, points in sorted(self.of.items())
            for key, point in sorted(points.items())
        ]
        if not len(self.learned):
            return make_key(repr(told)) if told else ""
        kept = [(line, sorted(keys)) for line, keys in sorted(self.unbeaten.items())]
        return make_key(repr(told), self.learned.digest, repr(kept))

    def job(self, job: Job) -> Job:
        """The job, by the point that won where there is one."""
        points = self.of.get(job.target)
        if not points:
            return self._learned(job, "")
        known = workload(job.func)
        point = points.get(known.key)
        if point is None:
            return self._learned(job, known.key)
        try:
            own = known.from_canonical(point)
            made = versions(job.func, target(job.target), job.threads, own)
        except ScheduleError as fault:
            self.left_out[job.func.name] = str(fault).split("\n")[0]
            return job
        self.used += 1
        trace = made.schedule.trace.to_json() if rule_of(own) else ""
        return replace(job, point=own, trace=trace)

    def _learned(self, job: Job, key: str) -> Job:
        """The job, as the table has it where that differs from the default."""
        machine = target(job.target)
        given = job.func, machine, job.threads
        if self.learned.fitting(*given) == shipped().fitting(*given):
            return job
        if (key or workload(job.func).key) in self.unbeaten.get(job.target, ()):
            return job
        point = decisions(default(*given, learned=self.learned))
        has_versions = strategies_of(machine.kind).short_rows(job.func, machine) is not None
        if has_versions or point == decisions(default(*given)):
            return job
        self.used += 1
        return replace(job, point=point)

    def tell(self, name: str) -> None:
        """Warn of what was left out of a model."""
        if not self.left_out:
            return
        listed = [f"\n  {kernel}: {why}" for kernel, why in self.left_out.items()]
        more = f"\n  … and {len(listed) - TOLD} more" if len(listed) > TOLD else ""
        told = "".join(listed[:TOLD]) + more
        warnings.warn(
            f"kernels of '{name}' took the default schedule, as the recorded one no longer fits"
            f"{told}\n  tune it again",
            ScheduleWarning,
            stacklevel=5,
        )


def _told(rule: Rule | None) -> list[str]:
    """What a point's rule is known by; what cannot be told is something else each time."""
    return [] if rule is None else [rule.digest or os.urandom(16).hex()]


def recorded(database: Any, machines: Sequence[Target], threads: int) -> Champions:
    """What a database has for these machines and threads, of this build; nothing for None and for
    the user's own one that is not there yet. Raises InputError for another that is not there,
    RecordsFault for one that cannot be read."""
    if database is None or database is False:
        return Champions({})
    if isinstance(database, Database):
        return _champions(database, machines, threads)
    path = database_path(database)
    if not path.exists():
        if database is True:
            return Champions({})
        raise InputError(
            f"cannot use the records of tuning in '{path}'",
            "there is no such file",
            remedy="check the path; tw.tune(model, database=path) makes one",
        )
    with Database(path) as opened:
        return _champions(opened, machines, threads)


def database_path(database: Any) -> Path:
    """The file that `database=` names: a path, or True for the user's own. Raises InputError."""
    if database is True:
        return knobs.database_file()
    if isinstance(database, str | os.PathLike):
        return Path(os.fspath(database))
    raise InputError(
        f"cannot use database={database!r}",
        f"it is a {type(database).__qualname__}",
        remedy="give a path, True for your own records, or None for none",
    )


def _champions(database: Database, machines: Sequence[Target], threads: int) -> Champions:
    points = {str(m): database.champions(m, threads) for m in machines}
    learned = Log(beside(database.path)).table
    if not len(learned):
        return Champions(points)
    unbeaten = {str(m): database.unbeaten(m, threads) for m in machines}
    return Champions(points, learned.over(shipped()), unbeaten)


def won(found: Mapping[str, tuple[Any, Champion]], machine: Target) -> Champions:
    """Champions in hand: workloads and who won, by the workloads' keys."""
    points = {key: w.to_canonical(c.point) for key, (w, c) in found.items() if c.ratio > 1}
    return Champions({str(machine): points})
