"""Factorisations of matrices, and solving with what they give.

All take stacks of matrices, [count, rows, columns] of floats, and are programs: each step changes
in place what the steps before left. Results are those of LAPACK's routines of the same purpose
(getrf, laswp, potrf, trsm, geqrf, ormqr), whose packed forms they have. Source:
Golub & Van Loan, Matrix Computations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.graph import sizes
from tilewright.graph.operator import OPAQUE, Type, need, operator
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Binary, BinaryOp, Expr, minimum
from tilewright.te.program import program

I32 = dtype("i32")


def stack_of_matrices(x: Any, what: str = "it") -> tuple[Expr, Expr, Expr]:
    """count, rows and columns of x. Raises Mismatch."""
    need(len(x.shape) == 3, f"{what} must be matrices [count, rows, columns]")
    need(x.dtype.name in ("f32", "f64"), f"{what} must hold f32 or f64, not {x.dtype}")
    return x.shape


def square(x: Any, what: str = "it") -> tuple[Expr, Expr]:
    """count and size of a stack of square matrices. Raises Mismatch."""
    count, rows, columns = stack_of_matrices(x, what)
    need(rows == columns, f"{what} must be square: {sizes.text(rows)} × {sizes.text(columns)}")
    return count, rows


def least(a: Expr, b: Expr) -> Expr:
    """The lesser of two sizes; one of which the other is the lesser of already, as it is."""
    for one, other in ((a, b), (b, a)):
        is_lesser = isinstance(one, Binary) and one.op is BinaryOp.min
        if sizes.is_never_more(one, other) or (is_lesser and other in (one.a, one.b)):
            return one
    return sizes.size(minimum(a, b))


def _lu_type(a: Any) -> list[Type]:
    count, rows, columns = stack_of_matrices(a)
    return [(a.dtype, a.shape), (I32, (count, least(rows, columns))), (I32, (count,))]


def _eliminated(
    y: np.ndarray, size: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Elimination in place, with the rows that were exchanged and the first pivot that is zero, as
    `lu` gives them. size: by which a column's largest number is chosen."""
    steps = min(y.shape[1:])
    pivots, info = np.zeros((len(y), steps), np.int32), np.zeros(len(y), np.int32)
    for b, m in enumerate(y):
        for j in range(steps):
            row = j + int(np.argmax(size(m[j:, j])))
            pivots[b, j] = row + 1
            m[[j, row]] = m[[row, j]]
            if m[j, j] != 0:
                m[j + 1 :, j] /= m[j, j]
            elif not info[b]:
                info[b] = j + 1
            m[j + 1 :, j + 1 :] -= np.outer(m[j + 1 :, j], m[j, j + 1 :])
    return y, pivots, info


