"""Coverage: do steps of some sizes, taken some times each, leave gaps?

In: the sizes of steps and how often each is taken; an expression and the variables that run; or the
digits of a value that are known. Out: how far one comes without gaps; between which ends all values
are taken; whether the digits tell the value. The one idea: small steps first, each no longer than
what the smaller ones have covered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from tilewright.arith.linear import Known, extremes, linear
from tilewright.ir.expr import Binary, BinaryOp, Expr, Var, as_int

_DIGITS = (BinaryOp.floordiv, BinaryOp.floormod)


def reach(width: float, steps: Iterable[tuple[int, float]]) -> float | None:
    """How many neighbouring positions an interval of `width` covers, moved by steps (size, times);
    None if it leaves gaps. times inf: only the run knows how many; no longer step may follow."""
    covered = width
    for size, times in sorted(steps):
        if times:
            if covered == inf or size > covered:
                return None
            covered += size * times
    return covered


def is_quotient(e: Expr) -> bool:
    """Is it a quotient or a remainder?"""
    return isinstance(e, Binary) and e.op in _DIGITS


def is_digit(e: Expr) -> bool:
    """Is it a variable, or a quotient, a remainder or both of one by constants: with the variable
    it takes all values between its ends?"""
    while isinstance(e, Binary) and e.op in _DIGITS:
        if as_int(e.b) is None:
            return False
        e = e.a
    return isinstance(e, Var)


def values_of(e: Expr, ranges: Known) -> tuple[int, int] | None:
    """The first and the last value of `e` where it takes all between them while the variables of
    `ranges` run: of a sum of such variables, and of quotients and remainders of it. None if it may
    leave some out, or depends on others."""
    if isinstance(e, Binary) and e.op in _DIGITS:
        by, within = as_int(e.b), values_of(e.a, ranges)
        if by is None or by <= 0 or within is None:
            return None
        low, high = within
        if e.op is BinaryOp.floordiv:
            return low // by, high // by
        if high - low + 1 >= by:
            return 0, by - 1
        return (low % by, high % by) if low // by == high // by else None  # it begins anew between
    sum_ = linear(e)
    if sum_ is None or not sum_[0].keys() <= ranges.keys():
        return None
    steps: list[tuple[int, float]] = []
    for v, k in sum_[0].items():
        ends = extremes({v: 1}, 0, ranges)
        if ends is None:
            return None
        steps.append((abs(k), ends[1] - ends[0]))
    return None if reach(1, steps) is None else extremes(*sum_, ranges)


def tells(digits: Sequence[tuple[int, int | None]], width: float) -> bool:
    """Do digits v % u // l, as pairs l, u (u None: v // l), tell a value v of 0 … width? Those that
    begin where others end do: with v % l, v % u is known."""
    known = 1  # v % known is
    while known <= width:
        following = [u for l, u in digits if known % l == 0]
        if None in following:
            return True
        furthest = max((u for u in following if u is not None), default=0)
        if furthest <= known:
            return False
        known = furthest
    return True
