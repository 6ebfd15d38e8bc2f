"""Translators of ATen's linear algebra: everything from a few factorisations.

PyTorch's leading dimensions are one count of matrices here. Determinants, inverses and solutions
come of LU; Q is reflections applied to an identity; singular values are found on the thin side.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontend.torch.convert import Refusal
from tilewright.frontend.torch.registry import NodeContext, translates
from tilewright.graph import sizes
from tilewright.graph.graph import Value
from tilewright.graph.operator import broadcast_shape
from tilewright.graph.ops.factor import least
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import as_int, maximum

# stacks of matrices


def stacked(n: NodeContext, x: Value, keep: int = 2) -> Value:
    """x with its leading dimensions as one; `keep` last ones stay."""
    lead = x.shape[: x.rank - keep]
    return n.reshape(x, (sizes.size(product(lead)), *x.shape[x.rank - keep :]))


def product(shape: Any) -> Any:
    made: Any = 1
    for s in shape:
        made = made * s
    return made


def like(n: NodeContext, y: Value, x: Value, keep: int = 2) -> Value:
    """y with the leading dimensions of x (whose last `keep` are the matrix)."""
    return n.reshape(y, (*x.shape[: x.rank - keep], *y.shape[1:]))


def transposed(n: NodeContext, x: Value) -> Value:
    """Matrices transposed."""
    return n.transpose(x, (*range(x.rank - 2), x.rank - 1, x.rank - 2))


def identity(n: NodeContext, x: Value, columns: Any = None) -> Value:
    """Identity matrices of x's count and rows."""
    count, rows = x.shape[:2]
    wide = rows if columns is None else columns
    return n.expand(eye(n, rows, wide, x), (count, rows, wide))


def eye(n: NodeContext, rows: Any, columns: Any, x: Value) -> Value:
    """An identity matrix of x's dtype."""
    known = sizes.static((rows, columns))
    if known is not None:
        return n.constant(np.eye(*known), x.dtype)
    return n.cast(n.emit("equal", diagonals(n, rows, columns), n.constant(0, "i64")), x.dtype)


def diagonals(n: NodeContext, rows: Any, columns: Any) -> Value:
    """On which diagonal each element of a matrix lies: its column minus its row."""
    return n.emit("sub", n.counted(columns), n.reshape(n.counted(rows), (rows, 1)))


def triangle(n: NodeContext, x: Value, upper: bool, offset: int = 0) -> Value:
    """x with zeros on the other side of a diagonal."""
    known = sizes.static(x.shape[-2:])
    if known is not None:
        keep = np.triu if upper else np.tril
        mask = n.constant(keep(np.ones(known, bool), offset), "bool")
    else:
        side = "greater_equal" if upper else "less_equal"
        mask = n.emit(side, diagonals(n, *x.shape[-2:]), n.constant(offset, "i64"))
    return n.emit("where", mask, x, n.constant(0, x.dtype))


def diagonal(n: NodeContext, x: Value) -> Value:
    """The diagonals of a stack, [count, least of rows and columns]."""
    rows, columns = x.shape[1:]
    flat = n.reshape(x, (x.shape[0], sizes.size(rows * columns)))
    return n.cut(flat, 1, 0, least(rows, columns), sizes.size(columns + 1))


def times(n: NodeContext, a: Value, b: Value, **attrs: Any) -> Value:
    return n.emit("matmul", a, b, **attrs)


def common(n: NodeContext, a: Value, b: Value) -> tuple[Value, Value]:
    """Two stacks of matrices with their leading dimensions broadcast."""
    lead = broadcast_shape(a.shape[:-2], b.shape[:-2])
    return n.expand(a, (*lead, *a.shape[-2:])), n.expand(b, (*lead, *b.shape[-2:]))


# triangular


def by_triangle(
    n: NodeContext, a: Value, b: Value, *, upper: bool, left: bool, unit: bool
) -> Value:
    """x of a x = b, or of x a = b."""
    if not left:
        a, b, upper = transposed(n, a), transposed(n, b), not upper
    a, b = common(n, a, b)
    x = n.emit("solve_triangular", stacked(n, a), stacked(n, b), upper=upper, unit=unit)
    x = like(n, x, b)
    return x if left else transposed(n, x)


