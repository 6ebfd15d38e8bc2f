"""Sine, cosine and tangent, and their inverses, as expressions of our own IR.

In: operands of dtype f32 or f64. Out: an expression, as `math.py` says. They compute in f64, but
for the inverses of f32; of f64, sin, cos and tan are meant for arguments below 10^8.

Sources of the methods: argument reduction after Cody and Waite, and after Payne and Hanek for huge
arguments; polynomials from `coefficients.py`.
"""

from __future__ import annotations

from math import nan, pi

from tilewright.codegen.coefficients import (
    ASIN_TO_HALF,
    ATAN,
    ATAN_TO_ONE,
    COSINE,
    HALF_PI,
    HALF_PI_PARTS,
    SINE,
    TWO_OVER_PI,
)
from tilewright.codegen.float_forms import (
    BITS,
    absolute,
    copy_sign,
    fma,
    is_inf,
    is_nan,
    number,
    polynomial,
    reinterpret,
    root,
)
from tilewright.ir.dtype import f32, f64, i64, u32, u64
from tilewright.ir.expr import Expr, UnaryOp, cast, const, eq, select, unary


def quadrant(x: Expr) -> tuple[Expr, Expr]:
    """(r, n): |x| = r + n π/2 (n a u64, of which the last two bits count), |r| ≤ π/4; x is f64."""
    size = absolute(x)
    n = unary(UnaryOp.round, size * number(2 / pi, x))
    r = size
    for part in HALF_PI_PARTS:
        r = fma(n, number(-part, x), r)
    return r, cast(u64, n)


def huge_quadrant(x: Expr) -> tuple[Expr, Expr]:
    """`quadrant` for an f32 of any size, r in f64: x 2/π modulo 4 in whole numbers.

    With |x| = m 2^e (m of 24 bits), bits of 2/π of weight 4 2^-e and more cannot matter; the next
    96 do.
    """
    bits = cast(u64, reinterpret(absolute(x), u32))
    e = (bits >> 23) - 150
    m = (bits & 0x7FFFFF) | 0x800000
    start = e + 62  # of the window, among the bits of TWO_OVER_PI
    word, shift = start >> 5, start & 31

    def chosen(k: int) -> Expr:
        found = const(TWO_OVER_PI[k], u64)
        for w in range(1, 6):
            found = select(eq(word, const(w, u64)), const(TWO_OVER_PI[w + k], u64), found)
        return found

    w0, w1, w2, w3 = (chosen(k) for k in range(4))
    high = (((w0 << 32) | w1) << shift) | (w2 >> (const(32, u64) - shift))
    low = ((w2 << shift) & 0xFFFFFFFF) | (w3 >> (const(32, u64) - shift))
    quarters = m * high + ((m * low) >> 32)  # in units of 2^-62
    n = (quarters + (1 << 61)) >> 62
    rest = reinterpret(quarters - (n << 62), i64)
    r = cast(f64, rest) * const(pi / 2 * 2.0**-62, f64)
    near = absolute(x) < number(0.78, x)
    return select(near, cast(f64, absolute(x)), r), select(near, const(0, u64), n)


def sine_cosine(x: Expr) -> tuple[Expr, Expr]:
    """sin |x| and cos x, in f64."""
    r, n = huge_quadrant(x) if x.dtype is f32 else quadrant(x)
    square = r * r
    s = fma(r, square * polynomial(square, SINE[1:]), r)
    c = polynomial(square, COSINE)
    odd = eq(n & 1, const(1, u64))
    sine, cosine = select(odd, c, s), select(odd, s, c)
    sine = select(eq(n & 2, const(2, u64)), -sine, sine)
    cosine = select(eq((n + 1) & 2, const(2, u64)), -cosine, cosine)
    bad = is_nan(x) | is_inf(x)
    return select(bad, const(nan, f64), sine), select(bad, const(nan, f64), cosine)


