"""Print the polynomials of `codegen/coefficients.py` (needs mpmath; nothing at run time does).

Those of f64 are interpolations of a function at Chebyshev nodes in a stretch, computed with 60
digits. Those of f32 are the polynomials whose weighted error is least, so that no term is spent
where its function's error hardly counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
from numpy.polynomial import Polynomial, chebyshev
from scipy.optimize import linprog
from scipy.special import erf, erfc, log_ndtr

mp.mp.dps = 60


def interpolate(f: Callable[[Any], Any], low: float, high: float, degree: int) -> list[Any]:
    """Coefficients, constant first, of the polynomial through the Chebyshev nodes of [low,
    high].
    """
    low, high, n = mp.mpf(low), mp.mpf(high), degree + 1
    nodes = [
        (low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * n))
        for i in range(n)
    ]
    matrix = mp.matrix(n, n)
    for i, x in enumerate(nodes):
        for j in range(n):
            matrix[i, j] = x**j
    found = mp.lu_solve(matrix, mp.matrix([f(x) for x in nodes]))
    return [found[i] for i in range(n)]


def worst(f: Callable[[Any], Any], c: list[Any], low: float, high: float) -> str:
    """The greatest absolute error over the stretch."""
    points = [low + (high - low) * mp.mpf(i) / 999 for i in range(1000)]
    return mp.nstr(max(abs(mp.polyval(c[::-1], x) - f(x)) for x in points), 3)


def in_square(f: Callable[[Any], Any], at_zero: Any) -> Callable[[Any], Any]:
    """f(x) / x as a function of x² (f odd); `at_zero` is its limit."""
    return lambda t: f(mp.sqrt(t)) / mp.sqrt(t) if t > 0 else mp.mpf(at_zero)


INTERPOLATED: dict[str, tuple[Callable[[Any], Any], float, float, int]] = {
    "ERF_SMALL_WIDE": (lambda t: in_square(mp.erf, 2 / mp.sqrt(mp.pi))(t) - 1, 0, 1, 15),
    # erfc(x) e^(x²) on [1, 6], in u = (x - 3.5) / 2.5
    "ERFCX_WIDE": (lambda u: mp.erfc(3.5 + 2.5 * u) * mp.exp((3.5 + 2.5 * u) ** 2), -1, 1, 26),
    "ATAN": (lambda t: in_square(mp.atan, 1)(t) - 1, 0, 0.1716, 13),
    "SCALED_TAIL": (lambda t: scaled_tail(4 * (1 + t) / (1 - t)), -1, 0.82, 21),
}


def scaled_tail(a: Any) -> Any:
    """The normal distribution's probability above a, times e^(a²/2) (1 + a)."""
    return mp.erfc(a / mp.sqrt(2)) / 2 * mp.exp(a * a / 2) * (1 + a)


Real = Callable[[Any], Any]  # of an array of f64


def least_weighted(
    f: Real, weight: Real, low: float, high: float, degree: int
) -> tuple[list[float], float]:
    """Coefficients of the polynomial whose error times `weight` is least at its greatest, and that
    error (Lawson's iteration: squares are weighted by what was wrong)."""
    points = (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * (np.arange(4000) + 0.5) / 4000)
    wanted, weights = f(points), weight(points)
    basis = chebyshev.chebvander((2 * points - low - high) / (high - low), degree)
    emphasis, error = np.ones_like(points), np.ones_like(points)
    found = np.zeros(degree + 1)
    for _ in range(300):
        rows = np.sqrt(emphasis) * weights
        found, *_ = np.linalg.lstsq(basis * rows[:, None], wanted * rows, rcond=None)
        error = np.abs(basis @ found - wanted) * weights
        emphasis *= error / error.max()
    result = chebyshev.Chebyshev(found, domain=[low, high]).convert(kind=Polynomial)
    return list(result.coef), error.max()


def rest_of(f: Real) -> tuple[Real, Real]:
    """(f(x) / x - 1) / x² as a function of x² (f odd), and its weight beside f."""
    return (
        lambda t: (f(np.sqrt(t)) / np.sqrt(t) - 1) / t,
        lambda t: t * np.sqrt(t) / f(np.sqrt(t)),
    )


# name: function, weight, low, high, degree. Errors of erfc count as they are, of the others beside
# the function's own value
WEIGHTED: dict[str, tuple[Real, Real, float, float, int]] = {
    "ERF_SMALL": (
        lambda t: erf(np.sqrt(t)) / np.sqrt(t) - 1, lambda t: np.sqrt(t) / erf(np.sqrt(t)),
        0, 1, 6,
    ),
    "EXP_REST": (
        lambda r: (np.expm1(r) - r) / r**2, lambda r: r**2 / abs(np.expm1(r)),
        -0.347, 0.347, 4,
    ),
    "LOG_ERFC": (lambda x: np.log(erfc(x)), erfc, 0.95, 4, 6),
    "ATAN_TO_ONE": (*rest_of(np.arctan), 1e-6, 1, 8),
    "ASIN_TO_HALF": (*rest_of(np.arcsin), 1e-6, 0.25, 4),
}  # fmt: skip


def log2_tail(
    degree: int = 14, most: float = 14.3, relative: float = 1.5e-3
) -> tuple[list[float], float]:
    """log2 of the normal distribution's probability above a, for a from 0 to `most` (needs scipy).

    The greatest error of max(1, a) times the probability is as small as can be (a linear program),
    but no error beside the probability itself is more than 1 / `relative` times as large.
    """
    points = (np.cos(np.pi * (np.arange(1500) + 0.5) / 1500) + 1) / 2
    wanted = log_ndtr(-points * most) / np.log(2)
    weight = np.maximum(2.0**wanted * np.maximum(1, points * most), relative) * np.log(2) * 1e6
    rows = chebyshev.chebvander(2 * points - 1, degree) * weight[:, None]
    slack = -np.ones((len(points), 1))
    found = linprog(
        np.r_[np.zeros(degree + 1), 1],
        A_ub=np.vstack([np.hstack([rows, slack]), np.hstack([-rows, slack])]),
        b_ub=np.r_[wanted * weight, -wanted * weight],
        bounds=[(None, None)] * (degree + 1) + [(0, None)],
        method="highs",
    ).x
    result = chebyshev.Chebyshev(found[:-1], domain=[0, most]).convert(kind=Polynomial)
    return list(result.coef), found[-1] / 1e6


if __name__ == "__main__":
    tail, error = log2_tail()
    print(f"LOG2_TAIL = [  # weighted error {error:.2g}")
    print("".join(f"    {x:.9g},\n" for x in tail) + "]")
    for name, (f, weight, low, high, degree) in WEIGHTED.items():
        c, error = least_weighted(f, weight, low, high, degree)
        print(f"{name} = [  # weighted error {error:.2g}")
        print("".join(f"    {x:.17g},\n" for x in c) + "]")
    for name, (f, low, high, degree) in INTERPOLATED.items():
        c = interpolate(f, low, high, degree)
        print(f"{name} = [  # error {worst(f, c, low, high)}")
        print("".join(f"    {mp.nstr(x, 17)},\n" for x in c) + "]")
    bits = int(mp.floor(2 / mp.pi * mp.mpf(2) ** 256)) if mp.mp.dps > 80 else None
    with mp.workdps(120):
        bits = int(mp.floor(2 / mp.pi * mp.mpf(2) ** 256))
    words = [(bits >> (256 - 32 * (k + 1))) & 0xFFFFFFFF for k in range(8)]
    print("TWO_OVER_PI =", [hex(w) for w in words])
