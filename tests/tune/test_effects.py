"""Which decisions mattered among trials."""

from __future__ import annotations

import math
from itertools import product as pairs
from random import Random

import pytest

from tilewright.tune.effects import effects


def timed(seconds):
    """Trials of all values of three decisions."""
    return [(seconds(a, b), {"a": a, "b": b, "c": "always"}) for a, b in pairs(range(4), range(5))]


def test_what_explains_the_times_comes_first():
    random = Random(0)
    noise = {pair: random.uniform(0.99, 1.01) for pair in pairs(range(4), range(5))}
    first, second = effects(timed(lambda a, b: (1 + a) * (1.05 if b else 1.0) * noise[a, b]))
    assert (first.decision, first.best, first.trials) == ("a", 0, 20)
    assert first.share > 0.95 and first.otherwise == pytest.approx(2.0, rel=0.05)
    assert second.share < 0.05 and second.best == 0 and 1.0 < second.otherwise < 1.1


def test_chance_explains_nothing():
    random = Random(1)
    found = effects([(random.uniform(1, 2), {"a": n % 6, "b": n % 7}) for n in range(600)])
    assert max(e.share for e in found) < 0.03


def test_decisions_that_only_some_take():
    trials = timed(lambda a, b: 1.0 + a) + [(0.5, {"d": n % 2}) for n in range(3)]
    assert [e.decision for e in effects(trials)] == ["a", "b"]  # three say nothing of d
    same = effects(timed(lambda a, b: 1.0))
    assert [e.share for e in same] == [0.0, 0.0] and same[0].otherwise == 1.0
    each = effects([(1.0 + n, {"a": n}) for n in range(8)])  # no two of a value
    assert each[0].share == 0.0 and math.isclose(each[0].otherwise, 2.0)
    assert effects([]) == []
