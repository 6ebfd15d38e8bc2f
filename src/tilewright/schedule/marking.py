"""Marking loops: what the primitives that only change a loop's kind have in common.

In: a loop by name and the numbers of the preconditions. Out: the loop with its new kind. The one
idea: iterations that run at once must be independent, and stay so when blocks move inside later
(`stay_independent`); memory that serves one iteration alone moves into the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilewright.ir.expr import Buffer, Const, Var
from tilewright.ir.stmt import Alloc, Block, For, Func, Let, Seq, Stmt
from tilewright.ir.walk import statements
from tilewright.schedule.depend import accesses_of, carried, private_to
from tilewright.schedule.locate import (
    Path,
    buffers,
    find_loop,
    inner,
    loop_path,
    map_inner,
    need,
    rebuild,
    refuse,
    remark,
    replace,
    substitute_loops,
    the_loop,
)

AT_ONCE = ("parallel", "vectorize", "thread", "vthread")  # kinds whose iterations run at once


def need_serial(func: Func, loop: str, rule: str) -> For:
    """The loop, which must be serial."""
    found = find_loop(func, loop)
    why = f"it is a '{found.kind}' loop already"
    need(rule, found.kind == "serial", func, found, why, "mark a loop once, or split it first")
    return found


def need_constant(func: Func, loop: str, rule: str) -> None:
    """The loop's extent must be a constant."""
    found = find_loop(func, loop)
    remedy = f"split the loop by a constant first: s.split('{loop}', 8)"
    constant = isinstance(found.extent, Const)
    need(rule, constant, func, found, "its extent is not a constant", remedy)


def mark_independent(
    func: Func, loops: Sequence[str], kind: str, serial: str, independent: str, thread: str = ""
) -> Func:
    """Give serial loops whose iterations are independent their new kind.

    `serial` and `independent` are the numbers of these two preconditions.
    """
    for loop in loops:
        need_serial(func, loop, serial)
        func = remark(func, loop, kind=kind, thread=thread)
    for loop in loops:
        func = _check_independent(func, loop, independent)
    return func


def stay_independent(func: Func, path: Path, rule: str) -> Func:
    """Check the marked loops that blocks on a path run in again, after blocks came to stand there.

    These are the loops around, and all loops on threads of the same kernel. The buffers that the
    blocks use must live there too: they may have moved into a loop that a block has left.
    """
    outside = {b.name for b in func.buffers}
    outside |= {s.buffer.name for s in path if isinstance(s, Alloc)}
    if outside != buffers(func).keys():  # else all buffers live here
        _check_living(func, path[-1], outside, rule)
    loops = [s for s in path if isinstance(s, For)]
    marked = {s.name: None for s in loops if s.kind in AT_ONCE}
    if loops:
        for stmt in statements(loops[0]):
            if isinstance(stmt, For) and stmt.kind == "thread":
                marked[stmt.name] = None
    for name in marked:
        func = _check_independent(func, name, rule)
    return func


def _check_living(func: Func, stmt: Stmt, living: set[str], rule: str) -> None:
    """Refuse a statement that uses a buffer which does not live where it stands."""
    if isinstance(stmt, Alloc):
        living = living | {stmt.buffer.name}
    for a in accesses_of(stmt):
        why = f"'{a.buffer}' lives inside another loop"
        remedy = "move blocks before marking the loops around them"
        need(rule, a.buffer in living, func, stmt, why, remedy)
    if not isinstance(stmt, Block):
        for child in inner(stmt):
            _check_living(func, child, living, rule)


def _check_independent(func: Func, loop: str, rule: str) -> Func:
    """Check that a marked loop's iterations are independent; sink the memory of one iteration."""
    path = loop_path(func, loop)
    marked = the_loop(path)
    together = _on_one_axis(path)
    own = [b for b in _allocated(together[-1]) if _is_own(marked, b)]
    if marked.thread.startswith("threadIdx"):  # threads fill shared memory together
        own += [b for b in buffers(func).values() if b.scope == "shared"]
    sunk: list[Buffer] = []
    obstacle = carried(func, together, frozenset(b.name for b in own))
    if obstacle is not None:
        around = [s.buffer for s in path if isinstance(s, Alloc) and _is_own(marked, s.buffer)]
        private = private_to(func, path) if around else frozenset[str]()
        sunk = [b for b in around if b.name in private]
        if sunk:
            obstacle = carried(func, together, frozenset(b.name for b in (*own, *sunk)))
    if obstacle is not None:
        remedy = "choose a loop that only spatial axes are bound to; rfactor splits a reduction"
        raise refuse(rule, func, obstacle[0], obstacle[1], remedy)
    for buffer in sorted(sunk, key=lambda b: b.name):
        func = sink_alloc(func, buffer.name, loop)
    return func


def _allocated(stmt: Stmt) -> Iterator[Buffer]:
    """The buffers that live inside a statement, but for those of blocks."""
    if isinstance(stmt, Block):
        return
    if isinstance(stmt, Alloc):
        yield stmt.buffer
    for child in inner(stmt):
        yield from _allocated(child)


def _is_own(loop: For, buffer: Buffer) -> bool:
    """Does a buffer that lives inside the loop belong to one iteration alone?

    Vector lanes share what is allocated inside, and so do the threads of a block, except local
    memory.
    """
    if loop.kind == "vectorize":
        return False
    return buffer.scope == "local" or not loop.thread.startswith("threadIdx")


def _on_one_axis(path: Path) -> Path:
    """The path to a loop; for a loop on threads, to one that stands for all of its kernel's axis.

    All statements of a kernel (the outermost loop or block) run on all its threads; its loops on
    one axis are one loop around the whole.
    """
    loop = the_loop(path)
    if loop.kind != "thread":
        return path
    at = next(n for n, s in enumerate(path) if not isinstance(s, Seq | Alloc | Let))
    var = Var(loop.thread, loop.var.dtype)

    def merge(stmt: Any) -> Any:
        if isinstance(stmt, Block):
            return stmt
        if isinstance(stmt, For) and stmt.thread == loop.thread:
            return merge(substitute_loops(stmt.body, {stmt.var: var}))
        return map_inner(stmt, merge)

    whole = For(var, loop.start, loop.stop, "thread", merge(path[at]), loop.thread)
    return (*path[:at], whole)


def sink_alloc(func: Func, buffer: str, loop: str) -> Func:
    """Move the allocation of a buffer into a loop's body."""
    path = loop_path(func, loop)
    inside = the_loop(path)
    for n, stmt in enumerate(path):
        if isinstance(stmt, Alloc) and stmt.buffer.name == buffer:
            sunk = inside.replace(body=Alloc(stmt.buffer, inside.body))
            return replace(func, path[: n + 1], rebuild([*path[n + 1 : -1], inside], sunk))
    raise KeyError(buffer)
