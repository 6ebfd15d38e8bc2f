"""join_versions: two schedules of one function, of which sizes choose one.

In: a condition on sizes and two functions in stage "blocks" that compute the same. Out: one
function in stage "loops". The one idea: the choice stands where each side is a whole, inside of
the loops that threads share and the memory they have.
"""

from __future__ import annotations

from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Alloc, For, Func, If, Seq, Stmt, seq
from tilewright.ir.walk import statements, substitute
from tilewright.lower.compact_buffers import compact_buffers
from tilewright.lower.copies import own_memory


def join_versions(cond: Expr, where: Func, others: Func) -> Func | None:
    """`where` if a condition holds, else `others`; None if their parallel loops differ.

    rewrite:
        for p in parallel(0, n):            for p in parallel(0, n):
            B[p] = A[p]                         if n < 4:
    and                                 →           B[p] = A[p]
        for q in parallel(0, n):                else:
            …                                       …
    """
    first, second = compact_buffers(where), compact_buffers(others)
    body = _joined(cond, first.body, second.body)
    if body is None:
        return None
    return second.replace(body=own_memory(body, {b.name for b in second.buffers}))


def _joined(cond: Expr, a: Stmt, b: Stmt) -> Stmt | None:
    if isinstance(a, Alloc):
        body = _joined(cond, a.body, b)
        return None if body is None else Alloc(a.buffer, body)
    if isinstance(b, Alloc):
        body = _joined(cond, a, b.body)
        return None if body is None else Alloc(b.buffer, body)
    if not any(isinstance(n, For) and n.kind == "parallel" for s in (a, b) for n in statements(s)):
        return If(cond, a, b)
    if isinstance(a, Seq) and isinstance(b, Seq) and len(a.stmts) == len(b.stmts):
        parts = [_joined(cond, p, q) for p, q in zip(a.stmts, b.stmts, strict=True)]
        made = [p for p in parts if p is not None]
        return seq(*made) if len(made) == len(parts) else None
    if not isinstance(a, For) or not isinstance(b, For):
        return None
    if (a.kind, a.start, a.stop) != (b.kind, b.start, b.stop):
        return None
    body = _joined(cond, substitute(a.body, {a.var: b.var}), b.body)
    return None if body is None else b.replace(body=body)
