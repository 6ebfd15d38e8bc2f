"""Functions of numbers that take as many steps as an operand says: recurrences and series.

Each is a program over vectors. Sources: Abramowitz & Stegun, chapters 6 and 22; Press et al.,
Numerical Recipes, for the continued fraction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.graph.operator import OPAQUE, Type, need, operator
from tilewright.te.program import program

# kind → the polynomial of degree 1, and p(k + 1) from x, q = p(k) and p = p(k - 1): as text, and
# for arrays
POLYNOMIALS: dict[str, tuple[str, str, Callable[..., Any], Callable[..., Any]]] = {
    "hermite": (
        "T(2) * x",
        "T(2) * x * q - T(2) * T(k) * p",
        lambda x: 2 * x,
        lambda x, k, q, p: 2 * x * q - 2 * k * p,
    ),
    "hermite_e": ("x", "x * q - T(k) * p", lambda x: x, lambda x, k, q, p: x * q - k * p),
    "laguerre": (
        "T(1) - x",
        "((T(2) * T(k) + T(1) - x) * q - T(k) * p) / T(k + 1)",
        lambda x: 1 - x,
        lambda x, k, q, p: ((2 * k + 1 - x) * q - k * p) / (k + 1),
    ),
    "legendre": (
        "x",
        "((T(2) * T(k) + T(1)) * x * q - T(k) * p) / T(k + 1)",
        lambda x: x,
        lambda x, k, q, p: ((2 * k + 1) * x * q - k * p) / (k + 1),
    ),
}


def _vectors(x: Any, *others: Any) -> None:
    need(len(x.shape) == 1 and x.dtype.name in ("f32", "f64"), "needs a vector of f32 or f64")
    for other in others:
        need(other.shape == x.shape, "vectors must be of one length")


def _polynomial_type(x: Any, degree: Any, *, kind: str) -> Type:
    _vectors(x, degree)
    need(degree.dtype.name == "i64", f"degrees are i64, not {degree.dtype}")
    need(kind in POLYNOMIALS, f"'{kind}' is none of {', '.join(POLYNOMIALS)}")
    return x.dtype, x.shape


def _polynomial(x: np.ndarray, degree: np.ndarray, kind: str) -> np.ndarray:
    _, _, first, further = POLYNOMIALS[kind]
    with np.errstate(all="ignore"):
        p, q = np.ones_like(x), first(x)
        y = np.where(degree < 0, 0, np.where(degree == 0, p, q)).astype(x.dtype)
        for k in range(1, int(degree.max(initial=0))):
            p, q = q, further(x, k, q, p).astype(x.dtype)
            y = np.where(degree == k + 1, q, y)
    return y


_POLYNOMIAL = """
def polynomial(a: T[c], degree: i64[c], y: T[c], c: i64):
    for i in serial(0, c):
        x: T = a[i]
        now = alloc(T[2], "local")
        now[0] = T(1)
        now[1] = FIRST
        for k in serial(1, degree[i]):
            p: T = now[0]
            q: T = now[1]
            now[0] = q
            now[1] = FURTHER
        y[i] = select(degree[i] < 0, T(0), select(degree[i] == 0, T(1), now[1]))
"""


@operator(fusion=OPAQUE, infer=_polynomial_type, reference=_polynomial)
def polynomial(x: Any, degree: Any, *, kind: str) -> Any:
    """The orthogonal polynomial of each degree at each x; 0 for a negative degree."""
    first, further = POLYNOMIALS[kind][:2]
    text = _POLYNOMIAL.replace("FIRST", first).replace("FURTHER", further)
    return program(text, [x, degree], x.dtype)


STEPS = 2000  # of a series or fraction; it ends where a step changes nothing


def _gamma_type(a: Any, x: Any, front: Any, *, upper: bool = False) -> Type:
    _vectors(a, x, front)
    need(a.dtype.name == "f64", "is computed in f64")
    return a.dtype, a.shape


def _gamma(a: np.ndarray, x: np.ndarray, front: np.ndarray, upper: bool) -> np.ndarray:
    made = [_gamma_of(*v) for v in zip(a.tolist(), x.tolist(), front.tolist(), strict=True)]
    lower = np.array([v if small else 1 - v for v, small in made])
    return np.array([1 - v if small else v for v, small in made]) if upper else lower


def _gamma_of(a: float, x: float, front: float) -> tuple[float, bool]:
    """The lower one by its series where x is small, the upper one by its fraction where large."""
    if x < a + 1:
        total = term = 1.0
        for k in range(1, STEPS):
            term *= x / (a + k)
            total += term
            if term < total * 1e-17:
                break
        return front * total / a if a > 0 else math.nan, True
    b, d = x + 1 - a, 0.0
    c, d = 1e300, 1 / (x + 1 - a)
    h = d
    for k in range(1, STEPS):
        b += 2
        d = 1 / (k * (a - k) * d + b)
        c = b + k * (a - k) / c
        h *= c * d
        if abs(c * d - 1) < 1e-16:
            break
    return front * h, False


_GAMMA = """
def incomplete_gamma(a: T[c], x: T[c], front: T[c], y: T[c], c: i64):
    for i in serial(0, c):
        now = alloc(T[4], "local")
        done = alloc(i64[1], "local")
        done[0] = 0
        if x[i] < a[i] + T(1):
            now[0] = T(1)
            now[1] = T(1)
            for k in serial(1, STEPS):
                if done[0] == 0:
                    now[1] = now[1] * (x[i] / (a[i] + T(k)))
                    now[0] = now[0] + now[1]
                    if now[1] < now[0] * T(1e-17):
                        done[0] = 1
            part: T = front[i] * now[0] / a[i]
            y[i] = SMALL
        else:
            now[0] = x[i] + T(1) - a[i]
            now[1] = T(1e300)
            now[2] = T(1) / now[0]
            now[3] = now[2]
            for k in serial(1, STEPS):
                if done[0] == 0:
                    step: T = T(k) * (a[i] - T(k))
                    now[0] = now[0] + T(2)
                    now[2] = T(1) / (step * now[2] + now[0])
                    now[1] = now[0] + step / now[1]
                    now[3] = now[3] * (now[1] * now[2])
                    if abs(now[1] * now[2] - T(1)) < T(1e-16):
                        done[0] = 1
            part: T = front[i] * now[3]
            y[i] = LARGE
"""


@operator(fusion=OPAQUE, infer=_gamma_type, reference=_gamma)
def incomplete_gamma(a: Any, x: Any, front: Any, *, upper: bool = False) -> Any:
    """The regularised incomplete gamma function P(a, x), or Q = 1 - P; `front` is
    xᵃ e⁻ˣ / Γ(a). Of positive a and x that are finite."""
    small, large = ("T(1) - part", "part") if upper else ("part", "T(1) - part")
    text = _GAMMA.replace("STEPS", str(STEPS)).replace("SMALL", small).replace("LARGE", large)
    return program(text, [a, x, front], a.dtype)
