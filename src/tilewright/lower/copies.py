"""Copies of a loop's body: whether a round may be taken twice, what each allocates, what they cost.

Passes that give parts of a loop code of their own (its middle, its last rounds, each remainder of a
size) write its body several times. The one idea: a body reads and writes what it did before, and
what it allocates belongs to one copy.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr import Load, as_int
from tilewright.ir.stmt import Alloc, Buffer, Eval, For, Stmt, Store
from tilewright.ir.walk import fresh, replace_buffers, visit


def accumulates(body: Stmt, own: set[Buffer]) -> bool:
    """Are there sums, in buffers of the body's own? Then no result lies where an operand was, and a
    round may be taken twice."""
    return any(
        s.buffer in own
        and any(isinstance(n, Load) and n.buffer == s.buffer for n in visit(s.value))
        for s in visit(body)
        if isinstance(s, Store)
    )


def own_memory(s: Any, taken: set[str]) -> Any:
    """Copies of a loop allocate buffers of their own: the second of a name gets another."""
    if isinstance(s, Alloc):
        body, name = s.body, fresh(s.buffer.name, taken)
        if name != s.buffer.name:
            renamed = s.buffer.replace(name=name)
            s = Alloc(renamed, replace_buffers(body, {s.buffer: renamed}))
        return s.replace(body=own_memory(s.body, taken))

    if isinstance(s, Store):
        return s

    def inner(c: Any) -> Any:
        return own_memory(c, taken) if isinstance(c, Stmt) else c

    return s.map_children(inner)


def stores_of(s: Stmt) -> int:
    """Stores that the statement becomes when it is unrolled."""
    if isinstance(s, For):
        times = as_int(s.extent) if s.kind == "unroll" else 1
        return stores_of(s.body) * max(1, times or 1)
    if isinstance(s, Store):
        return 1
    return sum(stores_of(c) for c in s.children() if isinstance(c, Stmt))


def is_request(s: Eval) -> bool:
    """Does it but ask for memory ahead?"""
    return any(getattr(n, "name", "") == "prefetch" for n in visit(s.value))
