"""Select: which strategy schedules a function.

In: a function in stage "blocks" and a machine. Out: its default schedule. A function has at most
one anchor, the block whose operator's definition gave it a role; the family of that role schedules
the whole, each kind of machine with families of its own. One with two products is an attention;
others are reductions or pointwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.ir.expr import as_int
from tilewright.ir.stmt import Func, annotated
from tilewright.ir.walk import blocks
from tilewright.schedule.schedule import Chooser, Schedule
from tilewright.strategy.absorb import absorb
from tilewright.strategy.chains import shorten_chains
from tilewright.strategy.roles import family, scores
from tilewright.support.errors import ScheduleError
from tilewright.support.record import record
from tilewright.target.target import KINDS, Target, named

Family = Callable[[Schedule, Target, int], None]


@record
class Strategies:
    """How a kind of machine schedules functions. families: by role; generic: what any function can
    have, which gives the names of the blocks that it left alone (None: nothing); short_rows: a
    version that is better where rows turn out to be short, or None."""

    families: Mapping[str, Family]
    generic: Callable[[Schedule, Target, int], list[str]] | None = None
    short_rows: Callable[[Func, Target], Any] = lambda func, target: None


NONE = Strategies({})


def strategies_of(kind: str) -> Strategies:
    """The strategies for machines of a kind."""
    text = KINDS[kind].strategies
    return named(text) if text else NONE


class NoStrategy(ScheduleError):
    """A kind of machine has no strategy for functions of a role."""


def _family(func: Func, target: Target) -> Family:
    """What schedules the function. Raises NoStrategy where the machine's kind has nothing."""
    role, families = family(func), strategies_of(target.kind).families
    if role not in families:
        raise NoStrategy(
            f"cannot schedule '{func.name}' for '{target.kind}'",
            f"there is no strategy for the role '{role}' on such machines",
            remedy="schedule it yourself, with the primitives of tw.Schedule",
        )
    return families[role]


def default(func: Func, target: Target, threads: int = 1, *, strict: bool = False) -> Schedule:
    """The default schedule of `func` on `target`, for `threads` threads.

    Where a primitive refuses what a strategy wants, the function runs on one thread; where that is
    refused too, it takes the generic schedule. Its annotation "fallback" says which, and why.
    `strict` raises the ScheduleError instead; so does a machine without a strategy for it.
    """
    generic = strategies_of(target.kind).generic
    try:
        return scheduled(func, target, threads)
    except NoStrategy:
        raise
    except ScheduleError as fault:
        if strict or generic is None:
            raise
        why = f"{fault.what}: {fault.why}"
    if threads > 1:
        try:
            return scheduled(_falling_back(func, f"one thread, {why}"), target, 1)
        except ScheduleError:
            pass  # then it was not for the threads
    schedule = Schedule(func)
    left = generic(schedule, target, threads)
    text = "the generic schedule" + (f" (plain loops: {', '.join(left)})" if left else "")
    schedule.func = _falling_back(schedule.func, f"{text}, {why}")
    shorten_chains(schedule)
    return schedule


def _falling_back(func: Func, why: str) -> Func:
    return func.replace(annotations=annotated(func.annotations, "fallback", why))


def scheduled(func: Func, target: Target, threads: int, choose: Chooser | None = None) -> Schedule:
    """`func` scheduled by the family of its anchor; what is empty stays as it was written.

    `choose` takes the decisions in the strategies' place.
    """
    schedule = Schedule(func, choose=choose)
    if any(as_int(axis.extent) == 0 for b in blocks(func.body) for axis in b.axes):
        return schedule
    absorb(schedule, keep=scores(schedule.func))
    _family(schedule.func, target)(schedule, target, threads)
    shorten_chains(schedule)
    return schedule
