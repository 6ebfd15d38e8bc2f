"""Nests made anew: loops around a block over a part of its axes.

In: a block, the part of its axes that is needed (see `spans`) and the path to where it will stand.
Out: a nest of loops. The one idea: a loop for each axis that takes more than one value; instances
outside the block's domain are guarded away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.arith import linear
from tilewright.arith.simplify import Facts, loop_range
from tilewright.ir.expr import Buffer, Expr, Load, Var, as_int
from tilewright.ir.stmt import Axis, Block, For, Func, Let, Stmt, Store
from tilewright.ir.walk import free_vars, fresh, statements, substitute
from tilewright.schedule import access, locate
from tilewright.schedule.domain import conjunction, guard, ranges_at
from tilewright.schedule.spans import ZERO, Span


def around(
    func: Func,
    block: Block,
    part: Mapping[Var, Span],
    path: Sequence[Stmt],
    only: Sequence[Expr] = (),
) -> tuple[Stmt, tuple[str, ...]]:
    """`block` in loops over `part` of its axes (others whole), to stand at the end of `path`.

    An ordered axis keeps its value. `only` are further conditions on axes. An axis of one value
    gets no loop. Gives the nest and the names of its loops, outermost first.
    """
    taken = locate.variable_names(func) | bound_names(block)
    ranges = ranges_at(func, path)
    known: Facts | None = None
    loops: list[For] = []
    axes: list[Axis] = []
    inside: list[Expr] = []
    for axis in block.axes:
        if axis.kind == "ordered":
            axes.append(axis)
            inside += [axis.value >= ZERO, axis.value < axis.extent]
            continue
        start, extent = part.get(axis.var, (ZERO, axis.extent))
        if linear.linear(start) is None:
            known = known or Facts(ranges)
            start = known.simplify(start)
        value = start
        if as_int(extent) != 1:
            var = Var(fresh(base_name(axis.var.name), taken), axis.var.dtype)
            loop = For(var, ZERO, extent, "serial", block)
            loops.append(loop)
            value = start + var if as_int(start) is None else var + start
        axes.append(Axis(axis.var, axis.kind, axis.extent, value))
        if axis.var in part and (start != ZERO or extent != axis.extent):
            inside += [value >= ZERO, value < axis.extent]
    ranges = ranges | {f.var: loop_range(f) for f in loops}
    values = {a.var: a.value for a in axes}
    inside += [substitute(c, values) for c in only]
    open_ends = [c for c in inside if not linear.holds(c, ranges)]
    where = guard(conjunction(open_ends), Facts(ranges)) if open_ends else None
    nest: Stmt = block.replace(axes=tuple(axes), where=where)
    for loop in reversed(loops):
        nest = loop.replace(body=nest)
    return nest, tuple(loop.name for loop in loops)


def bound_names(block: Block) -> set[str]:
    """The names of a block's axes and of the variables that are bound inside it."""
    found = {a.var.name for a in block.axes}
    if block.body.__class__ is Store:
        return found
    for stmt in statements(block):
        if isinstance(stmt, For | Let):
            found.add(stmt.var.name)
        elif isinstance(stmt, Block):
            found.update(a.var.name for a in stmt.axes)
    return found


def base_name(axis: str) -> str:
    """The name that a loop of an axis takes: `i` for `vi`."""
    return axis[1:] if axis.startswith("v") and axis[1:].isidentifier() else axis


def copy_block(
    func: Func, name: str, source: Buffer, target: Buffer, like: Sequence[Expr]
) -> Block:
    """A block that copies `source` to `target`, with axes named as those in `like`."""
    taken = locate.variable_names(func)
    axes: list[Axis] = []
    for d, extent in enumerate(source.shape):
        told = free_vars(like[d])
        old = told.pop().name if len(told) == 1 else f"va{d}"
        axes.append(Axis(Var(fresh(old, taken)), "spatial", extent, ZERO))
    indices = tuple(a.var for a in axes)
    return Block(
        name,
        tuple(axes),
        (access.point(source, indices),),
        (access.point(target, indices),),
        None,
        Store(target, indices, Load(source, indices)),
    )
