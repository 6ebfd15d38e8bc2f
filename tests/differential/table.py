"""The table of draws: each appends one application of an operator to a growing graph.

`@draws("Conv", weight=2)` registers a function of (growth, operator). It may raise Unsound: nothing
fits at this place of this graph; another is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.differential.growth import Growth

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
