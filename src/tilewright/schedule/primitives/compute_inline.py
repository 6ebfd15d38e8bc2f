"""compute_inline: put an elementwise block's value where it is read."""

from __future__ import annotations

from typing import Any

from tilewright.arith.simplify import Facts
from tilewright.ir.expr import Buffer, Call, Expr, Load, Var
from tilewright.ir.stmt import Alloc, Block, For, Func, Stmt, Store
from tilewright.ir.walk import refold, statements, substitute
from tilewright.schedule import access, index_map
from tilewright.schedule.domain import ranges_at
from tilewright.schedule.locate import (
    Path,
    alloc_path,
    block_path,
    map_blocks,
    need,
    primitive,
    refuse,
    replace,
    the_block,
)
from tilewright.support.recursion import recursive


@primitive("inline block '{block}' into the blocks that read it")
def compute_inline(func: Func, block: str) -> Func:
    """Replace each read of what a block computes by the computation; block and buffer go away.

    rewrite: compute_inline("B")
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
        for j in serial(0, 8):
            with block("C"):
                vj = spatial(8, j)
                reads(A[vj])
                writes(C[vj])
                C[vj] = (A[vj] + 1.0) * 2.0
    needs:
        P1  the block is a single store of a value that needs no reduction and not its own result
        P2  its buffer is an intermediate: no parameter, written by no other block
        P3  the indices of the store tell which instance made the element
        P4  the readers come after it, in blocks that do not take its address; nothing else names it
        P5  what it reads lives where the readers stand, and is not written before they are done
    """
    path = block_path(func, block)
    producer = the_block(path)
    store = single_store(func, producer, "move it into its readers' loops: s.compute_at")
    buffer = store.buffer
    order = list(access.outer_block_paths(func))
    _check_only_writer(func, producer, buffer, order)
    check_unnamed(func, buffer, "P4")
    instance = _instance(func, producer, store)
    readers = _check_readers(func, producer, buffer, order)

    def change(consumer: Block) -> Stmt:
        if id(consumer) not in readers:
            return consumer
        return _inline(func, consumer, producer, store, instance)

    removed = replace(func, path, None)
    body = map_blocks(removed.body, change)
    return without_alloc(Func(func.name, func.params, body, func.annotations), buffer)


def single_store(func: Func, block: Block, remedy: str) -> Store:
    """P1: the block's only statement."""
    store = block.body
    if not isinstance(store, Store) or block.init is not None:
        raise refuse("P1", func, block, "it is more than one plain store", remedy)
    if store.buffer in access.read_buffers(block):
        raise refuse("P1", func, block, "it reads its own result", "leave a recurrence as it is")
    return store


def check_unnamed(func: Func, buffer: Buffer, rule: str) -> None:
    """Refuse where a statement outside of the blocks names a buffer that is to go away."""
    plain = access.plain_use(func, buffer)
    why = f"this names '{buffer.name}' too"
    need(rule, plain is None, func, plain, why, "inline the block before that")


def without_alloc(func: Func, buffer: Buffer) -> Func:
    """`func` without the allocation of a buffer that nothing uses any more."""
    path = alloc_path(func, buffer)
    if path is None:
        return func
    alloc = path[-1]
    assert isinstance(alloc, Alloc)
    return replace(func, path, alloc.body)


def _check_only_writer(func: Func, producer: Block, buffer: Buffer, order: list[Path]) -> None:
    """P2."""
    if buffer in func.params:
        why = f"'{buffer.name}' is a parameter"
        raise refuse("P2", func, producer, why, "results are stored; inline what feeds the block")
    for path in order:
        other = the_block(path)
        if other is not producer and buffer in access.written_buffers(other):
            why = f"block '{other.name}' writes '{buffer.name}' too"
            raise refuse("P2", func, other, why, "inline before the value is made in parts")


def _instance(func: Func, producer: Block, store: Store) -> index_map.Inverse:
    """P3: the axes of the producer in terms of indices of its buffer."""
    steady = [a for a in producer.axes if a.kind != "ordered"]
    found = index_map.invert([a.var for a in steady], [a.extent for a in steady], store.indices)
    if found is None:
        why = f"the element of '{store.buffer.name}' does not tell the instance"
        remedy = "inline only blocks whose axes can be read off the indices of their store"
        raise refuse("P3", func, producer, why, remedy)
    return found


