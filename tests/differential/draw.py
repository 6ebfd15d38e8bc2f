"""Draw a whole graph: operator after operator from the table."""

from __future__ import annotations

import numpy as np

from tests.differential import (
    draw_contrib,
    draw_control,
    draw_elementwise,
    draw_linear,
    draw_reductions,
    draw_shapes,
)
from tests.differential.growth import Grown, Growth
from tests.differential.table import TABLE, extend

VERSIONS = tuple(range(9, 25))
ROOMS = (  # they fill the table
    draw_contrib,
    draw_control,
    draw_elementwise,
    draw_linear,
    draw_reductions,
    draw_shapes,
)


def grow(seed: int, number: int) -> Grown:
    """Graph `number` of a seed: always the same."""
    rng = np.random.default_rng([seed, number])
    version = int(rng.choice(VERSIONS, p=_leaning(len(VERSIONS))))
    symbols = () if rng.random() < 0.7 else ("N", "M")[: int(rng.integers(1, 3))]
    growth = Growth(rng, version, symbols)
    entries = [e for e in TABLE if e.since <= version]
    wanted = int(rng.integers(5, 31))
    extend(growth, entries, wanted, 20 * wanted)
    return growth.finish(f"{seed}/{number}")


def _leaning(count: int) -> np.ndarray:
    """Later versions are likelier."""
    weights = np.linspace(1, 4, count)
    return weights / weights.sum()
