"""cascade_reduction: give each iteration of a loop of a sum an accumulator of its own."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.expr import Binary, BinaryOp, Buffer, Load, Var, const
from tilewright.ir.stmt import Alloc, Axis, Block, For, Func, If, Seq, Stmt, Store, seq
from tilewright.ir.walk import free_vars, fresh, loads, reads, replace_buffers, statements
from tilewright.schedule.access import fresh_buffer, point
from tilewright.schedule.depend import uses
from tilewright.schedule.locate import (
    Path,
    block_names,
    block_path,
    loops_above,
    need,
    primitive,
    rebuild,
    refuse,
    replace,
    the_block,
    variable_names,
)
from tilewright.schedule.primitives.decompose_reduction import spatial_nest


@primitive("cascade the sum of block '{block}' at loop '{loop}'")
def cascade_reduction(func: Func, block: str, loop: str, scope: str = "local") -> tuple[Func, str]:
    """Sum inside each iteration of a loop into an accumulator of its own, and that into the old
    one: two short chains of additions for a long one. Gives the name of the block that adds.

    rewrite: cascade_reduction("C", "k_o")
        for i in serial(0, 4):
            with block("C_init"):
                vi_1 = spatial(4, i)
                writes(C[vi_1])
                C[vi_1] = 0.0
            for k_o in serial(0, 2):
                for k_i in serial(0, 8):
                    with block("C"):
                        vi = spatial(4, i)
                        vk = reduce(16, k_o * 8 + k_i)
                        reads(A[vi, vk])
                        writes(C[vi])
                        C[vi] = C[vi] + A[vi, vk]
    →
        for i in serial(0, 4):
            with block("C_init"):
                vi_1 = spatial(4, i)
                writes(C[vi_1])
                C[vi_1] = 0.0
            for k_o in serial(0, 2):
                C_local = alloc(f32[4], "local")
                with block("C_local_init"):
                    vi_2 = spatial(4, i)
                    writes(C_local[vi_2])
                    C_local[vi_2] = 0.0
                for k_i in serial(0, 8):
                    with block("C"):
                        vi = spatial(4, i)
                        vk = reduce(16, k_o * 8 + k_i)
                        reads(A[vi, vk])
                        writes(C_local[vi])
                        C_local[vi] = C_local[vi] + A[vi, vk]
                with block("C_local"):
                    vi_3 = spatial(4, i)
                    vk_o = reduce(2, k_o)
                    reads(C_local[vi_3])
                    writes(C[vi_3])
                    C[vi_3] = C[vi_3] + C_local[vi_3]
    needs:
        P1  the block adds to one buffer, and its init is a block of its own
        P2  the loop is around the block, in no block of its own, and only the sum is bound to it
        P3  between the loop and the block there are loops, branches and prefetches only
        P4  no bound of those loops reads a loop of the sum among them
    """
    path = block_path(func, block)
    old = the_block(path)
    summed = sum_of(old)
    if old.init is not None or summed is None:
        why = f"block '{block}' is no sum whose init stands apart"
        raise refuse("P1", func, old, why, "decompose_reduction takes the init out")
    above = loops_above(path)
    reduced, spatial = uses(old, ("reduce",)), uses(old, ("spatial", "ordered"))
    chosen = next((f for f in above if f.name == loop), None)
    why = f"loop '{loop}' is not a loop of the sum alone"
    names = ", ".join(f.name for f in above if f.var in reduced - spatial)
    alone = chosen is not None and chosen.var in reduced - spatial
    need("P2", alone, func, old, why, f"the loops that are: {names}")
    assert chosen is not None
    at = next(n for n, s in enumerate(path) if s is chosen)
    for s in path[at + 1 : -1]:
        branch = isinstance(s, If) and s.other is None and not reads(s.cond)
        alone = isinstance(s, For) or branch or (isinstance(s, Seq) and _only_prefetches(s, path))
        need("P3", alone, func, s, "other statements stand around it", "move them away first")
    inner = [s for s in path[at + 1 : -1] if isinstance(s, For)]
    for f in inner:
        hang = (free_vars(f.start) | free_vars(f.stop)) & {g.var for g in inner} & reduced
        why = f"the bounds of loop '{f.name}' read {', '.join(repr(v.name) for v in hang)}"
        need("P4", not hang, func, f, why, "reorder the loops first")
    part = fresh_buffer(func, summed.buffer, scope)
    own = {f.var for f in inner} & reduced
    around = [*path[: at + 1]]
    start = spatial_nest(func, around, _start(func, old, summed, part), inner, own)
    adding = _adding(func, old, summed, part, above[: above.index(chosen) + 1])
    # fresh names are taken one nest after the other
    begun = replace(func, path[: at + 2], seq(start, path[at + 1]))
    end = spatial_nest(begun, around, adding, inner, own)
    update = old.replace(
        writes=tuple(r.replace(buffer=part) for r in old.writes),
        body=replace_buffers(old.body, {summed.buffer: part}),
    )
    whole = Alloc(part, seq(start, rebuild(path[at + 1 :], update), end))
    return replace(func, path[: at + 2], whole), part.name


def _only_prefetches(stmts: Seq, path: Path) -> bool:
    """Are all of these statements prefetches, but for the one on the path?"""
    others = [s for s in stmts.stmts if not any(s is p for p in path)]
    return not any(isinstance(n, Block | Store) for s in others for n in statements(s))


def sum_of(block: Block) -> Store | None:
    """The store of `old + value` that a block is, under conditions or not; None if it is another
    statement."""
    body: Stmt = block.body
    while isinstance(body, If) and body.other is None:
        body = body.then
    if not isinstance(body, Store) or not isinstance(body.value, Binary):
        return None
    old = Load(body.buffer, body.indices)
    a, b = body.value.a, body.value.b
    given = b if a == old else a
    single = sum(n == old for n in (a, b)) == 1 and all(
        n.buffer != body.buffer for n in loads(given)
    )
    return body if body.value.op is BinaryOp.add and single else None


def _start(func: Func, old: Block, summed: Store, part: Buffer) -> Block:
    """The block that makes the new accumulator 0."""
    name = fresh(f"{part.name}_init", set(block_names(func)))
    axes = tuple(a for a in old.axes if a.kind != "reduce")
    body = Store(part, summed.indices, const(0, part.dtype))
    return Block(name, axes, (), (point(part, summed.indices),), None, body, old.where)


def _adding(func: Func, old: Block, summed: Store, part: Buffer, around: Sequence[For]) -> Block:
    """The block that adds the new accumulator to the old one; it reduces over the loops `around`
    that the sum has."""
    reduced, taken = uses(old, ("reduce",)), variable_names(func)
    axes = [a for a in old.axes if a.kind != "reduce"]
    axes += [
        Axis(Var(fresh(f"v{f.name}", taken), f.var.dtype), "reduce", f.extent, f.var - f.start)
        for f in around
        if f.var in reduced
    ]
    indices = summed.indices
    total = Load(summed.buffer, indices) + Load(part, indices)
    body = Store(summed.buffer, indices, total)
    reads = (point(part, indices),)
    return Block(part.name, tuple(axes), reads, old.writes, None, body, old.where)
