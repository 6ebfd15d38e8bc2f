"""Mathematical functions as expressions of our own IR.

In: operands of dtype f32 or f64. Out: an expression of additions, products, fused multiply-adds,
selects, moves of bits and `scale` by a power of two, so that one definition serves every vector
length and machine. In f32 the error is at most 2 units in the last place for every argument,
denormals and huge ones included; the harder functions compute in f64 on the way. In f64 it is a few
units (of pow: up to a thousand), and sin, cos and tan are meant for arguments below 10^8. That of
gelu is small beside its argument.

Sources of the methods: argument reduction after Cody and Waite, and after Payne and Hanek for huge
arguments; the kernel of log after the description in fdlibm; polynomials from `coefficients.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nan, pi
from typing import Any

from tilewright.codegen.coefficients import (
    ASIN_TO_HALF,
    ATAN,
    ATAN_TO_ONE,
    COSINE,
    ERF_SMALL,
    ERFCX,
    EXP_REST,
    HALF_PI,
    HALF_PI_PARTS,
    LOG2_TAIL,
    LOG_ERFC,
    LOG_TERMS,
    SCALED_TAIL,
    SINE,
    TWO_OVER_PI,
)
from tilewright.ir.dtype import DType, f32, f64, i32, i64, u32, u64
from tilewright.ir.expr import (
    Call,
    Expr,
    UnaryOp,
    cast,
    const,
    eq,
    select,
    unary,
)

LOG2_E = 1.4426950408889634
LN2 = 0.6931471805599453
# ln 2 in two parts; the first has trailing zeros: its product with a small whole number is exact
LN2_PARTS = {
    f32: (0.693145751953125, 1.42860676533018690e-06),
    f64: (0.6931471803691238, 1.9082149292705877e-10),
}
MANTISSA = {f32: 23, f64: 52}
BIAS = {f32: 127, f64: 1023}
WHOLE = {f32: i32, f64: i64}  # the integer of a float's width
BITS = {f32: u32, f64: u64}
ROUNDER = {f32: 1.5 * 2.0**23, f64: 1.5 * 2.0**52}  # see `whole`
ROUNDER_BITS = {f32: 0x4B400000, f64: 0x4338000000000000}
LIFT = 64  # an f32 near 1 times 2^n is normal for -150 ≤ n ≤ 0 if it is 2^64 times as large
SMALLEST_NORMAL = {f32: 1.1754943508222875e-38, f64: 2.2250738585072014e-308}


# Tools ----------------------------------------------------------------------------------------


def number(value: float, like: Expr) -> Expr:
    """A constant of the dtype of `like`."""
    return const(value, like.dtype)


def fma(a: Expr, b: Expr, c: Expr) -> Expr:
    """a b + c, rounded once where the machine can."""
    return Call("fma", (a, b, c), a.dtype)


def reinterpret(x: Expr, to: DType) -> Expr:
    return Call("reinterpret", (x,), to)


def polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """c0 + c1 x + c2 x² + …, by Horner's rule."""
    result = number(coefficients[-1], x)
    for c in reversed(coefficients[:-1]):
        result = fma(result, x, number(c, x))
    return result


def short_polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """The same in pairs, pairs of pairs, …: a shorter chain of operations (Estrin's scheme)."""
    terms = [number(c, x) for c in coefficients]
    power = x
    while len(terms) > 1:
        odd = terms[-1:] if len(terms) % 2 else []
        pairs = zip(terms[::2], terms[1::2], strict=False)
        terms = [fma(high, power, low) for low, high in pairs] + odd
        power = power * power
    return terms[0]


def power_of_two(n: Expr, of: DType) -> Expr:
    """2^n for a whole n in the range of normal exponents."""
    return reinterpret((n + BIAS[of]) << MANTISSA[of], of)


def scale(x: Expr, n: Expr) -> Expr:
    """x 2^n, which may be denormal or infinite."""
    return Call("scale", (x, n), x.dtype)


def scale_down(x: Expr, n: Expr) -> Expr:
    """`scale` of an x near 1 where n is at most 0 (and, in f32, at least -150)."""
    return Call("scale_down", (x, n), x.dtype)


def in_steps(e: Expr) -> Expr:
    """An expression for a machine that has no instruction for `scale`: two products, of which only
    the second one rounds. What is shared stays so."""

    def stepped(name: str, x: Expr, n: Expr) -> Expr:
        of = x.dtype
        if name == "scale_down" and of is f32:
            return x * power_of_two(n + LIFT, of) * number(2.0**-LIFT, x)
        half = n >> 1
        return x * power_of_two(half, of) * power_of_two(n - half, of)

    made: dict[int, Expr] = {}

    def go(e: Any) -> Any:
        if not isinstance(e, Expr):
            return e
        if id(e) not in made:
            inside = e.map_children(go)
            if isinstance(inside, Call) and inside.name in ("scale", "scale_down"):
                inside = stepped(inside.name, *inside.args)
            made[id(e)] = inside
        return made[id(e)]

    return go(e)


def copy_sign(size: Expr, sign: Expr) -> Expr:
    """`size` (not negative, or of that sign already) with the sign of `sign`."""
    bits = BITS[size.dtype]
    top = const(1 << (bits.bits - 1), bits)
    return reinterpret(reinterpret(size, bits) | (reinterpret(sign, bits) & top), size.dtype)


def at_most(x: Expr, high: float) -> Expr:
    """The smaller of the two; NaN stays NaN. (One instruction, unlike `minimum`.)"""
    return select(x > number(high, x), number(high, x), x)


def at_least(x: Expr, low: float) -> Expr:
    """The larger of the two; NaN stays NaN."""
    return select(x < number(low, x), number(low, x), x)


def whole(above: Expr) -> tuple[Expr, Expr]:
    """(n, the same as an integer) where `above` is a number plus ROUNDER and n that number rounded.

    A sum that large has no bits left for a fraction; those that are left count whole numbers.
    """
    of = above.dtype
    count = reinterpret(above, WHOLE[of]) - const(ROUNDER_BITS[of], WHOLE[of])
    return above - number(ROUNDER[of], above), count


def absolute(x: Expr) -> Expr:
    return unary(UnaryOp.abs, x)


def is_nan(x: Expr) -> Expr:
    return unary(UnaryOp.isnan, x)


def is_inf(x: Expr) -> Expr:
    return unary(UnaryOp.isinf, x)


def root(x: Expr) -> Expr:
    return unary(UnaryOp.sqrt, x)


def in_f64(function: Callable[..., Expr]) -> Callable[..., Expr]:
    """A function that computes in f64 and rounds to the dtype of its operands."""

    def one(x: Expr) -> Expr:
        return cast(x.dtype, function(cast(f64, x)))

    def two(x: Expr, y: Expr) -> Expr:
        return cast(x.dtype, function(cast(f64, x), cast(f64, y)))

    made = one if function.__code__.co_argcount == 1 else two
    made.__name__, made.__doc__ = function.__name__, function.__doc__
    return made


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


# Trigonometry: in f64, but the inverses of f32 ------------------------------------------------


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
    turns = m * high + ((m * low) >> 32)  # in units of 2^-62
    n = (turns + (1 << 61)) >> 62
    rest = reinterpret(turns - (n << 62), i64)
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
    turned = t > number(0.41421356237309503, x)
    z = select(turned, (t - one) / (t + one), t)
    square = z * z
    value = fma(z, polynomial(square, ATAN), z)
    value = select(turned, value + number(pi / 4, x), value)
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
