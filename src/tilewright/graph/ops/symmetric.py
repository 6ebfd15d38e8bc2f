"""Symmetric indefinite matrices: a = L D Lᵀ with rows and columns exchanged, and solving with it.

Stacks of matrices as in `factor`. D has blocks of one or two (Bunch & Kaufman 1977, whose choice of
pivots is LAPACK's sytf2 and so are its results). A pivot of one is written as the row it was
exchanged with, counted from 1; one of two as the same number twice, negative.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.operator import OPAQUE, Type, need, operator
from tilewright.graph.ops.factor import I32, square, stack_of_matrices
from tilewright.te.program import program

ALPHA = (1 + 17**0.5) / 8  # bounds the growth of elements best


def _ldl_type(a: Any) -> list[Type]:
    count, size = square(a)
    return [(a.dtype, a.shape), (I32, (count, size)), (I32, (count,))]


def _ldl(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    y = np.tril(a)
    pivots, info = np.zeros(a.shape[:2], np.int32), np.zeros(len(a), np.int32)
    for b, m in enumerate(y):
        k, n = 0, len(m)
        while k < n:
            row, width = _pivot(m, k)
            if not info[b] and not m[k:, k].any():
                info[b] = k + 1
            _exchange(m, k + width - 1, row)
            if width == 2 and row != k + 1:
                m[[k + 1, row], k] = m[[row, k + 1], k]
            pivots[b, k : k + width] = row + 1 if width == 1 else -(row + 1)
            block, below = m[k : k + width, k : k + width], m[k + width :, k : k + width].copy()
            full = block + np.tril(block, -1).T
            if full.any():
                scaled = np.linalg.solve(full, below.T).T if width == 2 else below / full
                m[k + width :, k + width :] -= np.tril(scaled @ below.T)
                m[k + width :, k : k + width] = scaled
            k += width
    return y, pivots, info


def _pivot(m: np.ndarray, k: int) -> tuple[int, int]:
    """The row to exchange, and how many rows the pivot takes."""
    own, below = abs(m[k, k]), np.abs(m[k + 1 :, k])
    most = below.max(initial=0)
    if own >= ALPHA * most:
        return k, 1
    row = k + 1 + int(below.argmax())
    across = max(np.abs(m[row, k:row]).max(), np.abs(m[row + 1 :, row]).max(initial=0))
    if own >= ALPHA * most * (most / across):
        return k, 1
    return row, 1 if abs(m[row, row]) >= ALPHA * across else 2


def _exchange(m: np.ndarray, k: int, row: int) -> None:
    """Exchange row and column `k` with `row`, of which the lower triangle is stored, right of k."""
    if row == k:
        return
    m[row + 1 :, [k, row]] = m[row + 1 :, [row, k]]
    middle = m[k + 1 : row, k].copy()
    m[k + 1 : row, k] = m[row, k + 1 : row]
    m[row, k + 1 : row] = middle
    m[k, k], m[row, row] = m[row, row], m[k, k]


_LDL = """
def ldl(a: T[c, n, n], y: T[c, n, n], pivots: i32[c, n], info: i32[c], c: i64, n: i64):
    for b in serial(0, c):
        info[b] = i32(0)
        done = alloc(i64[1], "local")
        at = alloc(i64[1], "local")
        most = alloc(T[1], "local")
        across = alloc(T[1], "local")
        done[0] = 0
        for i in serial(0, n):
            for j in serial(0, n):
                y[b, i, j] = select(j <= i, a[b, i, j], T(0))
        for k in serial(0, n):
            if k == done[0]:
                most[0] = T(0)
                at[0] = k
                for i in serial(k + 1, n):
                    if abs(y[b, i, k]) > most[0]:
                        most[0] = abs(y[b, i, k])
                        at[0] = i
                across[0] = T(0)
                for j in serial(k, at[0]):
                    across[0] = max(across[0], abs(y[b, at[0], j]))
                for i in serial(at[0] + 1, n):
                    across[0] = max(across[0], abs(y[b, i, at[0]]))
                if abs(y[b, k, k]) >= T(ALPHA) * most[0]:
                    at[0] = k
                elif abs(y[b, k, k]) >= T(ALPHA) * most[0] * (most[0] / across[0]):
                    at[0] = k
                elif not (abs(y[b, at[0], at[0]]) >= T(ALPHA) * across[0]):
                    done[0] = k + 1
                last: i64 = done[0]
                row: i64 = at[0]
                if row != last:
                    for i in serial(row + 1, n):
                        x: T = y[b, i, last]
                        y[b, i, last] = y[b, i, row]
                        y[b, i, row] = x
                    for i in serial(last + 1, row):
                        x: T = y[b, i, last]
                        y[b, i, last] = y[b, row, i]
                        y[b, row, i] = x
                    x: T = y[b, last, last]
                    y[b, last, last] = y[b, row, row]
                    y[b, row, row] = x
                    if last > k:
                        x: T = y[b, last, k]
                        y[b, last, k] = y[b, row, k]
                        y[b, row, k] = x
                if last == k:
                    pivots[b, k] = i32(row + 1)
                    d: T = y[b, k, k]
                    if d == T(0) and most[0] == T(0):
                        if info[b] == i32(0):
                            info[b] = i32(k + 1)
                    else:
                        for j in serial(k + 1, n):
                            factor: T = y[b, j, k] / d
                            for i in serial(j, n):
                                y[b, i, j] = y[b, i, j] - y[b, i, k] * factor
                        for i in serial(k + 1, n):
                            y[b, i, k] = y[b, i, k] / d
                else:
                    pivots[b, k] = i32(-(row + 1))
                    pivots[b, last] = i32(-(row + 1))
                    d: T = y[b, last, k]
                    d1: T = y[b, last, last] / d
                    d2: T = y[b, k, k] / d
                    scale: T = T(1) / ((d1 * d2 - T(1)) * d)
                    for j in serial(last + 1, n):
                        first: T = scale * (d1 * y[b, j, k] - y[b, j, last])
                        second: T = scale * (d2 * y[b, j, last] - y[b, j, k])
                        for i in serial(j, n):
                            y[b, i, j] = y[b, i, j] - y[b, i, k] * first - y[b, i, last] * second
                        y[b, j, k] = first
                        y[b, j, last] = second
                done[0] = last + 1
