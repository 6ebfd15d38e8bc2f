"""merge_reduction: give a reduction the block that starts it for its init."""

from __future__ import annotations

from tilewright.arith.simplify import Facts
from tilewright.ir.expr import Expr, Var, as_int
from tilewright.ir.stmt import Block, For, Func, If, Let, Seq
from tilewright.ir.walk import substitute
from tilewright.schedule.depend import axis_values, below, uses
from tilewright.schedule.domain import guard, ranges_at
from tilewright.schedule.locate import (
    Path,
    block_path,
    need,
    primitive,
    refuse,
    replace,
    the_block,
)


@primitive("merge block '{init}' into the reduction of block '{block}'")
def merge_reduction(func: Func, init: str, block: str) -> Func:
    """Give a reduction the block that starts it for its init: the inverse of decompose_reduction.

    rewrite: merge_reduction("C_init", "C")
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
    →
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
    needs:
        P1  the second block reduces and has no init; the first has neither init nor reduce axes
        P2  they write the same elements in terms of their spatial axes
        P3  the first comes before the second and shares with it the loops around both; nothing
            between them touches the result
        P4  they run over the same iterations: loop for loop, condition for condition
        P5  the reduction starts where all its loops start, and no spatial axis is bound to them
    """
    first_path, path = block_path(func, init), block_path(func, block)
    first, old = the_block(first_path), the_block(path)
    reduced = uses(old, ("reduce",))
    starts = first.init is None and all(a.kind != "reduce" for a in first.axes)
    why = f"block '{init}' is itself a reduction"
    need("P1", starts, func, first, why, "name the block that stores the start value")
    why = f"block '{block}' is no reduction that lacks an init"
    need("P1", old.init is None and reduced, func, old, why, "name the reduction without init")
    names = _rename(func, first, old)
    depth = max(n for n in range(min(len(path), len(first_path))) if path[n] is first_path[n])
    _check_between(func, first_path, path, depth)
    _check_start(func, path, depth)
    _check_domain(func, first_path, path, depth)
    merged = replace(func, path, old.replace(init=substitute(first.body, names)))
    return replace(merged, block_path(merged, init), None)


def _rename(func: Func, first: Block, old: Block) -> dict[Var, Expr]:
    """P2: the first block's axes in terms of the second's."""
    spatial = [a for a in old.axes if a.kind != "reduce"]
    names: dict[Var, Expr] = {
        a.var: b.var for a, b in zip(first.axes, spatial, strict=False) if a.extent == b.extent
    }
    matched = len(names) == len(spatial) == len(first.axes)
    same = matched and {substitute(r, names) for r in first.writes} == set(old.writes)
    why = f"it does not write what block '{old.name}' writes, axis by axis"
    need("P2", same, func, first, why, "the axes must match in order, extent and indices")
    return names


def _check_between(func: Func, first_path: Path, path: Path, depth: int) -> None:
    """P3."""
    first, old, shared = the_block(first_path), the_block(path), path[depth]
    rank = {id(s): n for n, s in enumerate(shared.stmts)} if isinstance(shared, Seq) else {}
    a, b = rank.get(id(first_path[depth + 1]), 0), rank.get(id(path[depth + 1]), 0)
    remedy = "the two must stand in one sequence, the start first"
    need("P3", a < b, func, first, f"it does not come before block '{old.name}'", remedy)
    assert isinstance(shared, Seq)
    results = {r.buffer.name for r in old.writes}
    for access in below(Seq(shared.stmts[a : b + 1])).accesses:
        name = access.buffer
        if name in results and access.stmt is not first and access.stmt is not old:
            why = f"'{name}' is touched between the two blocks"
            raise refuse("P3", func, access.stmt, why, "move that away first")


def _check_start(func: Func, path: Path, depth: int) -> None:
    """P5."""
    old = the_block(path)
    reduced, spatial = uses(old, ("reduce",)), uses(old, ("spatial", "ordered"))
    starts: dict[Var, Expr] = {}
    for n, f in enumerate(path):
        if isinstance(f, For) and f.var in reduced:
            starts[f.var] = f.start
            own = n > depth and f.var not in spatial
            why = f"the reduction is bound to loop '{f.name}', "
            why += "and so is a spatial axis" if n > depth else "which is around both blocks"
            need("P5", own, func, f, why, "merge before fusing, or after moving the start out")
    known = Facts(ranges_at(func, path))
    for value in axis_values(old, "reduce"):
        begins = as_int(known.simplify(substitute(value, starts))) == 0
        why = "its loops do not start where the reduction starts"
        need("P5", begins, func, old, why, "merge before partitioning the loops")


def _check_domain(func: Func, first_path: Path, path: Path, depth: int) -> None:
    """P4."""
    first, old = the_block(first_path), the_block(path)
    remedy = "bring the loops of both into one order, with the same extents"
    for s in (*first_path[depth + 1 :], *path[depth + 1 :]):
        need("P4", not isinstance(s, If | Let), func, s, "a condition or let is around one", remedy)
    reduced = uses(old, ("reduce",))
    mine = [s for s in first_path[depth + 1 :] if isinstance(s, For)]
    theirs = [s for s in path[depth + 1 :] if isinstance(s, For) and s.var not in reduced]
    why = f"the loops around it are not those around block '{old.name}'"
    need("P4", len(mine) == len(theirs), func, first, why, remedy)
    named: dict[Var, Expr] = {}
    for f, g in zip(mine, theirs, strict=True):
        same = substitute(f.start, named) == g.start and substitute(f.stop, named) == g.stop
        need("P4", same, func, f, f"its range is not that of loop '{g.name}'", remedy)
        named[f.var] = g.var
    known = Facts(ranges_at(func, path))
    pairs = zip(first.axes, (a for a in old.axes if a.kind != "reduce"), strict=True)
    for a, b in pairs:
        same = known.simplify(substitute(a.value, named)) == known.simplify(b.value)
        need("P4", same, func, a, f"its value is not that of axis '{b.var.name}'", remedy)
    starts: dict[Var, Expr] = {
        s.var: s.start for s in path if isinstance(s, For) and s.var in reduced
    }
    here = guard(None if first.where is None else substitute(first.where, named), known)
    there = guard(None if old.where is None else substitute(old.where, starts), known)
    why = f"it is not guarded as block '{old.name}' is where its reduction starts"
    need("P4", here == there, func, first, why, remedy)