def _lu(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return _eliminated(a.copy(), np.abs)


_LU = """
def lu(a: T[c, m, n], y: T[c, m, n], pivots: i32[c, k], info: i32[c],
       c: i64, m: i64, n: i64, k: i64):
    for b in serial(0, c):
        best = alloc(i64[1], "local")
        info[b] = i32(0)
        for i in serial(0, m):
            for q in serial(0, n):
                y[b, i, q] = a[b, i, q]
        for j in serial(0, k):
            best[0] = j
            for i in serial(j + 1, m):
                if abs(y[b, i, j]) > abs(y[b, best[0], j]):
                    best[0] = i
            pivots[b, j] = i32(best[0] + 1)
            for q in serial(0, n):
                upper: T = y[b, j, q]
                y[b, j, q] = y[b, best[0], q]
                y[b, best[0], q] = upper
            if y[b, j, j] != T(0):
                for i in serial(j + 1, m):
                    y[b, i, j] = y[b, i, j] / y[b, j, j]
            elif info[b] == i32(0):
                info[b] = i32(j + 1)
            for i in serial(j + 1, m):
                scale: T = y[b, i, j]
                for q in serial(j + 1, n):
                    y[b, i, q] = y[b, i, q] - scale * y[b, j, q]
"""


@operator(fusion=OPAQUE, infer=_lu_type, reference=_lu)
def lu(a: Any) -> Any:
    """P a = L U with rows exchanged so that each pivot is its column's largest: (U with L below its
    diagonal of ones, the row that each row was exchanged with in turn, counted from 1; the first
    pivot that is zero, counted from 1, or 0). LAPACK's getrf."""
    return program(_LU, [a], a.dtype, k=least(a.shape[1], a.shape[2]))


def _lu_complex_type(a: Any, b: Any) -> list[Type]:
    need((a.dtype, a.shape) == (b.dtype, b.shape), "its parts are not of one type")
    return [(b.dtype, b.shape), *_lu_type(a)]


def _lu_complex(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
    y, pivots, info = _eliminated(a + 1j * b, lambda z: np.abs(z.real) + np.abs(z.imag))
    return y.real.astype(a.dtype), y.imag.astype(a.dtype), pivots, info


_LU_COMPLEX = """
def lu_complex(a: T[c, m, n], b: T[c, m, n], y: T[c, m, n], z: T[c, m, n], pivots: i32[c, k],
               info: i32[c], c: i64, m: i64, n: i64, k: i64):
    for s in serial(0, c):
        best = alloc(i64[1], "local")
        over = alloc(T[2], "local")
        info[s] = i32(0)
        for i in serial(0, m):
            for q in serial(0, n):
                y[s, i, q] = a[s, i, q]
                z[s, i, q] = b[s, i, q]
        for j in serial(0, k):
            best[0] = j
            for i in serial(j + 1, m):
                large: T = abs(y[s, best[0], j]) + abs(z[s, best[0], j])
                if abs(y[s, i, j]) + abs(z[s, i, j]) > large:
                    best[0] = i
            pivots[s, j] = i32(best[0] + 1)
            for q in serial(0, n):
                upper: T = y[s, j, q]
                y[s, j, q] = y[s, best[0], q]
                y[s, best[0], q] = upper
                other: T = z[s, j, q]
                z[s, j, q] = z[s, best[0], q]
                z[s, best[0], q] = other
            u: T = y[s, j, j]
            v: T = z[s, j, j]
            if abs(u) + abs(v) > T(0):
                if abs(u) >= abs(v):
                    flat: T = v / u
                    over[0] = T(1) / (u + v * flat)
                    over[1] = T(0) - flat * over[0]
                else:
                    steep: T = u / v
                    over[1] = T(0) - T(1) / (v + u * steep)
                    over[0] = T(0) - steep * over[1]
                for i in serial(j + 1, m):
                    real: T = y[s, i, j]
                    imag: T = z[s, i, j]
                    y[s, i, j] = real * over[0] - imag * over[1]
                    z[s, i, j] = real * over[1] + imag * over[0]
            elif info[s] == i32(0):
                info[s] = i32(j + 1)
            for i in serial(j + 1, m):
                p: T = y[s, i, j]
                r: T = z[s, i, j]
                for q in serial(j + 1, n):
                    y[s, i, q] = y[s, i, q] - p * y[s, j, q] + r * z[s, j, q]
                    z[s, i, q] = z[s, i, q] - p * z[s, j, q] - r * y[s, j, q]
"""


@operator(fusion=OPAQUE, infer=_lu_complex_type, reference=_lu_complex)
def lu_complex(a: Any, b: Any) -> Any:
    """As `lu` of a + ib: (its real and imaginary part, exchanges, the first zero pivot). The pivot
    is its column's largest by the sum of its parts' magnitudes, and its inverse is Smith's (1962).
    """
    return program(_LU_COMPLEX, [a, b], a.dtype, k=least(a.shape[1], a.shape[2]))


def _swap_rows_type(x: Any, pivots: Any, *, reverse: bool = False) -> Type:
    count, _, _ = stack_of_matrices(x)
    need(pivots.dtype is I32, f"pivots are i32, not {pivots.dtype}")
    need(len(pivots.shape) == 2 and pivots.shape[0] == count, "pivots are [count, exchanges]")
    return x.dtype, x.shape


def _swap_rows(x: np.ndarray, pivots: np.ndarray, reverse: bool) -> np.ndarray:
    y = x.copy()
    for m, rows in zip(y, pivots, strict=True):
        for j in sorted(range(len(rows)), reverse=reverse):
            m[[j, rows[j] - 1]] = m[[rows[j] - 1, j]]
    return y


_SWAP_ROWS = """
def swap_rows(x: T[c, m, n], pivots: i32[c, k], y: T[c, m, n], c: i64, m: i64, n: i64, k: i64):
    for b in serial(0, c):
        for i in serial(0, m):
            for q in serial(0, n):
                y[b, i, q] = x[b, i, q]
        for step in serial(0, k):
            j: i64 = STEP
            row: i64 = i64(pivots[b, j]) - 1
            if row >= 0 and row < m:
                for q in serial(0, n):
                    upper: T = y[b, j, q]
                    y[b, j, q] = y[b, row, q]
                    y[b, row, q] = upper
"""


@operator(fusion=OPAQUE, infer=_swap_rows_type, reference=_swap_rows)
def swap_rows(x: Any, pivots: Any, *, reverse: bool = False) -> Any:
    """x with row 0, 1, … exchanged in turn with the row that `pivots` says, counted from 1; with
    `reverse` from the last exchange to the first, which undoes it."""
    text = _SWAP_ROWS.replace("STEP", "k - 1 - step" if reverse else "step")
    return program(text, [x, pivots], x.dtype)


def _cholesky_type(a: Any) -> list[Type]:
    count, _ = square(a)
    return [(a.dtype, a.shape), (I32, (count,))]


def _cholesky(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    y, info = np.tril(a), np.zeros(len(a), np.int32)
    for b, m in enumerate(y):
        for j in range(len(m)):
            if not m[j, j] > 0 and not info[b]:
                info[b] = j + 1
            with np.errstate(invalid="ignore", divide="ignore"):
                m[j, j] = np.sqrt(m[j, j])
                m[j + 1 :, j] /= m[j, j]
            below = m[j + 1 :, j]
            m[j + 1 :, j + 1 :] -= np.tril(np.outer(below, below))
    return y, info


_CHOLESKY = """
def cholesky(a: T[c, n, n], y: T[c, n, n], info: i32[c], c: i64, n: i64):
    for b in serial(0, c):
        info[b] = i32(0)
        for i in serial(0, n):
            for j in serial(0, n):
                y[b, i, j] = select(j <= i, a[b, i, j], T(0))
        for j in serial(0, n):
            if not (y[b, j, j] > T(0)) and info[b] == i32(0):
                info[b] = i32(j + 1)
            y[b, j, j] = sqrt(y[b, j, j])
            for i in serial(j + 1, n):
                y[b, i, j] = y[b, i, j] / y[b, j, j]
            for i in serial(j + 1, n):
                scale: T = y[b, i, j]
                for k in serial(j + 1, i + 1):
                    y[b, i, k] = y[b, i, k] - scale * y[b, k, j]
"""


@operator(fusion=OPAQUE, infer=_cholesky_type, reference=_cholesky)
def cholesky(a: Any) -> Any:
    """a = L Lᵀ of symmetric a, of which the lower triangle is read: (L, the first leading minor
    that is not positive, counted from 1, or 0). LAPACK's potrf."""
    return program(_CHOLESKY, [a], a.dtype)


def _solve_triangular_type(a: Any, b: Any, *, upper: bool = False, unit: bool = False) -> Type:
    count, size = square(a, "the triangular matrices")
    need(stack_of_matrices(b, "right sides")[:2] == (count, size), "right sides must have a's rows")
    need(a.dtype is b.dtype, f"operands have dtypes {a.dtype} and {b.dtype}")
    return b.dtype, b.shape


def _solve_triangular(a: np.ndarray, b: np.ndarray, upper: bool, unit: bool) -> np.ndarray:
    x, size = b.copy(), a.shape[1]
    for i in range(size - 1, -1, -1) if upper else range(size):
        known = slice(i + 1, size) if upper else slice(0, i)
        x[:, i] -= np.einsum("bk,bkn->bn", a[:, i, known], x[:, known])
        if not unit:
            x[:, i] /= a[:, i, i, None]
    return x


_SOLVE_TRIANGULAR = """
def solve_triangular(a: T[c, n, n], r: T[c, n, m], x: T[c, n, m], c: i64, n: i64, m: i64):
    for b in serial(0, c):
        for step in serial(0, n):
            i: i64 = STEP
            for q in serial(0, m):
                x[b, i, q] = r[b, i, q]
            for k in serial(FROM, TO):
                scale: T = a[b, i, k]
                for q in serial(0, m):
                    x[b, i, q] = x[b, i, q] - scale * x[b, k, q]
            for q in serial(0, m):
                x[b, i, q] = x[b, i, q] / PIVOT
"""


@operator(fusion=OPAQUE, infer=_solve_triangular_type, reference=_solve_triangular)
def solve_triangular(a: Any, b: Any, *, upper: bool = False, unit: bool = False) -> Any:
    """x of a x = b; only the lower (or the upper) triangle of a is read, with `unit` its diagonal
    is taken to be ones. [count, n, n], [count, n, m] → [count, n, m]."""
    text = _SOLVE_TRIANGULAR.replace("STEP", "n - 1 - step" if upper else "step")
    text = text.replace("FROM", "i + 1" if upper else "0").replace("TO", "n" if upper else "i")
    text = text.replace("PIVOT", "T(1)" if unit else "a[b, i, i]")
    return program(text, [a, b], b.dtype)


def _reflectors_type(a: Any) -> list[Type]:
    count, rows, columns = stack_of_matrices(a)
    return [(a.dtype, a.shape), (a.dtype, (count, least(rows, columns)))]


def _reflectors(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    y, steps = a.copy(), min(a.shape[1:])
    tau = np.zeros((len(a), steps), a.dtype)
    for b, m in enumerate(y):
        for j in range(steps):
            first, below = m[j, j], m[j + 1 :, j]
            if not below.any():
                continue
            beta = -np.copysign(np.hypot(first, np.linalg.norm(below)), first)
            tau[b, j] = (beta - first) / beta
            below /= first - beta
            v = np.concatenate([[1], below]).astype(a.dtype)
            m[j:, j + 1 :] -= tau[b, j] * np.outer(v, v @ m[j:, j + 1 :])
            m[j, j] = beta
    return y, tau


_REFLECTORS = """
def reflectors(a: T[c, m, n], y: T[c, m, n], tau: T[c, k], c: i64, m: i64, n: i64, k: i64):
    for b in serial(0, c):
        top = alloc(T[1], "local")
        total = alloc(T[1], "local")
        for i in serial(0, m):
            for q in serial(0, n):
                y[b, i, q] = a[b, i, q]
        for j in serial(0, k):
            tau[b, j] = T(0)
            top[0] = T(0)
            for i in serial(j + 1, m):
                top[0] = max(top[0], abs(y[b, i, j]))
            if top[0] > T(0):
                first: T = y[b, j, j]
                top[0] = max(top[0], abs(first))
                total[0] = (first / top[0]) * (first / top[0])
                for i in serial(j + 1, m):
                    part: T = y[b, i, j] / top[0]
                    total[0] = total[0] + part * part
                length: T = top[0] * sqrt(total[0])
                beta: T = select(first < T(0), length, -length)
                tau[b, j] = (beta - first) / beta
                for i in serial(j + 1, m):
                    y[b, i, j] = y[b, i, j] / (first - beta)
                y[b, j, j] = beta
                for q in serial(j + 1, n):
                    total[0] = y[b, j, q]
                    for i in serial(j + 1, m):
                        total[0] = total[0] + y[b, i, j] * y[b, i, q]
                    scale: T = tau[b, j] * total[0]
                    y[b, j, q] = y[b, j, q] - scale
                    for i in serial(j + 1, m):
                        y[b, i, q] = y[b, i, q] - scale * y[b, i, j]
"""


@operator(fusion=OPAQUE, infer=_reflectors_type, reference=_reflectors)
def reflectors(a: Any) -> Any:
    """a = Q R as Householder reflections I - τ v vᵀ: (R with the v below its diagonal, whose first
    elements are ones; the τ). LAPACK's geqrf."""
    return program(_REFLECTORS, [a], a.dtype, k=least(a.shape[1], a.shape[2]))


def _reflect_type(v: Any, tau: Any, x: Any, *, transpose: bool = False) -> Type:
    count, rows, _ = stack_of_matrices(v, "reflections")
    need(stack_of_matrices(x)[:2] == (count, rows), "x must have the reflections' rows")
    need(len(tau.shape) == 2 and tau.shape[0] == count, "τ must be [count, reflections]")
    need(v.dtype is x.dtype and tau.dtype is x.dtype, "operands must have one dtype")
    return x.dtype, x.shape


def _reflect(v: np.ndarray, tau: np.ndarray, x: np.ndarray, transpose: bool) -> np.ndarray:
    y = x.copy()
    for b, m in enumerate(y):
        for j in sorted(range(tau.shape[1]), reverse=not transpose):
            axis = np.concatenate([[1], v[b, j + 1 :, j]]).astype(x.dtype)
            m[j:] -= tau[b, j] * np.outer(axis, axis @ m[j:])
    return y


_REFLECT = """
def reflect(v: T[c, m, p], tau: T[c, k], x: T[c, m, n], y: T[c, m, n],
            c: i64, m: i64, n: i64, p: i64, k: i64):
    for b in serial(0, c):
        total = alloc(T[1], "local")
        for i in serial(0, m):
            for q in serial(0, n):
                y[b, i, q] = x[b, i, q]
        for step in serial(0, k):
            j: i64 = STEP
            for q in serial(0, n):
                total[0] = y[b, j, q]
                for i in serial(j + 1, m):
                    total[0] = total[0] + v[b, i, j] * y[b, i, q]
                scale: T = tau[b, j] * total[0]
                y[b, j, q] = y[b, j, q] - scale
                for i in serial(j + 1, m):
                    y[b, i, q] = y[b, i, q] - scale * v[b, i, j]
"""


@operator(fusion=OPAQUE, infer=_reflect_type, reference=_reflect)
def reflect(v: Any, tau: Any, x: Any, *, transpose: bool = False) -> Any:
    """Q x (or Qᵀ x) with Q as `reflectors` gives it. LAPACK's ormqr."""
    text = _REFLECT.replace("STEP", "step" if transpose else "k - 1 - step")
    return program(text, [v, tau, x], x.dtype)
