"""Mathematical functions as expressions of our own IR.

In: operands of dtype f32 or f64. Out: an expression of additions, products, fused multiply-adds,
selects, moves of bits and `scale` by a power of two, so that one definition serves every vector
length and machine. In f32 the error is at most 2 units in the last place for every argument,
denormals and huge ones included; the harder functions compute in f64 on the way. In f64 it is a few
units (of pow: up to a thousand). That of gelu is small beside its argument.

Sources of the methods: argument reduction after Cody and Waite; the kernel of log after the
description in fdlibm; polynomials from `coefficients.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan

from tilewright.codegen.coefficients import (
    ERF_SMALL,
    ERFCX,
    EXP_REST,
    LOG2_TAIL,
    LOG_ERFC,
    LOG_TERMS,
    SCALED_TAIL,
)
from tilewright.codegen.float_forms import (
    MANTISSA,
    ROUNDER,
    SMALLEST_NORMAL,
    WHOLE,
    absolute,
    at_least,
    at_most,
    copy_sign,
    fma,
    in_f64,
    is_inf,
    is_nan,
    number,
    polynomial,
    power_of_two,
    reinterpret,
    root,
    scale,
    scale_down,
    short_polynomial,
    whole,
)
from tilewright.codegen.trigonometry import acos, asin, atan, atan2, cos, sin, tan
from tilewright.ir.dtype import f32, f64, u64
from tilewright.ir.expr import Expr, UnaryOp, cast, const, eq, select, unary

LOG2_E = 1.4426950408889634
LN2 = 0.6931471805599453
# ln 2 in two parts; the first has trailing zeros: its product with a small whole number is exact
LN2_PARTS = {
    f32: (0.693145751953125, 1.42860676533018690e-06),
    f64: (0.6931471803691238, 1.9082149292705877e-10),
}

# Exponentials and logarithms --------------------------------------------------------------------


def clamped(x: Expr, low: float, high: float) -> Expr:
    """The nearest to `x` in [low, high]; NaN stays NaN."""
    return at_most(at_least(x, low), high)


def reduced(x: Expr) -> tuple[Expr, Expr]:
    """(r, n) with x = r + n ln 2 and |r| ≤ ln 2 / 2."""
    n, count = whole(fma(x, number(LOG2_E, x), number(ROUNDER[x.dtype], x)))
    large, small = LN2_PARTS[x.dtype]
    r = fma(n, number(-small, x), fma(n, number(-large, x), x))
    return r, count


def exp(x: Expr) -> Expr:
    """e^x."""
    r, n = reduced(clamped(x, *((-104.0, 89.0) if x.dtype is f32 else (-746.0, 710.0))))
    p = fma(r * r, polynomial(r, EXP_REST[x.dtype]), r)
    return scale(p + number(1.0, x), n)


def exp_of_medium(x: Expr) -> Expr:
    """e^x where that is a normal number."""
    r, n = reduced(x)
    two = power_of_two(n, x.dtype)
    return fma(fma(r * r, polynomial(r, EXP_REST[x.dtype]), r), two, two)


def expm1(x: Expr) -> Expr:
    """e^x - 1, accurate near 0."""
    r, n = reduced(clamped(x, *((-20.0, 89.0) if x.dtype is f32 else (-40.0, 710.0))))
    p = fma(r * r, polynomial(r, EXP_REST[x.dtype]), r)  # e^r - 1
    half = n >> 1
    two, rest = power_of_two(half, x.dtype), power_of_two(n - half, x.dtype)
    # (p + 1) 2^n - 1 as (p 2^h + (2^h - 2^(h-n))) 2^(n-h)
    result = fma(p, two, two - power_of_two(half - n, x.dtype)) * rest
    return copy_sign(select(eq(n, const(0, n.dtype)), p, result), x)  # for -0


def exp2(x: Expr) -> Expr:
    """2^x."""
    low, high = (-151.0, 129.0) if x.dtype is f32 else (-1076.0, 1025.0)
    return scale(*exp2_parts(clamped(x, low, high)))


def exp2_parts(x: Expr) -> tuple[Expr, Expr]:
    """(y, n) with 2^x = y 2^n and y near 1."""
    n, count = whole(x + number(ROUNDER[x.dtype], x))
    terms = [c * LN2**k for k, c in enumerate([1.0, 1.0, *EXP_REST[x.dtype]])]
    return short_polynomial(x - n, terms), count


def log(x: Expr) -> Expr:
    """The natural logarithm."""
    of, whole = x.dtype, WHOLE[x.dtype]
    tiny = x < number(SMALLEST_NORMAL[of], x)
    y = select(tiny, x * number(2.0 ** MANTISSA[of], x), x)
    # y = m 2^k with m in [sqrt(1/2), sqrt(2)): count exponents from the bits of sqrt(1/2)
    base = 0x3F3504F3 if of is f32 else 0x3FE6A09E667F3BCD
    above = reinterpret(y, whole) - const(base, whole)
    k = above >> MANTISSA[of]
    m = reinterpret((above & ((1 << MANTISSA[of]) - 1)) + const(base, whole), of)
    g = m - number(1.0, x)
    s = g / (g + number(2.0, x))
    z = s * s
    rest = z * polynomial(z, [2 / (2 * i + 3) for i in range(LOG_TERMS[of])])
    half = number(0.5, x) * g * g
    e = cast(of, k - select(tiny, const(MANTISSA[of], whole), const(0, whole)))
    large, small = LN2_PARTS[of]
    result = fma(e, number(large, x), g - (half - fma(e, number(small, x), s * (half + rest))))
    result = select(eq(x, number(inf, x)), x, result)
    result = select(eq(x, number(0.0, x)), number(-inf, x), result)
    return select(x >= number(0.0, x), result, number(nan, x))


def log2_(x: Expr) -> Expr:
    """The logarithm to base 2."""
    return log(x) * number(LOG2_E, x)


def log1p(x: Expr) -> Expr:
    """log(1 + x), accurate near 0."""
    u = x + number(1.0, x)
    result = log(u) - ((u - number(1.0, x)) - x) / u  # what rounding 1 + x lost
    result = select(eq(u, number(inf, x)), u, result)
    return copy_sign(select(eq(u, number(0.0, x)), number(-inf, x), result), x)  # for -0


def exp_of_negative(x: Expr) -> Expr:
    """e^x where x is at most 0."""
    r, n = reduced(at_least(x, -104.0 if x.dtype is f32 else -746.0))
    p = fma(r * r, short_polynomial(r, EXP_REST[x.dtype]), r)
    return scale_down(p + number(1.0, x), n)


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e^-x)."""
    one = number(1.0, x)
    t = exp_of_negative(-absolute(x))
    below = x < number(0.0, x)
    # with q = t / (1 + t), what there is on the other side is 1 - q, and t - t q is q, more exactly
    size = select(below, t, one)
    return fma(-size, t / (one + t), size)


