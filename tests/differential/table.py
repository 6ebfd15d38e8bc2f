"""The table of draws: each appends one application of an operator to a growing graph.

`@draws("Conv", weight=2)` registers a function of (growth, operator). It may raise Unsound: nothing
fits at this position of this graph; another is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tests.differential.growth import Growth
from tests.differential.reference import Unsound

Draw = Callable[[Growth, str], Any]


class Entry(NamedTuple):
    op: str
    draw: Draw
    weight: float
    since: int
    empties: bool


TABLE: list[Entry] = []


def draws(
    *ops: str, weight: float = 1.0, since: int = 1, empties: bool = False
) -> Callable[[Draw], Draw]:
    """Register a draw for these operators; `weight` is shared among them. `empties`: they may meet
    tensors without elements; what the specification leaves open there is not drawn."""

    def register(draw: Draw) -> Draw:
        TABLE.extend(Entry(op, draw, weight / len(ops), since, empties) for op in ops)
        return draw

    return register


def extend(g: Growth, entries: Sequence[Entry], wanted: int, tries: int) -> None:
    """Append drawn operators until there are `wanted` steps, or nothing has fitted too often."""
    weights = np.array([e.weight for e in entries])
    weights /= weights.sum()
    for _ in range(tries):
        if len(g.steps) >= wanted:
            return
        entry = entries[int(g.rng.choice(len(entries), p=weights))]
        held, count = list(g.values), len(g.steps)
        g.empties = entry.empties
        try:
            entry.draw(g, entry.op)
        except Unsound:
            made = {v for s in g.steps[count:] for v in (*s.inputs, *s.outputs)}
            g.values = [v for v in g.values if v in made or v in held]