"""


@operator(fusion=OPAQUE, infer=_ldl_type, reference=_ldl)
def ldl(a: Any) -> Any:
    """P a Pᵀ = L D Lᵀ of symmetric a, of which the lower triangle is read: (D with L below its
    blocks, the pivots, the first pivot that is zero, counted from 1, or 0). LAPACK's sytf2."""
    return program(_LDL.replace("ALPHA", repr(ALPHA)), [a], a.dtype)


def _ldl_solve_type(y: Any, pivots: Any, b: Any) -> Type:
    count, size = square(y, "the factorisation")
    need(pivots.dtype is I32 and pivots.shape == (count, size), "pivots are i32 [count, size]")
    need(stack_of_matrices(b, "right sides")[:2] == (count, size), "right sides must have a's rows")
    need(y.dtype is b.dtype, f"operands have dtypes {y.dtype} and {b.dtype}")
    return b.dtype, b.shape


def _ldl_solve(y: np.ndarray, pivots: np.ndarray, b: np.ndarray) -> np.ndarray:
    x = b.copy()
    for m, rows, r in zip(y, pivots, x, strict=True):
        starts, k = [], 0
        while k < len(m):
            width = 1 if rows[k] > 0 else 2
            starts.append((k, width))
            last, row = k + width - 1, abs(rows[k]) - 1
            r[[last, row]] = r[[row, last]]
            r[k + width :] -= m[k + width :, k : k + width] @ r[k : k + width]
            block = m[k : k + width, k : k + width]
            r[k : k + width] = np.linalg.solve(block + np.tril(block, -1).T, r[k : k + width])
            k += width
        for k, width in reversed(starts):
            r[k : k + width] -= m[k + width :, k : k + width].T @ r[k + width :]
            last, row = k + width - 1, abs(rows[k]) - 1
            r[[last, row]] = r[[row, last]]
    return x


_LDL_SOLVE = """
def ldl_solve(y: T[c, n, n], pivots: i32[c, n], r: T[c, n, m], x: T[c, n, m],
              c: i64, n: i64, m: i64):
    for b in serial(0, c):
        at = alloc(i64[1], "local")
        at[0] = 0
        for i in serial(0, n):
            for q in serial(0, m):
                x[b, i, q] = r[b, i, q]
        for k in serial(0, n):
            if k == at[0]:
                last: i64 = select(pivots[b, k] > i32(0), k, min(k + 1, n - 1))
                row: i64 = min(max(i64(abs(pivots[b, k])) - 1, last), n - 1)
                for q in serial(0, m):
                    upper: T = x[b, last, q]
                    x[b, last, q] = x[b, row, q]
                    x[b, row, q] = upper
                for p in serial(k, last + 1):
                    for i in serial(last + 1, n):
                        for q in serial(0, m):
                            x[b, i, q] = x[b, i, q] - y[b, i, p] * x[b, p, q]
                if last == k:
                    for q in serial(0, m):
                        x[b, k, q] = x[b, k, q] / y[b, k, k]
                else:
                    d: T = y[b, last, k]
                    d1: T = y[b, k, k] / d
                    d2: T = y[b, last, last] / d
                    scale: T = T(1) / (d1 * d2 - T(1))
                    for q in serial(0, m):
                        first: T = x[b, k, q] / d
                        second: T = x[b, last, q] / d
                        x[b, k, q] = (d2 * first - second) * scale
                        x[b, last, q] = (d1 * second - first) * scale
                at[0] = last + 1
        at[0] = n - 1
        for step in serial(0, n):
            if n - 1 - step == at[0]:
                last: i64 = at[0]
                k: i64 = select(pivots[b, last] > i32(0), last, max(last - 1, 0))
                for p in serial(k, last + 1):
                    for i in serial(last + 1, n):
                        for q in serial(0, m):
                            x[b, p, q] = x[b, p, q] - y[b, i, p] * x[b, i, q]
                row: i64 = min(max(i64(abs(pivots[b, k])) - 1, last), n - 1)
                for q in serial(0, m):
                    upper: T = x[b, last, q]
                    x[b, last, q] = x[b, row, q]
                    x[b, row, q] = upper
                at[0] = k - 1
"""


@operator(fusion=OPAQUE, infer=_ldl_solve_type, reference=_ldl_solve)
def ldl_solve(y: Any, pivots: Any, b: Any) -> Any:
    """x of a x = b with a's factorisation by `ldl`. LAPACK's sytrs."""
    return program(_LDL_SOLVE, [y, pivots, b], b.dtype)
