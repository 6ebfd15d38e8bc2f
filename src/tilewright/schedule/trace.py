"""Traces: what was done to a function, as plain JSON, and doing it again.

In: the steps of a schedule. Out: the same schedule on the same (or a like) function. The one idea:
names are the handles, so a step is a primitive's name and its arguments. A trace says what was
done, decisions included; what else could have been done the code knows that decided
(strategy/space.py makes other points).
"""

from __future__ import annotations

import json
from dataclasses import field
from typing import Any

from tilewright.schedule.index_map import mapping_text
from tilewright.support.errors import ScheduleError
from tilewright.support.record import record

Plain = int | float | str | bool | None


@record
class Step:
    """One primitive with its arguments (numbers, words, None, and lists of them)."""

    primitive: str
    args: tuple[Any, ...] = ()
    named: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        given = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.named)]
        return f"{self.primitive}({', '.join(given)})"


@record
class Trace:
    """The steps taken, and by name the decisions between them: the schedule's point."""

    steps: tuple[Step, ...] = ()
    decisions: dict[str, Plain] = field(default_factory=dict[str, Plain])

    def then(self, step: Step) -> Trace:
        """This trace and one more step."""
        return Trace((*self.steps, step), self.decisions)

    def decide(self, name: str, value: Plain) -> Trace:
        """This trace with a decision added."""
        return Trace(self.steps, {**self.decisions, name: value})

    def to_json(self) -> str:
        """The trace as JSON text."""
        steps = [[s.primitive, s.args, dict(s.named)] for s in self.steps]
        return json.dumps({"steps": steps, "decisions": self.decisions})

    @staticmethod
    def from_json(text: str) -> Trace:
        """The trace that `to_json` wrote. Raises ScheduleError for text that is not one."""
        try:
            raw = json.loads(text)
            steps = tuple(
                Step(p, _tuples(args), tuple((k, _tuples(v)) for k, v in named.items()))
                for p, args, named in raw["steps"]
            )
            decisions = dict(raw["decisions"].items())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ScheduleError("cannot read a trace", f"the text is no trace ({error})") from error
        return Trace(steps, decisions)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value  # type: ignore[misc]


def frozen(value: Any) -> Any:
    """An argument as a step keeps it: lists become tuples, index maps become text.

    Raises TypeError for what JSON cannot say.
    """
    if value.__class__ is str or value.__class__ is int:  # what most arguments are
        return value
    if isinstance(value, tuple | list):
        return tuple([frozen(v) for v in value])  # type: ignore[misc]
    if value is None or isinstance(value, int | float | str):
        return value
    if callable(value):
        return mapping_text(value)
    raise TypeError(
        f"a schedule's arguments are numbers, words and lists of them, not {type(value).__name__}"
    )
