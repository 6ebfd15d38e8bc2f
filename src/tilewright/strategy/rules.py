"""Rules of users: schedules that somebody adds to the space of a function.

In: a function that schedules, as strategies do, and perhaps one that says of which functions it is.
Out: one more value of decision "strategy", which tuning tries like all others. The one idea: what a
rule asks by `Schedule.decide` are coordinates of its points, so it needs no space of its own; the
compiler's own pick never is a rule's, unless tuning showed it to be faster.

A rule lives in the process that registers it. Others are sent the steps that it took.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import overload

from tilewright.ir.stmt import Func
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Plain
from tilewright.support.errors import InputError, RuleWarning, ScheduleError
from tilewright.support.loaded_code import code_digest
from tilewright.support.record import record
from tilewright.target.target import Target

Apply = Callable[[Schedule, Target, int], None]
When = Callable[[Func], bool]
OWN = frozenset({"family", "one_thread", "generic", "sketch"})  # the compiler's own strategies


@record
class Rule:
    """A registered rule. name: the value of decision "strategy" that stands for it."""

    name: str
    apply: Apply
    when: When

    def is_for(self, func: Func) -> bool:
        """Does the rule say that it schedules such functions? Not if it raises, which is told."""
        try:
            return bool(self.when(func))
        except Exception as fault:  # whatever code of users raises
            _tell(self.name, f"asked whether it is for '{func.name}'", fault)
            return False

    def follow(self, schedule: Schedule, target: Target, threads: int) -> None:
        """Schedule by it. Raises ScheduleError, for whatever it raises; what is no refusal of a
        primitive is told, too."""
        try:
            self.apply(schedule, target, threads)
        except ScheduleError:
            raise
        except Exception as fault:  # whatever code of users raises
            _tell(self.name, f"applied to '{schedule.func.name}'", fault)
            told = f"it raised {type(fault).__name__}: {fault}"
            raise ScheduleError(f"cannot follow the rule '{self.name}'", told) from fault

    @property
    def digest(self) -> str | None:
        """Changes with what it does; None where that cannot be told."""
        return code_digest([self.apply, self.when])


_RULES: dict[str, Rule] = {}


def _always(func: Func) -> bool:
    return True


def _tell(name: str, asked: str, fault: Exception) -> None:
    told = f"the rule '{name}' is left out: {asked}, it raised {type(fault).__name__}: {fault}"
    warnings.warn(told, RuleWarning, stacklevel=4)


@overload
def rule(apply: Apply) -> Apply: ...
@overload
def rule(*, when: When = ..., name: str = ...) -> Callable[[Apply], Apply]: ...


def rule(
    apply: Apply | None = None, *, when: When = _always, name: str = ""
) -> Apply | Callable[[Apply], Apply]:
    """Register a way to schedule functions, which tuning tries from now on in this process.

    Args:
        apply: called with a schedule, the machine and the number of threads; it takes its decisions
            by `schedule.decide(name, pick, values)`, named `<block>.<what>`, and primitives. A
            ScheduleError refuses a point; what else it raises is a `RuleWarning`.
        when: says of a function whether the rule is for it.
        name: what its points are known by in records; that of `apply` if it has none. A rule of the
            same name is replaced.

    Returns:
        `apply`, so that it may be used as a decorator, with arguments or without.

    Raises:
        InputError: the name is one of the compiler's own strategies, or none.
    """

    def register(apply: Apply) -> Apply:
        own = name or getattr(apply, "__name__", "")
        if own in OWN or not own.isidentifier():
            raise InputError(
                f"cannot register the rule '{own}'",
                "the compiler's own strategies have that name" if own in OWN else "it is no name",
                remedy="give it another one, as in rule(name='rows_first')",
            )
        _RULES[own] = Rule(own, apply, when)
        return apply

    return register if apply is None else register(apply)


def unregister(name: str) -> None:
    """Take a rule away; nothing where there is none."""
    _RULES.pop(name, None)


def rules_for(func: Func) -> list[Rule]:
    """The rules of this process that are for a function, in the order of their registration."""
    return [r for r in _RULES.values() if r.is_for(func)]


def rule_of(point: Mapping[str, Plain]) -> Rule | None:
    """The rule of this process that a point is of."""
    return _RULES.get(str(point.get("strategy")))
