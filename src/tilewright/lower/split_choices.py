"""split_choices: a choice among indices that sizes alone decide is made once for the whole kernel.

In: stage "loops". Out: stage "loops". Where an open axis is as long as it mostly is, indices follow
from plain sums; where it is shorter than a pad, say, they take a division each. The one idea: each
side gets code of its own, in which nothing is left of the other.
"""

from __future__ import annotations

from tilewright.ir.dtype import i64
from tilewright.ir.expr import Expr, Select, Var
from tilewright.ir.stmt import Alloc, For, Func, If, Stmt
from tilewright.ir.walk import distinct, free_vars, reads, rewrite
from tilewright.lower.copies import own_memory, stores_of

MOST_STORES = 24  # unrolled, of what has a copy


def split_choices(func: Func) -> Func:
    """Give each side of a choice that sizes make code of its own.

    rewrite:
        for i in serial(0, n + 1):
            B[i] = A[select(n >= 2, i - 1, i % n)]
    →
        if n >= 2:
            for i in serial(0, n + 1):
                B[i] = A[i - 1]
        else:
            for i in serial(0, n + 1):
                B[i] = A[i % n]
    """
    symbols = frozenset(p for p in func.params if isinstance(p, Var))
    if not symbols:
        return func
    asked = {
        n.cond for n in distinct([func.body]) if isinstance(n, Select) and _is_by_size(n, symbols)
    }
    if len(asked) != 1 or stores_of(func.body) > MOST_STORES:
        return func
    body = _split(func.body, *asked)
    return func.replace(body=own_memory(body, {b.name for b in func.buffers}))


def _is_by_size(e: Select, symbols: frozenset[Var]) -> bool:
    """Is it a choice among indices that the sizes alone make?"""
    used = free_vars(e.cond)
    return e.dtype is i64 and bool(used) and used <= symbols and not reads(e.cond)


def _split(s: Stmt, cond: Expr) -> Stmt:
    """A branch for each side, inside of the loops that threads share and what they all use."""
    if isinstance(s, Alloc) or (isinstance(s, For) and s.kind in ("parallel", "thread")):
        return s.replace(body=_split(s.body, cond))
    return If(cond, _where(s, cond, holds=True), _where(s, cond, holds=False))


def _where(s: Stmt, cond: Expr, *, holds: bool) -> Stmt:
    """The statement with the choices made."""

    def change(e: Select) -> Expr:
        return (e.then if holds else e.other) if e.cond == cond else e

    return rewrite(s, (Select,), change)
