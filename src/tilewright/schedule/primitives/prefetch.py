"""prefetch: ask for memory some iterations before it is read."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.arith.region import cover_region, union
from tilewright.arith.simplify import Facts, loop_range
from tilewright.ir.dtype import i64
from tilewright.ir.expr import Call, Expr, Load, Var, as_int, const, minimum
from tilewright.ir.stmt import Block, Eval, For, Func, If, Region, Stmt, seq
from tilewright.ir.walk import fresh, substitute
from tilewright.schedule.depend import below
from tilewright.schedule.domain import ZERO, ranges_at
from tilewright.schedule.locate import (
    Path,
    find_buffer,
    loop_path,
    need,
    primitive,
    refuse,
    replace,
    the_loop,
    variable_names,
)

LINE = 64  # bytes that come together


@primitive("prefetch '{buffer}' in loop '{loop}', {distance} iterations ahead")
def prefetch(func: Func, buffer: str, loop: str, distance: int) -> Func:
    """Ask, at the start of each iteration, for what a later one reads of a buffer.

    One request is made for each line of 64 bytes; the requests change no result.

    rewrite: prefetch("A", "i", 2)
        for i in serial(0, 8):
            for j in serial(0, 16):
                with block("B"):
                    vi = spatial(8, i)
                    vj = spatial(16, j)
                    reads(A[vi, vj])
                    writes(B[vi, vj])
                    B[vi, vj] = A[vi, vj] * 2.0
    →
        for i in serial(0, 8):
            if i + 2 < 8:
                prefetch(A[i + 2, 0])
            for j in serial(0, 16):
                with block("B"):
                    vi = spatial(8, i)
                    vj = spatial(16, j)
                    reads(A[vi, vj])
                    writes(B[vi, vj])
                    B[vi, vj] = A[vi, vj] * 2.0
    needs:
        P1  the buffer lives outside of the loop and is read inside
        P2  the distance is at least 1
        P3  the loop runs in order: it is serial or unrolled
        P4  what an iteration reads of the buffer has a constant size
        P5  the loop lies in no block
    """
    path = loop_path(func, loop)
    old = the_loop(path)
    of = find_buffer(func, buffer)
    read = _read(func, path, buffer)
    if read is None:
        why = f"'{buffer}' is not read inside the loop, or lives inside"
        raise refuse("P1", func, old, why, "name a buffer that is read there")
    need("P2", distance >= 1, func, old, "the distance must be at least 1", "for example 2")
    ordered = old.kind in ("serial", "unroll")
    why = f"it is a '{old.kind}' loop, whose iterations have no order"
    need("P3", ordered, func, old, why, "name a serial loop inside or around it")
    sizes = [as_int(e) for e in read.extents]
    why = f"the part of '{buffer}' that an iteration reads has no constant size"
    need("P4", None not in sizes, func, old, why, "name an outer loop, or split by constants")
    counts = [size for size in sizes if size is not None]
    outer = not any(isinstance(s, Block) for s in path)
    need("P5", outer, func, old, "it lies in a block", "name a loop around the block")
    ahead = old.var + distance
    starts = [substitute(s, {old.var: ahead}) for s in read.starts]
    request = _requests(func, Load(of, tuple(starts)), counts)
    return replace(func, path, old.replace(body=seq(If(ahead < old.stop, request), old.body)))


def _read(func: Func, path: Path, buffer: str) -> Region | None:
    """What an iteration reads of a buffer that lives outside."""
    body = below(the_loop(path).body)
    if any(b.name == buffer for b in body.allocated):
        return None
    known = Facts(ranges_at(func, (*path, *body.loops)))
    varying = {f.var: loop_range(f) for f in body.loops}
    parts = [
        cover_region(a.region, varying, known)
        for a in body.accesses
        if a.buffer == buffer and not a.writes
    ]
    return union(parts, known) if parts else None


def _requests(func: Func, first: Load, counts: Sequence[int]) -> Stmt:
    """One prefetch for each line of the region that starts at `first`, kept inside the buffer."""
    taken = variable_names(func)
    step = max(1, LINE * 8 // first.dtype.bits)
    loops: list[tuple[Var, int]] = []
    indices: list[Expr] = []
    for d, (start, count) in enumerate(zip(first.indices, counts, strict=True)):
        size = first.buffer.shape[d]
        width = step if d == len(counts) - 1 else 1
        index = start
        if count > width:
            var = Var(fresh(f"p_{d}", taken))
            loops.append((var, -(-count // width)))
            index = start + var * width
        indices.append(_inside(index, start, count, size))
    made: Stmt = Eval(Call("prefetch", (Load(first.buffer, tuple(indices)),), i64))
    for var, count in reversed(loops):
        made = For(var, ZERO, const(count), "serial", made)
    return made


def _inside(index: Expr, start: Expr, count: int, size: Expr) -> Expr:
    """`index`, kept below `size` where the region may reach past it."""
    if as_int(start) == 0 and as_int(size) == count:
        return index
    return index if count == 1 else minimum(index, size - 1)
