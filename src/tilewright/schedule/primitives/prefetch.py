"""prefetch: ask for memory some iterations before it is read, at once or bit by bit."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

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
    loops_above,
    need,
    primitive,
    refuse,
    replace,
    the_loop,
    variable_names,
)

LINE = 64  # bytes that come together
ROUNDS = 4  # of a loop of open extent, over which requests are spread, where none are named


@primitive("prefetch '{buffer}' in loop '{loop}' at a distance of {distance} iterations")
def prefetch(
    func: Func, buffer: str, loop: str, distance: int, over: str = "", rounds: int = 0
) -> Func:
    """Ask, at the start of each iteration, for what a later one reads of a buffer.

    One request is made for each line of 64 bytes; the requests change no result. They are made at
    once, for L1, or spread evenly `over` the iterations of an inner loop, for L2: so a panel comes
    while the one before it is in use, and nothing waits for it. Of the outermost loop between, the
    first `rounds` iterations ask (0: all of a constant number): the run may have few of them.

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
        P5  the loops lie in no block
        P6  `over`, if it is given, lies in the loop, below loops of constant extents; the outermost
            may be open: then the first of its iterations ask for all of them
    """
    path = loop_path(func, loop)
    old = the_loop(path)
    of = find_buffer(func, buffer)
    read = read_inside(func, path, buffer)
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
    inner = loop_path(func, over) if over else path
    outer = not any(isinstance(s, Block) for s in inner)
    need("P5", outer, func, old, "it lies in a block", "name a loop around the block")
    later = old.var + distance
    starts = [substitute(s, {old.var: later}) for s in read.starts]
    if not over:
        request = _requests(func, Load(of, tuple(starts)), counts)
        return replace(func, path, old.replace(body=seq(If(later < old.stop, request), old.body)))
    around = (*loops_above(inner), the_loop(inner))
    between = around[len(loops_above(path)) + 1 :]
    known = between if between and as_int(between[0].extent) else between[1:]
    within = old in around[:-1] and bool(known) and all(as_int(f.extent) for f in known)
    why = f"'{over}' is not inside '{loop}', or a loop between them has no constant extent"
    need("P6", within, func, old, why, "name an inner loop, or split by constants")
    request = _spread(func, Load(of, tuple(starts)), counts, between, rounds)
    last = between[-1]
    return replace(func, inner, last.replace(body=seq(request, last.body)))


def read_inside(func: Func, path: Path, buffer: str) -> Region | None:
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


def _spread(
    func: Func, first: Load, counts: Sequence[int], loops: Sequence[For], rounds: int
) -> Stmt:
    """An iteration's part of the requests for the tile of so many elements along each axis that
    begins at `first`: lines are numbered as they lie, those of a contiguous run in a row. Past
    the end of its axis an index points at what follows in memory, which is what is wanted.
    `rounds` of the outermost loop ask, as `prefetch` has it."""
    step = LINE * 8 // first.dtype.bits
    axis = len(counts) - 1  # of the runs: those after it are whole
    while axis > 0 and as_int(first.buffer.shape[axis]) == counts[axis]:
        axis -= 1
    run = -(-prod(counts[axis:]) // step)
    outermost = as_int(loops[0].extent)
    asking = min(filter(None, (outermost, rounds)), default=ROUNDS)
    lines = run * prod(counts[:axis])
    times = asking * prod(as_int(f.extent) or 1 for f in loops[1:])
    each = -(-lines // times)
    number: Expr = const(0)
    for n, f in enumerate(loops):
        round_ = f.var - f.start
        if not n and asking != outermost:  # others ask again: a condition would copy the loop
            round_ = minimum(round_, const(asking - 1))
        number = round_ + (number * f.extent if n else const(0))
    var = Var(fresh("p", variable_names(func)))
    if each > 1:
        number = number * each + var
    if times >= 2 * lines:  # several ask for one, lest requests be in the way of what is read now
        number = number // (1 << ((times // lines).bit_length() - 1))  # a shift
    line = number if lines == times * each else minimum(number, const(lines - 1))
    indices = list(first.indices)
    indices[-1] = indices[-1] + line % run * step
    line = line // run
    for d in range(axis - 1, -1, -1):
        indices[d] = indices[d] + line % counts[d]
        line = line // counts[d]
    made: Stmt = Eval(Call("prefetch", (Load(first.buffer, tuple(indices)), const(2)), i64))
    return For(var, ZERO, const(each), "unroll", made) if each > 1 else made


def _inside(index: Expr, start: Expr, count: int, size: Expr) -> Expr:
    """`index`, kept below `size` where the region may reach past it."""
    if as_int(start) == 0 and as_int(size) == count:
        return index
    return index if count == 1 else minimum(index, size - 1)
