"""add_products: products that a sum in registers takes are added one by one.

In: stage "flat". Out: stage "flat". `sum + (a * b - c * d)` is a product, a multiply-add and an
addition; `(sum + a * b) - c * d` is two multiply-adds. Of more than two factors those are
multiplied first whose product is the same in most of the tile, so that it is made once. The one
idea: what a reduction adds up has no order of its own, and neither has what it adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import prod
from typing import Any

from tilewright.arith.estimate import estimate
from tilewright.ir.expr import Binary, BinaryOp, Expr, Load, Var
from tilewright.ir.stmt import For, Func, Stmt, Store
from tilewright.ir.walk import free_vars

Term = tuple[bool, Expr]  # whether it is added, and what


def add_products(func: Func) -> Func:
    """Sums of products, and products of several factors, in an order that takes fewer operations.

    rewrite:
        S[j] = S[j] + (A[i] * B[j] - C[i] * D[j])  →  S[j] = S[j] + A[i] * B[j] - C[i] * D[j]
    """
    body = _in_loops(func.body, {})
    return func if body is func.body else func.replace(body=body)


def _in_loops(s: Any, counts: dict[Var, int]) -> Any:
    """The statement in loops that run so often."""
    if isinstance(s, Store):
        value = _added(s, counts)
        return s if value is s.value else s.replace(value=value)
    if isinstance(s, For):
        counts = {**counts, s.var: max(1, estimate(s.extent))}

    def go(c: Any) -> Any:
        return _in_loops(c, counts) if isinstance(c, Stmt) else c

    return s.map_children(go)


def _added(s: Store, counts: dict[Var, int]) -> Expr:
    """What a statement stores that adds to what lies there, in registers."""
    value = s.value
    if s.buffer.scope != "local" or not isinstance(value, Binary) or value.op is not BinaryOp.add:
        return value
    held = Load(s.buffer, s.indices)
    if held not in (value.a, value.b) or not value.dtype.is_float:
        return value
    rest = value.b if value.a == held else value.a
    terms = list(_terms(rest, True))
    if not all(isinstance(t, Binary) and t.op is BinaryOp.mul for _, t in terms):
        return value
    ordered = [(plus, _in_order(t, counts)) for plus, t in terms]
    same = all(a is b for (_, a), (_, b) in zip(terms, ordered, strict=True))
    if len(terms) == 1 and same:
        return value
    total: Expr = held
    for plus, term in ordered:
        total = Binary(BinaryOp.add if plus else BinaryOp.sub, total, term)
    return total


def _terms(e: Expr, plus: bool) -> Sequence[Term]:
    """What a sum adds and takes away."""
    if isinstance(e, Binary) and e.op in (BinaryOp.add, BinaryOp.sub):
        return [*_terms(e.a, plus), *_terms(e.b, plus is (e.op is BinaryOp.add))]
    return [(plus, e)]


def _factors(e: Expr) -> list[Expr]:
    if isinstance(e, Binary) and e.op is BinaryOp.mul:
        return [*_factors(e.a), *_factors(e.b)]
    return [e]


def _in_order(product: Expr, counts: dict[Var, int]) -> Expr:
    """A product whose factors are multiplied pair by pair, the pair first that has fewest values
    in the loops; itself where it has that order."""
    factors: list[Expr] = _factors(product)
    if len(factors) < 3:
        return product
    if isinstance(product, Binary) and len(factors) == 3:
        pair = product.a if len(_factors(product.a)) == 2 else product.b
        best = min(_values(Binary(BinaryOp.mul, *p), counts) for p in combinations(factors, 2))
        if _values(pair, counts) == best:
            return product
    while len(factors) > 1:
        pairs = combinations(range(len(factors)), 2)
        made = [(Binary(BinaryOp.mul, factors[i], factors[j]), i, j) for i, j in pairs]
        first, i, j = min(made, key=lambda found: _values(found[0], counts))
        factors = [*(f for n, f in enumerate(factors) if n not in (i, j)), first]
    return factors[0]


def _values(e: Expr, counts: dict[Var, int]) -> int:
    """How many values it has in all rounds of the loops around."""
    return prod(counts.get(v, 1) for v in free_vars(e))