# Hyperbolic functions ---------------------------------------------------------------------------


def tanh(x: Expr) -> Expr:
    """The hyperbolic tangent."""
    size = absolute(x)
    one = number(1.0, x)
    if x.dtype is not f32:
        t = expm1(at_most(size, 20.0) * number(2.0, x))
        return copy_sign(t / (t + number(2.0, x)), x)
    # h: half of e^2|x| - 1; p: half of e^2r - 1, where |x| = r + n ln 2 / 2
    size = at_most(size, 9.5)
    n, count = whole(fma(size, number(2 * LOG2_E, x), number(ROUNDER[f32], x)))
    large, small = LN2_PARTS[f32]
    r = fma(n, number(-small / 2, x), fma(n, number(-large / 2, x), size))
    rest = [c * 2.0 ** (k + 1) for k, c in enumerate(EXP_REST[f32])]
    p = fma(r * r, short_polynomial(r, rest), r)
    two, half = power_of_two(count, f32), number(0.5, x)
    h = fma(p, two, fma(two, half, -half))
    # h / (h + 1) as h - h q or 1 - q: q may err more than either
    near = at_most(h, 1.0)
    return copy_sign(fma(-near, near / (h + one), near), x)


def sinh(x: Expr) -> Expr:
    """The hyperbolic sine."""
    size = absolute(x)
    t = expm1(at_most(size, 709.0))
    result = number(0.5, x) * (t + t / (t + number(1.0, x)))
    half = exp(size * number(0.5, x))  # its square reaches beyond where e^|x| overflows
    return copy_sign(select(size > number(709.0, x), number(0.5, x) * half * half, result), x)


def cosh(x: Expr) -> Expr:
    """The hyperbolic cosine."""
    size = absolute(x)
    half = exp(size * number(0.5, x))  # its square reaches beyond where e^|x| overflows
    return number(0.5, x) * half * half + number(0.5, x) * exp(-size)


def asinh(x: Expr) -> Expr:
    """The inverse hyperbolic sine."""
    size = absolute(x)
    one = number(1.0, x)
    small = log1p(size + size * size / (one + root(fma(size, size, one))))
    large = log(size) + number(LN2, x)
    return copy_sign(select(size > number(1e8, x), large, small), x)


