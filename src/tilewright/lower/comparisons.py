"""Comparisons of whole numbers, as passes look at them.

In: an expression and what is known. Out: the form that is at least 0 where a comparison holds; the
expression without choices that are made already. The one idea: a bound of the form decides the
comparison.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.affine import Affine
from tilewright.arith.simplify import Facts, loop_range
from tilewright.ir.dtype import i64
from tilewright.ir.expr import Binary, BinaryOp, Const, Expr, Select
from tilewright.ir.stmt import For, Stmt
from tilewright.ir.walk import reads

BOUNDS = {BinaryOp.lt: (1, -1), BinaryOp.le: (1, 0), BinaryOp.gt: (-1, -1), BinaryOp.ge: (-1, 0)}


def form_of(part: Expr, known: Facts) -> Affine | None:
    """What is ≥ 0 where a comparison of whole numbers holds; None for what is no such thing."""
    if not isinstance(part, Binary) or part.op not in BOUNDS or part.a.dtype is not i64:
        return None
    if reads(part):
        return None
    sign, more = BOUNDS[part.op]
    return known.sum(known.affine(part.b), known.affine(part.a), -1) * sign + more


def decided(e: Any, known: Facts) -> Any:
    """An expression, or the expressions of a statement, without the choices that are made
    already."""
    if isinstance(e, Binary) and e.is_plain:
        return e
    if isinstance(e, For):
        known = known.bind(e.var, *loop_range(e))
    if isinstance(e, Select):
        cond = known.condition(e.cond)
        if isinstance(cond, Const):
            return decided(e.then if cond.value else e.other, known)
        e = e.replace(cond=cond)
    return e.map_children(lambda c: decided(c, known)) if isinstance(e, Expr | Stmt) else e
