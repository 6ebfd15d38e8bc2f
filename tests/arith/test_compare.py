"""compare: a comparison in canonical shape holds just where it held before."""

from __future__ import annotations

import itertools
import random

import pytest
from index_programs import evaluate

from tilewright.arith.simplify import Facts
from tilewright.ir.dtype import i64
from tilewright.ir.expr import Binary, BinaryOp, Const, Expr, Var

COMPARISONS = (BinaryOp.lt, BinaryOp.le, BinaryOp.gt, BinaryOp.ge, BinaryOp.eq, BinaryOp.ne)
FACTORS = (-15, -10, -6, -4, -1, 1, 4, 6, 10, 15)  # of most of them the divisor is none of them


@pytest.mark.parametrize("op", COMPARISONS, ids=lambda op: op.name)
def test_sums_with_a_common_factor(op: BinaryOp) -> None:
    rng = random.Random(op.name)
    for _ in range(80):
        variables = [Var(name) for name in "xyz"[: rng.randint(1, 3)]]
        ranges = {v: (lo := rng.randint(-3, 2), lo + rng.randint(1, 4)) for v in variables}
        sides: list[Expr] = [Const(rng.randint(-30, 30), i64) for _ in range(2)]
        for v in variables:
            side = rng.randint(0, 1)
            sides[side] = sides[side] + v * rng.choice(FACTORS)
        before = Binary(op, *sides)
        after = Facts(ranges).condition(before)
        for values in itertools.product(*(range(a, b + 1) for a, b in ranges.values())):
            at = dict(zip(ranges, values, strict=True))
            assert evaluate(after, at) == evaluate(before, at), (before, after, at)
