"""Sizes: the whole-number expressions that stand in shapes.

In: Python numbers and ir expressions. Out: i64 expressions, constants interned so that equal static
shapes compare by identity. A symbolic size is kept in a simple normal form, so `n`, `n * 1 + 0` and
`(n + 2) - 2` are one size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tilewright.ir.dtype import i64
from tilewright.ir.expr import Binary, BinaryOp, Const, Expr, Var, as_int, binary
from tilewright.ir.walk import substitute, visit

Shape = tuple[Expr, ...]
SizeLike = Expr | int

_WHOLE = (int, np.integer)
MOST_KNOWN = 1 << 16  # entries of the caches below
_constants: dict[int, Const] = {}


def _known(number: int) -> Const:
    """The one constant for `number`."""
    found = _constants.get(number)
    if found is None:
        found = Const(number, i64)
        if len(_constants) < MOST_KNOWN:
            _constants[number] = found
    return found


def size(value: SizeLike) -> Expr:
    """`value` as an i64 expression in normal form. Raises TypeError for what is no whole number."""
    if value.__class__ is Const and value.dtype is i64:  # as most are
        return _known(value.value)
    if value.__class__ is int or isinstance(value, _WHOLE):
        return _known(int(value))
    if value.__class__ is Var and value.dtype is i64:
        return value
    if isinstance(value, Expr) and value.dtype is i64:
        return normal(value)
    raise TypeError(f"{value!r} is no size")


def shape(values: Iterable[SizeLike]) -> Shape:
    """A tuple of sizes."""
    return tuple([size(v) for v in values])


def static(values: Iterable[SizeLike]) -> tuple[int, ...] | None:
    """The sizes as Python numbers, or None if one is symbolic."""
    found = []
    for value in values:
        number = as_int(value)
        if number is None:
            return None
        found.append(number)
    return tuple(found)


def product(values: Iterable[SizeLike]) -> Expr:
    """The product of sizes (1 for none)."""
    number, symbolic = 1, None
    for value in values:
        fixed = as_int(value)
        if fixed is not None:
            number *= fixed
        else:
            symbolic = value if symbolic is None else symbolic * value
    return size(number) if symbolic is None else size(symbolic * number)


def total(values: Iterable[SizeLike]) -> Expr:
    """The sum of sizes (0 for none)."""
    made: Terms = {}
    for value in values:
        made = _sum(made, _terms(size(value)), 1)
    return _rebuild(made)


def symbols(values: Iterable[SizeLike]) -> list[Var]:
    """The variables in sizes, in order of first appearance."""
    found: dict[Var, None] = {}
    for value in values:
        if isinstance(value, Expr) and value.__class__ is not Const:
            found.update((n, None) for n in visit(value) if n.__class__ is Var)
    return list(found)


def at(value: SizeLike, values: Mapping[Var, int]) -> int:
    """The number that a size is when its symbols have `values`."""
    number = as_int(value)
    if number is None:
        number = as_int(substitute(value, {k: size(v) for k, v in values.items()}))
    if number is None:
        missing = ", ".join(v.name for v in symbols([value]) if v not in values)
        raise ValueError(f"size {text(value)} needs values for {missing}")
    return number


def greatest(value: SizeLike, most: Mapping[Var, int]) -> int:
    """No less than what a size, or any part of it, comes to when its symbols, which are not
    negative, are at most these."""
    if not isinstance(value, Expr) or value.__class__ is Const:
        return abs(as_int(value) or 0)
    if value.__class__ is Var:
        return most[value]
    assert isinstance(value, Binary)
    a, b = greatest(value.a, most), greatest(value.b, most)
    if value.op is BinaryOp.mul:
        return a * b
    return a + b if value.op in (BinaryOp.add, BinaryOp.sub) else max(a, b)


def linear(value: SizeLike) -> tuple[Var, int, int] | None:
    """(symbol, scale, offset) of a size that is scale * symbol + offset with a scale of at least
    one; else None."""
    if value.__class__ is Var:
        return value, 1, 0
    terms = dict(_terms(size(value)))
    offset = terms.pop((), 0)
    if len(terms) != 1:
        return None
    ((atoms, scale),) = terms.items()
    if len(atoms) != 1 or atoms[0].__class__ is not Var or scale < 1:
        return None
    return atoms[0], scale, offset


def is_size(value: Any) -> bool:
    """Is it made of symbols and whole numbers, and in its normal form?"""
    kinds = (Const, Var, Binary)
    whole = all(n.__class__ in kinds and n.dtype is i64 for n in visit(value))
    return whole and size(value) == value


def monomials(value: SizeLike) -> list[tuple[Expr, ...]]:
    """The products whose sum, with numbers before them, a size is; () is the constant's."""
    return [*_terms(size(value))]


