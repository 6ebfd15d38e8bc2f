"""Quotients, remainders, shifts and masks of two affine forms.

In: two forms of one `Forms`. Out: the form of the operator's value. By a constant they are `Forms`'
own digits; by a form, what the divisor's first term divides is split off and the rest is asked
whether it stays below the divisor.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.arith.algebra import Algebra
from tilewright.arith.terms import ZERO, Affine, take
from tilewright.ir.dtype import i64
from tilewright.ir.expr import Binary, BinaryOp, Const, Expr

_FLOORDIV, _FLOORMOD = BinaryOp.floordiv, BinaryOp.floormod


def floordiv(forms: Algebra, a: Affine, b: Affine) -> Affine:
    """a // b."""
    if not b.terms:
        if b.const == 0:
            return forms.term(Binary(_FLOORDIV, forms.expr(a), Const(0, i64)))
        return forms.quotient(a, b.const)
    whole, rest = _split(forms, a, b)
    if not rest.terms and rest.const == 0:
        return whole
    if forms.nonnegative(rest) and forms.nonnegative(b - rest - 1):
        return whole
    if len(b.terms) > 1 or b.const:
        whole, rest = ZERO, a
    return forms.sum(whole, forms.term(Binary(_FLOORDIV, forms.expr(rest), forms.expr(b))))


def floormod(forms: Algebra, a: Affine, b: Affine) -> Affine:
    """a % b."""
    if not b.terms:
        if b.const == 0:
            return forms.term(Binary(_FLOORMOD, forms.expr(a), Const(0, i64)))
        return forms.remainder(a, b.const)
    _, rest = _split(forms, a, b)
    if not rest.terms and rest.const == 0:
        return ZERO
    if forms.nonnegative(rest) and forms.nonnegative(b - rest - 1):
        return rest
    if len(b.terms) > 1 or b.const:
        rest = a
    divisor = forms.expr(b)
    e = Binary(_FLOORMOD, forms.expr(rest), divisor)
    form = forms.term(e)
    if form.terms and e not in forms.names.whole:
        blocks = forms.product(b, forms.term(Binary(_FLOORDIV, forms.expr(rest), divisor)))
        if blocks.terms:
            forms.names.whole[e] = blocks, rest
    return form


def _split(forms: Algebra, a: Affine, b: Affine) -> tuple[Affine, Affine]:
    """a = q * b + r where q takes the terms of `a` that the first term of `b` divides."""
    lead, k = max(b.terms.items(), key=lambda tc: len(forms.names.factors.get(tc[0], (1,))))
    parts = forms.names.factors.get(lead, (lead,))
    taken: dict[Expr, int] = {}
    const = 0
    for t, c in a.terms.items():
        if c % k:
            continue
        left = list(forms.names.factors.get(t, (t,)))
        if all(take(left, p) for p in parts):
            if left:
                taken[forms.multiply(tuple(left))] = c // k
            else:
                const += c // k
    whole = Affine(taken, const)
    return whole, forms.sum(a, forms.product(whole, b), -1)


def truncdiv(forms: Algebra, a: Affine, b: Affine) -> Affine:
    """a / b rounded towards zero."""
    if forms.nonnegative(a) and forms.nonnegative(b - 1):
        return floordiv(forms, a, b)
    return forms.operator(BinaryOp.truncdiv, a, b)


def truncmod(forms: Algebra, a: Affine, b: Affine) -> Affine:
    """What `truncdiv` leaves."""
    if forms.nonnegative(a) and forms.nonnegative(b - 1):
        return floormod(forms, a, b)
    return forms.operator(BinaryOp.truncmod, a, b)


def shift_left(forms: Algebra, a: Affine, b: Affine) -> Affine:
    """a << b."""
    if not b.terms and 0 <= b.const < 63:
        return a * (1 << b.const)
    return forms.operator(BinaryOp.shl, a, b)


def shift_right(forms: Algebra, a: Affine, b: Affine) -> Affine:
    """a >> b, which rounds down."""
    if not b.terms and 0 <= b.const < 63:
        return forms.quotient(a, 1 << b.const)
    return forms.operator(BinaryOp.shr, a, b)


def bit_and(forms: Algebra, a: Affine, b: Affine) -> Affine:
    """a & b; a mask of low bits is a remainder."""
    if not a.terms:
        a, b = b, a
    if not b.terms and b.const >= 0 and b.const & (b.const + 1) == 0:
        return forms.remainder(a, b.const + 1)
    return forms.operator(BinaryOp.bit_and, a, b)


FORMS: dict[BinaryOp, Callable[[Algebra, Affine, Affine], Affine]] = {
    _FLOORDIV: floordiv,
    _FLOORMOD: floormod,
    BinaryOp.truncdiv: truncdiv,
    BinaryOp.truncmod: truncmod,
    BinaryOp.shl: shift_left,
    BinaryOp.shr: shift_right,
    BinaryOp.bit_and: bit_and,
}
