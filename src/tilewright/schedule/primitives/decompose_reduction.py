"""decompose_reduction: make the start of a reduction a block of its own."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.arith.affine import Forms
from tilewright.ir.expr import Expr, Var
from tilewright.ir.stmt import Alloc, Block, For, Func, Stmt, seq
from tilewright.ir.walk import free_vars, fresh, substitute
from tilewright.schedule.access import reads_of
from tilewright.schedule.depend import axis_values, below, uses
from tilewright.schedule.determine import follows
from tilewright.schedule.domain import ranges_at, rebind
from tilewright.schedule.locate import (
    Path,
    block_names,
    block_path,
    copy_afresh,
    loops_above,
    need,
    primitive,
    rebuild,
    refuse,
    replace,
    the_block,
)


@primitive("decompose the reduction of block '{block}' at loop '{loop}'")
def decompose_reduction(func: Func, block: str, loop: str) -> tuple[Func, str]:
    """Make the start of a reduction a block of its own, before a loop; gives its name.

    rewrite: decompose_reduction("C", "k")
        for i in serial(0, 4):
            for k in serial(0, 8):
                with block("C"):
                    vi = spatial(4, i)
                    vk = reduce(8, k)
                    reads(A[vi, vk])
                    writes(C[vi])
                    with init():
                        C[vi] = 0.0
                    C[vi] = C[vi] + A[vi, vk]
    →
        for i in serial(0, 4):
            with block("C_init"):
                vi_1 = spatial(4, i)
                writes(C[vi_1])
                C[vi_1] = 0.0
            for k in serial(0, 8):
                with block("C"):
                    vi = spatial(4, i)
                    vk = reduce(8, k)
                    reads(A[vi, vk])
                    writes(C[vi])
                    C[vi] = C[vi] + A[vi, vk]
    needs:
        P1  the block is a reduction with an init
        P2  the loop is around the block, in no block of its own
        P3  the reduction runs inside the loop: no reduce axis is bound to a loop outside of it
        P4  no loop has both a spatial and a reduce axis bound to it
        P5  each element is reduced once inside the loop: its loops follow from the spatial axes
        P6  no other block inside the loop touches the result, nor is it allocated there
        P7  no bound of the loop or one inside it reads a loop that the init leaves out
    """
    path = block_path(func, block)
    old = the_block(path)
    reduced, spatial = uses(old, ("reduce",)), uses(old, ("spatial", "ordered"))
    why = f"block '{block}' has no init"
    need("P1", old.init is not None and reduced, func, old, why, "name a reduction with an init")
    assert old.init is not None
    above = loops_above(path)
    why = f"loop '{loop}' is not around block '{block}'"
    remedy = f"the loops around it are {', '.join(f.name for f in above)}"
    need("P2", any(f.name == loop for f in above), func, old, why, remedy)
    at = next(n for n, s in enumerate(path) if isinstance(s, For) and s.name == loop)
    outer = [f for f in above if f not in path[at:]]
    inner = [s for s in path[at:] if isinstance(s, For)]
    for f in outer:
        why = f"the reduction is bound to loop '{f.name}' outside of it"
        need("P3", f.var not in reduced, func, f, why, f"name loop '{f.name}' or one around it")
    for f in inner:
        mixed = f.var in reduced and f.var in spatial
        why = f"a spatial and a reduce axis are bound to loop '{f.name}'"
        need("P4", not mixed, func, f, why, "decompose before fusing")
    _check_alone(func, path, at, old, inner, reduced)
    name = fresh(f"{block}_init", set(block_names(func)))
    start = _init_nest(func, path[:at], old, name, inner, reduced)
    update = rebuild(path[at:], old.replace(init=None))
    return replace(func, path[: at + 1], seq(start, update)), name


def _check_alone(
    func: Func, path: Path, at: int, block: Block, inner: Sequence[For], reduced: set[Var]
) -> None:
    """P5, P6 and P7."""
    body = below(path[at])
    inside = {f.var for f in body.loops}
    values = axis_values(block, "spatial")
    forms = Forms(ranges_at(func, (*path, *body.loops)))
    for f in inner:
        once = f.var in reduced or follows(f.var, values, inside, forms)
        why = f"it starts again in several iterations of '{f.name}'"
        need("P5", once, func, f, why, f"name a loop inside '{f.name}'")
    results = {r.buffer.name for r in block.writes}
    for a in body.accesses:
        name = a.buffer
        if a.stmt is not block and name in results:
            why = f"'{name}' is touched by others inside the loop"
            raise refuse("P6", func, a.stmt, why, "name a loop inside, around the reduction alone")
    for s in path[at:]:
        if isinstance(s, Alloc) and s.buffer.name in results:
            why = f"'{s.buffer.name}' is allocated inside the loop"
            raise refuse("P6", func, s, why, "name a loop inside of the allocation")
    for f in inner:
        hang = (free_vars(f.start) | free_vars(f.stop)) & reduced
        why = f"the bounds of '{f.name}' read the reduction's loops"
        need("P7", f.var in reduced or not hang, func, f, why, "reorder the loops first")


def _init_nest(
    func: Func,
    above: Sequence[Stmt],
    block: Block,
    name: str,
    inner: Sequence[For],
    reduced: set[Var],
) -> Stmt:
    """The init as a block in copies of the loops that are not reduced, where the others start."""
    assert block.init is not None
    axes = tuple(a for a in block.axes if a.kind != "reduce")
    made = Block(name, axes, reads_of(block.init, ()), block.writes, None, block.init, block.where)
    return spatial_nest(func, above, made, inner, reduced)


def spatial_nest(
    func: Func, above: Sequence[Stmt], block: Block, inner: Sequence[For], reduced: set[Var]
) -> Stmt:
    """A block in copies of those of the loops `inner` that are not `reduced`, where the others
    start; to stand inside `above`."""
    loops: list[For] = []
    values: dict[Var, Expr] = {}
    for f in inner:
        start, stop = substitute(f.start, values), substitute(f.stop, values)
        values[f.var] = start
        if f.var not in reduced:
            kind = "serial" if f.kind == "pipeline" else f.kind
            values[f.var] = var = Var(f"{f.name}_init", f.var.dtype)
            loops.append(For(var, start, stop, kind, f.body, f.thread))
    nest = rebind(func, [*above, *loops], block, values)
    for f in reversed(loops):
        nest = f.replace(body=nest)
    return copy_afresh(func, nest)
