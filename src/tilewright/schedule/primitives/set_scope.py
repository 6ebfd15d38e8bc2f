"""set_scope: put an intermediate buffer into another memory."""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr import Buffer
from tilewright.ir.stmt import Alloc, Block, For, Func, Seq
from tilewright.ir.walk import replace_buffers
from tilewright.schedule import access
from tilewright.schedule.locate import (
    Path,
    alloc_path,
    find_buffer,
    map_inner,
    need,
    primitive,
    refuse,
    the_block,
)
from tilewright.support.recursion import recursive

# which threads see one memory: the loops of these axes must hold all uses of a buffer, or none
PRIVATE = {"local": ("blockIdx", "threadIdx"), "warp": ("blockIdx",), "shared": ("blockIdx",)}


@primitive("set the scope of '{buffer}' to '{scope}'")
def set_scope(func: Func, buffer: str, scope: str) -> Func:
    """Put an intermediate buffer into memory `scope` (global, shared, local or a target's own).

    rewrite: set_scope("B", "shared")
        B = alloc(f32[8], "global")
        for i in serial(0, 8):
            with block("B"):
                vi = spatial(8, i)
                reads(A[vi])
                writes(B[vi])
                B[vi] = A[vi] + 1.0
        for j in serial(0, 8):
            with block("C"):
                vj = spatial(8, j)
                reads(B[vj])
                writes(C[vj])
                C[vj] = B[vj] * 2.0
    →
        B = alloc(f32[8], "shared")
        for i in serial(0, 8):
            with block("B"):
                vi = spatial(8, i)
                reads(A[vi])
                writes(B[vi])
                B[vi] = A[vi] + 1.0
        for j in serial(0, 8):
            with block("C"):
                vj = spatial(8, j)
                reads(B[vj])
                writes(C[vj])
                C[vj] = B[vj] * 2.0
    needs:
        P1  the buffer is an intermediate
        P2  the scope is a name
        P3  each loop over threads that do not share this memory is around all uses, or around none
    """
    old = find_buffer(func, buffer)
    alloc = alloc_path(func, old)
    remedy = "copy it into the scope instead: s.cache_read or s.cache_write"
    need("P1", alloc is not None, func, buffer, f"'{buffer}' is a parameter", remedy)
    named = all(part.isidentifier() for part in scope.split("."))
    need("P2", named, func, buffer, f"'{scope}' is no name", "name a scope, such as 'shared'")
    paths = [p for p in access.outer_block_paths(func) if access.touches(the_block(p), old)]
    _check_threads(func, paths, buffer, scope)
    return with_buffer(func, old, old.replace(scope=scope))


def with_buffer(func: Func, old: Buffer, new: Buffer) -> Func:
    """`func` with one buffer instead of another, only where it is named."""

    @recursive
    def go(again: Any, stmt: Any) -> Any:
        kind = stmt.__class__
        if kind is Block:
            return replace_buffers(stmt, {old: new}) if access.names(stmt, old) else stmt
        if kind is Alloc and stmt.buffer == old:
            return Alloc(new, again(stmt.body))
        if kind is For or kind is Seq or kind is Alloc:
            return map_inner(stmt, again)
        return replace_buffers(stmt, {old: new})

    return func.replace(body=go(func.body))


def _check_threads(func: Func, paths: list[Path], buffer: str, scope: str) -> None:
    """P3."""
    apart = PRIVATE.get(scope, ())
    for path in paths:
        for loop in path:
            if isinstance(loop, For) and loop.kind == "thread" and loop.thread.startswith(apart):
                for other in paths:
                    if not any(s is loop for s in other):
                        name = the_block(other).name
                        why = f"'{name}' uses '{buffer}' in other threads than loop '{loop.name}'"
                        remedy = "bring all uses into one loop first: s.compute_at"
                        raise refuse("P3", func, loop, why, remedy)
