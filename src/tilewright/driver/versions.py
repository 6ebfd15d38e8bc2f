"""Versions: the schedules of one kernel, and the point that names them together.

In: a function in stage "blocks", a machine and threads, perhaps a point. Out: the function's
schedule and, where short rows have a version of their own, both as one function; and their point.
The one idea: a kernel's point is its function's, with one more decision, "versions", and behind the
prefix "short_rows." those of the other version.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tilewright.ir.stmt import Func
from tilewright.lower.join_versions import join_versions
from tilewright.schedule.schedule import Chooser, Schedule, replay
from tilewright.schedule.trace import Plain, Trace
from tilewright.strategy.select import FAMILY, ONE_THREAD, default, scheduled, strategies_of
from tilewright.strategy.space import Answers, decisions
from tilewright.support.errors import ScheduleError
from tilewright.support.record import record
from tilewright.target.target import Target

VERSIONS, ONE, SHORT_ROWS = "versions", "one", "short_rows"


@record
class Versions:
    """A kernel's schedule; it and its version for short rows in one function of stage "loops", if
    it has one; its point."""

    schedule: Schedule
    joined: Func | None
    point: dict[str, Plain]

    @property
    def func(self) -> Func:
        """What is lowered."""
        return self.joined or self.schedule.func


def versions(
    func: Func, target: Target, threads: int, point: Mapping[str, Plain] | None = None
) -> Versions:
    """The schedules of a kernel: those that `point` names, or the strategies' own.

    Raises ScheduleError, as `space.point` does, for a point that cannot be followed.
    """
    if point is None:
        return own_versions(func, target, threads)
    answers = Answers(point)
    made = chosen_versions(func, target, threads, answers)
    answers.end()
    return made


def replayed(func: Func, trace: str) -> Versions:
    """The schedule that a trace gives, as JSON: it says its point, too. Raises ScheduleError."""
    schedule = replay(func, Trace.from_json(trace))
    return Versions(schedule, None, decisions(schedule))


def own_versions(func: Func, target: Target, threads: int) -> Versions:
    """What the strategies pick. Each version adds in an order of its own, and the same sizes choose
    the same one for any number of threads: where they cannot divide both into chunks, one thread
    runs them. Of what only moves there is one version then."""
    schedule = default(func, target, threads)
    narrow = strategies_of(target.kind).short_rows(func, target)
    if narrow is None:
        return Versions(schedule, None, decisions(schedule))
    for strategy in (FAMILY, ONE_THREAD)[: 1 + (threads > 1 and not narrow.moves)]:
        with suppress(ScheduleError):
            whole = schedule
            if strategy == ONE_THREAD:
                whole = scheduled(func, target, threads, strategy=strategy)
            return both(narrow, whole, narrow.schedule(threads, strategy=strategy))
    return Versions(schedule, None, {**decisions(schedule), VERSIONS: ONE})


def chosen_versions(func: Func, target: Target, threads: int, choose: Chooser) -> Versions:
    """The versions with all decisions taken by `choose`."""
    schedule = scheduled(func, target, threads, choose)
    narrow = strategies_of(target.kind).short_rows(func, target)
    if narrow is None:
        return Versions(schedule, None, decisions(schedule))
    asked = Schedule(func, choose)
    if asked.decide(VERSIONS, SHORT_ROWS, (SHORT_ROWS, ONE)) == ONE:
        return Versions(schedule, None, {**decisions(schedule), VERSIONS: ONE})

    def prefixed(name: str, pick: Any, values: tuple[Any, ...]) -> Any:
        return choose(f"{SHORT_ROWS}.{name}", pick, values)

    return both(narrow, schedule, narrow.schedule(threads, prefixed))


def both(narrow: Any, whole: Schedule, short: Schedule) -> Versions:
    """Two schedules as one kernel. Raises ScheduleError where their parallel loops differ."""
    joined = join_versions(narrow.cond, short.func, whole.func)
    if joined is None:
        raise ScheduleError(
            f"cannot join the versions of '{whole.func.name}'", "their parallel loops differ"
        )
    of_short = {f"{SHORT_ROWS}.{name}": value for name, value in decisions(short).items()}
    return Versions(whole, joined, {**decisions(whole), VERSIONS: SHORT_ROWS, **of_short})
