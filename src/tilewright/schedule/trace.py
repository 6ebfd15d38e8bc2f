"""Traces: what was done to a function, as plain JSON, and doing it again.

In: the steps of a schedule. Out: the same schedule on the same (or a like) function. The one idea:
names are the handles, so a step is a primitive's name and its arguments; an argument that came from
a *decision* remembers the decision's name, so that a tuner can change the decision and replay.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from tilewright.schedule.index_map import mapping_text
from tilewright.support.errors import ScheduleError
from tilewright.support.record import record

Plain = int | float | str | bool | None


class Decided(int):
    """A whole number that a decision gave. Arithmetic on it gives a plain int."""

    name: str

    def __new__(cls, value: int, name: str) -> Decided:
        made = super().__new__(cls, value)
        made.name = name
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Decided, (int(self), self.name)


class DecidedWord(str):
    """A word that a decision gave."""

    name: str

    def __new__(cls, value: str, name: str) -> DecidedWord:
        made = super().__new__(cls, value)
        made.name = name
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return DecidedWord, (str(self), self.name)


def decided(value: Any, name: str) -> Any:
    """`value` marked as given by decision `name` (numbers and words; others stay plain)."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return Decided(value, name)
    return DecidedWord(value, name) if isinstance(value, str) else value


@record
class Decision:
    """A named choice: the value taken, and the values it may take (empty: any)."""

    value: Plain
    among: tuple[Plain, ...] = ()


@record
class Step:
    """One primitive with its arguments (numbers, words, None, and lists of them)."""

    primitive: str
    args: tuple[Any, ...] = ()
    named: tuple[tuple[str, Any], ...] = ()


@record
class Trace:
    """The steps taken and the decisions they used."""

    steps: tuple[Step, ...] = ()
    decisions: dict[str, Decision] = field(default_factory=dict[str, Decision])

    def then(self, step: Step) -> Trace:
        """This trace and one more step."""
        return Trace((*self.steps, step), self.decisions)

    def decide(self, name: str, decision: Decision) -> Trace:
        """This trace with a decision added."""
        return Trace(self.steps, {**self.decisions, name: decision})

    def mutate(self, name: str, value: Plain) -> Trace:
        """This trace with decision `name` set to `value`, in every step that used it.

        Raises ScheduleError if there is no such decision or the value is not among its values.
        """
        old = self.decisions.get(name)
        if old is None:
            raise ScheduleError(
                f"cannot change decision '{name}'",
                f"the trace has {', '.join(self.decisions) or 'no decisions'}",
            )
        check_among(name, value, old.among)
        changed = decided(value, name)
        steps = tuple(
            Step(s.primitive, _map(s.args, name, changed), _map(s.named, name, changed))
            for s in self.steps
        )
        return Trace(steps, {**self.decisions, name: Decision(value, old.among)})

    def to_json(self) -> str:
        """The trace as JSON text."""
        return json.dumps(
            {
                "steps": [
                    [s.primitive, _plain(s.args), {k: _plain(v) for k, v in s.named}]
                    for s in self.steps
                ],
                "decisions": {
                    n: {"value": d.value, "among": list(d.among)} for n, d in self.decisions.items()
                },
            }
        )

    @staticmethod
    def from_json(text: str) -> Trace:
        """The trace that `to_json` wrote. Raises ScheduleError for text that is not one."""
        try:
            raw = json.loads(text)
            decisions = {
                n: Decision(d["value"], tuple(d["among"])) for n, d in raw["decisions"].items()
            }
            steps = tuple(
                Step(
                    p,
                    _marked(args, decisions),
                    tuple((k, _marked(v, decisions)) for k, v in named.items()),
                )
                for p, args, named in raw["steps"]
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ScheduleError("cannot read a trace", f"the text is no trace ({error})") from error
        return Trace(steps, decisions)


def check_among(name: str, value: Any, among: Sequence[Plain]) -> None:
    """Raise ScheduleError unless `value` is one of the decision's values."""
    if among and value not in among:
        listed = ", ".join(str(v) for v in among)
        raise ScheduleError(
            f"cannot set decision '{name}' to {value}", f"it may be one of {listed}"
        )


def _map(value: Any, name: str, changed: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_map(v, name, changed) for v in value)  # type: ignore[misc]
    return changed if isinstance(value, Decided | DecidedWord) and value.name == name else value


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]  # type: ignore[misc]
    return {"decision": value.name} if isinstance(value, Decided | DecidedWord) else value


def _marked(value: Any, decisions: dict[str, Decision]) -> Any:
    if isinstance(value, list):
        return tuple(_marked(v, decisions) for v in value)  # type: ignore[misc]
    if isinstance(value, dict):
        name = value["decision"]  # type: ignore[index]
        return decided(decisions[name].value, name)  # type: ignore[arg-type]
    return value


_KEPT = frozenset({str, int, DecidedWord, Decided})  # what most arguments are


def frozen(value: Any) -> Any:
    """An argument as a step keeps it: lists become tuples, index maps become text.

    Raises TypeError for what JSON cannot say.
    """
    if value.__class__ in _KEPT:
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
