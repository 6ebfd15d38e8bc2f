"""blockize: make one block of a loop and all that it holds."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from tilewright.arith import region
from tilewright.arith.affine import Affine
from tilewright.arith.prove import can_prove, prove_divides
from tilewright.arith.simplify import Facts, loop_range
from tilewright.ir.expr import Expr, Var, as_int, ceildiv
from tilewright.ir.stmt import Axis, Block, For, Func, Region, Stmt
from tilewright.ir.walk import free_vars, fresh, substitute
from tilewright.schedule.depend import bind_axes, uses
from tilewright.schedule.domain import conditions, conjunction, ranges_at
from tilewright.schedule.locate import (
    Path,
    block_names,
    loop_path,
    need,
    primitive,
    rebuild,
    refuse,
    replace,
    variable_names,
)
from tilewright.support.record import record


@primitive("make a block of loop '{loop}'")
def blockize(func: Func, loop: str) -> tuple[Func, str]:
    """Make one block of a loop and the block that it holds; gives its name.

    The axes of the new block count tiles: those that the loops inside walk through. A reduction
    that goes on outside begins in an init of the new block.

    rewrite: blockize("i_i")
        for i_o in serial(0, 4):
            for i_i in serial(0, 4):
                with block("B"):
                    vi = spatial(16, i_o * 4 + i_i)
                    reads(A[vi])
                    writes(B[vi])
                    B[vi] = A[vi] * 2.0
    →
        for i_o in serial(0, 4):
            with block("B_o"):
                vi_o = spatial(4, i_o)
                reads(A[vi_o * 4:vi_o * 4 + 4])
                writes(B[vi_o * 4:vi_o * 4 + 4])
                for i_i in serial(0, 4):
                    with block("B"):
                        vi = spatial(16, vi_o * 4 + i_i)
                        reads(A[vi])
                        writes(B[vi])
                        B[vi] = A[vi] * 2.0
    needs:
        P1  the loop holds one block, alone in perfectly nested loops
        P2  each axis is a sum of what the loops inside run through, from 0 to c - 1, and of c times
            what stands still
        P3  a guard speaks of the loops inside, or of those outside, not of both; or it only keeps
            an axis in its extent
    """
    path = loop_path(func, loop)
    nest, inner = _nest(func, path)
    taken = variable_names(func)
    known = Facts(ranges_at(func, [*path, *nest]))
    parts = [_part(func, axis, inner, nest, known, taken) for axis in inner.axes]
    outside, inside = _guards(func, inner, nest, parts, known)
    names = set(block_names(func))
    name = fresh(f"{inner.name}_o", names)
    outer_axes = tuple(p.outer for p in parts if p.outer is not None)
    axes = tuple(
        Axis(a.var, a.kind, a.extent, p.value) for a, p in zip(inner.axes, parts, strict=True)
    )
    goes_on = any(p.outer is not None and p.outer.kind == "reduce" for p in parts)
    begins = inner.init is not None and goes_on
    adds = inner.init is None and any(a.kind == "reduce" for a in inner.axes)
    read = (*inner.reads, *inner.writes) if adds and not goes_on else inner.reads
    for f in nest if begins else ():
        mixed = f.var in uses(inner, ("reduce",)) and f.var in uses(inner, ("spatial",))
        why = f"the reduction, which goes on outside, shares loop '{f.name}' with a spatial axis"
        need("P2", not mixed, func, f, why, "make the block before fusing")
    body = inner.replace(axes=axes, where=inside, init=None if begins else inner.init)
    known = Facts(ranges_at(func, [*nest, inner.replace(axes=outer_axes)]))
    made = Block(
        name,
        outer_axes,
        _relaxed(read, body, nest, known),
        _relaxed(inner.writes, body, nest, known),
        _init(body, inner, nest, taken, names) if begins else None,
        rebuild((*nest, inner), body),
        outside,
    )
    return replace(func, path, made), name


@record
class _Part:
    """An axis cut in two: the outer block's axis (None: it stands still), and the new value."""

    outer: Axis | None
    value: Expr


