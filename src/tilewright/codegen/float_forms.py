"""Forms of floats that formulas are made of: bits, powers of two, polynomials, signs.

In: operands of dtype f32 or f64. Out: an expression of additions, products, fused multiply-adds,
selects, moves of bits and `scale` by a power of two, which every vector length and machine has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.dtype import DType, f32, f64, i32, i64, u32, u64
from tilewright.ir.expr import Call, Expr, UnaryOp, cast, const, select, unary

MANTISSA = {f32: 23, f64: 52}
BIAS = {f32: 127, f64: 1023}
WHOLE = {f32: i32, f64: i64}  # the integer of a float's width
BITS = {f32: u32, f64: u64}
ROUNDER = {f32: 1.5 * 2.0**23, f64: 1.5 * 2.0**52}  # see `whole`
ROUNDER_BITS = {f32: 0x4B400000, f64: 0x4338000000000000}
LIFT = 64  # an f32 near 1 times 2^n is normal for -150 ≤ n ≤ 0 if it is 2^64 times as large
SMALLEST_NORMAL = {f32: 1.1754943508222875e-38, f64: 2.2250738585072014e-308}


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
