"""compact_buffers: a buffer lives where it is used, and is as large as what is used there.

In: stage "blocks". Out: stage "loops" (`lower_blocks` runs inside: what a block touches is known
while it stands, and accesses are rewritten once only loops are left). A schedule may leave an
intermediate at full size outside all loops although each tile needs but a tile of it; this pass
moves it in and cuts it down.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Const,
    Expr,
    Load,
    const,
)
from tilewright.ir.stmt import Alloc, Block, For, Func, Seq, Stmt, Store, seq
from tilewright.ir.walk import (
    accesses,
    rewrite,
    statements,
)
from tilewright.lower.buffer_plans import Plan, plans
from tilewright.lower.lower_blocks import lower_blocks
from tilewright.support.recursion import recursive


def compact_buffers(func: Func) -> Func:
    """Lower blocks; move each allocation to the innermost loop where it can live, and shrink it.

    rewrite:
        T = alloc(f32[64], "local")                 for i_o in serial(0, 8):
        for i_o in serial(0, 8):                        T = alloc(f32[8], "local")
            for i in serial(0, 8):               →      for i in serial(0, 8):
                T[i_o * 8 + i] = A[i_o * 8 + i]             T[i] = A[i_o * 8 + i]
            for i_1 in serial(0, 8):                    for i_1 in serial(0, 8):
                B[i_o * 8 + i_1] = T[i_o * 8 + i_1]         B[i_o * 8 + i_1] = T[i_1]
    """
    if not any(isinstance(s, Alloc) for s in statements(func.body)):
        return lower_blocks(func)
    found, dead = plans(func)
    bare = lower_blocks(func.replace(body=_without(func.body, set(found))))
    return bare.replace(body=_apply(_without(bare.body, dead), found))


def _without(stmt: Stmt, buffers: set[Buffer]) -> Stmt:
    """`stmt` without the allocations of `buffers`."""
    if not buffers:
        return stmt

    @recursive
    def go(again: Any, s: Any) -> Any:
        if isinstance(s, Alloc) and s.buffer in buffers:
            return again(s.body)
        if not isinstance(s, Stmt) or s.__class__ is Block or s.__class__ is Store:
            return s
        if isinstance(s, Seq):
            made = [again(c) for c in s.stmts]
            return s if all(a is b for a, b in zip(made, s.stmts, strict=True)) else seq(*made)
        return s.map_children(again)

    return go(stmt)


def _apply(body: Stmt, found: dict[Buffer, Plan]) -> Stmt:
    """Allocate as planned, and move every access by where the kept part begins."""
    by_loop: dict[str | None, list[Plan]] = {}
    for plan in found.values():
        by_loop.setdefault(plan.loop, []).append(plan)

    def move(n: Any) -> Any:
        if n.__class__ is Load and n.buffer in found:
            plan = found[n.buffer]
            return Load(plan.buffer, _moved(n.indices, plan.starts))
        if n.__class__ is Store and n.buffer in found:
            plan = found[n.buffer]
            return Store(plan.buffer, _moved(n.indices, plan.starts), n.value)
        if n.__class__ is For and n.name in by_loop:
            return n.replace(body=_allocate(by_loop[n.name], n.body))
        return n

    return _allocate(by_loop.get(None, []), rewrite(body, (Load, Store, For), move))


def _moved(indices: tuple[Expr, ...], starts: tuple[Expr, ...]) -> tuple[Expr, ...]:
    return tuple([_less(i, s) for i, s in zip(indices, starts, strict=True)])


def _less(index: Expr, start: Expr) -> Expr:
    """index - start; where the sum shows `start` as it is, it goes at once: later passes read less.

    (Most do: a tile's index is the tile's start plus what is inside the tile.)
    """
    if index == start:
        return const(0)
    if start.__class__ is Const:
        return index - start
    rest: list[Expr] = []  # what was added after `e`, the last first
    e = index
    while isinstance(e, Binary) and e.op is BinaryOp.add:
        if start in (e.a, e.b):
            e = e.b if e.a == start else e.a
            for term in reversed(rest):
                e = e + term
            return e
        rest.append(e.b)
        e = e.a
    return index - start


def _allocate(plans: list[Plan], body: Stmt) -> Stmt:
    """Allocate around the statements of `body` that use each buffer."""
    if not plans:
        return body
    stmts = list(body.stmts if isinstance(body, Seq) else (body,))
    named = [{n.buffer for n in accesses(s)} for s in stmts]
    for plan in reversed(plans):
        users = [n for n, of in enumerate(named) if plan.buffer in of]
        if not users:
            continue  # the nest of an init, whose loops have the names of those they stand for
        inside = slice(users[0], users[-1] + 1)
        stmts[inside] = [Alloc(plan.buffer, seq(*stmts[inside]))]
        named[inside] = [set[Buffer]().union(*named[inside])]
    return seq(*stmts)
