"""GELU: x times the normal distribution's probability below x, accurate in its left tail too."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright import te
from tilewright.graph.operator import BROADCAST, operator
from tilewright.graph.ops.elementwise import each, in_f32, keeping_dtype, number, same_float, zero
from tilewright.ir.dtype import f32
from tilewright.ir.expr import Expr

# Both of `tools/fit_polynomials.py`.
# log2 of the normal distribution's probability above a for 0 ≤ a ≤ 14.3, where it is 2^-151; the
# error of a times that probability is at most 1.1e-8, of the probability itself 1e-5
LOG2_TAIL = (
    -1.0,
    -1.151106,
    -0.459206751,
    -0.0524786895,
    0.00698780048,
    -1.35298378e-05,
    -0.00028911843,
    8.72014131e-05,
    -1.54378409e-05,
    1.8586835e-06,
    -1.56106058e-07,
    9.01655089e-09,
    -3.41540649e-10,
    7.63818447e-12,
    -7.64190715e-14,
)
# the same probability times e^(a²/2) (1 + a) for 0 ≤ a ≤ 40, in (a - 4) / (a + 4)
SCALED_TAIL = (
    0.47205320650984468,
    -0.096703477326525864,
    0.013999634724426748,
    0.028600364053549787,
    -0.032197837428196345,
    0.017936097479875269,
    -0.0050023785879999333,
    -0.00028562310261629633,
    0.00069489706430427385,
    -9.4430208978164029e-5,
    -8.7852882903055588e-5,
    2.1249826186699034e-5,
    1.3625492928619902e-5,
    -3.431615345115782e-6,
    -2.6089029636819194e-6,
    4.0384775968923619e-7,
    5.4456467504487452e-7,
    1.0173705649799543e-9,
    -1.0246426205476771e-7,
    -1.7848074102561261e-8,
    1.2121438667511062e-8,
    4.0880905385148046e-9,
)


_erfc = np.frompyfunc(math.erfc, 1, 1)


def _gelu(x: np.ndarray, tanh: bool) -> np.ndarray:
    wide = x.astype(np.float64)
    if tanh:
        with np.errstate(over="ignore", invalid="ignore"):
            u = math.sqrt(8 / math.pi) * (wide + 0.044715 * wide**3)
            return wide / (1 + np.exp(-u))
    return 0.5 * wide * np.asarray(_erfc(-wide / math.sqrt(2)), np.float64)


@operator(fusion=BROADCAST, infer=same_float, reference=keeping_dtype(_gelu))
def gelu(x: Any, *, tanh: bool = False) -> Any:
    """x times the normal distribution's probability below x; `tanh`: by its usual approximation."""

    def value(v: Expr) -> Expr:
        if tanh:  # (1 + tanh u) / 2 = 1 / (1 + 2^(-2 u log2 e))
            u = v * (number(1, v) + number(0.044715, v) * v * v)
            power = te.exp2(number(-2 * math.sqrt(2 / math.pi) * math.log2(math.e), v) * u)
            return v / (number(1, v) + power)
        size, most = te.abs(v), number(14.3 if v.dtype is f32 else 40, v)  # from there on: 0
        size = te.select(most < size, most, size)
        return te.select(v > zero(v), v, zero(v)) - size * tail(size)

    return each(x, in_f32(value), "gelu")


def tail(a: Expr) -> Expr:
    """The normal distribution's probability above a, in f32 (0 ≤ a ≤ 14.3) or f64 (0 ≤ a ≤ 40)."""
    if a.dtype is f32:
        return te.exp2(_polynomial(a, LOG2_TAIL))
    four = number(4, a)
    scaled = _polynomial((a - four) / (a + four), SCALED_TAIL)
    return te.exp(a * a * number(-0.5, a)) * scaled / (number(1, a) + a)


def _polynomial(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    """c0 + c1 x + …, in pairs, pairs of pairs, …: a short chain of operations (Estrin's scheme)."""
    terms = [number(c, x) for c in coefficients]
    power = x
    while len(terms) > 1:
        odd = terms[-1:] if len(terms) % 2 else []
        pairs = zip(terms[::2], terms[1::2], strict=False)
        terms = [low + high * power for low, high in pairs] + odd
        power = power * power
    return terms[0]
