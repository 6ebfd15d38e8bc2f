"""reverse_compute_inline: let the block that makes a value also do what follows (an epilogue)."""

from __future__ import annotations

from typing import Any

from tilewright.arith import linear
from tilewright.arith.prove import can_prove
from tilewright.arith.simplify import Facts
from tilewright.ir.expr import Buffer, Expr, Load
from tilewright.ir.stmt import Block, Func, Store
from tilewright.ir.walk import refold, substitute
from tilewright.schedule import access, index_map, spans
from tilewright.schedule.domain import conditions, conjunction, ranges_at
from tilewright.schedule.locate import (
    Path,
    alloc_path,
    block_path,
    need,
    primitive,
    refuse,
    replace,
    the_block,
)
from tilewright.schedule.primitives.compute_inline import (
    check_unnamed,
    simplify_indices,
    single_store,
    without_alloc,
)


@primitive("inline block '{block}' into the block that makes what it reads")
def reverse_compute_inline(func: Func, block: str) -> Func:
    """Let the producer store what the block computes of it; block and intermediate go away.

    rewrite: reverse_compute_inline("C")
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
        for i in serial(0, 8):
            with block("B"):
                vi = spatial(8, i)
                reads(A[vi])
                writes(C[vi])
                C[vi] = (A[vi] + 1.0) * 2.0
    needs:
        P1  the block is a single store of a value that needs no reduction and not its own result
        P2  it reads one element of an intermediate buffer, which nothing else reads or names
        P3  that element, always in the buffer, tells which instance reads it, and all instances run
        P4  one block makes the buffer: a single store that needs no reduction
        P5  the block may run where its producer runs: its buffers live there, and nothing
            in between touches what it touches
    """
    path = block_path(func, block)
    consumer = the_block(path)
    store = single_store(func, consumer, "move it into the producer's loops: s.reverse_compute_at")
    order = list(access.outer_block_paths(func))
    producer_path, made = _producer(func, consumer, order)
    producer = the_block(producer_path)
    check_unnamed(func, made.buffer, "P2")
    back = _instance(func, path, _only_element(func, consumer, made.buffer), made.buffer)
    _check_order(func, consumer, producer, order)
    _check_living(func, consumer, producer_path, made.buffer)
    known = Facts(ranges_at(func, [producer]))
    values = {v: known.simplify(e) for v, e in back.values(made.indices).items()}
    fused = _fuse(store, values, made)
    if fused.indices != store.indices:
        fused = Store(fused.buffer, fused.indices, simplify_indices(fused.value, known))
    merged = producer.replace(
        body=fused,
        reads=access.reads_of(fused, ()),
        writes=(access.point(fused.buffer, fused.indices),),
        where=_guard(producer, back.guard(made.indices, made.buffer.shape)),
    )
    done = replace(func, producer_path, merged)
    return without_alloc(replace(done, block_path(done, block), None), made.buffer)


def _fuse(store: Store, values: dict[Any, Expr], made: Store) -> Store:
    """The consumer's store at the producer's instance, with the producer's value for its load."""

    def go(n: Any) -> Any:
        if n.__class__ is Load and n.buffer == made.buffer:
            return made.value
        return refold(n, n.map_children(go))

    # the consumer's axes are replaced first: the producer's value speaks of the producer's axes
    return go(substitute(store, values))


def _guard(producer: Block, inside: Expr | None) -> Expr | None:
    """The producer's guard with a condition on its axes added, in terms of the loops."""
    if inside is None:
        return producer.where
    looped = substitute(inside, {a.var: a.value for a in producer.axes})
    return conjunction([*conditions(producer.where), *conditions(looped)])


