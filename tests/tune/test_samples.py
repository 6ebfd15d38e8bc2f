"""Statistics of samples, on noise whose truth is known: heavy tails, drifts, sizes of effects."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from scipy import stats

from tilewright.tune.samples import (
    EFFECT,
    LOOKS,
    P,
    SequentialTest,
    Verdict,
    is_beaten,
    log_ratio,
    quantile,
    spread,
    trimmed,
)

BLOCK = 256


def noise(rng: np.random.Generator, kind: str) -> Iterator[float]:
    """Factors by which samples are too long, one after another."""
    at, level = 0, 0.0
    while True:
        if kind == "drifting":
            steps = level + np.cumsum(rng.normal(0, 0.01, BLOCK))
            level = steps[-1]
            yield from np.exp(steps + rng.normal(0, 0.01, BLOCK))
        elif kind == "bursts":  # a neighbour that comes and goes
            period = np.arange(at, at + BLOCK) // 37 % 3 == 0
            yield from 1 + 0.5 * period + np.abs(rng.normal(0, 0.02, BLOCK))
        else:  # heavy tails: one in twenty takes several times as long
            tail = np.where(rng.random(BLOCK) < 0.05, rng.pareto(1.2, BLOCK), 0.0)
            yield from 1 + np.abs(rng.normal(0, 0.03, BLOCK)) + tail
        at += BLOCK


def duel(seed: int, ratio: float, kind: str, most: int = 400) -> Verdict:
    """A duel of kernels that take 1 and `ratio`."""
    rng = np.random.default_rng(seed)
    slower, test = noise(rng, kind), SequentialTest()
    while not test.is_over and len(test.values) < most:
        times: tuple[list[float], list[float]] = [], []
        order = (0, 1, 1, 0) if rng.random() < 0.5 else (1, 0, 0, 1)
        for side in order:
            times[side].append((1.0, ratio)[side] * next(slower))
        test.add(log_ratio(*times))
    return test.verdict()


@pytest.mark.parametrize("kind", ["heavy", "drifting", "bursts"])
def test_there_are_few_winners_where_there_is_no_difference(kind: str) -> None:
    won = [v for seed in range(1000) if (v := duel(seed, 1.0, kind, 150)).decided]
    assert len(won) <= 15, won  # of 1,000 at p = 0.01, and what chance adds


@pytest.mark.parametrize("kind", ["heavy", "drifting", "bursts"])
@pytest.mark.parametrize("ratio, winner", [(1.05, "a"), (0.95, "b")])
def test_five_per_cent_are_found(kind: str, ratio: float, winner: str) -> None:
    verdicts = [duel(seed, ratio, kind) for seed in range(50)]
    assert [v.decided for v in verdicts].count(winner) >= 48
    assert np.median([v.ratio for v in verdicts]) == pytest.approx(ratio, abs=0.01)


def test_a_real_difference_below_the_effect_is_none() -> None:
    test = SequentialTest()
    values = np.random.default_rng(0).normal(math.log(1.004), 0.002, 500)
    for value in values:
        test.add(value)
    verdict = test.verdict()
    assert verdict.decided == ""
    assert 1 < verdict.low < 1.004 < verdict.high < 1 + EFFECT  # it is sure that there is one


def test_it_ends_early_where_both_are_sure_to_be_the_same() -> None:
    test = SequentialTest()
    for value in np.random.default_rng(0).normal(0, 0.002, 500):
        test.add(value)
        if test.is_over:
            break
    assert len(test.values) < 50


def test_no_rounds_and_few_rounds_decide_nothing() -> None:
    nothing = SequentialTest().verdict()
    assert (nothing.decided, nothing.rounds) == ("", 0) and math.isnan(nothing.ratio)
    test = SequentialTest()
    for _ in range(5):
        test.add(math.log(2.0))
    few = test.verdict()
    assert (few.decided, few.rounds) == ("", 5) and few.ratio == pytest.approx(2.0)


def test_what_time_left_is_looked_at_once_more() -> None:
    test = SequentialTest()
    for value in np.random.default_rng(0).normal(math.log(2.0), 0.01, 10):
        assert not test.add(value)
    assert test.verdict().decided == "a"


def test_outliers_move_a_trimmed_mean_little() -> None:
    values = np.random.default_rng(0).normal(0.0, 0.01, 100)
    clean = trimmed(values)
    values[::10] = 5.0
    dirty = trimmed(values)
    assert abs(dirty[0] - clean[0]) < 0.005 and dirty[1] < 2 * clean[1]


def test_values_that_repeat_count_for_less() -> None:
    values = np.random.default_rng(0).normal(0.0, 0.01, 100)
    assert trimmed(np.repeat(values, 4))[1] > 1.5 * trimmed(np.tile(values, 4))[1]


@pytest.mark.parametrize("freedom", [3, 5, 10, 30, 1000])
@pytest.mark.parametrize("p", [0.5, 0.05, P, P / LOOKS])
def test_quantiles_are_those_of_t(freedom: int, p: float) -> None:
    assert quantile(p, freedom) == pytest.approx(stats.t.isf(p / 2, freedom), rel=2e-3)


def test_spread_is_the_standard_deviation_of_normal_samples() -> None:
    samples = list(np.random.default_rng(0).normal(1.0, 0.03, 5000))
    assert spread(samples) == pytest.approx(0.03, rel=0.1)
    assert spread([*samples, *[50.0] * 500]) < 0.05
    assert spread([1.0]) == 0.0


def test_who_is_far_behind_is_beaten_early() -> None:
    assert is_beaten([2.1], 1.0) and not is_beaten([1.9], 1.0)
    assert is_beaten([1.9, 1.4, 1.6], 1.0) and not is_beaten([1.9, 1.2, 1.6], 1.0)
    assert is_beaten([1.2] * 9, 1.0) and not is_beaten([1.2] * 8 + [1.05], 1.0)
    assert not is_beaten([9.0], math.inf)
