"""Eigenvalues, singular values and the exponential of matrices.

All take stacks of matrices, [count, rows, columns] of floats, and are programs. The first two
are Jacobi's method: plane rotations make two rows orthogonal at a time, in sweeps over all pairs
until a sweep finds nothing to rotate.
Vectors are determined but for their sign: here the element of largest magnitude is positive.
Sources: Golub & Van Loan, Matrix Computations; Hestenes 1958; Higham 2005.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.operator import OPAQUE, Type, operator
from tilewright.graph.ops.factor import square, stack_of_matrices
from tilewright.te.program import program

SWEEPS = 40  # many more than ever needed: convergence is quadratic, about ten for large matrices


def _turned(rows: np.ndarray) -> np.ndarray:
    """The sign for each row that makes its element of largest magnitude positive."""
    if not rows.size:
        return np.ones(rows.shape[:-1], rows.dtype)
    most = np.abs(rows).argmax(-1)[..., None]
    return np.where(np.take_along_axis(rows, most, -1)[..., 0] < 0, -1, 1).astype(rows.dtype)


def _eigh_type(a: Any) -> list[Type]:
    count, size = square(a)
    return [(a.dtype, (count, size)), (a.dtype, a.shape)]


def _eigh(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = np.linalg.eigh(a.astype(np.float64))
    rows = vectors.swapaxes(1, 2)
    rows = rows * _turned(rows.astype(a.dtype))[..., None]
    return values.astype(a.dtype), rows.astype(a.dtype)


_EIGH = """
def eigh(a: T[c, n, n], w: T[c, n], v: T[c, n, n], c: i64, n: i64):
    s = alloc(T[n, n])
    for b in serial(0, c):
        rotated = alloc(i64[1], "local")
        best = alloc(i64[1], "local")
        for i in serial(0, n):
            for j in serial(0, n):
                s[i, j] = select(j <= i, a[b, i, j], a[b, j, i])
                v[b, i, j] = select(i == j, T(1), T(0))
        most = alloc(T[1], "local")
        most[0] = T(0)
        for i in serial(0, n):
            for j in serial(0, n):
                most[0] = max(most[0], abs(s[i, j]))
        rotated[0] = 1
        for sweep in serial(0, SWEEPS):
            if rotated[0] > 0:
                rotated[0] = 0
                for p in serial(0, n):
                    for q in serial(p + 1, n):
                        if abs(s[p, q]) > T(EPS) * most[0]:
                            rotated[0] = 1
                            ratio: T = (s[q, q] - s[p, p]) / (T(2) * s[p, q])
                            least: T = abs(ratio) + sqrt(ratio * ratio + T(1))
                            t: T = select(ratio < T(0), T(-1), T(1)) / least
                            cosine: T = T(1) / sqrt(t * t + T(1))
                            sine: T = t * cosine
                            for i in serial(0, n):
                                x: T = s[i, p]
                                y: T = s[i, q]
                                s[i, p] = cosine * x - sine * y
                                s[i, q] = sine * x + cosine * y
                            for i in serial(0, n):
                                x: T = s[p, i]
                                y: T = s[q, i]
                                s[p, i] = cosine * x - sine * y
                                s[q, i] = sine * x + cosine * y
                            for i in serial(0, n):
                                x: T = v[b, p, i]
                                y: T = v[b, q, i]
                                v[b, p, i] = cosine * x - sine * y
                                v[b, q, i] = sine * x + cosine * y
                            s[p, q] = T(0)
                            s[q, p] = T(0)
        for i in serial(0, n):
            w[b, i] = s[i, i]
        for p in serial(0, n):
            best[0] = p
            for q in serial(p + 1, n):
                if w[b, q] < w[b, best[0]]:
                    best[0] = q
            first: T = w[b, p]
            w[b, p] = w[b, best[0]]
            w[b, best[0]] = first
            for i in serial(0, n):
                x: T = v[b, p, i]
                v[b, p, i] = v[b, best[0], i]
                v[b, best[0], i] = x
            best[0] = 0
            for i in serial(1, n):
                if abs(v[b, p, i]) > abs(v[b, p, best[0]]):
                    best[0] = i
            turn: T = select(v[b, p, best[0]] < T(0), T(-1), T(1))
            for i in serial(0, n):
                v[b, p, i] = turn * v[b, p, i]
