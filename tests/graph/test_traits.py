"""Traits of operators, beside what their references do on random numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graph.operator import (
    CHEAP,
    FINITE,
    MOVES,
    OPERATORS,
    POOL,
    STRIDED,
    WINDOW,
    Trait,
    having,
)  # fmt: skip


def test_every_trait_has_operators_and_pools_are_windows() -> None:
    assert all(having(trait) <= OPERATORS.keys() for trait in Trait)
    assert having(POOL) < having(WINDOW) and having(STRIDED) < having(MOVES)
    assert "add" in having(CHEAP) and "conv" not in having(CHEAP)


@pytest.mark.parametrize("name", sorted(having(FINITE)))
def test_finite_numbers_stay_finite(name: str) -> None:
    x = np.concatenate([np.zeros(4), np.random.default_rng().uniform(-1e4, 1e4, 500)])
    x = x.astype(np.float32)
    entry = OPERATORS[name]
    attrs = {k: v for k, v in entry.attrs.items() if v is not None}
    with np.errstate(all="ignore"):
        y = entry.reference(*[x] * entry.least_inputs, **{**dict.fromkeys(entry.attrs), **attrs})
    assert np.isfinite(y).all()
