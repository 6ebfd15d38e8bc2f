"""compute_at: make a producer's values where they are needed, inside a loop of the consumer."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arith.simplify import Facts
from tilewright.ir.expr import Var
from tilewright.ir.stmt import Block, For, Func
from tilewright.ir.walk import free_vars
from tilewright.schedule import access, nest, spans
from tilewright.schedule.domain import ranges_at
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


@primitive("compute block '{block}' at loop '{loop}'")
def compute_at(func: Func, block: str, loop: str) -> tuple[Func, tuple[str, ...]]:
    """Move a producer into a loop of its consumers: each iteration makes what it reads.

    The block's own loops are made anew, in the order of its axes, over the part that one iteration
    needs; gives their names. The buffer keeps its shape (lowering shrinks it).

    rewrite: compute_at("B", "y")
        B = alloc(f32[8], "global")
        for i in serial(0, 8):
            with block("B"):
                vi = spatial(8, i)
                reads(A[vi])
                writes(B[vi])
                B[vi] = A[vi] * 2.0
        for y in serial(0, 6):
            for k in serial(0, 3):
                with block("C"):
                    vy = spatial(6, y)
                    vk = reduce(3, k)
                    reads(B[vy + vk])
                    writes(C[vy])
                    with init():
                        C[vy] = 0.0
                    C[vy] = C[vy] + B[vy + vk]
    →
        B = alloc(f32[8], "global")
        for y in serial(0, 6):
            for i in serial(0, 3):
                with block("B"):
                    vi = spatial(8, y + i)
                    reads(A[vi])
                    writes(B[vi])
                    B[vi] = A[vi] * 2.0
            for k in serial(0, 3):
                with block("C"):
                    vy = spatial(6, y)
                    vk = reduce(3, k)
                    reads(B[vy + vk])
                    writes(C[vy])
                    with init():
                        C[vy] = 0.0
                    C[vy] = C[vy] + B[vy + vk]
    needs:
        P1  the loop comes after the block and not around it; neither lies in another block
        P2  the block alone makes its buffers, in all its instances, and they are intermediates
        P3  every block that reads them stands inside the loop
        P4  nothing from the block to the end of the loop's nest writes what it reads
        P5  it stays in the loops of its ordered axes
        P6  the iterations of marked loops around its new position stay independent, and what is
            used there lives there
    """
    path, target = block_path(func, block), loop_path(func, loop)
    order = list(access.outer_block_paths(func))
    _check_position(func, path, target, order)
    _check_only_maker(func, path, order)
    consumers = _check_consumers(func, path, target, order)
    _check_sources(func, path, target, order)
    part = _needed(func, the_block(path), target, consumers)
    moved, names = _move(func, path, loop, part)
    return stay_independent(moved, loop_path(moved, loop), "P6"), names


def _check_position(func: Func, path: Path, target: Path, order: list[Path]) -> None:
    """P1 and P5."""
    access.only_outer(func, path, order, "P1")
    block, loop = the_block(path), the_loop(target)
    remedy = "name a loop of the blocks that read its result"
    inside = any(isinstance(s, Block) for s in target)
    need("P1", not inside, func, loop, f"loop '{loop.name}' lies in a block", remedy)
    around = access.is_inside(path, target)
    need("P1", not around, func, loop, f"loop '{loop.name}' is already around it", remedy)
    at = next(n for n, p in enumerate(order) if p[-1] is block)
    later = all(not access.is_inside(p, target) for p in order[:at])
    need("P1", later, func, loop, f"loop '{loop.name}' comes before it", remedy)
    steps = {v for a in block.axes if a.kind == "ordered" for v in free_vars(a.value)}
    kept = {s.var for s in target if isinstance(s, For)}
    for var in steps - kept:
        why = f"it would leave loop '{var.name}', along which it must run in order"
        raise refuse("P5", func, block, why, "name a loop inside that one")


def _check_only_maker(func: Func, path: Path, order: list[Path]) -> None:
    """P2."""
    block = the_block(path)
    made = access.written_buffers(block)
    for buffer in made:
        if buffer in func.params:
            why = f"'{buffer.name}' is a parameter, of which all must be made"
            raise refuse("P2", func, block, why, "move its producers instead")
    for other in map(the_block, order):
        if other is not block:
            for buffer in made & access.written_buffers(other):
                why = f"block '{other.name}' writes '{buffer.name}' too"
                raise refuse("P2", func, other, why, "move it before the value is made in parts")
    whole = spans.runs_whole(func, path, ("reduce",))
    why = "its guard or its loops leave instances out"
    need("P2", whole, func, block, why, "move it before guarding it or partitioning its loops")


def _check_consumers(func: Func, path: Path, target: Path, order: list[Path]) -> list[Path]:
    """P3; gives the consumers."""
    made = access.written_buffers(the_block(path))
    consumers = [p for p in order if made & access.read_buffers(the_block(p))]
    remedy = "name a loop around all of its readers"
    need("P3", consumers, func, path[-1], "nothing reads what it makes", remedy)
    for consumer in consumers:
        why = f"'{the_block(consumer).name}' reads its result outside of the loop"
        need("P3", access.is_inside(consumer, target), func, consumer[-1], why, remedy)
    return consumers


def _check_sources(func: Func, path: Path, target: Path, order: list[Path]) -> None:
    """P4."""
    block = the_block(path)
    shared = next(n for n, (a, b) in enumerate(zip(path, target, strict=False)) if a is not b)
    nest_path = target[: shared + 1]
    first = next(n for n, p in enumerate(order) if p[-1] is block)
    last = max(n for n, p in enumerate(order) if access.is_inside(p, nest_path))
    sources = access.read_buffers(block)
    for other in map(the_block, order[first + 1 : last + 1]):
        for buffer in access.written_buffers(other) & sources:
            why = f"'{other.name}' writes '{buffer.name}', which it reads, before it would run"
            raise refuse("P4", func, other, why, "leave it where it is, or move it less far")


def _needed(
    func: Func, block: Block, target: Path, consumers: list[Path]
) -> Mapping[Var, spans.Span]:
    """The part of the block's axes that one iteration of the loop needs."""
    known = Facts(ranges_at(func, target))
    part: Mapping[Var, spans.Span] | None = None
    for own in block.writes:
        readers = [p for p in consumers if own.buffer in access.read_buffers(the_block(p))]
        if readers:
            scope = own.buffer.scope
            read = spans.relaxed_region(func, readers, len(target), own.buffer, "reads", scope)
            part = spans.common(part, spans.spans(block, own, read, known))
    return part or {}


def _move(
    func: Func, path: Path, loop: str, part: Mapping[Var, spans.Span]
) -> tuple[Func, tuple[str, ...]]:
    """Take the block out; put its new nest in front of the first statement that needs it."""
    block = the_block(path)
    removed = replace(func, path, None)
    around = loop_path(removed, loop)
    made = access.written_buffers(block)
    new, names = nest.around(removed, block, part, around)
    body = the_loop(around).body
    filled = access.insert(body, new, lambda b: bool(made & access.read_buffers(b)), after=False)
    return replace(removed, (*around, body), filled), names