def _nest(func: Func, path: Path) -> tuple[tuple[For, ...], Block]:
    """P1: the loops from the one named to the block, and the block."""
    nest: list[For] = []
    stmt: Stmt = path[-1]
    while isinstance(stmt, For):
        nest.append(stmt)
        stmt = stmt.body
    if not isinstance(stmt, Block):
        why = "the loop holds more than one block in perfectly nested loops"
        remedy = "move the others away, or name a loop further in"
        raise refuse("P1", func, stmt, why, remedy)
    for f in nest:
        still = not any(free_vars(e) & {g.var for g in nest} for e in (f.start, f.stop))
        steady = as_int(f.start) == 0 and as_int(f.stop) is not None and still
        why = f"loop '{f.name}' does not run from 0 to a constant"
        need("P1", steady, func, f, why, "split the loop by a constant first")
    return tuple(nest), stmt


def _part(
    func: Func, axis: Axis, block: Block, nest: Sequence[For], known: Facts, taken: set[str]
) -> _Part:
    """P2: an axis cut in what the inner loops run through and what stands still."""
    moving = {f.var for f in nest}
    form = known.affine(axis.value)
    within = Affine({t: c for t, c in form.terms.items() if free_vars(t) & moving}, 0)
    still = form - within
    low, high = known.bounds(within)
    remedy = "split the loops by constants, so that they walk through whole tiles"
    apart = all(free_vars(t) <= moving for t in within.terms)
    why = f"axis '{axis.var.name}' mixes the loops inside with those outside"
    need("P2", apart and low == 0 and high < inf, func, block, why, remedy)
    count = int(high) + 1
    if not still.terms and still.const == 0 and within.terms:
        return _Part(None, known.expr(within))
    outer = known.expr(still)
    why = f"axis '{axis.var.name}' is not cut in tiles of {count}"
    need("P2", prove_divides(count, outer, known), func, block, why, remedy)
    var = Var(fresh(f"{axis.var.name}_o", taken), axis.var.dtype)
    made = Axis(var, axis.kind, ceildiv(axis.extent, count), known.simplify(outer // count))
    return _Part(made, var * count + known.expr(within))


def _guards(
    func: Func, block: Block, nest: Sequence[For], parts: Sequence[_Part], known: Facts
) -> tuple[Expr | None, Expr | None]:
    """P3: the guards of the outer block and of the inner one."""
    moving = {f.var for f in nest}
    outer = [p.outer for p in parts if p.outer is not None]
    outside = [c for a in outer if not can_prove(c := a.value < a.extent, known)]
    inside: list[Expr] = []
    for condition in conditions(block.where):
        if not free_vars(condition) & moving:
            outside.append(condition)
        elif free_vars(condition) <= moving:
            inside.append(condition)
        else:
            cut = [
                p.value < a.extent
                for a, p in zip(block.axes, parts, strict=True)
                if condition == (a.value < a.extent)
            ]
            why = "a guard speaks of loops on both sides"
            remedy = "choose factors that divide, or pad: s.pad_einsum"
            need("P3", cut, func, block, why, remedy)
            inside += cut
    return conjunction(outside), conjunction(inside)


def _relaxed(
    own: Sequence[Region], body: Block, nest: Sequence[For], known: Facts
) -> tuple[Region, ...]:
    """What all instances inside touch together, one region for each buffer."""
    moving = {f.var: loop_range(f) for f in nest}
    values = {a.var: a.value for a in body.axes}
    found: dict[str, list[Region]] = {}
    for r in own:
        relaxed = region.cover_region(bind_axes(r, values), moving, known)
        found.setdefault(r.buffer.name, []).append(relaxed)
    return tuple(region.union(rs, known) for rs in found.values())


def _init(body: Block, inner: Block, nest: Sequence[For], taken: set[str], names: set[str]) -> Stmt:
    """The start of a reduction that goes on outside: a nest over the spatial loops inside."""
    kept = [a for a in body.axes if a.kind != "reduce"]
    renamed = {a.var: Var(fresh(f"{a.var.name}_init", taken), a.var.dtype) for a in kept}
    axes = tuple(a.replace(var=renamed[a.var]) for a in kept)
    assert inner.init is not None
    reduced = {v for a in body.axes if a.kind == "reduce" for v in free_vars(a.value)}
    guards = [c for c in conditions(body.where) if not free_vars(c) & reduced]
    made: Stmt = Block(
        fresh(f"{inner.name}_init", names),
        axes,
        (),
        tuple(substitute(w, renamed) for w in inner.writes),
        None,
        substitute(inner.init, renamed),
        conjunction(guards),
    )
    used = {v for a in axes for v in free_vars(a.value)}
    for f in reversed(nest):
        if f.var in used:
            copy = Var(fresh(f"{f.name}_init", taken), f.var.dtype)
            made = f.replace(var=copy, body=substitute(made, {f.var: copy}))
    return made