@translates("linalg_solve_triangular.default")
def linalg_solve_triangular(
    n: NodeContext,
    a: Value,
    b: Value,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Any:
    return by_triangle(n, a, b, upper=upper, left=left, unit=unitriangular)


@translates("triangular_solve.default")
def triangular_solve(
    n: NodeContext,
    b: Value,
    a: Value,
    upper: bool = True,
    transpose: bool = False,
    unit: bool = False,
) -> Any:
    a, b = common(n, a, b)
    coefficients = a
    if transpose:
        a, upper = transposed(n, a), not upper
    return by_triangle(n, a, b, upper=upper, left=True, unit=unit), coefficients


# Cholesky


def lower_of(n: NodeContext, a: Value, upper: bool) -> tuple[Value, Value]:
    """The Cholesky factor (as asked, lower or upper) and info."""
    y, info = n.emit("cholesky", stacked(n, transposed(n, a) if upper else a))
    y, info = like(n, y, a), n.reshape(info, a.shape[:-2])
    return (transposed(n, y) if upper else y), info


@translates("cholesky.default")
def cholesky(n: NodeContext, a: Value, upper: bool = False) -> Any:
    return lower_of(n, a, upper)[0]


@translates("linalg_cholesky_ex.default")
def linalg_cholesky_ex(
    n: NodeContext, a: Value, *, upper: bool = False, check_errors: bool = False
) -> Any:
    return lower_of(n, a, upper)


@translates("cholesky_solve.default")
def cholesky_solve(n: NodeContext, b: Value, factor: Value, upper: bool = False) -> Any:
    lower = transposed(n, factor) if upper else factor
    half = by_triangle(n, lower, b, upper=False, left=True, unit=False)
    return by_triangle(n, transposed(n, lower), half, upper=True, left=True, unit=False)


@translates("cholesky_inverse.default")
def cholesky_inverse(n: NodeContext, factor: Value, upper: bool = False) -> Any:
    one = like(n, identity(n, stacked(n, factor)), factor)
    return cholesky_solve(n, one, factor, upper)


# LU


def factored(n: NodeContext, a: Value) -> tuple[Value, Value, Value]:
    """LU, pivots and info of a with its own leading dimensions."""
    y, pivots, info = n.emit("lu", stacked(n, a))
    lead = a.shape[:-2]
    return like(n, y, a), n.reshape(pivots, (*lead, pivots.shape[1])), n.reshape(info, lead)


def with_factors(n: NodeContext, y: Value, pivots: Value, b: Value, adjoint: bool = False) -> Value:
    """x of a x = b (or aᵀ x = b) from a's LU."""
    lead = broadcast_shape(y.shape[:-2], b.shape[:-2])
    y, b = common(n, y, b)
    rows = stacked(n, n.expand(pivots, (*lead, *pivots.shape[-1:])), 1)
    y, x = stacked(n, y), stacked(n, b)
    if adjoint:
        x = n.emit("solve_triangular", transposed(n, y), x)
        x = n.emit("solve_triangular", transposed(n, y), x, upper=True, unit=True)
        x = n.emit("swap_rows", x, rows, reverse=True)
    else:
        x = n.emit("swap_rows", x, rows)
        x = n.emit("solve_triangular", y, x, unit=True)
        x = n.emit("solve_triangular", y, x, upper=True)
    return like(n, x, b)


@translates("linalg_lu_factor_ex.default")
def linalg_lu_factor_ex(
    n: NodeContext, a: Value, *, pivot: bool = True, check_errors: bool = False
) -> Any:
    if not pivot:
        raise Refusal("LU without pivots is not supported")
    return factored(n, a)


@translates("linalg_lu.default")
def linalg_lu(n: NodeContext, a: Value, *, pivot: bool = True) -> Any:
    if not pivot:
        raise Refusal("LU without pivots is not supported")
    y, pivots, _ = factored(n, a)
    return lu_unpack(n, y, pivots)


@translates("lu_unpack.default")
def lu_unpack(
    n: NodeContext, y: Value, pivots: Value, unpack_data: bool = True, unpack_pivots: bool = True
) -> Any:
    rows, columns = y.shape[-2:]
    k, lead = least(rows, columns), y.shape[:-2]
    empty = n.full(0, y.dtype, (0,))
    p = lower = upper = empty
    if unpack_pivots:
        flat = stacked(n, pivots, 1)
        one = n.expand(eye(n, rows, rows, y), (flat.shape[0], rows, rows))
        p = n.reshape(n.emit("swap_rows", one, flat, reverse=True), (*lead, rows, rows))
    if unpack_data:
        below = triangle(n, n.cut(y, y.rank - 1, 0, k), False, -1)
        lower = n.emit("add", below, eye(n, rows, k, y))
        upper = triangle(n, n.cut(y, y.rank - 2, 0, k), True)
    return p, lower, upper


@translates("linalg_lu_solve.default")
def linalg_lu_solve(
    n: NodeContext, y: Value, pivots: Value, b: Value, *, left: bool = True, adjoint: bool = False
) -> Any:
    if left:
        return with_factors(n, y, pivots, b, adjoint)
    return transposed(n, with_factors(n, y, pivots, transposed(n, b), not adjoint))


@translates("_linalg_solve_ex.default")
def linalg_solve_ex(
    n: NodeContext, a: Value, b: Value, *, left: bool = True, check_errors: bool = False
) -> Any:
    y, pivots, info = factored(n, a)
    vector = b.rank == 1 or (b.rank == a.rank - 1 and b.shape == a.shape[:-1])
    if vector:
        b = n.reshape(b, (*b.shape, 1))
    x = linalg_lu_solve(n, y, pivots, b, left=left or vector)
    return (n.reshape(x, x.shape[:-1]) if vector else x), y, pivots, info


@translates("linalg_inv_ex.default")
def linalg_inv_ex(n: NodeContext, a: Value, *, check_errors: bool = False) -> Any:
    y, pivots, info = factored(n, a)
    one = like(n, identity(n, stacked(n, a)), a)
    return with_factors(n, y, pivots, one), info


def sign_of_exchanges(n: NodeContext, pivots: Value) -> Value:
    """-1 for each row that is exchanged with another, multiplied."""
    position = n.emit("add", n.counted(pivots.shape[-1]), n.constant(1, "i64"))
    own = n.emit("equal", pivots, n.cast(position, "i32"))
    signs = n.emit("where", own, n.constant(1, n.of), n.constant(-1, n.of))
    return n.emit("reduce_prod", signs, axes=(pivots.rank - 1,))


def pivots_of(n: NodeContext, a: Value, y: Value) -> Value:
    """The diagonal of an LU with a's leading dimensions."""
    d = diagonal(n, stacked(n, y))
    return n.reshape(d, (*a.shape[:-2], d.shape[1]))


@translates("_linalg_det.default")
def linalg_det(n: NodeContext, a: Value) -> Any:
    y, pivots, _ = factored(n, a)
    size = n.emit("reduce_prod", pivots_of(n, a, y), axes=(a.rank - 2,))
    return n.emit("mul", size, sign_of_exchanges(n, pivots)), y, pivots


@translates("_linalg_slogdet.default")
def linalg_slogdet(n: NodeContext, a: Value) -> Any:
    y, pivots, _ = factored(n, a)
    d, axes = pivots_of(n, a, y), (a.rank - 2,)
    sign = n.emit("reduce_prod", n.emit("sign", d), axes=axes)
    size = n.emit("reduce_sum", n.emit("log", n.emit("abs", d)), axes=axes)
    return n.emit("mul", sign, sign_of_exchanges(n, pivots)), size, y, pivots


@translates("linalg_ldl_factor_ex.default")
def linalg_ldl_factor_ex(
    n: NodeContext, a: Value, *, hermitian: bool = False, check_errors: bool = False
) -> Any:
    y, pivots, info = n.emit("ldl", stacked(n, a))
    lead = a.shape[:-2]
    return like(n, y, a), n.reshape(pivots, (*lead, pivots.shape[1])), n.reshape(info, lead)


@translates("linalg_ldl_solve.default")
def linalg_ldl_solve(
    n: NodeContext, y: Value, pivots: Value, b: Value, *, hermitian: bool = False
) -> Any:
    lead = broadcast_shape(y.shape[:-2], b.shape[:-2])
    y, b = common(n, y, b)
    rows = stacked(n, n.expand(pivots, (*lead, *pivots.shape[-1:])), 1)
    return like(n, n.emit("ldl_solve", stacked(n, y), rows, stacked(n, b)), b)


# QR


@translates("geqrf.default")
def geqrf(n: NodeContext, a: Value) -> Any:
    y, tau = n.emit("reflectors", stacked(n, a))
    return like(n, y, a), n.reshape(tau, (*a.shape[:-2], tau.shape[1]))


@translates("linalg_qr.default")
def linalg_qr(n: NodeContext, a: Value, mode: str = "reduced") -> Any:
    rows, columns = a.shape[-2:]
    y, tau = n.emit("reflectors", stacked(n, a))
    wide = rows if mode == "complete" else least(rows, columns)
    r = triangle(n, n.cut(y, 1, 0, wide), True)
    if mode == "r":
        return n.full(0, a.dtype, (0,)), like(n, r, a)
    q = n.emit("reflect", y, tau, identity(n, y, wide))
    return like(n, q, a), like(n, r, a)


@translates("linalg_householder_product.default", "orgqr.default")
def linalg_householder_product(n: NodeContext, v: Value, tau: Value) -> Any:
    flat = stacked(n, v)
    q = n.emit("reflect", flat, stacked(n, tau, 1), identity(n, flat, v.shape[-1]))
    return like(n, q, v)


@translates("ormqr.default")
def ormqr(
    n: NodeContext, v: Value, tau: Value, x: Value, left: bool = True, transpose: bool = False
) -> Any:
    if not left:
        x, transpose = transposed(n, x), not transpose
    y = n.emit("reflect", stacked(n, v), stacked(n, tau, 1), stacked(n, x), transpose=transpose)
    y = like(n, y, x)
    return y if left else transposed(n, y)


# eigenvalues and singular values


def eigen(n: NodeContext, a: Value) -> tuple[Value, Value]:
    """Eigenvalues of symmetric stacks, and the matrices whose rows are the vectors."""
    return n.emit("eigh", a)


@translates("_linalg_eigh.default")
def linalg_eigh(n: NodeContext, a: Value, UPLO: str = "L", compute_v: bool = True) -> Any:
    flat = stacked(n, a)
    w, rows = eigen(n, transposed(n, flat) if UPLO.upper() == "U" else flat)
    vectors = like(n, transposed(n, rows), a) if compute_v else n.full(0, a.dtype, (0,))
    return n.reshape(w, a.shape[:-1]), vectors


def extended(n: NodeContext, x: Value, rows: Any, square: bool) -> Value:
    """A stack of matrices with rows of zeros below, `rows` in all; square ones if asked, with ones
    on the rest of the diagonal."""
    size = x.shape[1]
    more = sizes.size(rows - size)
    y = n.emit("pad", x, before=(0, 0, 0), after=(0, more, more if square else 0))
    if not square:
        return y
    below = n.emit("greater_equal", n.emit("arange", length=rows), n.operand(size, dtype("i64")))
    return n.emit("where", n.reshape(below, (1, rows, 1)), identity(n, y), y)


def singular(n: NodeContext, a: Value, full: bool) -> tuple[Value, Value, Value]:
    """U, the singular values and Vᵀ of a stack of matrices.

    With a v = w, the columns of w orthogonal and falling in length, w = Q R has a diagonal R: Q is
    U but for signs, complete even where singular values are zero.
    """
    rows, columns = a.shape[1:]
    least_side = least(rows, columns)
    if least_side not in (rows, columns):
        y, tau = n.emit("reflectors", a)  # a = Q R: the rows of R are as many as the lesser side
        r = triangle(n, n.cut(y, 1, 0, least_side), True)
        u, s, v = singular(n, r, full)
        return n.emit("reflect", y, tau, extended(n, u, rows, full)), s, v
    if least(rows, columns) != columns:
        u, s, v = singular(n, transposed(n, a), full)
        return transposed(n, v), s, transposed(n, u)
    w, v = n.emit("orthogonal_rows", transposed(n, a))
    r, tau = n.emit("reflectors", transposed(n, w))
    length = diagonal(n, r)
    wide = rows if full else columns
    q = n.emit("reflect", r, tau, identity(n, r, wide))
    negative = n.emit("less", length, n.constant(0, a.dtype))
    signs = n.emit("where", negative, n.constant(-1, a.dtype), n.constant(1, a.dtype))
    if wide != columns:
        more = sizes.size(wide - columns)
        signs = n.emit("pad", signs, before=(0, 0), after=(0, more), value=1)
    return (
        n.emit("mul", q, n.reshape(signs, (a.shape[0], 1, wide))),
        n.emit("abs", length),
        v,
    )


@translates("_linalg_svd.default")
def linalg_svd(
    n: NodeContext,
    a: Value,
    full_matrices: bool = False,
    compute_uv: bool = True,
    *,
    driver: str | None = None,
) -> Any:
    u, s, v = singular(n, stacked(n, a), full_matrices)
    s = n.reshape(s, (*a.shape[:-2], s.shape[1]))
    if not compute_uv:
        return n.full(0, a.dtype, (0,)), s, n.full(0, a.dtype, (0,))
    return like(n, u, a), s, like(n, v, a)


@translates("linalg_pinv.atol_rtol_tensor")
def linalg_pinv(
    n: NodeContext, a: Value, *, atol: Any = None, rtol: Any = None, hermitian: bool = False
) -> Any:
    """Vᵀ diag(1 / s) Uᵀ over the singular values above the tolerance."""
    rows, columns = a.shape[-2:]
    if 0 in (as_int(rows), as_int(columns)):
        return n.full(0, a.dtype, (*a.shape[:-2], columns, rows))
    flat = stacked(n, a)
    if hermitian:
        w, v = eigen(n, flat)
        u, s = transposed(n, v), n.emit("abs", w)
    else:
        u, s, v = singular(n, flat, False)
        w = s
    lead = a.shape[:-2]
    w, s = (n.reshape(x, (*lead, x.shape[1])) for x in (w, s))
    most = n.emit("reduce_max", s, axes=(s.rank - 1,), keepdims=True)
    longest = n.operand(sizes.size(maximum(sizes.size(rows), sizes.size(columns))), a.dtype)
    eps = n.emit("mul", n.constant(float(np.finfo(a.dtype.numpy).eps), a.dtype), longest)
    low = n.emit("mul", most, tolerance(n, rtol, a, eps if atol is None else 0.0))
    if rtol is None and atol is not None:  # relative only where no absolute one is given
        given = n.emit("greater", tolerance(n, atol, a, 0.0), n.constant(0, a.dtype))
        low = n.emit("where", given, low, n.emit("mul", most, eps))
    if atol is not None:
        low = n.emit("maximum", low, tolerance(n, atol, a, 0.0))
    kept = n.emit("greater", s, low)
    inverse = n.emit("reciprocal", n.emit("where", kept, w, n.constant(1, a.dtype)))
    inverse = n.emit("where", kept, inverse, n.constant(0, a.dtype))
    u, v = like(n, u, a), like(n, v, a)
    scaled = n.emit("mul", transposed(n, v), n.reshape(inverse, (*lead, 1, s.shape[-1])))
    return times(n, scaled, transposed(n, u))


def tolerance(n: NodeContext, given: Any, a: Value, default: Any) -> Value:
    """A tolerance for each matrix, as a column beside its singular values."""
    if given is None:
        return n.operand(default, a.dtype)
    x = n.operand(given, a.dtype)
    return n.reshape(x, (*x.shape, 1)) if x.rank else x


@translates("linalg_matrix_exp.default", "matrix_exp.default")
def linalg_matrix_exp(n: NodeContext, a: Value) -> Any:
    if as_int(a.elements) == 0:
        return a
    wide = n.cast(a, "f32") if a.dtype.bits < 32 else a
    return n.cast(like(n, n.emit("matrix_exp", stacked(n, wide)), a), a.dtype)
