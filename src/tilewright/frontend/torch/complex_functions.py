"""Functions of complex numbers beyond arithmetic: inverses of waves, exponentials near zero,
variances, and systems of equations as real ones of twice the size.

Source of the inverse functions: Kahan, "Branch cuts for complex elementary functions", 1987. On
their cuts the sign of a zero part says which side is meant.
"""

from __future__ import annotations

import math
from typing import Any

from tilewright.frontend.torch import algebra
from tilewright.frontend.torch.bits import copysign, signbit
from tilewright.frontend.torch.complex import (
    Complex,
    PartContext,
    angle,
    log,
    magnitude,
    of_complex,
    pair,
    part_type,
    sqrt,
    tanh,
)
from tilewright.frontend.torch.complex_tensors import multiplied, pair_of_ones, part_of
from tilewright.frontend.torch.convert import Refusal
from tilewright.frontend.torch.registry import NodeContext
from tilewright.graph.graph import Value
from tilewright.ir.expr import as_int


def scaled(n: NodeContext, x: Complex, by: float) -> Complex:
    return Complex(*(n.emit("mul", p, n.constant(by, p.dtype)) for p in x))


def by_i(n: NodeContext, x: Complex) -> Complex:
    return Complex(n.emit("neg", x.imag), x.real)


def by_minus_i(n: NodeContext, x: Complex) -> Complex:
    return Complex(x.imag, n.emit("neg", x.real))


def above(n: NodeContext, x: Complex, by: float) -> Complex:
    return Complex(n.emit("add", x.real, n.constant(by, x.real.dtype)), x.imag)


# exponentials and logarithms --------------------------------------------------------------------


@of_complex("exp2.default")
def exp2(n: NodeContext, x: Complex) -> Complex:
    size, turn = n.emit("exp2", x.real), scaled(n, x, math.log(2)).imag
    return Complex(*(n.emit("mul", size, n.emit(op, turn)) for op in ("cos", "sin")))


@of_complex("expm1.default")
def expm1(n: NodeContext, x: Complex) -> Complex:
    """Its real part is expm1(a) cos b - 2 sin²(b / 2): nothing cancels near zero."""
    of = x.real.dtype
    half = n.emit("sin", n.emit("mul", x.imag, n.constant(0.5, of)))
    bent = n.emit("mul", n.emit("mul", half, half), n.constant(2, of))
    real = n.emit("mul", n.emit("expm1", x.real), n.emit("cos", x.imag))
    imag = n.emit("mul", n.emit("exp", x.real), n.emit("sin", x.imag))
    return Complex(n.emit("sub", real, bent), imag)


@of_complex("log1p.default")
def log1p(n: NodeContext, x: Complex) -> Complex:
    """Near zero log|1 + x| is half of log1p(a (a + 2) + b²)."""
    of = x.real.dtype
    square = n.emit("mul", x.real, n.emit("add", x.real, n.constant(2, of)))
    square = n.emit("add", square, n.emit("mul", x.imag, x.imag))
    near = n.emit("mul", n.emit("log1p", square), n.constant(0.5, of))
    is_near = n.emit("less", magnitude(n, x), n.constant(0.5, of))
    whole = above(n, x, 1)
    far = n.emit("log", magnitude(n, whole))
    return Complex(n.emit("where", is_near, near, far), angle(n, whole))


@of_complex("log2.default", "log10.default")
def log_to_base(n: NodeContext, x: Complex) -> Complex:
    return scaled(n, log(n, x), 1 / math.log(2 if n.op == "log2" else 10))


# waves and their inverses -----------------------------------------------------------------------


@of_complex("tan.default")
def tan(n: NodeContext, x: Complex) -> Complex:
    return by_minus_i(n, tanh(n, by_i(n, x)))


def root(n: NodeContext, x: Complex, below: Value) -> Complex:
    """The root of x, which counts as below the real axis where it says so: also if its imaginary
    part is a zero of any sign."""
    y = sqrt(n, x)
    size = n.emit("abs", y.imag)
    return Complex(y.real, n.emit("where", below, n.emit("neg", size), size))


