"""Samples: what times say, of one kernel and of two.

In: seconds. Out: how far they scatter, whether a kernel is worth another sample, and of two kernels
that took turns a `Verdict`. The one idea: noise only adds, and in heavy tails, so one kernel's time
is the least that was seen; that many are compared by it makes the best of them look better than it
is (the winner's curse), so who wins is decided by the ratios of calls side by side, trimmed, and
tested again and again at a level that counts how often.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, median
from typing import Any

import numpy as np

from tilewright.support.record import record

P = 0.01  # the chance of a winner where there is none
EFFECT = 0.01  # less than this is no difference
TRIM = 0.2  # of the log-ratios, at either end
FIRST, GROWTH, LOOKS = 16, 1.5, 12  # rounds before the first test; growth to the next; how many
LEAST_ROUNDS = 8  # that a test takes where time is over before the first one
MOST_ROUNDS = math.ceil(FIRST * GROWTH ** (LOOKS - 1))
# A candidate ends after so many samples where it takes more than so many times the best.
RACE = ((1, 2.0), (3, 1.3), (9, 1.1))
MOST_SAMPLES = 27

Array = np.ndarray[Any, np.dtype[np.float64]]


@record
class Verdict:
    """Of two kernels that took turns. ratio: what b takes of a's time, with its confidence interval
    (NaN where no rounds were run); decided: who is faster, "a", "b", or "" for no difference that
    could be shown; rounds: of two calls each; why: where one could not run, what happened."""

    ratio: float
    low: float
    high: float
    decided: str
    rounds: int = 0
    why: str = ""


def spread(seconds: Sequence[float]) -> float:
    """How far samples scatter, robustly, as a fraction of their median: of normal ones, the
    standard deviation. 0 for less than two."""
    if len(seconds) < 2:
        return 0.0
    middle = median(seconds)
    return 1.4826 * median(abs(s - middle) for s in seconds) / middle if middle > 0 else 0.0


def is_beaten(seconds: Sequence[float], best: float) -> bool:
    """Is a candidate with these samples so far behind the best that it needs no more of them?"""
    least, factor = min(seconds), math.inf
    for count, slower in RACE:
        if len(seconds) >= count:
            factor = slower
    return least > factor * best


def log_ratio(a: Sequence[float], b: Sequence[float]) -> float:
    """How much longer b's calls of one round took than a's: the logarithm."""
    return sum(map(math.log, b)) / len(b) - sum(map(math.log, a)) / len(a)


def trimmed(values: Sequence[float]) -> tuple[float, float, int]:
    """The mean without the ends, its standard error and the degrees of freedom (Yuen's); the error
    grows where values are like those before them, since then there are fewer than it looks."""
    ordered: Array = np.sort(np.asarray(values, np.float64))
    n = ordered.size
    cut = int(TRIM * n)
    low, high = float(ordered[cut]), float(ordered[n - 1 - cut])
    kept = ordered[cut : n - cut]
    # The ends count as what is left of them, in the order in which they came.
    clipped: Array = np.clip(np.asarray(values, np.float64), low, high)
    error = float(clipped.std(ddof=1)) / ((1 - 2 * cut / n) * math.sqrt(n))
    return float(kept.mean()), error * _repetition(clipped), kept.size - 1


def _repetition(values: Array) -> float:
    """By how much the standard error of a mean grows as each value repeats the one before it."""
    away = values - values.mean()
    total = float(away @ away)
    likeness = float(away[1:] @ away[:-1]) / total if total > 0 else 0.0
    # About ±1/√n is chance, and what repeats less than that costs nothing.
    likeness = min(0.9, likeness) if likeness > 1 / math.sqrt(values.size) else 0.0
    return math.sqrt((1 + likeness) / (1 - likeness))


def quantile(p: float, freedom: int) -> float:
    """What a t-distributed value exceeds, in either direction, with chance p (Hill's algorithm 396,
    six digits from 3 degrees of freedom on)."""
    n = float(freedom)
    a = 1 / (n - 0.5)
    b = 48 / (a * a)
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * n
    y = (d * p) ** (2 / n)
    if y > a + 0.05:
        x = NormalDist().inv_cdf(p / 2)
        y = x * x
        if freedom < 5:
            c += 0.3 * (n - 4.5) * (x + 0.6)
        c += (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        y = math.expm1(a * y * y)
    else:
        c = (n + 6) / (n * y) - 0.089 * d - 0.822
        y = ((1 / (c * (n + 2) * 3) + 0.5 / (n + 4)) * y - 1) * (n + 1) / (n + 2) + 1 / y
    return math.sqrt(n * y)


class SequentialTest:
    """Which of two kernels is faster, asked as rounds come in: a winner where its interval has no 1
    in it and the ratio is further from 1 than `EFFECT`; none as soon as the whole interval is
    nearer than that. p: the chance of a winner where there is none, whatever the number of looks.
    """

    def __init__(self, p: float = P) -> None:
        self.p = p
        self.values: list[float] = []
        self.is_over = False
        self._decided = ""
        self._looks = 0
        self._next = FIRST

    @property
    def wanted(self) -> int:
        """Rounds until it looks at them."""
        return max(1, self._next - len(self.values))

    @property
    def is_short(self) -> bool:
        """Whether there are too few rounds to tell anything."""
        return len(self.values) < LEAST_ROUNDS

    def add(self, value: float) -> bool:
        """Take the log-ratio of one more round; says whether it was time for a look."""
        self.values.append(value)
        if len(self.values) < self._next or self.is_over:
            return False
        self._look()
        self._next = math.ceil(self._next * GROWTH)
        return True

    def verdict(self) -> Verdict:
        """What can be said now, after one more look. No more rounds count then."""
        n = len(self.values)
        if not self.is_over and not self.is_short:
            self._look()
        self.is_over = True
        if self.is_short:
            ratio = math.exp(median(self.values)) if n else math.nan
            return Verdict(ratio, 0.0, math.inf, "", n)
        mean, half = self._interval()
        ratio, low, high = (math.exp(x) for x in (mean, mean - half, mean + half))
        return Verdict(ratio, low, high, self._decided, n)

    def _interval(self) -> tuple[float, float]:
        """The log-ratio, and half the width of its confidence interval at each look."""
        mean, error, freedom = trimmed(self.values)
        return mean, quantile(self.p / LOOKS, freedom) * error

    def _look(self) -> None:
        self._looks += 1
        mean, half = self._interval()
        least = math.log1p(EFFECT)
        if abs(mean) > max(half, least):
            self._decided = "a" if mean > 0 else "b"
        self.is_over = bool(self._decided) or abs(mean) + half < least or self._looks == LOOKS