def _check_readers(
    func: Func, producer: Block, buffer: Buffer, order: list[Path]
) -> dict[int, Path]:
    """P4 and P5; gives the readers' paths by the identity of their blocks."""
    blocks = [the_block(p) for p in order]
    at = next((n for n, b in enumerate(blocks) if b is producer), None)
    if at is None:
        raise refuse("P4", func, producer, "it lies in another block", "inline before blockize")
    readers = [n for n, b in enumerate(blocks) if buffer in access.read_buffers(b)]
    for n in readers:
        why = f"'{blocks[n].name}', which reads '{buffer.name}', comes before it"
        need("P4", n > at, func, blocks[n], why, "inline only what is read later")
    sources = access.read_buffers(producer)
    paths = [p for p in (alloc_path(func, b) for b in sources) if p is not None]
    for n in readers:
        for path in paths:
            alloc = path[-1]
            assert isinstance(alloc, Alloc)
            why = f"'{alloc.buffer.name}', which it reads, does not live where a reader stands"
            remedy = "inline before loops are marked, or leave it"
            need("P5", any(s is alloc for s in order[n]), func, blocks[n], why, remedy)
    for other in blocks[at + 1 : max(readers, default=at) + 1]:
        for written in access.written_buffers(other) & sources:
            why = f"'{other.name}' overwrites '{written.name}', which '{producer.name}' reads"
            raise refuse("P5", func, other, why, "keep the block, or inline it in another order")
    return {id(blocks[n]): order[n] for n in readers}


def _inline(
    func: Func, consumer: Block, producer: Block, store: Store, instance: index_map.Inverse
) -> Block:
    """The consumer with the value instead of each load."""
    nested = [s for s in statements(consumer) if isinstance(s, Block | For)]
    known = Facts(ranges_at(func, nested))

    @recursive
    def into(inside: Any, block: Block, steps: dict[Var, Expr]) -> Block:
        @recursive
        def go(again: Any, n: Any) -> Any:
            if n.__class__ is Call and access.is_addressed(n, store.buffer):
                why = f"it takes the address of '{store.buffer.name}'"
                raise refuse("P4", func, consumer, why, "an intrinsic's operand needs memory")
            if n.__class__ is Block:
                reads = any(r.buffer == store.buffer for r in n.reads)
                return inside(n, _steps(func, n, steps)) if reads else n
            m = n.map_children(again)
            if m.__class__ is Load and m.buffer == store.buffer:
                return _value(store.value, instance.values(m.indices) | steps, known)
            return refold(n, m)

        init = None if block.init is None else go(block.init)
        return access.with_reads(func, block.replace(body=go(block.body), init=init))

    ordered = {a.var: a.value for a in producer.axes if a.kind == "ordered"}
    return into(consumer, _steps(func, consumer, ordered))


def _value(value: Expr, axes: dict[Var, Expr], known: Facts) -> Expr:
    """The producer's value at the instance `axes`; indices are simplified."""
    if all(isinstance(e, Var) for e in axes.values()):
        return substitute(value, axes)
    return simplify_indices(substitute(value, axes), known)


def simplify_indices(value: Expr, known: Facts) -> Expr:
    """`value` with the indices of its loads simplified."""

    @recursive
    def go(again: Any, n: Any) -> Any:
        if n.__class__ is Load:
            return Load(n.buffer, tuple([known.simplify(again(i)) for i in n.indices]))
        return n.map_children(again)

    return go(value)


def _steps(func: Func, block: Block, ordered: dict[Var, Expr]) -> dict[Var, Expr]:
    """The producer's ordered axes, by the axes of a block that runs in the same step."""
    steps: dict[Var, Expr] = {}
    for var, value in ordered.items():
        same = next((a for a in block.axes if a.value == value), None)
        if same is None:
            why = f"'{block.name}' does not run in the step that makes the value"
            raise refuse("P4", func, block, why, "inline only within a step of the scan")
        steps[var] = same.var
    return steps
