"""Space: the schedules that a strategy could have made, each named by its point.

In: a function in stage "blocks", a machine, a number of threads. Out: a point of its space. The one
idea: a strategy takes its decisions one after another, each among the values that are legal after
those before it; running it with other answers gives every point of the space, and its own answers
give the default. A point is what was answered, by the decisions' names: plain data, which names the
same schedule wherever function, machine (its line) and threads are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilewright.ir.stmt import Func
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Plain
from tilewright.strategy.select import FAMILY, scheduled
from tilewright.support.errors import ScheduleError
from tilewright.target.target import Target

if TYPE_CHECKING:
    from random import Random


class Answers:
    """Takes decisions as a point says. With `partial`, what it leaves out is the asker's pick.

    Raises ScheduleError for a decision that the point leaves out; `Schedule.decide` does for a
    value that is not legal, and `end` for names that nobody asked for.
    """

    def __init__(self, point: Mapping[str, Plain], *, partial: bool = False) -> None:
        self.point, self.partial = point, partial
        self.asked: list[str] = []

    def __call__(self, name: str, pick: Any, values: tuple[Any, ...]) -> Any:
        """The answer to one decision."""
        self.asked.append(name)
        if name not in self.point and not self.partial:
            raise ScheduleError(
                f"cannot follow the point at decision '{name}'",
                f"the point leaves it out; it may be one of {', '.join(map(str, values))}",
                remedy="a point with some decisions left to the strategy is for `space.partial`",
            )
        return self.point.get(name, pick)

    def end(self) -> None:
        """All is decided. Raises ScheduleError if the point says more than was asked for."""
        if unknown := [n for n in self.point if n not in self.asked]:
            raise ScheduleError(
                f"cannot follow the point at {', '.join(map(repr, unknown))}",
                f"there is no such decision here; there are {', '.join(self.asked) or 'none'}",
            )


def point(func: Func, target: Target, threads: int, wanted: Mapping[str, Plain]) -> Schedule:
    """The schedule that a point names. Raises ScheduleError that says what cannot be followed: a
    decision that the point leaves out, a value that is not legal, a name that nobody asks for, a
    step that a primitive refuses."""
    return _answered(func, target, threads, Answers(wanted))


def partial(func: Func, target: Target, threads: int, wanted: Mapping[str, Plain]) -> Schedule:
    """The schedule with decisions as `wanted`, and the strategy's pick where it says nothing.
    Raises ScheduleError as `point` does."""
    return _answered(func, target, threads, Answers(wanted, partial=True))


def _answered(func: Func, target: Target, threads: int, answers: Answers) -> Schedule:
    made = scheduled(func, target, threads, answers)
    answers.end()
    return made


def sample(
    func: Func, target: Target, threads: int, rng: Random, strategy: str = FAMILY
) -> Schedule:
    """A random point of one strategy: every decision takes any of its values with equal chance.
    Raises ScheduleError where a primitive refuses a step."""

    def choose(name: str, pick: Any, values: tuple[Any, ...]) -> Any:
        return pick if name == "strategy" else rng.choice(values)

    return scheduled(func, target, threads, choose, strategy)


def decisions(schedule: Schedule) -> dict[str, Plain]:
    """The point of a schedule: what was decided, by name."""
    return dict(schedule.trace.decisions)
