"""double_buffer: make the next iteration's operand while this one's is in use."""

from __future__ import annotations

from typing import Any

from tilewright.arith import region
from tilewright.arith.prove import can_prove
from tilewright.arith.simplify import Facts
from tilewright.ir.expr import Buffer, Expr, Load, Var, as_int, const
from tilewright.ir.stmt import Alloc, Axis, Block, For, Func, Region, Seq, Stmt, Store, seq
from tilewright.ir.walk import fresh
from tilewright.schedule import access, locate, spans
from tilewright.schedule.domain import conditions, conjunction, ranges_at
from tilewright.schedule.locate import (
    Path,
    alloc_path,
    block_path,
    copy_afresh,
    loop_path,
    map_blocks,
    need,
    primitive,
    rebuild,
    refuse,
    replace,
    substitute_loops,
    the_block,
)
from tilewright.schedule.primitives.compute_inline import without_alloc

ONE, TWO = const(1), const(2)


@primitive("double the buffer that block '{block}' fills")
def double_buffer(func: Func, block: str) -> Func:
    """Give a buffer two halves; each iteration fills one for the next and uses the other.

    The loop is the innermost one around the block and the readers of its buffer.

    rewrite: double_buffer("B")
        B = alloc(f32[8], "shared")
        for i in serial(0, 8):
            with block("B"):
                vi = spatial(8, i)
                reads(A[vi])
                writes(B[vi])
                B[vi] = A[vi]
            with block("C"):
                vi_1 = spatial(8, i)
                reads(B[vi_1])
                writes(C[vi_1])
                C[vi_1] = B[vi_1] * 2.0
    →
        B = alloc(f32[2, 8], "shared")
        with block("B_1"):
            vhalf_2 = ordered(2, 0)
            vi_2 = spatial(8, 0)
            reads(A[vi_2])
            writes(B[vhalf_2, vi_2])
            B[vhalf_2, vi_2] = A[vi_2]
        for i in serial(0, 8):
            with block("B", where=i + 1 < 8):
                vhalf = ordered(2, (i + 1) % 2)
                vi = spatial(8, i + 1)
                reads(A[vi])
                writes(B[vhalf, vi])
                B[vhalf, vi] = A[vi]
            with block("C"):
                vhalf_1 = ordered(2, i % 2)
                vi_1 = spatial(8, i)
                reads(B[vhalf_1, vi_1])
                writes(C[vi_1])
                C[vi_1] = B[vhalf_1, vi_1] * 2.0
    needs:
        P1  the block alone makes an intermediate buffer, and only that; it lies in no other block
        P2  a serial loop holds it, before other blocks that read the buffer; none does outside
        P3  each iteration reads only what the block makes in it
        P4  no block in the loop writes what the block reads
    """
    path = block_path(func, block)
    order = list(access.outer_block_paths(func))
    buffer = _check_maker(func, path, order)
    readers = [p for p in order if buffer in access.read_buffers(the_block(p))]
    depth = _common_loop(func, path, readers)
    _check_reads(func, path, depth, buffer, readers)
    for other in (the_block(p) for p in order if access.is_inside(p, path[: depth + 1])):
        for source in access.written_buffers(other) & access.read_buffers(the_block(path)):
            why = f"'{other.name}' writes '{source.name}', which it would read an iteration early"
            raise refuse("P4", func, other, why, "double only what the loop leaves as it is")
    return _rewrite(func, path, depth, buffer)


def _check_maker(func: Func, path: Path, order: list[Path]) -> Buffer:
    """P1; gives the buffer."""
    access.only_outer(func, path, order, "P1")
    maker = the_block(path)
    made = access.written_buffers(maker)
    remedy = "copy what is read in a block of its own: s.cache_read"
    need("P1", len(made) == 1, func, maker, "it writes several buffers", remedy)
    (buffer,) = made
    need("P1", buffer not in func.params, func, maker, f"'{buffer.name}' is a parameter", remedy)
    for other in map(the_block, order):
        if other is not maker and buffer in access.written_buffers(other):
            why = f"'{other.name}' writes '{buffer.name}' too"
            raise refuse("P1", func, other, why, remedy)
    return buffer


