"""Bounds of whole-number expressions by interval arithmetic.

In: an expression and the ranges of its variables. Out: a pair (lo, hi), both ends included, that
holds every value the expression can take; an end that is not known is an infinity. The one idea:
one rule for each operator, `node_bounds`, which asks its caller for the operands; so `affine` can
answer with better bounds.

Arithmetic on i64 (the dtype of indices and sizes) is taken not to overflow; narrower types wrap, so
a result that might not fit has the bounds of its dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

from tilewright.ir.dtype import ALL, DType, i64
from tilewright.ir.expr import Binary, BinaryOp, Cast, Const, Expr, Select, Unary, UnaryOp, Var

End = int | Expr | None  # of a given range; None: nothing is known
Ranges = Mapping[Var, tuple[End, End]]  # variable → (least, greatest value), both included
Interval = tuple[float, float]  # whole numbers, or the infinities

UNKNOWN: Interval = (-inf, inf)
_BY_DTYPE: dict[DType, Interval] = {
    t: UNKNOWN if t.is_float or t is i64 else (int(t.lowest), int(t.highest)) for t in ALL
}


def bounds(e: Expr, ranges: Ranges) -> tuple[int | None, int | None]:
    """The least and the greatest value of `e` by intervals alone (None: not known).

    Operands are taken to be independent: `x - x` is not seen to be 0. `prove.bounds` sees more.
    """
    return to_ends(_bounds(e, ranges))


def to_ends(of: Interval) -> tuple[int | None, int | None]:
    """An interval with None instead of the infinities."""
    lo, hi = of
    return (None if lo == -inf else int(lo), None if hi == inf else int(hi))


def dtype_bounds(of: DType) -> Interval:
    """The values that a dtype can hold (i64: unknown, see the module's opening)."""
    return _BY_DTYPE[of]


def _bounds(e: Expr, ranges: Ranges) -> Interval:
    if type(e) is Var:
        lo, hi = ranges.get(e, (None, None))
        least, greatest = _BY_DTYPE[e.dtype]
        if lo is not None:
            least = lo if isinstance(lo, int) else _bounds(lo, ranges)[0]
        if hi is not None:
            greatest = hi if isinstance(hi, int) else _bounds(hi, ranges)[1]
        return least, max(least, greatest)  # an empty range: nothing runs, any bounds hold
    return node_bounds(e, lambda operand: _bounds(operand, ranges))


def node_bounds(e: Expr, ask: Callable[[Expr], Interval]) -> Interval:
    """Bounds of one node whose operands' bounds `ask` gives; variables are not for here."""
    full = _BY_DTYPE[e.dtype]
    if isinstance(e, Const):
        return UNKNOWN if e.dtype.is_float else (int(e.value), int(e.value))
    if isinstance(e, Binary):
        rule = _BINARY.get(e.op)
        if rule is None or e.a.dtype.is_float:
            return full
        return _fit(rule(ask(e.a), ask(e.b)), full)
    if isinstance(e, Unary):
        rule_1 = _UNARY.get(e.op)
        if e.op is UnaryOp.popcount:
            return (0, e.dtype.bits)
        if rule_1 is None or e.a.dtype.is_float:
            return full
        return _fit(rule_1(ask(e.a)), full)
    if isinstance(e, Cast):
        if e.a.dtype.is_float or e.dtype.is_float:
            return full
        if e.dtype.is_bool:
            lo, hi = ask(e.a)
            return (1, 1) if lo > 0 or hi < 0 else (0, 1)
        if e.dtype is i64 and e.a.dtype.name != "u64":
            return ask(e.a)
        if e.dtype is i64:
            lo, hi = ask(e.a)
            return (lo, hi) if hi < 1 << 63 else UNKNOWN
        return _fit(ask(e.a), full)
    if isinstance(e, Select) and not e.dtype.is_float:
        cond = ask(e.cond)
        if cond[0] == 1:
            return ask(e.then)
        if cond[1] == 0:
            return ask(e.other)
        a, b = ask(e.then), ask(e.other)
        return min(a[0], b[0]), max(a[1], b[1])
    return full


def _fit(got: Interval, full: Interval) -> Interval:
    """`got`, or everything its dtype holds where the operation may have wrapped."""
    return got if full[0] <= got[0] and got[1] <= full[1] else full


def _times(x: float, y: float) -> float:
    return 0 if x == 0 or y == 0 else x * y


def _mul(a: Interval, b: Interval) -> Interval:
    corners = (_times(a[0], b[0]), _times(a[0], b[1]), _times(a[1], b[0]), _times(a[1], b[1]))
    return min(corners), max(corners)


def _quotient(x: float, y: float) -> float:
    """x // y for y > 0, either of which may be infinite."""
    if x in (inf, -inf):
        return x
    if y == inf:
        return 0 if x >= 0 else -1
    return x // y


def floordiv(a: Interval, b: Interval) -> Interval:
    """Quotients rounded down; a divisor of 0 is undefined and not counted."""
    if b[1] < 0:
        a, b = (-a[1], -a[0]), (-b[1], -b[0])
    if b[0] > 0:
        return (
            min(_quotient(a[0], b[0]), _quotient(a[0], b[1])),
            max(_quotient(a[1], b[0]), _quotient(a[1], b[1])),
        )
    most = max(abs(a[0]), abs(a[1]))
    return -most, most


def floormod(a: Interval, b: Interval) -> Interval:
    """Remainders with the divisor's sign."""
    if b[0] > 0:
        if a[0] >= 0 and a[1] < b[0]:
            return a
        if b[0] == b[1] and abs(a[0]) != inf and a[0] // b[0] == _quotient(a[1], b[0]):
            return a[0] % b[0], a[1] % b[0]
        return 0, min(a[1], b[1] - 1) if a[0] >= 0 else b[1] - 1
    return min(b[0] + 1, 0), max(b[1] - 1, 0)


def _truncdiv(a: Interval, b: Interval) -> Interval:
    if a[0] >= 0 and b[0] > 0:
        return floordiv(a, b)
    most = max(abs(a[0]), abs(a[1]))
    return -most, most


def _truncmod(a: Interval, b: Interval) -> Interval:
    most = max(abs(b[0]), abs(b[1])) - 1
    return max(a[0], -most) if a[0] < 0 else 0, min(a[1], most) if a[1] > 0 else 0


def _shl(a: Interval, b: Interval) -> Interval:
    if b[0] < 0 or b[1] > 63:
        return UNKNOWN
    return _mul(a, (1 << int(b[0]), 1 << int(b[1])))


def _shr(a: Interval, b: Interval) -> Interval:
    if b[0] < 0 or b[1] > 63:
        return min(a[0], 0), max(a[1], 0)
    return floordiv(a, (1 << int(b[0]), 1 << int(b[1])))


def _bit_and(a: Interval, b: Interval) -> Interval:
    if a[0] >= 0 or b[0] >= 0:
        return 0, min(x[1] for x in (a, b) if x[0] >= 0)
    return UNKNOWN


def _bits_over(a: Interval, b: Interval) -> float:
    """The greatest number of as many bits as the greater of the two."""
    most = max(a[1], b[1])
    return inf if most == inf else (1 << int(most).bit_length()) - 1


def _bit_or(a: Interval, b: Interval) -> Interval:
    return (max(a[0], b[0]), _bits_over(a, b)) if a[0] >= 0 and b[0] >= 0 else UNKNOWN


def _bit_xor(a: Interval, b: Interval) -> Interval:
    return (0, _bits_over(a, b)) if a[0] >= 0 and b[0] >= 0 else UNKNOWN


def _lt(a: Interval, b: Interval) -> Interval:
    return int(a[1] < b[0]), int(a[0] < b[1])


def _le(a: Interval, b: Interval) -> Interval:
    return int(a[1] <= b[0]), int(a[0] <= b[1])


def _eq(a: Interval, b: Interval) -> Interval:
    return int(a[0] == a[1] == b[0] == b[1]), int(a[0] <= b[1] and b[0] <= a[1])


def _not(a: Interval) -> Interval:
    return 1 - a[1], 1 - a[0]


def _abs(a: Interval) -> Interval:
    least = 0 if a[0] <= 0 <= a[1] else min(abs(a[0]), abs(a[1]))
    return least, max(abs(a[0]), abs(a[1]))


_BINARY: dict[BinaryOp, Callable[[Interval, Interval], Interval]] = {
    BinaryOp.add: lambda a, b: (a[0] + b[0], a[1] + b[1]),
    BinaryOp.sub: lambda a, b: (a[0] - b[1], a[1] - b[0]),
    BinaryOp.mul: _mul,
    BinaryOp.floordiv: floordiv,
    BinaryOp.floormod: floormod,
    BinaryOp.truncdiv: _truncdiv,
    BinaryOp.truncmod: _truncmod,
    BinaryOp.min: lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    BinaryOp.max: lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    BinaryOp.shl: _shl,
    BinaryOp.shr: _shr,
    BinaryOp.bit_and: _bit_and,
    BinaryOp.bit_or: _bit_or,
    BinaryOp.bit_xor: _bit_xor,
    BinaryOp.lt: _lt,
    BinaryOp.le: _le,
    BinaryOp.gt: lambda a, b: _lt(b, a),
    BinaryOp.ge: lambda a, b: _le(b, a),
    BinaryOp.eq: _eq,
    BinaryOp.ne: lambda a, b: _not(_eq(a, b)),
    BinaryOp.logical_and: lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    BinaryOp.logical_or: lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
}
_UNARY: dict[UnaryOp, Callable[[Interval], Interval]] = {
    UnaryOp.neg: lambda a: (-a[1], -a[0]),
    UnaryOp.abs: _abs,
    UnaryOp.sign: lambda a: ((a[0] > 0) - (a[0] < 0), (a[1] > 0) - (a[1] < 0)),
    UnaryOp.bit_not: lambda a: (-a[1] - 1, -a[0] - 1),
    UnaryOp.logical_not: _not,
}
