"""Determine: which loop variables follow from the values of index expressions.

In: the values of a block's axes, say, and the ranges of variables. Out: the variables that cannot
differ where the values are the same. The one idea: a value is a number in mixed radix. Of
c1 * x + c2 * y + … follows x if the rest spans less than c1, then y, and so on; and a base follows
from digits of it, base % u // l, that leave nothing of it out. Simplification writes the digits of
one base in different ways: what l divides moves out of base // l, what u divides out of base % u,
and where no remainder can reach the next multiple of l, both lose a factor. So a digit counts for
every base that it is a digit of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import gcd

from tilewright.arith.affine import Affine, Forms
from tilewright.arith.coverage import tells
from tilewright.arith.terms import split
from tilewright.ir.expr import Binary, BinaryOp, Expr, Var
from tilewright.ir.walk import free_vars
from tilewright.support.record import record

_BESIDE = {BinaryOp.floordiv: BinaryOp.floormod, BinaryOp.floormod: BinaryOp.floordiv}
MOST_DIGITS = 24  # of how many it is tried out what follows from them


def follows(var: Var, values: Sequence[Expr], inside: set[Var], forms: Forms) -> bool:
    """Whether one variable of `inside` follows from `values`, all others being fixed.

    Mostly it is seen at once: it is the heaviest that is left of a sum, or its digits are.
    """
    return plainly_follows(var, values, inside, forms) or var in _Determination(inside, forms).run(
        values
    )


def plainly_follows(var: Var, values: Sequence[Expr], inside: set[Var], forms: Forms) -> bool:
    """As `follows`, of sums in which `var` is a term, or digits of it are; False for others."""
    if any(value is var for value in values):
        return True
    digits: list[tuple[int, int | None]] = []  # l and u of var % u // l
    for value in values:
        if var not in forms.variables(value):
            continue
        terms = forms.affine(value).terms
        for t in heavy(forms, {t: c for t, c in terms.items() if forms.variables(t) & inside}, 0):
            digit = forms.names.digits.get(t)
            if t == var:
                return True
            if digit is not None and digit.base == var:
                digits.append((digit.l, digit.u))
    return tells(digits, _width(forms, var))


def heavy(forms: Forms, terms: Mapping[Expr, int], rest: float) -> Iterator[Expr]:
    """The terms that must be equal for their sums to differ by no more than `rest`."""
    order = _heaviest_first(terms)
    for n, (c, t) in enumerate(order):
        if rest + _span(forms, order[n + 1 :]) >= c:
            return
        yield t


@record
class _Digit:
    """base % high // low, where low divides high; high = 0: base // low."""

    base: Affine
    low: int
    high: int

    def over(self, l: int, u: int) -> Iterator[_Digit]:
        """This digit % u // l (u = 0: // l), if that is a digit of the base again."""
        inside = self.high // self.low if self.high else 0
        if inside and (inside % (u or l)):
            return
        high = u * self.low if u else self.high
        yield _Digit(self.base, l * self.low, high)


