"""What the tests of arith share: a Python evaluator and random index expressions."""

from __future__ import annotations

import random
from collections.abc import Mapping

from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Cast,
    Const,
    Expr,
    Select,
    Unary,
    UnaryOp,
    Var,
    as_int,
    eq,
    fold_int,
    maximum,
    minimum,
    ne,
    select,
    truncdiv,
    truncmod,
    wrap,
)

VARS = tuple(Var(name) for name in "xyzijn")


class Undefined(Exception):
    """A division by zero or a shift out of range: the program has no meaning."""


def evaluate(e: Expr, at: Mapping[Var, int]) -> int:
    """The value of a whole-number or boolean expression (selects choose one side)."""
    if isinstance(e, Const):
        return int(e.value)
    if isinstance(e, Var):
        return at[e]
    if isinstance(e, Select):
        return evaluate(e.then if evaluate(e.cond, at) else e.other, at)
    if isinstance(e, Cast):
        value = evaluate(e.a, at)
        return int(value != 0) if e.dtype.is_bool else wrap(value, e.dtype)
    if isinstance(e, Unary):
        a = evaluate(e.a, at)
        return {
            UnaryOp.neg: lambda: wrap(-a, e.dtype),
            UnaryOp.abs: lambda: wrap(abs(a), e.dtype),
            UnaryOp.logical_not: lambda: 1 - a,
            UnaryOp.bit_not: lambda: wrap(~a, e.dtype),
            UnaryOp.sign: lambda: (a > 0) - (a < 0),
        }[e.op]()
    if isinstance(e, Binary):
        a = evaluate(e.a, at)
        if e.op is BinaryOp.logical_and:
            return a and evaluate(e.b, at)
        if e.op is BinaryOp.logical_or:
            return a or evaluate(e.b, at)
        folded = as_int(fold_int(e.op, a, evaluate(e.b, at), e.a.dtype))
        if folded is None:
            raise Undefined
        return int(folded)
    raise TypeError(e)


def random_ranges(rng: random.Random) -> dict[Var, tuple[int, int]]:
    """Small ranges around zero, mostly loops from 0."""
    ranges = {}
    for v in VARS:
        lo = 0 if rng.random() < 0.7 else rng.randint(-9, 9)
        ranges[v] = (lo, lo + rng.choice((0, 1, 2, 3, 3, 7, 7, 11, 15, 55)))
    return ranges


def random_index(rng: random.Random, depth: int = 4) -> Expr:
    """An i64 expression in the manner of index arithmetic."""
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(VARS) if rng.random() < 0.8 else Const(rng.randint(-9, 64), VARS[0].dtype)
    a = random_index(rng, depth - 1)
    kind = rng.randrange(24)
    if kind < 5:
        return a + random_index(rng, depth - 1)
    if kind < 7:
        return a - random_index(rng, depth - 1)
    c = rng.choice((2, 2, 3, 4, 4, 6, 8, 12, 16, -1, -2, -3, -4))
    if kind < 12:
        return a * c
    if kind < 16:
        return a // c
    if kind < 20:
        return a % c
    b = random_index(rng, depth - 2 if depth > 1 else 0)
    if kind == 20:
        return rng.choice((minimum, maximum))(a, b)
    if kind == 21:
        return select(random_condition(rng, depth - 2), a, b)
    if kind == 22:
        return rng.choice((lambda: a * b, lambda: a // b, lambda: a % b))()
    return rng.choice(
        (
            lambda: truncdiv(a, c),
            lambda: truncmod(a, c),
            lambda: a << rng.randrange(4),
            lambda: a >> rng.randrange(4),
            lambda: a & rng.choice((1, 3, 7, 5)),
            lambda: a | b,
            lambda: a ^ b,
            lambda: Unary(UnaryOp.abs, a),
            lambda: -a,
        )
    )()


def random_condition(rng: random.Random, depth: int = 3) -> Expr:
    """A boolean expression over index comparisons."""
    kind = rng.randrange(8) if depth > 0 else 0
    if kind < 5:
        a, b = random_index(rng, max(depth - 1, 0)), random_index(rng, max(depth - 2, 0))
        compare = rng.choice(
            (
                eq,
                ne,
                lambda a, b: a < b,
                lambda a, b: a <= b,
                lambda a, b: a > b,
                lambda a, b: a >= b,
            )
        )
        return compare(a, b)
    if kind == 5:
        return ~random_condition(rng, depth - 1)
    a, b = random_condition(rng, depth - 1), random_condition(rng, depth - 1)
    return a & b if kind == 6 else a | b


def random_point(rng: random.Random, ranges: Mapping[Var, tuple[int, int]]) -> dict[Var, int]:
    """Values for the variables, often at the ends of their ranges."""
    return {
        v: rng.choice((lo, hi)) if rng.random() < 0.3 else rng.randint(lo, hi)
        for v, (lo, hi) in ranges.items()
    }


def show(e: Expr) -> str:
    """An expression on one line, for messages of failing tests."""
    if isinstance(e, Const):
        return str(e.value)
    if isinstance(e, Var):
        return e.name
    if isinstance(e, Binary):
        return f"({show(e.a)} {e.op.value} {show(e.b)})"
    if isinstance(e, Unary):
        return f"{e.op.value}({show(e.a)})"
    if isinstance(e, Select):
        return f"select({show(e.cond)}, {show(e.then)}, {show(e.other)})"
    return repr(e)