def _common_loop(func: Func, path: Path, readers: list[Path]) -> int:
    """P2; gives where in `path` the innermost loop around the block and the readers stands."""
    depth = len(path)
    for reader in readers:
        same = sum(1 for a, b in zip(path, reader, strict=False) if a is b)
        depth = min(depth, same)
    loops = [n for n, s in enumerate(path[:depth]) if isinstance(s, For)]
    remedy = "move it into a loop of its readers first: s.compute_at"
    need("P2", readers and loops, func, path[-1], "no loop holds it and its readers", remedy)
    at = _filling(path, loops[-1])
    alone = list(locate.outer_blocks(path[at])) == [path[-1]]
    need("P2", alone, func, path[at], "other blocks stand in its own loops", remedy)
    loop = path[loops[-1]]
    assert isinstance(loop, For)
    need("P2", loop.kind == "serial", func, loop, f"loop '{loop.name}' is {loop.kind}", remedy)
    return loops[-1]


def _filling(path: Path, depth: int) -> int:
    """Where in `path` the statement that fills the buffer starts, below the loop at `depth`."""
    return next(n for n in range(depth + 1, len(path)) if not isinstance(path[n], Seq | Alloc))


def _check_reads(func: Func, path: Path, depth: int, buffer: Buffer, readers: list[Path]) -> None:
    """P2's order and P3."""
    maker, known = the_block(path), Facts(ranges_at(func, path[: depth + 1]))
    remedy = "move it into the loop of its readers anew: s.compute_at"
    made = region.clip(spans.relaxed_region(func, [path], depth + 1, buffer, "writes"), known)
    exact = spans.is_exact(func, path, depth + 1, buffer)
    need("P3", exact, func, maker, "what it makes in an iteration is not known exactly", remedy)
    order = [p[-1] for p in access.outer_block_paths(func)]
    for reader in readers:
        later = order.index(reader[-1]) > order.index(maker)
        need("P2", later, func, reader[-1], "it reads before the buffer is filled", remedy)
        read = region.clip(spans.relaxed_region(func, [reader], depth + 1, buffer, "reads"), known)
        for a, m, b, n in zip(read.starts, read.extents, made.starts, made.extents, strict=True):
            holds = can_prove(a >= b, known) and can_prove(a + m <= b + n, known)
            why = f"it reads parts of '{buffer.name}' that the iteration does not make"
            need("P3", holds, func, reader[-1], why, remedy)


def _rewrite(func: Func, path: Path, depth: int, old: Buffer) -> Func:
    loop = path[depth]
    assert isinstance(loop, For)
    at = _filling(path, depth)
    new = old.replace(shape=(TWO, *old.shape), strides=None)
    taken = locate.variable_names(func)

    def halved(block: Block, step: Expr) -> Block:
        """The block, and those inside, with an axis for the half that they use in `step`.

        The axis is ordered: which half it is hangs on the loop, which the block must not leave.
        """
        half = Axis(Var(fresh("vhalf", taken)), "ordered", TWO, step % 2)

        def go(n: Any) -> Any:
            if n.__class__ is Block and access.touches(n, old):
                return halved(n, half.var)
            m: Any = n.map_children(go)
            if isinstance(m, Load | Store) and m.buffer == old:
                return m.replace(buffer=new, indices=(half.var, *m.indices))
            if isinstance(m, Region) and m.buffer == old:
                return Region(new, (half.var, *m.starts), (ONE, *m.extents))
            return m

        changed = block.map_children(go)
        return changed.replace(axes=(half, *changed.axes))

    def filled(step: Expr) -> Stmt:
        """The filling of the half for iteration `step`, if there is one."""

        def change(block: Block) -> Block:
            there = [c for c in (step < loop.stop,) if as_int(c) != 1]
            where = conjunction([*conditions(block.where), *there])
            return halved(block.replace(where=where), step)

        return map_blocks(substitute_loops(path[at], {loop.var: step}), change)

    def read(block: Block) -> Block:
        return halved(block, loop.var) if access.touches(block, old) else block

    looped = map_blocks(rebuild(path[depth : at + 1], filled(loop.var + 1)), read)
    moved = replace(func, path[: depth + 1], looped)
    first = copy_afresh(moved, filled(loop.start))
    around = loop_path(moved, loop.name)
    return _widen_alloc(replace(moved, around, seq(first, around[-1])), loop.name, old, new)


def _widen_alloc(func: Func, loop: str, old: Buffer, new: Buffer) -> Func:
    """Allocate both halves, outside of the loop."""
    path = alloc_path(func, old)
    assert path is not None
    if isinstance(path[-1], Alloc) and not any(isinstance(s, For) and s.name == loop for s in path):
        return replace(func, path, Alloc(new, path[-1].body))
    bare = without_alloc(func, old)
    return bare.replace(body=Alloc(new, bare.body))