def terms(value: SizeLike) -> Mapping[tuple[Expr, ...], int]:
    """The products whose sum a size is (() for the constant), and the number before each."""
    return _terms(size(value))


def factors(value: SizeLike) -> list[Expr]:
    """What is multiplied in a size's products: symbols, and quotients, minima, … of sizes."""
    return [f for product_ in monomials(value) for f in product_]


def numbers(value: Any, values: Mapping[Var, int]) -> Any:
    """An attribute with its size expressions evaluated."""
    if isinstance(value, tuple):
        return tuple([numbers(v, values) for v in value])
    return at(value, values) if isinstance(value, Expr) else value


_normal: dict[Expr, Expr] = {}  # expressions whose normal form is known


def normal(e: Expr) -> Expr:
    """The normal form: a sum of products with sorted terms, exact divisions carried out."""
    found = _normal.get(e)
    if found is None:
        found = _rebuild(_terms(e))
        if len(_normal) > MOST_KNOWN:
            _normal.clear()
        _normal[e] = _normal[found] = found
    return found


def is_never_more(a: Expr, b: Expr) -> bool:
    """Is a ≤ b for all sizes (which are not negative), as far as their terms show?"""
    return _span(_sum(_terms(b), _terms(a), -1))[0] >= 0


def lowest(value: Expr) -> int | None:
    """No more than what a size comes to where its symbols are not negative; None if that is not
    known."""
    low = _span(_terms(value))[0]
    return int(low) if math.isfinite(low) else None


def coefficients(value: SizeLike, factor: Expr) -> list[int]:
    """The numbers before the products that `factor` is in."""
    return [count for key, count in _terms(size(value)).items() if factor in key]


Terms = dict[tuple[Expr, ...], int]  # product of atoms (sorted) → coefficient; () is the constant


_split: dict[Expr, Terms] = {}  # expressions whose terms are known


def _terms(e: Expr) -> Terms:
    """The terms of a sum; the caller does not change them."""
    if e.__class__ is not Binary:
        return _terms_of_atom(e)
    found = _split.get(e)
    if found is None:
        found = _terms_of_binary(e)
        if len(_split) > MOST_KNOWN:
            _split.clear()
        _split[e] = found
    return found


def _terms_of_binary(e: Binary) -> Terms:
    a, b = e.a, e.b
    if e.op is BinaryOp.add:
        return _sum(_terms(a), _terms(b), 1)
    if e.op is BinaryOp.sub:
        return _sum(_terms(a), _terms(b), -1)
    if e.op is BinaryOp.mul:
        return _times(_terms(a), _terms(b))
    if e.op in (BinaryOp.floordiv, BinaryOp.truncdiv):
        return _divide(e.op, _terms(a), _terms(b))
    if e.op in (BinaryOp.min, BinaryOp.max) and as_int(a) is not None:
        a, b = b, a
    if e.op is BinaryOp.max and as_int(b) == 0:  # max(x, 0) = x - min(x, 0): so that it cancels
        kept = _once_held(_terms(a))
        return _sum(kept, _below_zero(kept), -1)
    if e.op is BinaryOp.min and as_int(b) is not None:  # min(x, c) = min(x - c, 0) + c
        return _sum(_below_zero(_sum(_terms(a), _terms(b), -1)), _terms(b), 1)
    return _terms_of_atom(binary(e.op, normal(a), normal(b)))


def _once_held(terms: Terms) -> Terms:
    """What has the same maximum with 0: max(max(x, 0) - c, 0) is max(x - c, 0)."""
    for key, count in terms.items():
        if count == -1 and len(key) == 1 and _is_below_zero(key[0]):
            rest = {k: c for k, c in terms.items() if k != key}
            less = _sum(rest, _terms(key[0].a), -1)
            if less.keys() <= {()} and less.get((), 0) <= 0:
                return _once_held(rest)
    return terms


def _below_zero(terms: Terms) -> Terms:
    """min(x, 0)"""
    return _terms_of_atom(binary(BinaryOp.min, _rebuild(terms), _known(0)))