def roots(n: NodeContext, x: Complex) -> tuple[Complex, Complex]:
    """√(1 - x) and √(1 + x)."""
    below = signbit(n, x.imag)
    negated = Complex(*(n.emit("neg", p) for p in x))
    return (
        root(n, above(n, negated, 1), n.emit("logical_not", below)),
        root(n, above(n, x, 1), below),
    )


def imag_of_product(n: NodeContext, a: Complex, b: Complex) -> Value:
    """The imaginary part of the conjugate of a times b."""
    return n.emit("sub", n.emit("mul", a.real, b.imag), n.emit("mul", a.imag, b.real))


def real_of_product(n: NodeContext, a: Complex, b: Complex) -> Value:
    """The real part of a times b."""
    return n.emit("sub", n.emit("mul", a.real, b.real), n.emit("mul", a.imag, b.imag))


@of_complex("asin.default")
def asin(n: NodeContext, x: Complex) -> Complex:
    low, high = roots(n, x)
    real = n.emit("atan2", x.real, real_of_product(n, low, high))
    size = n.emit("abs", n.emit("asinh", imag_of_product(n, low, high)))
    return Complex(real, copysign(PartContext(n), size, x.imag))


@of_complex("acos.default")
def acos(n: NodeContext, x: Complex) -> Complex:
    low, high = roots(n, x)
    half = n.emit("atan2", low.real, high.real)
    real = n.emit("mul", half, n.constant(2, half.dtype))
    size = n.emit("abs", n.emit("asinh", imag_of_product(n, high, low)))
    return Complex(real, copysign(PartContext(n), size, n.emit("neg", x.imag)))


@of_complex("asinh.default")
def asinh(n: NodeContext, x: Complex) -> Complex:
    return by_minus_i(n, asin(n, by_i(n, x)))


@of_complex("acosh.default")
def acosh(n: NodeContext, x: Complex) -> Complex:
    """acos times i or -i, whichever has no negative real part."""
    y = acos(n, x)
    turn = n.emit("where", signbit(n, x.imag), n.emit("neg", y.real), y.real)
    return Complex(n.emit("abs", y.imag), turn)


@of_complex("atan.default")
def atan(n: NodeContext, x: Complex) -> Complex:
    """Half the angle of (1 + ix) / (1 - ix), and a quarter of the logarithm of
    (a² + (1 + b)²) / (a² + (1 - b)²) for b of plus sign."""
    of = x.real.dtype
    one, size = n.constant(1, of), n.emit("abs", x.imag)
    square = n.emit("mul", x.real, x.real)
    across = n.emit(
        "sub", n.emit("mul", n.emit("sub", one, size), n.emit("add", one, size)), square
    )
    turn = n.emit("atan2", n.emit("mul", x.real, n.constant(2, of)), across)
    less = n.emit("sub", one, size)
    below = n.emit("add", square, n.emit("mul", less, less))
    ratio = n.emit("div", n.emit("mul", size, n.constant(4, of)), below)
    imag = n.emit("mul", n.emit("log1p", ratio), n.constant(0.25, of))
    return Complex(n.emit("mul", turn, n.constant(0.5, of)), copysign(PartContext(n), imag, x.imag))


@of_complex("atanh.default")
def atanh(n: NodeContext, x: Complex) -> Complex:
    return by_minus_i(n, atan(n, by_i(n, x)))


# variances --------------------------------------------------------------------------------------


@of_complex("var.default", "var.dim", "var.correction", "std.default", "std.dim", "std.correction")
def spread(n: NodeContext, x: Complex, *args: Any, **named: Any) -> Value:
    """The variance of a complex number is the sum of its parts' variances."""
    parts = [part_of(n, p, *args, **named) for p in x]
    if n.op == "var":
        return n.emit("add", *parts)
    return n.emit("sqrt", n.emit("add", *(n.emit("mul", p, p) for p in parts)))


# equations --------------------------------------------------------------------------------------


def doubled(n: NodeContext, a: Complex) -> Value:
    """[[a, -b], [b, a]]: what multiplies stacked parts as a + ib multiplies."""
    rank = a.real.rank
    rows = ((a.real, n.emit("neg", a.imag)), (a.imag, a.real))
    return n.emit("concat", *(n.emit("concat", *r, axis=rank - 1) for r in rows), axis=rank - 2)


