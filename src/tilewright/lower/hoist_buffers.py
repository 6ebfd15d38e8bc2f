"""hoist_buffers: a buffer of open size inside loops becomes one outside, a part for each round.

In: stage "loops". Out: stage "loops". The one idea: memory inside a loop is set aside when the code
is made, memory outside of all loops by the run, which knows the sizes. Rounds of a serial loop
follow one another and use the same buffer; rounds of a parallel loop, whose number is known, have
each a part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith.simplify import simplify
from tilewright.ir.expr import Buffer, Expr, Load, Var, as_int
from tilewright.ir.stmt import Alloc, For, Func, Seq, Stmt, Store, seq
from tilewright.ir.walk import free_vars, rewrite, statements


def hoist_buffers(func: Func) -> Func:
    """Allocate buffers of open size outside of all loops.

    rewrite:
        for p in parallel(0, 4):                  T = alloc(f32[4, n], "global")
            for i in serial(0, 8):                for p in parallel(0, 4):
                T = alloc(f32[n], "global")   →       for i in serial(0, 8):
                …  T[j]  …                                …  T[p, j]  …
    """
    if not any(map(_is_open, statements(func.body))):
        return func
    outside: list[Buffer] = []
    body = _hoisted(func.body, (), outside)
    for buffer in reversed(outside):
        body = Alloc(buffer, body)
    return func.replace(body=body) if outside else func


def can_hoist(loops: Sequence[For], shape: Sequence[Expr], known: set[Var]) -> bool:
    """Can a buffer inside these loops be a part of one outside: do parallel loops have a known
    number of rounds, and does its size follow from what is `known` outside?"""
    rounds = all(
        loop.kind != "thread" and (loop.kind != "parallel" or as_int(loop.extent) is not None)
        for loop in loops
    )
    return rounds and all(free_vars(size) <= known for size in shape)


def _is_open(stmt: Stmt) -> bool:
    return isinstance(stmt, Alloc) and any(as_int(n) is None for n in stmt.buffer.shape)


def _hoisted(stmt: Any, loops: tuple[For, ...], outside: list[Buffer]) -> Any:
    """`stmt` without buffers of open size, if it stands in `loops`; they come `outside`."""
    if isinstance(stmt, For):
        return stmt.map_children(
            lambda s: _hoisted(s, (*loops, stmt), outside) if isinstance(s, Stmt) else s
        )
    if isinstance(stmt, Alloc) and loops and _is_open(stmt):
        body = _hoisted(stmt.body, loops, outside)
        shared = [loop for loop in loops if loop.kind == "parallel"]
        made = _in_parts(stmt.buffer, shared)
        outside.append(made)
        return _moved(body, stmt.buffer, made, tuple([f.var - f.start for f in shared]))
    if isinstance(stmt, Seq):
        parts = [_hoisted(s, loops, outside) for s in stmt.stmts]
        kept = all(a is b for a, b in zip(parts, stmt.stmts, strict=True))
        return stmt if kept else seq(*parts)
    if isinstance(stmt, Stmt) and not isinstance(stmt, Store):
        return stmt.map_children(
            lambda s: _hoisted(s, loops, outside) if isinstance(s, Stmt) else s
        )
    return stmt


def _in_parts(buffer: Buffer, loops: Sequence[For]) -> Buffer:
    """The buffer, once for each round of `loops`."""
    strides = buffer.strides
    for loop in reversed(loops):
        if strides is not None:
            strides = (simplify(buffer.shape[0] * strides[0]), *strides)
        buffer = buffer.replace(shape=(loop.extent, *buffer.shape), strides=strides)
    return buffer


def _moved(body: Stmt, old: Buffer, new: Buffer, first: tuple[Expr, ...]) -> Stmt:
    def change(n: Any) -> Any:
        if n.buffer != old:
            return n
        if isinstance(n, Load):
            return Load(new, (*first, *n.indices))
        return Store(new, (*first, *n.indices), n.value)

    return rewrite(body, (Load, Store), change)
