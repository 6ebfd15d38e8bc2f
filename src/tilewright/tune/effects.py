"""Effects: which decisions mattered among the schedules of one function that were timed.

In: seconds and points. Out: for each decision how much of the scatter of the logarithm of time its
values explain, and how much longer the best takes without the best value. The one idea: both are
said of the candidates that a search chose to try, which are not all of them and not a fair sample.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.schedule.trace import Plain
from tilewright.support.record import record

FEWEST = 6  # trials that tell anything


@record
class Effect:
    """A decision. share: of the variance of log time that its values explain, beyond what as many
    groups of anything would, from 0 to 1; best: its value in the fastest schedule; otherwise: how
    many times as long the fastest one with another value takes; trials: that decided it."""

    decision: str
    share: float
    best: Plain
    otherwise: float
    trials: int


def effects(timed: Sequence[tuple[float, Mapping[str, Plain]]]) -> list[Effect]:
    """The decisions that trials took in different ways, those first that explain most. A decision
    is compared among the trials that take it."""
    names = dict.fromkeys(name for _, point in timed for name in point)
    found = [effect for name in names if (effect := _effect(name, timed)) is not None]
    return sorted(found, key=lambda e: (-e.share, -e.otherwise, e.decision))


def _effect(name: str, timed: Sequence[tuple[float, Mapping[str, Plain]]]) -> Effect | None:
    own = [(seconds, point[name]) for seconds, point in timed if name in point and seconds > 0]
    groups: dict[Plain, list[float]] = {}
    for seconds, value in own:
        groups.setdefault(value, []).append(math.log(seconds))
    if len(own) < FEWEST or len(groups) < 2:
        return None
    best = min(groups, key=lambda value: min(groups[value]))
    other = min(min(logs) for value, logs in groups.items() if value != best)
    otherwise = math.exp(other - min(groups[best]))
    return Effect(name, _explained([*groups.values()]), best, otherwise, len(own))


def _explained(groups: Sequence[Sequence[float]]) -> float:
    """Epsilon squared: what groups explain of the variance, less what they would by chance."""
    every: Any = np.concatenate([np.asarray(g) for g in groups])
    inside = sum(float(((np.asarray(g) - np.mean(g)) ** 2).sum()) for g in groups)
    whole = float(((every - every.mean()) ** 2).sum())
    left = len(every) - len(groups)
    if whole <= 0 or left < 1:
        return 0.0
    return max(0.0, 1 - (inside / left) / (whole / (len(every) - 1)))
