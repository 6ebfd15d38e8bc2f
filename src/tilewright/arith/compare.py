"""compare: comparisons of index expressions, decided or in canonical shape.

In: two i64 expressions. Out: a constant, or a comparison between sums without a common factor,
negative terms moved across, constants on the right, and of sizes rather than of how many parts they
have. The one idea: a < b asks for the sign of the form b - a - 1, and a form that moves in steps of
g is as good as its g-th part.
"""

from __future__ import annotations

from math import gcd

from tilewright.arith.affine import Forms
from tilewright.arith.terms import Affine, split_exactly
from tilewright.ir.dtype import bool_, i64
from tilewright.ir.expr import Binary, BinaryOp, Const, Expr, as_int

_EQ, _NE = BinaryOp.eq, BinaryOp.ne
_LT, _LE, _GT, _GE = BinaryOp.lt, BinaryOp.le, BinaryOp.gt, BinaryOp.ge
_TRUE, _FALSE = Const(True, bool_), Const(False, bool_)


def compare(forms: Forms, op: BinaryOp, a: Expr, b: Expr) -> Expr:
    """A comparison of i64 expressions: a constant if decided, else in canonical shape."""
    if op is _GT or op is _GE:
        a, b = b, a
    if op is _EQ or op is _NE:
        return _equality(forms, op, forms.sum(forms.affine(a), forms.affine(b), -1))
    gap = forms.sum(forms.affine(b), forms.affine(a), -1)
    return _inequality(forms, gap - 1 if op is _LT or op is _GT else gap)


def _inequality(forms: Forms, form: Affine) -> Expr:
    """form ≥ 0"""
    if forms.nonnegative(form):
        return _TRUE
    if forms.nonnegative(-form - 1):
        return _FALSE
    form = coarsest(forms, form)
    plain = _without_quotients(forms, form)
    if plain is not None:
        return _inequality(forms, plain)
    small = Affine({t: -c for t, c in form.terms.items() if c < 0}, 0)
    large = Affine({t: c for t, c in form.terms.items() if c > 0}, 0)
    if not small.terms:
        return Binary(_GE, forms.expr(large), Const(-form.const, i64))
    if form.const == 0 and large.terms:
        return Binary(_LE, forms.expr(small), forms.expr(large))
    if form.const < -1 and large.terms:
        return Binary(_LT, forms.expr(small - (form.const + 1)), forms.expr(large))
    return Binary(_LT, forms.expr(small), forms.expr(large + (form.const + 1)))


def coarsest(forms: Forms, form: Affine) -> Affine:
    """A form that is ≥ 0 where `form` is: 16*i + j < 64 is i < 4 while 0 ≤ j < 16."""
    for g in sorted({abs(c) for c in form.terms.values()}, reverse=True):
        if g == 1:
            break
        coarse, fine = split_exactly(form, g)
        if coarse.terms:
            block = forms.block(fine, g)
            if block is not None:
                return coarsest(forms, coarse + block)
    g = gcd(*form.terms.values())
    if g > 1:
        return Affine({t: c // g for t, c in form.terms.items()}, form.const // g)
    return form


def _without_quotients(forms: Forms, form: Affine) -> Affine | None:
    """What is ≥ 0 just where a form of quotients is: (n + 3) // 4 ≥ 2 where n ≥ 5, (n + 3) // 4 ≤ 2
    where n ≤ 8, and n // 4 < (n + 3) // 4 where n // 4 * 4 < n. None for other forms: n // 4 of
    loops that were fused is a number of its own, of which more is known than of n."""
    if not 1 <= len(form.terms) <= 2:
        return None
    found: dict[int, tuple[Expr, Affine, int]] = {}  # by coefficient: what is divided by what
    for t, c in form.terms.items():
        by = as_int(t.b) if isinstance(t, Binary) and t.op is BinaryOp.floordiv else None
        if not isinstance(t, Binary) or by is None or by < 1 or abs(c) != 1 or c in found:
            return None
        found[c] = t, forms.affine(t.a), by
    if len(found) == 1:
        ((c, (_, inside, by)),) = found.items()
        if inside.const % by != by - 1 or by == 1:
            return None
        return inside * c + form.const * by + (by - 1 if c < 0 else 0)
    (_, above, by), (quotient, below, its) = found[1], found[-1]
    apart = forms.sum(above, below, -1)
    if by != its or apart.terms or apart.const != by - 1 or form.const != -1:
        return None
    return forms.sum(below, Affine({quotient: 1}, 0), -by) - 1


def _equality(forms: Forms, op: BinaryOp, form: Affine) -> Expr:
    """form == 0 or form != 0"""
    yes, no = (_TRUE, _FALSE) if op is BinaryOp.eq else (_FALSE, _TRUE)
    if not form.terms:
        return no if form.const else yes
    g = gcd(*form.terms.values())
    if form.const % g or forms.nonnegative(form - 1) or forms.nonnegative(-form - 1):
        return no
    if forms.nonnegative(form) and forms.nonnegative(-form):
        return yes
    k = g if next(iter(form.terms.values())) > 0 else -g
    left = Affine({t: c // k for t, c in form.terms.items() if c * k > 0}, 0)
    right = Affine({t: -c // k for t, c in form.terms.items() if c * k < 0}, -form.const // k)
    if right.const < 0 and right.terms:
        left, right = left - right.const, Affine(right.terms, 0)
    return Binary(op, forms.expr(left), forms.expr(right))
