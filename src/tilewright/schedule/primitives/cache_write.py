"""cache_write: let a block write into a buffer of its own, and copy that out when it is done."""

from __future__ import annotations

from tilewright.arith.simplify import Facts
from tilewright.ir.expr import Buffer
from tilewright.ir.stmt import Alloc, For, Func, seq
from tilewright.ir.walk import replace_buffers
from tilewright.schedule import access, nest, spans
from tilewright.schedule.domain import ranges_at
from tilewright.schedule.locate import Path, block_path, need, primitive, refuse, replace, the_block
from tilewright.schedule.marking import stay_independent


@primitive("cache what block '{block}' writes to '{buffer}' in scope '{scope}'")
def cache_write(func: Func, block: str, buffer: str, scope: str) -> tuple[Func, str]:
    """Let a block write to a new buffer in `scope`; a new block copies it to the old one after.

    Gives the name of the copying block. Move it with reverse_compute_at to copy tile by tile.

    rewrite: cache_write("C", "C", "local")
        for i in serial(0, 8):
            for k in serial(0, 4):
                with block("C"):
                    vi = spatial(8, i)
                    vk = reduce(4, k)
                    reads(A[vi, vk])
                    writes(C[vi])
                    with init():
                        C[vi] = 0.0
                    C[vi] = C[vi] + A[vi, vk]
    →
        C_local = alloc(f32[8], "local")
        for i in serial(0, 8):
            for k in serial(0, 4):
                with block("C"):
                    vi = spatial(8, i)
                    vk = reduce(4, k)
                    reads(A[vi, vk])
                    writes(C_local[vi])
                    with init():
                        C_local[vi] = 0.0
                    C_local[vi] = C_local[vi] + A[vi, vk]
        for i_1 in serial(0, 8):
            with block("C_local"):
                vi_1 = spatial(8, i_1)
                reads(C_local[vi_1])
                writes(C[vi_1])
                C[vi_1] = C_local[vi_1]
    needs:
        P1  the block writes the buffer, and lies in no other block
        P2  the part that is written where the copy will stand is known exactly
        P3  the iterations of marked loops around the copy stay independent
    """
    path = block_path(func, block)
    own = next((r for r in the_block(path).writes if r.buffer.name == buffer), None)
    if own is None:
        raise refuse("P1", func, block, f"it does not write '{buffer}'", "name a buffer it writes")
    old = own.buffer
    order = list(access.outer_block_paths(func))
    access.only_outer(func, path, order, "P1")
    readers = [p for p in order if old in access.read_buffers(the_block(p))]
    depth = access.nest_around(path, readers)
    writers = [p for p in order if old in access.written_buffers(the_block(p))]
    inside = [p for p in writers if access.is_inside(p, path[: depth + 1])]
    if len(inside) < len(writers) or any(isinstance(s, For) for s in path[:depth]):
        _check_exact(func, inside, depth, old)
    cached = access.fresh_buffer(func, old, scope)
    copy = nest.copy_block(func, cached.name, cached, old, own.starts)
    known = Facts(ranges_at(func, path[:depth]))
    made = spans.relaxed_region(func, inside, depth, old, "writes")
    part = spans.spans(copy, copy.writes[0], made, known)
    copies, _ = nest.around(func, copy, part, path[:depth])
    both = seq(replace_buffers(path[depth], {old: cached}), copies)
    done = replace(func, path[: depth + 1], both)
    done = done.replace(body=Alloc(cached, done.body))
    return stay_independent(done, block_path(done, copy.name), "P3"), copy.name


def _check_exact(func: Func, writers: list[Path], depth: int, buffer: Buffer) -> None:
    """P2: what is copied must all have been written, for others write the rest."""
    for path in writers:
        writer = the_block(path)
        begins = writer.init is not None or all(x.kind != "reduce" for x in writer.axes)
        begins = begins and buffer not in access.read_buffers(writer)
        why = f"block '{writer.name}' adds to what another block began"
        need("P2", begins, func, writer, why, "cache before decompose_reduction")
        exact = spans.is_exact(func, path, depth, buffer)
        why = f"not every element of the part of '{buffer.name}' that it would copy was written"
        need("P2", exact, func, path[-1], why, "cache before fusing or splitting unevenly")
