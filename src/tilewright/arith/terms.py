"""Sums of terms: what affine forms are made of, and how they split without knowing any range.

In and out: `Affine`, a constant and terms with coefficients; `Digit`, what a quotient or remainder
by constants leaves. The one idea: everything here is exact for all values of the variables.
"""

from __future__ import annotations

from math import gcd

from tilewright.ir.dtype import i64
from tilewright.ir.expr import Binary, BinaryOp, Const, Expr, Unary, UnaryOp, Var

_ADD, _SUB, _MUL = BinaryOp.add, BinaryOp.sub, BinaryOp.mul


class Affine:
    """A sum of terms with coefficients, none of them 0, and a constant. Never changed once made."""

    __slots__ = ("const", "terms")

    def __init__(self, terms: dict[Expr, int], const: int) -> None:
        self.terms, self.const = terms, const

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.terms, self.const + other)
        return Affine(add_terms(self.terms, other.terms, 1), self.const + other.const)

    def __sub__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.terms, self.const - other)
        return Affine(add_terms(self.terms, other.terms, -1), self.const - other.const)

    def __mul__(self, k: int) -> Affine:
        if k == 1:
            return self
        return Affine({t: c * k for t, c in self.terms.items()} if k else {}, self.const * k)

    def __neg__(self) -> Affine:
        return self * -1

    def __repr__(self) -> str:
        return f"Affine({self.terms!r}, {self.const})"


ZERO = Affine({}, 0)


def add_terms(a: dict[Expr, int], b: dict[Expr, int], k: int) -> dict[Expr, int]:
    terms = dict(a)
    for t, c in b.items():
        total = terms.get(t, 0) + k * c
        if total:
            terms[t] = total
        else:
            del terms[t]
    return terms


class Digit:
    """What is known of a term `base % u // l` (u None: `base // l`); l divides u."""

    __slots__ = ("base", "form", "l", "u")

    def __init__(self, base: Expr, form: Affine, l: int, u: int | None) -> None:
        self.base, self.form, self.l, self.u = base, form, l, u


class Names:
    """The expressions that terms and forms go by; what they are, whatever the ranges."""

    __slots__ = ("digits", "factors", "products", "rendered", "terms", "variables", "whole")

    def __init__(self) -> None:
        self.digits: dict[Expr, Digit] = {}
        self.terms: dict[tuple[Expr, int, int | None], Expr] = {}  # base, l, u → digit
        self.factors: dict[Expr, tuple[Expr, ...]] = {}  # product → factors
        self.products: dict[tuple[Expr, ...], Expr] = {}  # factors, in any order → product
        self.whole: dict[Expr, tuple[Affine, Affine]] = {}  # r % n → (n * (r // n), r)
        self.rendered: dict[tuple[frozenset[tuple[Expr, int]], int], Expr] = {}
        self.variables: dict[Expr, frozenset[Var]] = {}


def render(form: Affine) -> Expr:
    """Positive terms in order, then negative ones, then the constant."""
    e: Expr | None = None
    for t, c in form.terms.items():
        if c > 0:
            part = t if c == 1 else Binary(_MUL, t, Const(c, i64))
            e = part if e is None else Binary(_ADD, e, part)
    const = form.const
    if e is None and const > 0:
        e, const = Const(const, i64), 0
    for t, c in form.terms.items():
        if c < 0:
            if e is None:
                e = Unary(UnaryOp.neg, t) if c == -1 else Binary(_MUL, t, Const(c, i64))
            else:
                e = Binary(_SUB, e, t if c == -1 else Binary(_MUL, t, Const(-c, i64)))
    assert e is not None
    if const > 0:
        return Binary(_ADD, e, Const(const, i64))
    return Binary(_SUB, e, Const(-const, i64)) if const else e


def split(a: Affine, c: int) -> tuple[Affine, Affine]:
    """a = c * q + r, with every coefficient of r smaller than c and its constant in [0, c)."""
    q: dict[Expr, int] = {}
    r: dict[Expr, int] = {}
    for t, k in a.terms.items():
        if k % c == 0:
            q[t] = k // c
        elif -c < k < c:
            r[t] = k
        else:
            q[t], r[t] = k // c, k % c
    return Affine(q, a.const // c), Affine(r, a.const % c)


def split_exactly(a: Affine, g: int) -> tuple[Affine, Affine]:
    """a = g * coarse + fine: the terms that g divides, and all the rest."""
    coarse = {t: k // g for t, k in a.terms.items() if k % g == 0}
    return Affine(coarse, 0), Affine({t: k for t, k in a.terms.items() if k % g}, a.const)


def grids(a: Affine, c: int) -> list[int]:
    """Divisors of c that some coefficients share with it, greatest first."""
    shared = {gcd(k, c) for k in a.terms.values()}
    shared.discard(1)
    return sorted(shared, reverse=True)


def compose(inner: Digit, l: int, u: int | None) -> tuple[int, int | None] | None:
    """The l, u of `digit % u // l` over the digit's own base, if that is a digit again."""
    low, high = inner.l * l, None if u is None else inner.l * u
    if inner.u is None:
        return low, high
    if high is None or high % inner.u == 0:
        return (low, inner.u) if inner.u % low == 0 else None
    return (low, high) if inner.u % high == 0 else None


def take(from_: list[Expr], factor: Expr) -> bool:
    if factor not in from_:
        return False
    from_.remove(factor)
    return True


def text(e: Expr) -> str:
    """A total order of terms."""
    return e.name if isinstance(e, Var) else repr(e)
