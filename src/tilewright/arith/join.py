"""Digits of one base that fit together join: (f // 56) * 56 + f % 56 is f.

In: the terms of a form and the forms that know what they stand for. Out: the form without the
digits that make a shorter one, multiplied by a number or by the same term.
"""

from __future__ import annotations

from tilewright.arith.algebra import Algebra
from tilewright.arith.interval import UNKNOWN
from tilewright.arith.terms import Affine, Digit, add_terms
from tilewright.ir.expr import Expr, Var


def join(forms: Algebra, terms: dict[Expr, int], const: int) -> Affine:
    """Put digits of one base together."""
    digits = forms.names.digits
    for t, k in terms.items():
        if t.__class__ is Var:
            continue  # the most frequent term is no digit
        d = digits.get(t)
        if d is not None:
            step = _step(forms, terms, t, k, d)
            if step is not None:
                gone, gained, by = step
                rest = {x: c for x, c in terms.items() if x not in gone}
                const += by * gained.const
                return forms.canonical(add_terms(rest, gained.terms, by), const)
        elif forms.names.whole and t in forms.names.whole:
            blocks, form = forms.names.whole[t]
            if all(terms.get(x) == k * c for x, c in blocks.terms.items()):
                rest = {x: c for x, c in terms.items() if x != t and x not in blocks.terms}
                const += k * (form.const - blocks.const)
                return forms.canonical(add_terms(rest, form.terms, k), const)
    return _join_multiples(forms, terms, const) if forms.names.factors else Affine(terms, const)


def _join_multiples(forms: Algebra, terms: dict[Expr, int], const: int) -> Affine:
    """Put digits of one base together that are multiplied by the same: n * (x % l) and
    n * l * (x // l) make n * x."""
    multiples: dict[Expr, dict[Expr, int]] = {}  # by what digits are multiplied by
    for t, k in terms.items():
        factors = forms.names.factors.get(t, ())
        for i, f in enumerate(factors):
            if f in forms.names.digits:
                times = forms.multiply(factors[:i] + factors[i + 1 :])
                multiples.setdefault(times, {})[f] = k
    for times, digits in multiples.items():
        if len(digits) < 2:
            continue
        for f, k in digits.items():
            step = _step(forms, digits, f, k, forms.names.digits[f])
            if step is not None:
                gone, gained, by = step
                others = forms.names.factors.get(times, (times,))
                lost = {forms.multiply((*others, x)) for x in gone}
                rest = {t: c for t, c in terms.items() if t not in lost}
                whole = forms.product(gained, Affine({times: 1}, 0)) * by
                return forms.sum(Affine(rest, const), whole)
    return Affine(terms, const)


def _step(
    forms: Algebra, terms: dict[Expr, int], t: Expr, k: int, d: Digit
) -> tuple[tuple[Expr, ...], Affine, int] | None:
    """Terms to take away, and the form and its coefficient to add instead."""
    for t2, k2 in terms.items():
        if t2 is t or t2.__class__ is Var:
            continue
        d2 = forms.names.digits.get(t2)
        if d2 is None:
            continue
        if d2.base != d.base:
            if d2.l == 1 and d2.u == d.l and k2 * d.l == k:
                if _leaves(forms, d, t2, d2):  # l * (x // l) + x % l  =  x
                    return (t, t2), forms.digit(d.form, 1, d.u) if d.u else d.form, k2
            elif d.l == d2.l == 1 and d.u and d2.u and k == k2 * d2.u:
                both = forms.sum(d.form * d2.u, Affine({t2: 1}, 0))
                if t2 not in both.terms:  # n * (x % m) + y  =  (n * x + y) % (n * m)
                    return (t, t2), forms.remainder(both, d.u * d2.u), k2
            elif d2.l == 1 and d2.u and k == k2 * d2.u and _counts(forms, d, d2):
                whole = forms.remainder(d2.form, d2.u * (d.u // d.l)) if d.u else d2.form
                return (t, t2), whole, k2  # 48 * (x // 3) + (16 * x + y) % 48  =  16 * x + y
            continue
        if d2.l == d.u and k2 * d.l == k * d2.l:  # x % u // l + u/l * (x // u)  =  x // l
            return (t, t2), forms.digit(d.form, d.l, d2.u), k
        if d2.u == d.u and d.l % d2.l == 0 and k == -k2 * (d.l // d2.l):
            return (t, t2), forms.digit(d.form, d2.l, d.l), k2  # x // l - m/l * (x // m)
    if d.u is None and k % d.l == 0:  # x - l * (x // l)  =  x % l
        by = -k // d.l
        if all(terms.get(x) == by * c for x, c in d.form.terms.items()):
            return (t, *d.form.terms), forms.digit(d.form, 1, d.l) - d.form.const, by
        if forms.given:  # l * (x // l)  =  x - x % l, where the remainder is known
            least, most = forms.given.get(forms.names.terms.get((d.base, 1, d.l), t), UNKNOWN)
            if least == most:
                return (t,), d.form - int(least), -by
    return None


def _leaves(forms: Algebra, d: Digit, rest: Expr, d2: Digit) -> bool:
    """Is `rest`, a remainder of another base, what the quotient `d` leaves of its own?"""
    low = forms.remainder(d.form, d.l)  # may be told by a base with less in it
    if low.const == 0 and low.terms == {rest: 1}:
        return True
    apart = forms.remainder(forms.sum(d.form, d2.form, -1), d.l)
    return not apart.terms and apart.const == 0


def _counts(forms: Algebra, d: Digit, rest: Digit) -> bool:
    """Is `d` the quotient of which `rest` is the remainder, told by a base with less in it?"""
    if rest.u is None:
        return False
    apart = forms.sum(forms.quotient(rest.form, rest.u), forms.digit(d.form, d.l, None), -1)
    return not apart.terms and apart.const == 0
