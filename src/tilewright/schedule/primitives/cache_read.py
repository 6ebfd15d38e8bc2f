"""cache_read: copy what a block reads into a buffer of its own first."""

from __future__ import annotations

from tilewright.arith.simplify import Facts
from tilewright.ir.stmt import Alloc, Func, seq
from tilewright.ir.walk import replace_buffers
from tilewright.schedule import access, nest, spans
from tilewright.schedule.domain import ranges_at
from tilewright.schedule.locate import block_path, primitive, rebuild, refuse, replace, the_block
from tilewright.schedule.marking import stay_independent


@primitive("cache what block '{block}' reads of '{buffer}' in scope '{scope}'")
def cache_read(func: Func, block: str, buffer: str, scope: str) -> tuple[Func, str]:
    """Let a block read a new buffer in `scope`, which a new block fills from the old one before.

    Gives the name of the copying block. Move it with compute_at to copy tile by tile.

    rewrite: cache_read("C", "A", "shared")
        for i in serial(0, 8):
            with block("C"):
                vi = spatial(8, i)
                reads(A[vi])
                writes(C[vi])
                C[vi] = A[vi] * 2.0
    →
        A_shared = alloc(f32[8], "shared")
        for i_1 in serial(0, 8):
            with block("A_shared"):
                vi_1 = spatial(8, i_1)
                reads(A[vi_1])
                writes(A_shared[vi_1])
                A_shared[vi_1] = A[vi_1]
        for i in serial(0, 8):
            with block("C"):
                vi = spatial(8, i)
                reads(A_shared[vi])
                writes(C[vi])
                C[vi] = A_shared[vi] * 2.0
    needs:
        P1  the block reads the buffer (not as the result that it accumulates), in no other block
        P2  the block does not write the buffer
        P3  the iterations of marked loops around the copy stay independent
    """
    path = block_path(func, block)
    reader = the_block(path)
    own = next((r for r in reader.reads if r.buffer.name == buffer), None)
    if own is None:
        raise refuse("P1", func, block, f"it does not read '{buffer}'", "name a buffer it reads")
    old = own.buffer
    if old in access.written_buffers(reader):
        why = f"it writes '{buffer}' too: the copy would grow old"
        raise refuse("P2", func, block, why, "cache only what the block leaves as it is")
    order = list(access.outer_block_paths(func))
    access.only_outer(func, path, order, "P1")
    writers = [p for p in order if old in access.written_buffers(the_block(p))]
    depth = access.nest_around(path, writers)
    cached = access.fresh_buffer(func, old, scope)
    copy = nest.copy_block(func, cached.name, old, cached, own.starts)
    known = Facts(ranges_at(func, path[:depth]))
    needed = spans.relaxed_region(func, [path], depth, old, "reads")
    copies, _ = nest.around(
        func, copy, spans.spans(copy, copy.writes[0], needed, known), path[:depth]
    )
    both = seq(copies, rebuild(path[depth:], replace_buffers(reader, {old: cached})))
    done = replace(func, path[: depth + 1], both)
    done = done.replace(body=Alloc(cached, done.body))
    return stay_independent(done, block_path(done, copy.name), "P3"), copy.name