def sin(x: Expr) -> Expr:
    """The sine."""
    sine = cast(x.dtype, sine_cosine(x)[0])
    return select(x < number(0.0, x), -sine, select(eq(x, number(0.0, x)), x, sine))


def cos(x: Expr) -> Expr:
    """The cosine."""
    return cast(x.dtype, sine_cosine(x)[1])


def tan(x: Expr) -> Expr:
    """The tangent."""
    sine, cosine = sine_cosine(x)
    size = cast(x.dtype, sine / cosine)
    return select(x < number(0.0, x), -size, select(eq(x, number(0.0, x)), x, size))


def atan(x: Expr) -> Expr:
    """The inverse tangent."""
    size = absolute(x)
    one = number(1.0, x)
    steep = size > one
    t = select(steep, one / size, size)  # in [0, 1]
    if x.dtype is f32:
        square = t * t
        rest = t * (square * polynomial(square, ATAN_TO_ONE))
        value = select(steep, right_angle_less(t, rest), t + rest)
        return copy_sign(select(is_nan(x), x, value), x)
    reduced = t > number(0.41421356237309503, x)
    z = select(reduced, (t - one) / (t + one), t)
    square = z * z
    value = fma(z, polynomial(square, ATAN), z)
    value = select(reduced, value + number(pi / 4, x), value)
    value = select(steep, number(pi / 2, x) - value, value)
    return copy_sign(select(is_nan(x), x, value), x)


def right_angle_less(t: Expr, rest: Expr) -> Expr:
    """π/2 - (t + rest) in f32, where rest is the small part."""
    return number(HALF_PI[0], t) - (t + (rest - number(HALF_PI[1], t)))


def half_angle(x: Expr) -> tuple[Expr, Expr, Expr]:
    """(|x| > 1/2, t, rest) with t + rest the inverse sine of |x| where |x| is at most 1/2, and half
    of the inverse cosine beyond, all in f32."""
    size, half = absolute(x), number(0.5, x)
    steep = size > half
    square = select(steep, fma(-half, size, half), size * size)
    t = select(steep, root(square), size)
    return steep, t, t * (square * polynomial(square, ASIN_TO_HALF))


def asin(x: Expr) -> Expr:
    """The inverse sine."""
    if x.dtype is f32:
        steep, t, rest = half_angle(x)
        two = number(2.0, x)
        return copy_sign(select(steep, right_angle_less(two * t, two * rest), t + rest), x)
    one = number(1.0, x)
    return atan(x / root((one - x) * (one + x)))


def acos(x: Expr) -> Expr:
    """The inverse cosine."""
    if x.dtype is f32:
        steep, t, rest = half_angle(x)
        two, below = number(2.0, x), x < number(0.0, x)
        t, rest = select(steep, two * t, t), select(steep, two * rest, rest)
        # the angle from the nearer of 0 and π, or from π/2
        whole = select(below, number(2 * HALF_PI[0], x), number(0.0, x))
        less = select(below, number(2 * HALF_PI[1], x), number(0.0, x))
        whole = select(steep, whole, number(HALF_PI[0], x))
        less = select(steep, less, number(HALF_PI[1], x))
        up = below ^ steep
        t, rest = select(up, t, -t), select(up, rest, -rest)
        return (whole + t) + (rest + less)
    one = number(1.0, x)
    return number(2.0, x) * atan(root((one - x) / (one + x)))


def atan2(y: Expr, x: Expr) -> Expr:
    """The angle of the point (x, y), in [-π, π]."""
    high, wide = absolute(y), absolute(x)
    both = is_inf(y) & is_inf(x)
    slope = select(both, number(1.0, x), high / wide)
    slope = select(eq(high, number(0.0, x)) & eq(wide, number(0.0, x)), number(0.0, x), slope)
    angle = atan(slope)
    left = reinterpret(x, BITS[x.dtype]) >> (x.dtype.bits - 1)
    angle = select(eq(left, const(1, left.dtype)), number(pi, x) - angle, angle)
    return select(is_nan(x) | is_nan(y), x + y, copy_sign(angle, y))
