"""GELU: x times the normal distribution's probability below x, accurate in its left tail too."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright import te
from tilewright.graph.operator import (
    BROADCAST,
    FINITE,
    operator,
)
from tilewright.graph.ops.elementwise import each, in_f32, keeping_dtype, number, same_float
from tilewright.ir.expr import Expr

_erfc = np.frompyfunc(math.erfc, 1, 1)


def _gelu(x: np.ndarray, tanh: bool) -> np.ndarray:
    wide = x.astype(np.float64)
    if tanh:
        with np.errstate(over="ignore", invalid="ignore"):
            u = math.sqrt(8 / math.pi) * (wide + 0.044715 * wide**3)
            return wide / (1 + np.exp(-u))
    return 0.5 * wide * np.asarray(_erfc(-wide / math.sqrt(2)), np.float64)


@operator(fusion=BROADCAST, infer=same_float, reference=keeping_dtype(_gelu), traits=FINITE)
def gelu(x: Any, *, tanh: bool = False) -> Any:
    """x times the normal distribution's probability below x; `tanh`: by the common formula."""

    def value(v: Expr) -> Expr:
        if tanh:  # (1 + tanh u) / 2 = 1 / (1 + 2^(-2 u log2 e))
            u = v * (number(1, v) + number(0.044715, v) * v * v)
            power = te.exp2(number(-2 * math.sqrt(2 / math.pi) * math.log2(math.e), v) * u)
            return v / (number(1, v) + power)
        return te.gelu(v)

    return each(x, in_f32(value), "gelu")