"""


@operator(fusion=OPAQUE, infer=_eigh_type, reference=_eigh)
def eigh(a: Any) -> Any:
    """a = Vᵀ diag(w) V of symmetric a, of which the lower triangle is read: (w, rising; V, whose
    rows are the eigenvectors)."""
    text = _EIGH.replace("SWEEPS", str(SWEEPS)).replace("EPS", _threshold(a.dtype.name))
    return program(text, [a], a.dtype)


def _threshold(of: str) -> str:
    """Below this cosine two rows count as orthogonal."""
    return "1e-7" if of == "f32" else "2e-16"


def _orthogonal_rows_type(a: Any) -> list[Type]:
    count, rows, _ = stack_of_matrices(a)
    return [(a.dtype, a.shape), (a.dtype, (count, rows, rows))]


def _orthogonal_rows(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    full = a.astype(np.float64)
    v = np.linalg.svd(full)[0].swapaxes(1, 2)
    v = v * _turned(v.astype(a.dtype))[..., None]
    return (v @ full).astype(a.dtype), v.astype(a.dtype)


_ORTHOGONAL_ROWS = """
def orthogonal_rows(a: T[c, n, m], w: T[c, n, m], v: T[c, n, n], c: i64, n: i64, m: i64):
    for b in serial(0, c):
        rotated = alloc(i64[1], "local")
        best = alloc(i64[1], "local")
        xx = alloc(T[1], "local")
        yy = alloc(T[1], "local")
        xy = alloc(T[1], "local")
        for i in serial(0, n):
            for j in serial(0, m):
                w[b, i, j] = a[b, i, j]
            for j in serial(0, n):
                v[b, i, j] = select(i == j, T(1), T(0))
        rotated[0] = 1
        for sweep in serial(0, SWEEPS):
            if rotated[0] > 0:
                rotated[0] = 0
                for p in serial(0, n):
                    for q in serial(p + 1, n):
                        xx[0] = T(0)
                        yy[0] = T(0)
                        xy[0] = T(0)
                        for i in serial(0, m):
                            x: T = w[b, p, i]
                            y: T = w[b, q, i]
                            xx[0] = xx[0] + x * x
                            yy[0] = yy[0] + y * y
                            xy[0] = xy[0] + x * y
                        if abs(xy[0]) > T(EPS) * sqrt(xx[0]) * sqrt(yy[0]):
                            rotated[0] = 1
                            ratio: T = (yy[0] - xx[0]) / (T(2) * xy[0])
                            least: T = abs(ratio) + sqrt(ratio * ratio + T(1))
                            t: T = select(ratio < T(0), T(-1), T(1)) / least
                            cosine: T = T(1) / sqrt(t * t + T(1))
                            sine: T = t * cosine
                            for i in serial(0, m):
                                x: T = w[b, p, i]
                                y: T = w[b, q, i]
                                w[b, p, i] = cosine * x - sine * y
                                w[b, q, i] = sine * x + cosine * y
                            for i in serial(0, n):
                                x: T = v[b, p, i]
                                y: T = v[b, q, i]
                                v[b, p, i] = cosine * x - sine * y
                                v[b, q, i] = sine * x + cosine * y
        for p in serial(0, n):
            best[0] = p
            xx[0] = T(-1)
            for q in serial(p, n):
                yy[0] = T(0)
                for i in serial(0, m):
                    yy[0] = yy[0] + w[b, q, i] * w[b, q, i]
                if yy[0] > xx[0]:
                    xx[0] = yy[0]
                    best[0] = q
            for i in serial(0, m):
                x: T = w[b, p, i]
                w[b, p, i] = w[b, best[0], i]
                w[b, best[0], i] = x
            for i in serial(0, n):
                x: T = v[b, p, i]
                v[b, p, i] = v[b, best[0], i]
                v[b, best[0], i] = x
            best[0] = 0
            for i in serial(1, n):
                if abs(v[b, p, i]) > abs(v[b, p, best[0]]):
                    best[0] = i
            turn: T = select(v[b, p, best[0]] < T(0), T(-1), T(1))
            for i in serial(0, m):
                w[b, p, i] = turn * w[b, p, i]
            for i in serial(0, n):
                v[b, p, i] = turn * v[b, p, i]
