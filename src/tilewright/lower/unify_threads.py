"""unify_threads: one loop for each thread axis of a kernel, outside everything.

In: stage "blocks". Out: stage "blocks". Loops of one kernel that are bound to the same axis are the
same threads; after this pass they are one loop, so that what a thread owns can be seen. What was
not under such a loop still runs on all threads.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr import Expr, Var
from tilewright.ir.stmt import THREAD_AXES, Alloc, For, Func, If, Let, Seq, Stmt, seq
from tilewright.ir.walk import statements, substitute


def unify_threads(func: Func) -> Func:
    """Move thread loops outside.

    rewrite:
        for i in thread("blockIdx.x", 0, 4):        for i in thread("blockIdx.x", 0, 4):
            for j in thread("threadIdx.x", 0, 8):       for j in thread("threadIdx.x", 0, 8):
                S[j] = A[i, j]                   →          S[j] = A[i, j]
            for k in thread("threadIdx.x", 0, 8):           B[i, j] = S[7 - j]
                B[i, k] = S[7 - k]
    """
    body = _kernels(func.body)
    return func if body is func.body else func.replace(body=body)


def _kernels(s: Stmt) -> Stmt:
    if isinstance(s, Seq):
        made = [_kernels(c) for c in s.stmts]
        return s if all(a is b for a, b in zip(made, s.stmts, strict=True)) else seq(*made)
    if isinstance(s, Alloc | Let):
        body = _kernels(s.body)
        return s if body is s.body else s.replace(body=body)
    return _unified(s)


def _unified(kernel: Stmt) -> Stmt:
    """One kernel with its thread loops outside."""
    loops: dict[str, For] = {}
    for s in statements(kernel):
        if isinstance(s, For) and s.kind == "thread":
            loops.setdefault(s.thread, s)
    if not loops:
        return kernel

    def inner(s: Any) -> Any:
        if not isinstance(s, Stmt):
            return s
        s = s.map_children(inner)
        if not isinstance(s, For) or s.kind != "thread":
            return seq(*s.stmts) if isinstance(s, Seq) else s
        first = loops[s.thread]
        index: Expr = first.var - first.start
        values: dict[Var, Expr] = {s.var: s.start + index}
        body = s.body if s.var == first.var else substitute(s.body, values)
        return body if s.extent == first.extent else If(index < s.extent, body)

    made = inner(kernel)
    for axis in reversed(THREAD_AXES):
        if axis in loops:
            made = loops[axis].replace(body=made)
    return made
