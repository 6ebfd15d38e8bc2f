"""Space: the schedules that a strategy could have made.

In: a function in stage "blocks", a machine, a number of threads. Out: a point of its space. The one
idea: a strategy takes its decisions one after another, each among the values that are legal after
those before it; running it with other answers gives every point of the space, and its own answers
give the default. A point is a trace, which replays.
"""

from __future__ import annotations

from random import Random

from tilewright.ir.stmt import Func
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Plain
from tilewright.strategy.select import scheduled
from tilewright.target.target import Target


def sample(func: Func, target: Target, threads: int, rng: Random) -> Schedule:
    """A random point: every decision takes any of its values with equal chance."""

    def choose(name: str, own: Plain, values: tuple[Plain, ...]) -> Plain:
        return rng.choice(values) if values else own

    return scheduled(func, target, threads, choose)


def point(func: Func, target: Target, threads: int, wanted: dict[str, Plain]) -> Schedule:
    """The point nearest to `wanted`: decisions take what it says where that is legal after those
    before them, else what the strategy picks."""

    def choose(name: str, own: Plain, values: tuple[Plain, ...]) -> Plain:
        value = wanted.get(name, own)
        return value if value in values else own

    return scheduled(func, target, threads, choose)


def decisions(schedule: Schedule) -> dict[str, Plain]:
    """What a schedule decided, by name: its coordinates in the space."""
    return dict(schedule.trace.decisions)