def _span(terms: Terms) -> tuple[float, float]:
    """Between which numbers a sum lies."""
    for (*others, atom), count in ((k, c) for k, c in terms.items() if k):
        if (
            count < 0 and not others and _is_below_zero(atom)
        ):  # c · (e - min(e, 0)) is c · max(e, 0)
            rest = {k: c for k, c in terms.items() if k != (atom,)}
            rest = _sum(rest, {k: -count * c for k, c in _terms(atom.a).items()}, -1)
            low, high = _span(rest)
            most = _span(_terms(atom.a))[1]
            plain = _span_of_terms(terms)
            return max(low, plain[0]), min(high - count * max(most, 0.0), plain[1])
    for key, count in terms.items():  # k · (e // (k m)) is from e // m - (k - 1) to e // m
        k = abs(count)
        if k > 1 and len(key) == 1 and (divisor := _divisor(key[0])) and divisor % k == 0:
            finer = _divide(BinaryOp.floordiv, _terms(key[0].a), {(): divisor // k})
            rest = {other: c for other, c in terms.items() if other != key}
            low, high = _span(_sum(rest, finer, count // k))
            plain = _span_of_terms(terms)
            less, more = (k - 1, 0) if count > 0 else (0, k - 1)
            return max(low - less, plain[0]), min(high + more, plain[1])
    return _span_of_terms(terms)


def _divisor(e: Expr) -> int:
    """The number by which a quotient divides, rounding down; 0 of anything else."""
    is_quotient = isinstance(e, Binary) and e.op is BinaryOp.floordiv
    return max(as_int(e.b) or 0, 0) if is_quotient else 0


def _is_below_zero(e: Expr) -> bool:
    return e.__class__ is Binary and e.op is BinaryOp.min and as_int(e.b) == 0


def _span_of_terms(terms: Terms) -> tuple[float, float]:
    """The same, of its terms one by one."""
    low = high = 0.0
    for key, count in terms.items():
        least = most = float(count)
        for atom in key:
            ends = [x * y if x and y else 0.0 for x in (least, most) for y in _span_of_atom(atom)]
            least, most = min(ends), max(ends)
        low, high = low + least, high + most
    return low, high


_spans: dict[Expr, tuple[float, ...]] = {}  # of atoms


def _span_of_atom(e: Expr) -> tuple[float, ...]:
    if e.__class__ is Var:
        return 0.0, math.inf
    found = _spans.get(e)
    if found is None:
        found = _span_of_operation(e)
        if len(_spans) > MOST_KNOWN:
            _spans.clear()
        _spans[e] = found
    return found


def _span_of_operation(e: Expr) -> tuple[float, ...]:
    if e.__class__ is Binary and e.op is BinaryOp.floordiv and (as_int(e.b) or 0) > 0:
        low, high = _span(_terms(e.a))
        divisor = float(as_int(e.b) or 1)
        return tuple(x // divisor if math.isfinite(x) else x for x in (low, high))
    if e.__class__ is Binary and e.op in (BinaryOp.min, BinaryOp.max):
        either = min if e.op is BinaryOp.min else max
        return tuple(map(either, _span(_terms(e.a)), _span(_terms(e.b))))
    return 0.0, math.inf


def _terms_of_atom(e: Expr) -> Terms:
    if e.__class__ is Const:
        return {(): e.value} if e.value else {}
    return {(e,): 1}


def _sum(a: Terms, b: Terms, sign: int) -> Terms:
    total = dict(a)
    for key, count in b.items():
        total[key] = total.get(key, 0) + sign * count
    return {k: c for k, c in total.items() if c}


def _times(a: Terms, b: Terms) -> Terms:
    total: Terms = {}
    for ka, ca in a.items():
        for kb, cb in b.items():
            key = tuple(sorted(ka + kb, key=text)) if ka and kb else ka or kb
            total[key] = total.get(key, 0) + ca * cb
    return {k: c for k, c in total.items() if c}


def _divide(op: BinaryOp, a: Terms, b: Terms) -> Terms:
    """(a op b): the divisible terms come out; the rest stays under the division."""
    divisor = b.get((), 0)
    exact = all(c % divisor == 0 for c in a.values()) if divisor else False
    if len(b) == 1 and divisor > 0 and (op is BinaryOp.floordiv or exact):
        whole = {k: c // divisor for k, c in a.items() if k != () and c % divisor == 0}
        rest = {k: c for k, c in a.items() if k not in whole}
        constant = rest.get((), 0)
        if len(rest) == (1 if () in rest else 0):  # only the constant is left
            return _sum(whole, {(): constant // divisor} if constant // divisor else {}, 1)
        if constant // divisor:
            whole[()] = constant // divisor
            rest = _sum(rest, {(): divisor * (constant // divisor)}, -1)
        common = math.gcd(divisor, *(c for k, c in rest.items() if k))
        if common > 1:  # (2 x + 3) // 4 = (x + 1) // 2
            rest = {k: c // common for k, c in rest.items() if c // common}
            return _sum(whole, _divide(op, rest, {(): divisor // common}), 1)
        nested = _quotient(rest) if op is BinaryOp.floordiv else None
        if nested is not None:  # (x // d + c) // m = (x + c d) // (d m)
            inside, d = nested
            above = {(): rest.get((), 0) * d} if () in rest else {}
            return _sum(whole, _divide(op, _sum(inside, above, 1), {(): d * divisor}), 1)
        return _sum(whole, {(binary(op, _rebuild(rest), size(divisor)),): 1}, 1)
    if any(b):  # by a sum of products of symbols
        quotient = _exact_quotient(a, b)
        if quotient is not None:
            return quotient
    return _terms_of_atom(binary(op, _rebuild(a), _rebuild(b)))


def _quotient(terms: Terms) -> tuple[Terms, int] | None:
    """x and d where the terms are x // d, for a number d, and perhaps a constant."""
    keys = [k for k in terms if k]
    if len(keys) != 1 or len(keys[0]) != 1 or terms[keys[0]] != 1:
        return None
    atom = keys[0][0]
    if not isinstance(atom, Binary) or atom.op is not BinaryOp.floordiv:
        return None
    d = as_int(atom.b)
    return None if d is None or d <= 0 else (_terms(atom.a), d)


def _exact_quotient(a: Terms, b: Terms) -> Terms | None:
    """a / b where that leaves no remainder: long division, the products of most factors first."""

    def leading(terms: Terms) -> tuple[Expr, ...]:
        return max(terms, key=lambda key: (len(key), [text(atom) for atom in key]))

    quotient: Terms = {}
    divisor = leading(b)
    while a:
        whole = leading(a)
        rest = list(whole)
        for atom in divisor:
            if atom not in rest:
                return None
            rest.remove(atom)
        if a[whole] % b[divisor]:
            return None
        term = {tuple(rest): a[whole] // b[divisor]}
        quotient = _sum(quotient, term, 1)
        a = _sum(a, _times(b, term), -1)
    return quotient


MOST_CHAINED = 64  # terms of a sum that stand in one another; more are sums of halves


def _rebuild(terms: Terms) -> Expr:
    keys = sorted((k for k in terms if k), key=lambda k: (-len(k), [text(a) for a in k]))
    total = _chained(terms, keys)
    constant = terms.get((), 0)
    if total is None:
        return _known(constant)
    return total - -constant if constant < 0 else total + constant


def _chained(terms: Terms, keys: list[tuple[Expr, ...]]) -> Expr | None:
    """The sum of the terms with these keys; None of none."""
    if len(keys) > MOST_CHAINED:
        halves = keys[: len(keys) // 2], keys[len(keys) // 2 :]
        first, second = (_chained(terms, half) for half in halves)
        assert first is not None and second is not None
        return first + second
    total: Expr | None = None
    for key in keys:
        term: Expr = key[0]
        for atom in key[1:]:
            term = term * atom
        count = terms[key]
        if total is None:
            total = term * count
        else:
            total = total + term * count if count > 0 else total - term * -count
    return total


_texts: dict[Expr, str] = {}  # without parentheses around
_RANK = {"+": 1, "-": 1, "*": 2, "//": 2, "%": 2}


def text(value: SizeLike) -> str:
    """A size as Python text."""
    return _text(value, 0)


def _text(e: Any, around: int) -> str:
    if isinstance(e, int):
        return str(e)
    if e.__class__ is Const:
        return str(e.value)
    if e.__class__ is Var:
        return e.name
    if e.__class__ is Binary:
        found = _texts.get(e)
        sign = e.op.value
        rank = _RANK.get(sign, around)
        if found is None:
            if sign in _RANK:
                found = f"{_text(e.a, rank)} {sign} {_text(e.b, rank + 1)}"
            else:
                found = f"{sign}({_text(e.a, 0)}, {_text(e.b, 0)})"
            if len(_texts) > MOST_KNOWN:
                _texts.clear()
            _texts[e] = found
        return f"({found})" if rank < around else found
    raise TypeError(f"{e!r} cannot stand in a size")