def halves(n: NodeContext, x: Value, axis: int) -> Complex:
    count = x.shape[axis] // 2
    return Complex(n.cut(x, axis, 0, count), n.cut(x, axis, count, count))


@of_complex("_linalg_solve_ex.default")
def linalg_solve_ex(
    n: NodeContext, a: Any, b: Any, *, left: bool = True, check_errors: bool = False
) -> Any:
    if n.uses(1) or n.uses(2):
        raise Refusal("factors of complex matrices are not supported")
    of, part = part_type(n), PartContext(n)
    a, b = pair(n, a, of), pair(n, b, of)
    vector = b.real.rank == 1 or (
        b.real.rank == a.real.rank - 1 and b.real.shape == a.real.shape[:-1]
    )
    axis = b.real.rank - (1 if vector else 2 if left else 1)
    if left or vector:
        stacked = n.emit("concat", *b, axis=axis)
        x, _, _, info = algebra.linalg_solve_ex(part, doubled(n, a), stacked)
    else:  # (x + iy)(a + ib): a row of parts times the transposed of `doubled`
        transposed = doubled(n, Complex(a.real, n.emit("neg", a.imag)))
        stacked = n.emit("concat", *b, axis=axis)
        x, _, _, info = algebra.linalg_solve_ex(part, transposed, stacked, left=False)
    return halves(n, x, axis), None, None, info


@of_complex("linalg_inv_ex.default")
def linalg_inv_ex(n: NodeContext, a: Complex, *, check_errors: bool = False) -> Any:
    found, info = algebra.linalg_inv_ex(PartContext(n), doubled(n, a))
    left = n.cut(found, a.real.rank - 1, 0, a.real.shape[-1])
    return halves(n, left, a.real.rank - 2), info


# determinants -----------------------------------------------------------------------------------


def factored(n: NodeContext, a: Complex) -> tuple[Complex, Complex, Value, Value]:
    """LU, its diagonal, the exchanges and their sign, with a's own leading dimensions."""
    lead, count = a.real.shape[:-2], a.real.shape[-1]
    real, imag, pivots, _ = n.emit("lu_complex", *(algebra.stacked(n, p) for p in a))
    d = [n.reshape(algebra.diagonal(n, p), (*lead, count)) for p in (real, imag)]
    pivots = n.reshape(pivots, (*lead, count))
    position = n.emit("add", n.counted(count), n.constant(1, "i64"))
    own = n.emit("equal", pivots, n.cast(position, "i32"))
    of = real.dtype
    signs = n.emit("where", own, n.constant(1, of), n.constant(-1, of))
    sign = n.emit("reduce_prod", signs, axes=(pivots.rank - 1,))
    y = Complex(*(n.reshape(p, a.real.shape) for p in (real, imag)))
    return y, Complex(*d), pivots, sign


def signed_product(n: NodeContext, d: Complex, sign: Value) -> Complex:
    """The numbers along the last axis multiplied, times the sign of exchanges."""
    axis = d.real.rank - 1
    if as_int(d.real.shape[axis]) == 0:
        return pair_of_ones(n, sign.shape)
    whole = multiplied(n, d, axis)
    return Complex(*(n.emit("mul", n.reshape(p, sign.shape), sign) for p in whole))


@of_complex("_linalg_det.default")
def linalg_det(n: NodeContext, a: Complex) -> Any:
    y, d, pivots, sign = factored(n, a)
    return signed_product(n, d, sign), y, pivots


@of_complex("_linalg_slogdet.default")
def linalg_slogdet(n: NodeContext, a: Complex) -> Any:
    """The pivots' directions multiplied, and the sum of their magnitudes' logarithms."""
    y, d, pivots, sign = factored(n, a)
    size = magnitude(n, d)
    is_zero = n.emit("equal", size, n.constant(0, size.dtype))
    by = n.emit("reciprocal", n.emit("where", is_zero, n.constant(1, size.dtype), size))
    turns = signed_product(n, Complex(*(n.emit("mul", p, by) for p in d)), sign)
    total = n.emit("reduce_sum", n.emit("log", size), axes=(size.rank - 1,))
    return turns, total, y, pivots
