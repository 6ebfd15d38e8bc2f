"""Draw a whole graph: operator after operator from the table."""

from __future__ import annotations

import numpy as np

from tests.differential import draw_elementwise, draw_linear, draw_reductions, draw_shapes
from tests.differential.growth import Grown, Growth
from tests.differential.reference import Unsound
from tests.differential.table import TABLE

VERSIONS = tuple(range(9, 25))
ROOMS = (draw_elementwise, draw_linear, draw_reductions, draw_shapes)  # they fill the table


def grow(seed: int, number: int) -> Grown:
    """Graph `number` of a seed: always the same."""
    rng = np.random.default_rng([seed, number])
    version = int(rng.choice(VERSIONS, p=_leaning(len(VERSIONS))))
    symbols = () if rng.random() < 0.7 else ("N", "M")[: int(rng.integers(1, 3))]
    growth = Growth(rng, version, symbols)
    entries = [e for e in TABLE if e.since <= version]
    weights = np.array([e.weight for e in entries])
    weights /= weights.sum()
    wanted = int(rng.integers(5, 31))
    for _ in range(20 * wanted):
        if len(growth.steps) >= wanted:
            break
        entry = entries[int(rng.choice(len(entries), p=weights))]
        growth.empties = entry.empties
        try:
            entry.draw(growth, entry.op)
        except Unsound:
            read = {v for s in growth.steps for v in (*s.inputs, *s.outputs)}
            growth.values = [v for v in growth.values if v in read]
    return growth.finish(f"{seed}/{number}")


def _leaning(count: int) -> np.ndarray:
    """Later versions are likelier."""
    weights = np.linspace(1, 4, count)
    return weights / weights.sum()
