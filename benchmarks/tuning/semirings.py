"""Products whose sums are none: maxima, distances, the index of an extreme, logarithms of sums.

In: sizes. Out: operators whose reductions are other than a sum of products. The one idea: what
tiles a matrix product tiles these, too, but no library is fast at them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.tuning.operator import Operator, Work, eighths, normal
from tilewright import te


def _is_better(a: Any, b: Any) -> Any:
    return (b[0] > a[0]) | (te.eq(b[0], a[0]) & (b[1] < a[1]))


greatest = te.reducer(  # `te.argmax` for an index of 32 bits, and without its rules for NaN
    lambda a, b: tuple(te.select(_is_better(a, b), y, x) for x, y in zip(a, b, strict=True)),
    lambda t: (te.const(t[0].lowest, t[0]), te.const(t[1].highest, t[1])),
    "greatest",
)


def max_plus(*, m: int = 192, n: int = 256, k: int = 256) -> Operator:
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    p = te.reduce_axis(k, "p")
    C = te.compute((m, n), lambda i, j: te.max(A[i, p] + B[p, j], p), name="C")

    def formula(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        result = a[:, :1] + b[:1]
        for step in range(1, k):
            np.maximum(result, a[:, step : step + 1] + b[step], out=result)
        return result

    return Operator(
        "max_plus",
        "a product in which + is max and · is + (longest paths)",
        te.func("max_plus", [A, B], [C]),
        lambda r: (normal(r, m, k), normal(r, k, n)),
        formula,
        Work({"max_add": m * n * k}),
        numpy=formula,
        torch=lambda torch, a, b: (a[:, :, None] + b[None]).amax(1),
    )


def argmax_product(*, m: int = 128, n: int = 192, k: int = 192) -> Operator:
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    p = te.reduce_axis(k, "p")
    V, I = te.compute(
        (m, n), lambda i, j: greatest((A[i, p] * B[p, j], te.cast(p, "i32")), p), name="V"
    )

    def formula(a: Any, b: Any) -> Any:
        terms = a[:, :, None] * b[None]
        return terms.max(1), terms.argmax(1)

    def in_torch(torch: Any, a: Any, b: Any) -> Any:
        values, indices = (a[:, :, None] * b[None]).max(1)
        return values, indices.int()

    return Operator(
        "argmax_product",
        "a product that keeps the greatest term of each sum, and which one it is (Viterbi)",
        te.func("argmax_product", [A, B], [V, I]),
        lambda r: (eighths(r, m, k), eighths(r, k, n)),
        formula,
        Work({"argmax_multiply": m * n * k}),
        numpy=formula,
        torch=in_torch,
    )


def l1_distances(*, m: int = 256, n: int = 256, k: int = 96) -> Operator:
    A, B = te.placeholder((m, k), name="A"), te.placeholder((n, k), name="B")
    p = te.reduce_axis(k, "p")
    D = te.compute((m, n), lambda i, j: te.sum(te.abs(A[i, p] - B[j, p]), p), name="D")

    def formula(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        result, b = np.zeros((m, n), a.dtype), np.ascontiguousarray(b.T)
        for step in range(k):
            result += np.abs(a[:, step : step + 1] - b[step])
        return result

    return Operator(
        "l1_distances",
        "the L1 distances of two sets of points",
        te.func("l1_distances", [A, B], [D]),
        lambda r: (normal(r, m, k), normal(r, n, k)),
        formula,
        Work({"abs_difference": m * n * k}),
        numpy=formula,
        torch=lambda torch, a, b: torch.cdist(a, b, p=1.0),
    )


def nearest_point(*, queries: int = 384, points: int = 768, width: int = 12) -> Operator:
    Q, P = te.placeholder((queries, width), name="Q"), te.placeholder((points, width), name="P")
    k, j = te.reduce_axis(width, "k"), te.reduce_axis(points, "j")
    D = te.compute(
        (queries, points),
        lambda i, j: te.sum((Q[i, k] - P[j, k]) * (Q[i, k] - P[j, k]), k),
        name="D",
    )
    V, I = te.compute((queries,), lambda i: te.argmin(D[i, j], j), name="V")

    def formula(q: Any, p: Any) -> Any:
        squares = (q * q).sum(1)[:, None] + (p * p).sum(1) - 2 * (q @ p.T)
        return squares.min(1), squares.argmin(1)

    return Operator(
        "nearest_point",
        "of each query the nearest of many points: which it is, and its squared distance",
        te.func("nearest_point", [Q, P], [V, I]),
        lambda r: (eighths(r, queries, width), eighths(r, points, width)),
        formula,
        Work({"squared_difference": queries * points * width, "argmin": queries * points}),
        numpy=formula,
        torch=lambda torch, q, p: tuple(
            ((q * q).sum(1)[:, None] + (p * p).sum(1) - 2 * (q @ p.T)).min(1)
        ),
    )


def logsumexp(*, outer: int = 48, middle: int = 96, inner: int = 256) -> Operator:
    X = te.placeholder((outer, middle, inner), name="X")
    k = te.reduce_axis(middle, "k")
    M = te.compute((outer, inner), lambda i, j: te.max(X[i, k, j], k), name="M")
    S = te.compute((outer, inner), lambda i, j: te.sum(te.exp(X[i, k, j] - M[i, j]), k), name="S")
    Y = te.compute((outer, inner), lambda i, j: M[i, j] + te.log(S[i, j]), name="Y")

    def formula(x: Any) -> Any:
        largest = x.max(1)
        return largest + np.log(np.exp(x - largest[:, None]).sum(1))

    taken = outer * middle * inner
    return Operator(
        "logsumexp",
        "the logarithm of the sum of exponentials over a middle axis",
        te.func("logsumexp", [X], [Y]),
        lambda r: (3 * normal(r, outer, middle, inner),),
        formula,
        Work({"exp": taken, "add": taken, "max": taken}),
        numpy=formula,
        torch=lambda torch, x: torch.logsumexp(x, 1),
    )
