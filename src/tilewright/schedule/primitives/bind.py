"""bind: run a loop's iterations on the threads of a device."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.expr import Expr, as_int
from tilewright.ir.stmt import THREAD_AXES, Alloc, Block, For, Func, Let, Seq
from tilewright.ir.text import print_expr
from tilewright.ir.walk import free_vars, statements
from tilewright.schedule.domain import ZERO, rebind
from tilewright.schedule.locate import (
    Path,
    find_loop,
    loop_path,
    need,
    primitive,
    replace,
    the_loop,
)
from tilewright.schedule.marking import mark_independent, need_constant


@primitive("bind loop {loop!r} to {thread}")
def bind(func: Func, loop: str | Sequence[str], thread: str) -> Func:
    """Run a loop's iterations on the threads of a device axis.

    `thread` is blockIdx.x, .y, .z or threadIdx.x, .y, .z. Loops of one kernel that are bound to
    the same axis share its threads: a copy into shared memory is done by all threads together.
    Several loops beside each other are bound at once, for what is not bound runs on all threads.
    A loop that starts elsewhere is shifted to start at 0.

    rewrite: bind("i", "threadIdx.x")
        for i in serial(0, 64):
            with block("B"):
                vi = spatial(64, i)
                reads(A[vi])
                writes(B[vi])
                B[vi] = A[vi] * 2.0
    →
        for i in thread("threadIdx.x", 0, 64):
            with block("B"):
                vi = spatial(64, i)
                reads(A[vi])
                writes(B[vi])
                B[vi] = A[vi] * 2.0
    needs:
        P1  the loop is serial
        P2  the axis is one of blockIdx.x … threadIdx.z
        P3  its iterations are independent: each writes elements of its own, and none reads what
            another writes; nor does the rest of the kernel, which runs on all threads
        P4  the extent of a threadIdx loop is a constant
        P5  other loops of the same kernel on this axis have the same extent
        P6  what stands in two loops on one axis does not depend on the outer one: it is done once,
            by all threads together
    """
    loops = (loop,) if isinstance(loop, str) else tuple(loop)
    known = ", ".join(THREAD_AXES)
    found = find_loop(func, loops[0]) if loops else None
    why = f"there is no axis '{thread}'"
    need("P2", thread in THREAD_AXES, func, found, why, f"choose one of {known}")
    made = func
    for name in loops:
        if thread.startswith("threadIdx"):
            need_constant(func, name, "P4")
        _check_axis(made, name, thread)
        path = loop_path(made, name)
        made = replace(made, path, _from_zero(made, path).replace(thread=thread))
    return mark_independent(made, loops, "thread", "P1", "P3", thread)


def _from_zero(func: Func, path: Path) -> For:
    """The loop at a path, shifted to start at 0, as threads do."""
    old = the_loop(path)
    if as_int(old.start) == 0:
        return old
    shifted = old.replace(start=ZERO, stop=old.extent)
    body = rebind(func, [*path[:-1], shifted], old.body, {old.var: old.start + old.var})
    return shifted.replace(body=body)


def _check_axis(func: Func, loop: str, thread: str) -> None:
    """P5 and P6."""
    path = loop_path(func, loop)
    old = the_loop(path)
    kernel = next(s for s in path if not isinstance(s, Seq | Alloc | Let))
    for other in statements(kernel):
        if isinstance(other, For) and other.thread == thread:
            count = print_expr(other.extent)
            why = f"loop '{other.name}' on the same axis has {count} iterations"
            remedy = f"split the loop so that a part has {count} iterations"
            need("P5", other.extent == old.extent, func, other, why, remedy)
    for outer in path[:-1]:
        if isinstance(outer, For) and outer.thread == thread:
            _need_common(func, outer, old)
    for inner in statements(old.body):
        if isinstance(inner, For) and inner.thread == thread:
            _need_common(func, old, inner)


def _need_common(func: Func, outer: For, inner: For) -> None:
    """P6."""
    path = loop_path(func, inner.name)
    bound = [e for s in path if isinstance(s, Block) for e in _bound(s)]
    common = all(outer.var not in free_vars(part) for part in (inner, *bound))
    why = f"loop '{inner.name}' inside loop '{outer.name}' on the same axis depends on it"
    need("P6", common, func, inner, why, "bind the two to different axes, or fuse them first")


def _bound(block: Block) -> list[Expr]:
    """The expressions through which the inside of a block hangs on the loops around it."""
    return [a.value for a in block.axes] + ([] if block.where is None else [block.where])