class _Determination:
    """What is known so far, while it grows."""

    def __init__(self, inside: set[Var], forms: Forms) -> None:
        self.inside, self.forms = inside, forms
        self.known: set[Expr] = {u for u in inside if _width(forms, u) == 0}
        self.sums: list[Affine] = []
        self.digits: list[_Digit] = []

    def run(self, values: Iterable[Expr]) -> set[Var]:
        for v in values:
            self.learn(self.forms.affine(v))
        grew = True
        while grew:
            grew = False
            for form in list(self.sums):
                open_ = {t: c for t, c in form.terms.items() if not self.is_known(t)}
                for t in heavy(self.forms, open_, 0):
                    grew = True
                    self.known.add(t)
                    if len(form.terms) > 1:
                        self.learn(Affine({t: 1}, 0))
                    self.complete(t)
        return {u for u in self.inside if u in self.known}

    def is_known(self, t: Expr) -> bool:
        return t in self.known or all(u in self.known or u not in self.inside for u in free_vars(t))

    def complete(self, t: Expr) -> None:
        """With base // n follows from base % n the base, whatever n is, if it is fixed."""
        if isinstance(t, Binary) and t.op in _BESIDE and self.is_known(t.b):
            if Binary(_BESIDE[t.op], t.a, t.b) in self.known:
                self.learn(self.forms.affine(t.a))

    def learn(self, form: Affine) -> None:
        """The value of a form is known: so are its parts, and bases of which it was the last digit
        missing."""
        for part in self.parts(form):
            if any(_is_zero(self.gap(part, s, 0)) for s in self.sums):
                continue
            self.sums.append(part)
            found = [d for d in self.as_digits(part) if d.low > 1 or d.high]
            for d in found:
                self.add(d)
            if found:
                for base in [d.base for d in self.digits]:
                    if self.is_whole(base):
                        self.learn(base)

    def add(self, digit: _Digit) -> None:
        """Count a digit, and those that follow from it and others."""
        if len(self.digits) == MOST_DIGITS:
            return
        self.digits.append(digit)
        for other in list(self.digits):
            for upper, lower in ((digit, other), (other, digit)):
                finer = self.finer(upper, lower)
                if finer is not None:
                    self.add(finer)

    def finer(self, upper: _Digit, lower: _Digit) -> _Digit | None:
        """The upper digit, of a base that the lower one ends where it begins, if there is one:
        base // l is (g * base + r) // (g * l), for 0 ≤ r < g."""
        g, uneven = divmod(lower.high, upper.low)
        if g < 2 or uneven:
            return None
        rest = self.gap(lower.base, upper.base * g, lower.high)
        least, most = self.forms.bounds(rest)
        if least < 0 or most >= g:
            return None
        return _Digit(upper.base * g + rest, upper.low * g, upper.high * g)

    def parts(self, form: Affine) -> list[Affine]:
        """A sum, and the parts of it that follow from it: of 28 * a + 4 * b + c, with 0 ≤ c < 4,
        that is c, its remainder by 4, and 7 * a + b."""
        order = _heaviest_first(form.terms)
        for n in range(1, len(order) + 1):
            step = gcd(*[c for c, _ in order[:n]])
            if _span(self.forms, order[n:]) < step:
                upper = Affine({t: form.terms[t] // step for _, t in order[:n]}, 0)
                lower = Affine({t: form.terms[t] for _, t in order[n:]}, 0)
                return [upper, *self.parts(lower)]
        return []

    def as_digits(self, form: Affine) -> Iterator[_Digit]:
        """The ways to read a form as a digit: r + a // l is (a + r * l) // l."""
        yield _Digit(form, 1, 0)
        for t, c in form.terms.items():
            d = self.forms.names.digits.get(t)
            rest = form - Affine({t: c}, 0)
            if d is None or c != 1 or (d.u is not None and (rest.terms or rest.const)):
                continue
            for whole in self.as_digits(self.forms.sum(d.form, rest, d.l)):
                yield from whole.over(d.l, d.u or 0)

    def gap(self, a: Affine, b: Affine, modulus: int) -> Affine:
        """a - b, without what a modulus, if it is not 0, divides."""
        gap = self.forms.sum(a, b, -1)
        if modulus:
            gap = self.forms.without_multiples(gap, modulus)
            return split(gap, modulus)[1]
        return gap

    def is_whole(self, base: Affine) -> bool:
        """Do the digits, low to high, leave nothing of a base out?"""
        moving = [(abs(c), t) for t, c in base.terms.items() if free_vars(t) & self.inside]
        width = _span(self.forms, moving)
        fitting = [d for d in self.digits if _is_zero(self.gap(d.base, base, d.high))]
        return tells([(d.low, d.high or None) for d in fitting], width)


def _is_zero(form: Affine) -> bool:
    return not form.terms and form.const == 0


def _heaviest_first(terms: Mapping[Expr, int]) -> list[tuple[int, Expr]]:
    return sorted(((abs(c), t) for t, c in terms.items()), key=lambda item: -item[0])


def _span(forms: Forms, terms: Iterable[tuple[int, Expr]]) -> float:
    """By how much a sum can vary."""
    return sum(c * _width(forms, t) for c, t in terms)


def _width(forms: Forms, t: Expr) -> float:
    low, high = forms.term_bounds(t)
    return high - low
