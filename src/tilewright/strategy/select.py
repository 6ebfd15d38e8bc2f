"""Select: which strategy schedules a function.

In: a function in stage "blocks" and a machine. Out: its default schedule. A function has at most
one anchor, the block whose operator's definition gave it a role; the family of that role schedules
the whole, each kind of machine with families of its own. One with two products is an attention;
others are reductions or pointwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from tilewright.ir.expr import as_int
from tilewright.ir.stmt import Func
from tilewright.ir.walk import blocks
from tilewright.schedule.schedule import Chooser, Schedule
from tilewright.schedule.trace import Plain
from tilewright.strategy.absorb import absorb
from tilewright.strategy.chains import shorten_chains
from tilewright.strategy.learned import Table, answers, shipped
from tilewright.strategy.roles import family, scores
from tilewright.strategy.rules import rules_for
from tilewright.support.errors import ScheduleError
from tilewright.support.record import record
from tilewright.target.target import KINDS, Target, named

FAMILY, ONE_THREAD, GENERIC = "family", "one_thread", "generic"  # values of decision "strategy"
SKETCH = "sketch"  # another one: by what the blocks are, whatever they compute
LOOPS = "loops"  # the value of an "algorithm" that is none

Family = Callable[[Schedule, Target, int], None]


@record
class Strategies:
    """How a kind of machine schedules functions. families: by role; generic: what any function can
    have, which decides for each block by what "algorithm", LOOPS if by none (None: nothing);
    short_rows: a version that is better where rows turn out to be short, or None; sketch: where
    the strategy is that schedules by the blocks alone, as `named` takes it, "" for none: few
    compilations need it."""

    families: Mapping[str, Family]
    generic: Family | None = None
    short_rows: Callable[[Func, Target], Any] = lambda func, target: None
    sketch: str = ""


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


def default(
    func: Func,
    target: Target,
    threads: int = 1,
    *,
    strict: bool = False,
    learned: Table | None = None,
) -> Schedule:
    """The default schedule of `func` on `target`, for `threads` threads: by the strategies'
    formulas, but for what a row of `learned` (None: this package's table) says of such functions.

    Where a primitive refuses what a strategy wants, the function runs on one thread; where that is
    refused too, it takes the generic schedule. Its decision "strategy" says which; `fallback` says
    why. `strict` raises the ScheduleError instead; so does a machine without a strategy for it.
    """
    row = (shipped() if learned is None else learned).fitting(func, target, threads)
    if row is not None:
        with suppress(ScheduleError):  # what won elsewhere need not be legal here
            return scheduled(func, target, threads, answers(row, func))
    try:
        return scheduled(func, target, threads)
    except NoStrategy:
        raise
    except ScheduleError:
        if strict or strategies_of(target.kind).generic is None:
            raise
    if threads > 1:
        with suppress(ScheduleError):  # then it was not for the threads
            return scheduled(func, target, threads, strategy=ONE_THREAD)
    return scheduled(func, target, threads, strategy=GENERIC)


def scheduled(
    func: Func,
    target: Target,
    threads: int,
    choose: Chooser | None = None,
    strategy: str = FAMILY,
) -> Schedule:
    """`func` as a strategy schedules it; what is empty stays as it was written.

    Decision "strategy", of which `strategy` is the pick: the family of its anchor ("family"), the
    same as if for one thread ("one_thread"), the schedule that every function has ("generic"), one
    made of its blocks alone ("sketch"), or that of a user's rule, by its name. `choose` takes the
    decisions instead of the strategies.
    """
    schedule = Schedule(func, choose)
    if any(as_int(axis.extent) == 0 for b in blocks(func.body) for axis in b.axes):
        return schedule
    of = strategies_of(target.kind)
    ways = [FAMILY, *[ONE_THREAD] * (threads > 1), *[GENERIC] * (of.generic is not None)]
    ways += [SKETCH] * bool(of.sketch)
    rules = {rule.name: rule for rule in rules_for(func)}
    way = schedule.decide("strategy", strategy, (*ways, *rules))
    if way in rules:
        rules[way].follow(schedule, target, threads)
        return schedule
    if way == GENERIC and of.generic is not None:
        of.generic(schedule, target, threads)
    elif way == SKETCH:
        named(of.sketch)(schedule, target, threads)
    else:
        absorb(schedule, keep=scores(schedule.func))
        _family(schedule.func, target)(schedule, target, threads if way == FAMILY else 1)
    shorten_chains(schedule)
    return schedule


def fallback(func: Func, target: Target, threads: int, point: Mapping[str, Plain]) -> str:
    """If a point of `func` has another strategy than its family's, which was refused a step: which,
    and why; else ""."""
    way = point.get("strategy", FAMILY)
    if way not in (ONE_THREAD, GENERIC):
        return ""
    loops = [n.removesuffix(".algorithm") for n, v in point.items() if v == LOOPS]
    told = "one thread" if way == ONE_THREAD else "the generic schedule"
    told += f" (plain loops: {', '.join(loops)})" if loops else ""
    try:
        scheduled(func, target, threads)
    except ScheduleError as fault:
        return f"{told}, {fault.what}: {fault.why}"
    return ""
