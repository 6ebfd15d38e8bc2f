"""reverse_compute_at: use a producer's values where they are made, inside its loop."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arith import linear
from tilewright.arith.prove import can_prove
from tilewright.arith.simplify import Facts
from tilewright.ir.expr import Buffer, Expr, Var
from tilewright.ir.stmt import Block, For, Func, Region, Stmt
from tilewright.ir.walk import free_vars
from tilewright.schedule import access, locate, nest, spans
from tilewright.schedule.domain import conditions, ranges_at
from tilewright.schedule.locate import (
    Path,
    block_path,
    loop_path,
    need,
    primitive,
    refuse,
    replace,
    the_block,
    the_loop,
)
from tilewright.schedule.marking import stay_independent

# the buffers made inside the loop that the block reads: where it reads them, who makes them
Sources = dict[Buffer, tuple[Region, list[Path]]]


@primitive("compute block '{block}' at loop '{loop}' of its producer")
def reverse_compute_at(func: Func, block: str, loop: str) -> tuple[Func, tuple[str, ...]]:
    """Move a consumer into a loop of its producers: each iteration uses what it has made.

    The block's own loops are made anew, in the order of its axes, over the part that one iteration
    makes; gives their names.

    rewrite: reverse_compute_at("C", "i_o")
        B = alloc(f32[8], "global")
        for i_o in serial(0, 2):
            for i_i in serial(0, 4):
                with block("B"):
                    vi = spatial(8, i_o * 4 + i_i)
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
        B = alloc(f32[8], "global")
        for i_o in serial(0, 2):
            for i_i in serial(0, 4):
                with block("B"):
                    vi = spatial(8, i_o * 4 + i_i)
                    reads(A[vi])
                    writes(B[vi])
                    B[vi] = A[vi] + 1.0
            for j in serial(0, 4):
                with block("C"):
                    vj = spatial(8, i_o * 4 + j)
                    reads(B[vj])
                    writes(C[vj])
                    C[vj] = B[vj] * 2.0
    needs:
        P1  the loop comes before the block and not around it; neither lies in another block
        P2  the block reads buffers that are made inside the loop, one element of each, which always
            lies in the buffer
        P3  what one iteration makes of them is a rectangle, and complete: no reduction is left open
        P4  the instances that read these parts are the same for each buffer, and reduce in whole
        P5  nothing from the loop's nest to the block touches what it writes or writes what it reads
        P6  it stays in the loops of its ordered axes
        P7  the iterations of marked loops around its new position stay independent, and what is
            used there lives there
    """
    path, target = block_path(func, block), loop_path(func, loop)
    order = list(access.outer_block_paths(func))
    _check_position(func, path, target, order)
    shared = next(n for n, (a, b) in enumerate(zip(path, target, strict=False)) if a is not b)
    sources = _sources(func, path, target, order)
    _check_complete(func, path, target, shared, sources)
    _check_between(func, path, target[: shared + 1], order, sources)
    part, only = _part(func, the_block(path), target, sources)
    removed = replace(func, path, None)
    around = loop_path(removed, loop)
    new, names = nest.around(removed, the_block(path), part, around, only)
    _check_reduces_whole(func, path, new)
    body = the_loop(around).body
    filled = access.insert(
        body, new, lambda b: bool(sources.keys() & access.written_buffers(b)), after=True
    )
    moved = replace(removed, (*around, body), filled)
    return stay_independent(moved, loop_path(moved, loop), "P7"), names


def _check_reduces_whole(func: Func, path: Path, nest_made: Stmt) -> None:
    """P4: no guard cuts a reduction."""
    (made,) = locate.outer_blocks(nest_made)
    reduced = {v for a in made.axes if a.kind == "reduce" for v in free_vars(a.value)}
    for condition in conditions(made.where):
        if free_vars(condition) & reduced:
            why = "an iteration makes only a part of what the block reduces"
            raise refuse("P4", func, path[-1], why, "name a loop further out")


def _check_position(func: Func, path: Path, target: Path, order: list[Path]) -> None:
    """P1 and P6."""
    access.only_outer(func, path, order, "P1")
    block, loop = the_block(path), the_loop(target)
    remedy = "name a loop of the block that makes what it reads"
    inside = any(isinstance(s, Block) for s in target)
    need("P1", not inside, func, loop, f"loop '{loop.name}' lies in a block", remedy)
    around = access.is_inside(path, target)
    need("P1", not around, func, loop, f"loop '{loop.name}' is already around it", remedy)
    at = next(n for n, p in enumerate(order) if p[-1] is block)
    earlier = all(not access.is_inside(p, target) for p in order[at:])
    need("P1", earlier, func, loop, f"loop '{loop.name}' comes after it", remedy)
    steps = {v for a in block.axes if a.kind == "ordered" for v in free_vars(a.value)}
    for var in steps - {s.var for s in target if isinstance(s, For)}:
        why = f"it would leave loop '{var.name}', along which it must run in order"
        raise refuse("P6", func, block, why, "name a loop inside that one")


def _sources(func: Func, path: Path, target: Path, order: list[Path]) -> Sources:
    """P2."""
    block = the_block(path)
    ranges = ranges_at(func, [block])
    sources: Sources = {}
    for own in block.reads:
        buffer = own.buffer
        writers = [p for p in order if buffer in access.written_buffers(the_block(p))]
        if not any(access.is_inside(p, target) for p in writers):
            continue
        single = buffer not in sources and all(e == access.ONE for e in own.extents)
        why = f"it reads several elements of '{buffer.name}'"
        need("P2", single, func, block, why, "move or inline the producer instead")
        for start, size in zip(own.starts, buffer.shape, strict=True):
            bounded = all(
                linear.holds(c, ranges) or can_prove(c, Facts(ranges))
                for c in (start >= 0, start < size)
            )
            why = f"some of its instances read outside of '{buffer.name}'"
            need("P2", bounded, func, block, why, "inline it, or leave it where it is")
        sources[buffer] = (own, writers)
    why = f"nothing that it reads is made in loop '{the_loop(target).name}'"
    need("P2", sources, func, block, why, "name a loop of the block that makes what it reads")
    whole = spans.runs_whole(func, path)
    need("P2", whole, func, block, "some of its instances do not run", "move it before guarding it")
    return sources


def _check_complete(
    func: Func,
    path: Path,
    target: Path,
    shared: int,
    sources: Sources,
) -> None:
    """P3."""
    outside = {s.var for s in target[shared:] if isinstance(s, For)}
    for buffer, (_, writers) in sources.items():
        for writer in writers:
            made = the_block(writer)
            why = f"'{made.name}' makes parts of '{buffer.name}' outside of the loop"
            inside = access.is_inside(writer, target)
            need("P3", inside, func, made, why, "name a loop around all that makes the buffer")
            for axis in made.axes:
                if axis.kind == "reduce" and free_vars(axis.value) & outside:
                    why = f"the reduction of '{made.name}' goes on outside of the loop"
                    raise refuse("P3", func, made, why, "name a loop outside of the reduction")
            exact = spans.is_exact(func, writer, len(target), buffer)
            why = f"what an iteration makes of '{buffer.name}' is no rectangle known exactly"
            need("P3", exact, func, made, why, "name a loop further out, or do not fuse its loops")


def _check_between(
    func: Func,
    path: Path,
    nest_path: Path,
    order: list[Path],
    sources: Sources,
) -> None:
    """P5."""
    block = the_block(path)
    first = next(n for n, p in enumerate(order) if access.is_inside(p, nest_path))
    last = next(n for n, p in enumerate(order) if p[-1] is block)
    for other in map(the_block, order[first:last]):
        for buffer in _conflicts(block, other):
            if buffer not in sources:
                why = f"'{other.name}' stands between and also uses '{buffer.name}'"
                raise refuse("P5", func, other, why, "move or inline that block first")


def _conflicts(a: Block, b: Block) -> Iterator[Buffer]:
    """The buffers through which the order of two blocks matters."""
    written, other = access.written_buffers(a), access.written_buffers(b)
    yield from written & (other | access.read_buffers(b))
    yield from other & access.read_buffers(a)


def _part(
    func: Func, block: Block, target: Path, sources: Sources
) -> tuple[dict[Var, spans.Span], list[Expr]]:
    """P4: the part of the axes that reads what one iteration makes, and its exact bounds."""
    known = Facts(ranges_at(func, target))
    part: dict[Var, spans.Span] = {}
    only: list[Expr] = []
    remedy = "name a loop further out"
    told = {b: {v for e in own.starts for v in free_vars(e)} for b, (own, _) in sources.items()}
    ordered = sorted(sources, key=lambda b: -len(told[b]))  # the first tells most axes
    for buffer in ordered:
        own, writers = sources[buffer]
        made = spans.relaxed_region(func, writers, len(target), buffer, "writes")
        found = spans.spans(block, own, made, known)
        for axis in block.axes:
            if axis.var not in told[buffer]:
                continue
            whole = (spans.ZERO, axis.extent)
            span = found.get(axis.var, whole)
            why = f"an iteration makes only a part of what axis '{axis.var.name}' reduces"
            need("P4", axis.kind != "reduce" or span == whole, func, block, why, remedy)
            same = part.get(axis.var, whole if buffer != ordered[0] else span) == span
            why = f"the parts of its operands differ along axis '{axis.var.name}'"
            need("P4", same, func, block, why, remedy)
            part[axis.var] = span
        for index, start, extent in zip(own.starts, made.starts, made.extents, strict=True):
            only += [index >= start, index < start + extent]
    return part, only
