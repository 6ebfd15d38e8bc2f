"""Quick answers about plain sums of variables; `affine` answers everything else.

In: index expressions and constant ranges. Out: their terms, bounds and what they decide, or None
where an expression is no such sum. The one idea: nearly all indices in a schedule are
`i_o * 4 + i_i`, and a primitive asks about dozens of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.arith.interval import End
from tilewright.ir.expr import Binary, BinaryOp, Const, Expr, Var, const
from tilewright.ir.walk import free_vars

_ADD, _SUB, _MUL = BinaryOp.add, BinaryOp.sub, BinaryOp.mul

Terms = dict[Var, int]
Known = Mapping[Var, tuple[End, End]]  # ranges of variables


def linear(e: Expr) -> tuple[Terms, int] | None:
    """The coefficients and the constant of a sum of variables times constants."""
    terms: Terms = {}
    rest = _collect(e, 1, terms)
    return None if rest is None else (terms, rest)


def _collect(e: Any, k: int, terms: Terms) -> int | None:
    kind = e.__class__
    if kind is Var:
        terms[e] = terms.get(e, 0) + k
        return 0
    if kind is Const:
        return k * e.value
    if kind is Binary:
        op = e.op
        if op is _ADD or op is _SUB:
            a = _collect(e.a, k, terms)
            b = _collect(e.b, k if op is _ADD else -k, terms)
            return None if a is None or b is None else a + b
        if op is _MUL and e.b.__class__ is Const:
            return _collect(e.a, k * e.b.value, terms)
    return None


def slope(e: Expr, var: Var) -> int | None:
    """What one more of a variable adds to a sum, whose other terms may be anything without it; None
    where that is not plain."""
    if e is var:
        return 1
    if e.__class__ is Var or e.__class__ is Const:
        return 0
    if isinstance(e, Binary):
        if e.op is _ADD or e.op is _SUB:
            a, b = slope(e.a, var), slope(e.b, var)
            if a is None or b is None:
                return None
            return a + b if e.op is _ADD else a - b
        if e.op is _MUL and isinstance(e.b, Const):
            a = slope(e.a, var)
            return None if a is None else a * e.b.value
    return None if var in free_vars(e) else 0


def extremes(terms: Mapping[Var, int], rest: int, ranges: Known) -> tuple[int, int] | None:
    """The least and the greatest value of a sum; None if a range is not constant."""
    low = high = rest
    for var, k in terms.items():
        if not k:
            continue
        first, last = ranges.get(var, (None, None))
        if not isinstance(first, int) or not isinstance(last, int):
            return None
        if k > 0:
            low, high = low + k * first, high + k * last
        else:
            low, high = low + k * last, high + k * first
    return low, high


def holds(condition: Expr, ranges: Known) -> bool:
    """Whether a comparison is seen at once to hold (False: not seen)."""
    if isinstance(condition, Const):
        return bool(condition.value)
    if not isinstance(condition, Binary):
        return False
    terms: Terms = {}
    a = _collect(condition.a, 1, terms)
    b = None if a is None else _collect(condition.b, -1, terms)
    if a is None or b is None:
        return False
    found = extremes(terms, a + b, ranges)
    if found is None:
        return False
    low, high = found  # of the left side less the right side
    if condition.op is BinaryOp.lt:
        return high < 0
    if condition.op is BinaryOp.ge:
        return low >= 0
    if condition.op is BinaryOp.le:
        return high <= 0
    return condition.op is BinaryOp.gt and low > 0


def span(e: Expr, moving: Known) -> tuple[Expr, int] | None:
    """Where a sum starts and how far it reaches while the variables of `moving` run."""
    if isinstance(e, Var) and e not in moving:
        return e, 1
    found = linear(e)
    if found is None:
        return None
    terms, rest = found
    within = {v: k for v, k in terms.items() if v in moving}
    ends = extremes(within, rest, moving)
    if ends is None:
        return None
    still = [(v, k) for v, k in terms.items() if k and v not in moving]
    return total(still, ends[0]), ends[1] - ends[0] + 1


def total(terms: Sequence[tuple[Var, int]], rest: int) -> Expr:
    """A sum as an expression, in the order of its terms."""
    made: Expr | None = None
    for var, k in terms:
        part = var * k
        made = part if made is None else made + part
    return const(rest) if made is None else made + rest if rest >= 0 else made - -rest
