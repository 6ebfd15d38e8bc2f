"""Probabilities of classes out of those of contests between each two of them.

Source: Wu, Lin and Weng, "Probability estimates for multi-class classification by pairwise
coupling", 2004, their second method; the steps and the end of the iteration are libsvm's, because
what it gives after its last step is what models were made with.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.operator import OPAQUE, Type, operator
from tilewright.graph.ops.factor import square
from tilewright.ir.expr import as_int
from tilewright.te.program import program

STEPS = 100  # at most, or one for each class


def _coupled_type(r: Any) -> Type:
    count, size = square(r)
    return r.dtype, (count, size)


def _coupled(r: np.ndarray) -> np.ndarray:
    size = r.shape[1]
    made = np.full(r.shape[:2], 1 / max(size, 1), r.dtype)
    for p, q in zip(made, r, strict=True):
        own = np.where(np.eye(size, dtype=bool), 0, q)
        table = -own.T * own
        np.fill_diagonal(table, (own * own).sum(0))
        for _ in range(max(STEPS, size)):
            slope = table @ p
            mean = p @ slope
            if np.abs(slope - mean).max() < 0.005 / size:
                break
            for t in range(size):
                step = (mean - slope[t]) / table[t, t]
                p[t] += step
                mean = (mean + step * (step * table[t, t] + 2 * slope[t])) / (1 + step) ** 2
                p /= 1 + step
                slope = (slope + step * table[t]) / (1 + step)
    return made


_COUPLED = """
def couple(r: T[n, k, k], p: T[n, k], n: i64, k: i64):
    table = alloc(T[k, k])
    slope = alloc(T[k])
    for b in serial(0, n):
        going = alloc(i64[1], "local")
        mean = alloc(T[1], "local")
        worst = alloc(T[1], "local")
        for t in serial(0, k):
            p[b, t] = T(1) / T(SIZE)
            table[t, t] = T(0)
            for j in serial(0, k):
                if j < t or j > t:
                    table[t, t] = table[t, t] + r[b, j, t] * r[b, j, t]
                    table[t, j] = T(0) - r[b, j, t] * r[b, t, j]
        going[0] = 1
        for turn in serial(0, STEPS):
            if going[0] > 0:
                mean[0] = T(0)
                worst[0] = T(0)
                for t in serial(0, k):
                    slope[t] = T(0)
                    for j in serial(0, k):
                        slope[t] = slope[t] + table[t, j] * p[b, j]
                    mean[0] = mean[0] + p[b, t] * slope[t]
                for t in serial(0, k):
                    worst[0] = max(worst[0], abs(slope[t] - mean[0]))
                if worst[0] < T(0.005) / T(SIZE):
                    going[0] = 0
            if going[0] > 0:
                for t in serial(0, k):
                    own: T = table[t, t]
                    step: T = (mean[0] - slope[t]) / own
                    whole: T = T(1) + step
                    p[b, t] = p[b, t] + step
                    gain: T = step * (step * own + T(2) * slope[t])
                    mean[0] = (mean[0] + gain) / (whole * whole)
                    for j in serial(0, k):
                        p[b, j] = p[b, j] / whole
                        slope[j] = (slope[j] + step * table[t, j]) / whole
"""


@operator(fusion=OPAQUE, infer=_coupled_type, reference=_coupled)
def couple(r: Any) -> Any:
    """Probabilities [n, k] of k classes; r[n, i, j] is that of class i where it is i or j (its
    diagonal is not read). f32 or f64; k is known."""
    size = as_int(r.shape[1])
    assert size is not None, "how many classes there are is known"
    text = _COUPLED.replace("SIZE", str(float(size))).replace("STEPS", str(max(STEPS, size)))
    return program(text, [r], r.dtype)
