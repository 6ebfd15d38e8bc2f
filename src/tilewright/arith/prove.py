"""prove: whether something holds for all values of the variables.

In: a condition or two index expressions, and the ranges of variables (both ends included) or
`Facts`. Out: True if it is proved; False means *not proved*, which is not the same as false. i64
arithmetic is index arithmetic and does not overflow.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.interval import Ranges, to_ends
from tilewright.arith.simplify import Facts, facts
from tilewright.ir.dtype import i64
from tilewright.ir.expr import Const, Expr, expr

Known = Ranges | Facts | None


def can_prove(cond: Expr | bool, ranges: Known = None) -> bool:
    """Whether `cond` is proved to hold."""
    if isinstance(cond, bool):
        return cond
    found = facts(ranges).condition(cond)
    return isinstance(found, Const) and bool(found.value)


def prove_equal(a: Any, b: Any, ranges: Known = None) -> bool:
    """a == b"""
    known, (a, b) = facts(ranges), _both(a, b)
    if a == b:
        return True
    if a.dtype is not i64:
        return known.simplify(a) == known.simplify(b)
    gap = known.sum(known.affine(a), known.affine(b), -1)
    return known.nonnegative(gap) and known.nonnegative(-gap)


def prove_less(a: Any, b: Any, ranges: Known = None) -> bool:
    """a < b"""
    known, (a, b) = facts(ranges), _both(a, b)
    return known.nonnegative(known.sum(known.affine(b), known.affine(a), -1) - 1)


def prove_less_equal(a: Any, b: Any, ranges: Known = None) -> bool:
    """a <= b"""
    known, (a, b) = facts(ranges), _both(a, b)
    return known.nonnegative(known.sum(known.affine(b), known.affine(a), -1))


def prove_divides(c: int, e: Any, ranges: Known = None) -> bool:
    """c divides e"""
    known = facts(ranges)
    rest = known.remainder(known.affine(expr(e, i64)), c)
    return not rest.terms and rest.const == 0


def bounds(e: Expr, ranges: Known = None) -> tuple[int | None, int | None]:
    """The least and greatest value of an i64 expression, as far as proved (None: not known)."""
    known = facts(ranges)
    return to_ends(known.bounds(known.affine(e)))


def difference(a: Any, b: Any, ranges: Known = None) -> int | None:
    """a - b if that is one number, whatever the variables are."""
    known, (a, b) = facts(ranges), _both(a, b)
    gap = known.sum(known.affine(a), known.affine(b), -1)
    lo, hi = known.bounds(gap)
    return int(lo) if lo == hi else None


def _both(a: Any, b: Any) -> tuple[Expr, Expr]:
    if not isinstance(a, Expr):
        return expr(a, b.dtype if isinstance(b, Expr) else None), expr(b)
    return a, expr(b, a.dtype)
