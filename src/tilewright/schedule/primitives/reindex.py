"""reindex: give a block an operand whose dimensions are the block's own axes."""

from __future__ import annotations

from tilewright.arith.prove import can_prove
from tilewright.arith.simplify import Facts
from tilewright.ir.expr import Buffer, Load, Var
from tilewright.ir.stmt import Alloc, Axis, Block, For, Func, Region, Store, seq
from tilewright.ir.walk import free_vars, fresh, rewrite, statements, substitute
from tilewright.schedule import access, nest, spans
from tilewright.schedule.domain import ranges_at
from tilewright.schedule.locate import (
    Path,
    block_names,
    block_path,
    buffers,
    need,
    primitive,
    rebuild,
    replace,
    the_block,
    variable_names,
)


@primitive("reindex '{buffer}' of block '{block}' by its axes")
def reindex(func: Func, block: str, buffer: str) -> tuple[Func, str]:
    """Copy an operand into a buffer with a dimension for each axis that its indices depend on.

    What a block reads is copied before it, what it writes after; gives the name of the copying
    block. A convolution's input so becomes the matrix of its patches.

    rewrite: reindex("C", "A")
        for y in serial(0, 6):
            for k in serial(0, 3):
                with block("C"):
                    vy = spatial(6, y)
                    vk = reduce(3, k)
                    reads(A[vy + vk])
                    writes(C[vy])
                    with init():
                        C[vy] = 0.0
                    C[vy] = C[vy] + A[vy + vk]
    →
        A_reindex = alloc(f32[6, 3], "global")
        for y_1 in serial(0, 6):
            for k_1 in serial(0, 3):
                with block("A_reindex"):
                    vy_1 = spatial(6, y_1)
                    vk_1 = spatial(3, k_1)
                    reads(A[vy_1 + vk_1])
                    writes(A_reindex[vy_1, vk_1])
                    A_reindex[vy_1, vk_1] = A[vy_1 + vk_1]
        for y in serial(0, 6):
            for k in serial(0, 3):
                with block("C"):
                    vy = spatial(6, y)
                    vk = reduce(3, k)
                    reads(A_reindex[vy, vk])
                    writes(C[vy])
                    with init():
                        C[vy] = 0.0
                    C[vy] = C[vy] + A_reindex[vy, vk]
    needs:
        P1  the block, in no other block and around none, reads or writes one element of the buffer
        P2  that element lies in the buffer for all instances, and all of them run
        P3  the block stands in loops of its own, and nobody else writes the buffer
        P4  the indices that are written depend on all spatial axes; no axis is ordered
    """
    path = block_path(func, block)
    order = list(access.outer_block_paths(func))
    access.only_outer(func, path, order, "P1")
    user = the_block(path)
    plain = not any(isinstance(s, Block) for s in statements(user.body))
    need("P1", plain, func, user, "it holds other blocks", "reindex before blockize")
    own, writes = _only_element(func, user, buffer)
    _check_runs(func, path, own)
    depth = _own_loops(func, path, order, own.buffer)
    told = {v for e in own.starts for v in free_vars(e)}
    axes = [a for a in user.axes if a.var in told or (writes and a.kind == "spatial")]
    complete = not writes or all(a.kind == "reduce" or a.var in told for a in user.axes)
    steady = all(a.kind != "ordered" for a in user.axes)
    why = f"the element of '{buffer}' does not tell the instance"
    need("P4", complete and steady, func, user, why, "name an operand that the block reads")
    name = fresh(f"{buffer}_reindex", {*buffers(func), *block_names(func)})
    made = Buffer(name, tuple(a.extent for a in axes), own.buffer.dtype)
    copy = _copy(func, name, own, made, axes, writes)
    copies, _ = nest.around(func, copy, {}, path[:depth])
    changed = rebuild(path[depth:], _reindexed(user, own.buffer, made, axes))
    both = seq(changed, copies) if writes else seq(copies, changed)
    done = replace(func, path[: depth + 1], both)
    return done.replace(body=Alloc(made, done.body)), name


def _only_element(func: Func, block: Block, buffer: str) -> tuple[Region, bool]:
    """P1: where the block touches the buffer, and whether it writes there."""
    remedy = "name a buffer of which it touches one element"
    touched = [*((r, False) for r in block.reads), *((r, True) for r in block.writes)]
    found = [(r, writes) for r, writes in touched if r.buffer.name == buffer]
    need("P1", found, func, block, f"it does not touch '{buffer}'", remedy)
    single = len(found) == 1 and all(e == access.ONE for e in found[0][0].extents)
    need("P1", single, func, block, f"it touches several elements of '{buffer}'", remedy)
    return found[0]


def _check_runs(func: Func, path: Path, own: Region) -> None:
    """P2."""
    block = the_block(path)
    known = Facts(ranges_at(func, [block]))
    for start, size in zip(own.starts, own.buffer.shape, strict=True):
        inside = can_prove(start >= 0, known) and can_prove(start < size, known)
        why = f"some of its instances touch no element of '{own.buffer.name}'"
        need("P2", inside, func, block, why, "leave padding in a block of its own")
    whole = spans.runs_whole(func, path)
    why = "some of its instances do not run"
    need("P2", whole, func, block, why, "reindex before guarding or partitioning")


def _own_loops(func: Func, path: Path, order: list[Path], buffer: Buffer) -> int:
    """P3: where in `path` the block's own loops begin."""
    block = the_block(path)
    depth = access.nest_around(path, [p for p in order if p[-1] is not block])
    shared = any(isinstance(s, For) for s in path[:depth])
    why = "it shares loops with other blocks"
    need("P3", not shared, func, block, why, "reindex before blocks are moved")
    for other in map(the_block, order):
        if other is not block and buffer in access.written_buffers(block):
            both = buffer in access.written_buffers(other)
            why = f"'{other.name}' writes '{buffer.name}' too"
            need("P3", not both, func, other, why, "reindex before the value is made in parts")
    return depth


def _copy(
    func: Func, name: str, own: Region, made: Buffer, axes: list[Axis], writes: bool
) -> Block:
    """The block that copies between the old elements and the new ones."""
    taken = variable_names(func)
    renamed = {a.var: Var(fresh(a.var.name, taken), a.var.dtype) for a in axes}
    new = tuple(Axis(renamed[a.var], "spatial", a.extent, access.ZERO) for a in axes)
    old_indices = tuple(substitute(e, renamed) for e in own.starts)
    new_indices = tuple(a.var for a in new)
    old_region, new_region = access.point(own.buffer, old_indices), access.point(made, new_indices)
    if writes:
        store = Store(own.buffer, old_indices, Load(made, new_indices))
        return Block(name, new, (new_region,), (old_region,), None, store)
    store = Store(made, new_indices, Load(own.buffer, old_indices))
    return Block(name, new, (old_region,), (new_region,), None, store)


def _reindexed(block: Block, old: Buffer, made: Buffer, axes: list[Axis]) -> Block:
    """The block on the new buffer."""
    indices = tuple(a.var for a in axes)

    def change(n: object) -> object:
        if isinstance(n, Load) and n.buffer == old:
            return Load(made, indices)
        if isinstance(n, Store) and n.buffer == old:
            return Store(made, indices, n.value)
        if isinstance(n, Region) and n.buffer == old:
            return access.point(made, indices)
        return n

    return rewrite(block, (Load, Store, Region), change)