"""


@operator(fusion=OPAQUE, infer=_orthogonal_rows_type, reference=_orthogonal_rows)
def orthogonal_rows(a: Any) -> Any:
    """(w, v) with w = v a, v orthogonal and the rows of w orthogonal too, the longest first: their
    lengths are the singular values of a, which is vᵀ w. One-sided Jacobi."""
    text = _ORTHOGONAL_ROWS.replace("SWEEPS", str(SWEEPS))
    return program(text.replace("EPS", _threshold(a.dtype.name)), [a], a.dtype)


TERMS = 14  # of Taylor's series: the rest is below rounding where the norm is at most a half


def _matrix_exp_type(a: Any) -> Type:
    square(a)
    return a.dtype, a.shape


def _matrix_exp(a: np.ndarray) -> np.ndarray:
    made = np.zeros_like(a)
    for m, y in zip(a.astype(np.float64), made, strict=True):
        norm = np.abs(m).sum(0).max(initial=0)
        halvings = max(0, int(np.ceil(np.log2(norm))) + 1) if norm > 0 else 0
        small, total = m / 2.0**halvings, np.eye(len(m))
        for k in range(TERMS, 0, -1):
            total = np.eye(len(m)) + small @ total / k
        for _ in range(halvings):
            total = total @ total
        y[:] = total
    return made


_MATRIX_EXP = """
def matrix_exp(a: T[c, n, n], y: T[c, n, n], c: i64, n: i64):
    s = alloc(T[n, n])
    for b in serial(0, c):
        norm = alloc(T[1], "local")
        halvings = alloc(i64[1], "local")
        scale = alloc(T[1], "local")
        norm[0] = T(0)
        for j in serial(0, n):
            scale[0] = T(0)
            for i in serial(0, n):
                scale[0] = scale[0] + abs(a[b, i, j])
            norm[0] = max(norm[0], scale[0])
        halvings[0] = 0
        scale[0] = T(1)
        for step in serial(0, 1100):
            if norm[0] * scale[0] > T(0.5) and norm[0] <= T(1e38):
                scale[0] = scale[0] * T(0.5)
                halvings[0] = halvings[0] + 1
        for i in serial(0, n):
            for j in serial(0, n):
                y[b, i, j] = select(i == j, T(1), T(0))
        for step in serial(0, TERMS):
            part: T = scale[0] / T(TERMS - step)
            for i in serial(0, n):
                for j in serial(0, n):
                    s[i, j] = select(i == j, T(1), T(0))
                for k in serial(0, n):
                    factor: T = a[b, i, k] * part
                    for j in serial(0, n):
                        s[i, j] = s[i, j] + factor * y[b, k, j]
            for i in serial(0, n):
                for j in serial(0, n):
                    y[b, i, j] = s[i, j]
        for step in serial(0, halvings[0]):
            for i in serial(0, n):
                for j in serial(0, n):
                    s[i, j] = T(0)
                for k in serial(0, n):
                    factor: T = y[b, i, k]
                    for j in serial(0, n):
                        s[i, j] = s[i, j] + factor * y[b, k, j]
            for i in serial(0, n):
                for j in serial(0, n):
                    y[b, i, j] = s[i, j]
"""


@operator(fusion=OPAQUE, infer=_matrix_exp_type, reference=_matrix_exp)
def matrix_exp(a: Any) -> Any:
    """eᵃ: Taylor's series of a divided by a power of two that makes it
    small, then as many squarings."""
    return program(_MATRIX_EXP.replace("TERMS", str(TERMS)), [a], a.dtype)
