"""add_products: products that a sum in registers takes are added one by one.

In: stage "flat". Out: stage "flat". `sum + (a * b - c * d)` is a product, a multiply-add and an
addition; `(sum + a * b) - c * d` is two multiply-adds. The one idea: what a reduction adds up has
no order of its own, and neither has what it adds. Factors keep theirs: products may overflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.expr import Binary, BinaryOp, Expr, Load
from tilewright.ir.stmt import Func, Stmt, Store

Term = tuple[bool, Expr]  # whether it is added, and what


def add_products(func: Func) -> Func:
    """Sums of products in the order that takes fewest operations.

    rewrite:
        S[j] = S[j] + (A[i] * B[j] - C[i] * D[j])  →  S[j] = S[j] + A[i] * B[j] - C[i] * D[j]
    """
    body = _in_statements(func.body)
    return func if body is func.body else func.replace(body=body)


def _in_statements(s: Any) -> Any:
    if isinstance(s, Store):
        value = _added(s)
        return s if value is s.value else s.replace(value=value)

    def go(c: Any) -> Any:
        return _in_statements(c) if isinstance(c, Stmt) else c

    return s.map_children(go)


def _added(s: Store) -> Expr:
    """What a statement stores that adds to what lies there, in registers."""
    value = s.value
    if s.buffer.scope != "local" or not isinstance(value, Binary) or value.op is not BinaryOp.add:
        return value
    held = Load(s.buffer, s.indices)
    if held not in (value.a, value.b) or not value.dtype.is_float:
        return value
    rest = value.b if value.a == held else value.a
    terms = list(_terms(rest, True))
    products = [t for _, t in terms if isinstance(t, Binary) and t.op is BinaryOp.mul]
    if len(terms) == 1 or len(products) < len(terms):
        return value
    total: Expr = held
    for plus, term in terms:
        total = Binary(BinaryOp.add if plus else BinaryOp.sub, total, term)
    return total


def _terms(e: Expr, plus: bool) -> Sequence[Term]:
    """What a sum adds and takes away."""
    if isinstance(e, Binary) and e.op in (BinaryOp.add, BinaryOp.sub):
        return [*_terms(e.a, plus), *_terms(e.b, plus is (e.op is BinaryOp.add))]
    return [(plus, e)]