def acosh(x: Expr) -> Expr:
    """The inverse hyperbolic cosine."""
    t = x - number(1.0, x)
    small = log1p(t + root(t * (t + number(2.0, x))))
    result = select(x > number(1e8, x), log(x) + number(LN2, x), small)
    return select(x >= number(1.0, x), result, number(nan, x))


def atanh(x: Expr) -> Expr:
    """The inverse hyperbolic tangent."""
    size = absolute(x)
    t = (size + size) / (number(1.0, x) - size)
    return copy_sign(number(0.5, x) * log1p(t), x)


# Error function ---------------------------------------------------------------------------------


def erf(x: Expr) -> Expr:
    """The error function."""
    size = absolute(x)
    one = number(1.0, x)
    small = fma(size, polynomial(size * size, ERF_SMALL[x.dtype]), size)
    if x.dtype is f32:
        large = one - exp_of_medium(polynomial(at_most(size, 4.0), LOG_ERFC))
    else:
        y = at_most(size, 6.0)
        scaled = polynomial((y - number(3.5, x)) / number(2.5, x), ERFCX)
        large = one - exp(-(y * y)) * scaled
    return copy_sign(select(size < one, small, large), x)


def gelu(x: Expr) -> Expr:
    """x times the normal distribution's probability below x."""
    zero = number(0.0, x)
    size = at_most(absolute(x), 14.3 if x.dtype is f32 else 40.0)  # from there on: 0
    return select(x > zero, x, zero) - size * normal_tail(size)


def normal_tail(a: Expr) -> Expr:
    """The normal distribution's probability above a, in f32 (0 ≤ a ≤ 14.3) or f64 (0 ≤ a ≤ 40)."""
    if a.dtype is f32:
        return scale_down(*exp2_parts(short_polynomial(a, LOG2_TAIL)))
    four = number(4.0, a)
    scaled = short_polynomial((a - four) / (a + four), SCALED_TAIL)
    return exp(a * a * number(-0.5, a)) * scaled / (number(1.0, a) + a)


# Powers and remainders --------------------------------------------------------------------------


def power(x: Expr, y: Expr) -> Expr:
    """x^y, with the special cases of IEEE 754's pow."""
    zero, one = number(0.0, x), number(1.0, x)
    size = absolute(x)
    result = exp2(y * log2_(size))
    whole = eq(unary(UnaryOp.trunc, y), y)
    half = y * number(0.5, x)
    odd = whole & ~eq(unary(UnaryOp.trunc, half), half)
    negative = eq(reinterpret(x, u64) >> 63, const(1, u64))
    result = select(negative & odd, -result, result)
    result = select((x < zero) & ~whole & ~is_inf(x), number(nan, x), result)
    result = select(
        eq(size, one) & ~(eq(x, -one) & odd),
        select(eq(x, one) | whole, one, number(nan, x)),
        result,
    )
    result = select(is_nan(x) | is_nan(y), x + y, result)
    return select(eq(y, zero) | eq(x, one), one, result)


def remainder(x: Expr, y: Expr) -> Expr:
    """The remainder of x / y with the sign of x, exact for f32 operands (C's fmod).

    Each step takes away a multiple of y 2^(29 k) below 2^29 times it; quotient and product are
    exact in f64.
    """
    r, d = absolute(x), absolute(y)
    for k in range(9, -1, -1):
        step = d * number(2.0 ** (29 * k), x)
        r = fma(unary(UnaryOp.trunc, r / step), -step, r)
        r = select(r < number(0.0, x), r + step, r)  # the quotient was rounded up
        r = select(r >= step, r - step, r)
    r = select(is_inf(y), absolute(x), r)
    bad = is_nan(x) | is_nan(y) | is_inf(x) | eq(y, number(0.0, x))
    return select(bad, number(nan, x), copy_sign(r, x))


FUNCTIONS: dict[str, Callable[..., Expr]] = {
    "exp": exp,
    "exp2": exp2,
    "expm1": expm1,
    "log": log,
    "log2": in_f64(log2_),
    "log1p": in_f64(log1p),
    "sigmoid": sigmoid,
    "tanh": tanh,
    "erf": erf,
    "gelu": gelu,
    "sin": sin,
    "cos": cos,
    "tan": tan,
    "asin": asin,
    "acos": acos,
    "atan": atan,
    "sinh": in_f64(sinh),
    "cosh": in_f64(cosh),
    "asinh": in_f64(asinh),
    "acosh": in_f64(acosh),
    "atanh": in_f64(atanh),
    "atan2": in_f64(atan2),
    "pow": in_f64(power),
    "fmod": in_f64(remainder),
}