def _producer(func: Func, consumer: Block, order: list[Path]) -> tuple[Path, Store]:
    """P2 and P4: the block whose result the consumer alone reads, and its store."""
    readers: dict[Buffer, list[Block]] = {}
    writers: dict[Buffer, list[Path]] = {}
    for path in order:
        other = the_block(path)
        for buffer in access.read_buffers(other):
            readers.setdefault(buffer, []).append(other)
        for buffer in access.written_buffers(other):
            writers.setdefault(buffer, []).append(path)
    alone = [
        r.buffer
        for r in consumer.reads
        if r.buffer in writers and r.buffer not in func.params and len(readers[r.buffer]) == 1
    ]
    if not alone:
        why = "there is no intermediate buffer that this block alone reads"
        raise refuse(
            "P2", func, consumer, why, "an epilogue goes into the block that it alone reads"
        )
    # of several producers take the last: the others' values are there by then
    at = {id(p): n for n, p in enumerate(order)}
    buffer = max(alone, key=lambda b: at[id(writers[b][-1])])
    path = writers[buffer][-1]
    made = the_block(path).body
    whole = len(writers[buffer]) == 1 and the_block(path).init is None
    if not whole or not isinstance(made, Store):
        why = f"'{buffer.name}' is not made by a single store: it is complete only later"
        name = the_block(path).name
        remedy = f"inline into a copy: s.cache_write('{name}', '{buffer.name}', 'local') first"
        raise refuse("P4", func, path[-1], why, remedy)
    return path, made


def _only_element(func: Func, consumer: Block, buffer: Buffer) -> tuple[Expr, ...]:
    """P2: the indices at which the consumer reads the buffer."""
    regions = [r for r in consumer.reads if r.buffer == buffer]
    if len(regions) != 1 or any(e != access.ONE for e in regions[0].extents):
        why = f"it reads several elements of '{buffer.name}'"
        raise refuse("P2", func, consumer, why, "inline or move the producer instead")
    return regions[0].starts


def _instance(
    func: Func, path: Path, indices: tuple[Expr, ...], buffer: Buffer
) -> index_map.Inverse:
    """P3."""
    axes = the_block(path).axes
    found = index_map.invert([a.var for a in axes], [a.extent for a in axes], indices)
    if found is None:
        why = "the element that it reads does not tell the instance"
        raise refuse("P3", func, path[-1], why, "inline only what reads each element once")
    ranges = ranges_at(func, path)
    for start, size in zip(indices, buffer.shape, strict=True):
        bounded = all(
            linear.holds(c, ranges) or can_prove(c, Facts(ranges))
            for c in (start >= 0, start < size)
        )
        why = f"some of its instances read outside of '{buffer.name}'"
        need("P3", bounded, func, path[-1], why, "inline the producer instead: s.compute_inline")
    whole = spans.runs_whole(func, path)
    why = "some of its instances do not run"
    need("P3", whole, func, path[-1], why, "inline it before guarding or partitioning it")
    return found


def _check_living(func: Func, consumer: Block, path: Path, between: Buffer) -> None:
    """P5: the consumer's other buffers live where its producer stands."""
    for buffer in (access.read_buffers(consumer) | access.written_buffers(consumer)) - {between}:
        alloc = alloc_path(func, buffer)
        lives = alloc is None or any(s is alloc[-1] for s in path)
        why = f"'{buffer.name}' does not live where '{the_block(path).name}' stands"
        remedy = "inline before loops are marked, or leave it"
        need("P5", lives, func, consumer, why, remedy)


def _check_order(func: Func, consumer: Block, producer: Block, order: list[Path]) -> None:
    """P5."""
    blocks = [the_block(p) for p in order]
    first = next(n for n, b in enumerate(blocks) if b is producer)
    last = next((n for n, b in enumerate(blocks) if b is consumer), -1)
    remedy = "inline or move the other block first"
    need("P5", first < last, func, consumer, "it does not come after its producer", remedy)
    for other in blocks[first + 1 : last]:
        shared = access.conflict(other, consumer)
        if shared is not None:
            why = f"'{other.name}' stands between the two and also uses '{shared.name}'"
            raise refuse("P5", func, other, why, remedy)
    for shared in access.written_buffers(consumer) & access.read_buffers(producer):
        why = f"'{producer.name}' reads '{shared.name}', which '{consumer.name}' writes"
        raise refuse("P5", func, producer, why, remedy)
