"""transform_block_layout: let a block run over other axes, made of its old ones."""

from __future__ import annotations

from typing import Any

from tilewright.arith.simplify import Facts
from tilewright.ir.expr import Expr, Var
from tilewright.ir.stmt import Axis, Block, For, Func, Region
from tilewright.ir.walk import free_vars, fresh, substitute
from tilewright.schedule import access, index_map, locate, nest, spans
from tilewright.schedule.domain import ranges_at
from tilewright.schedule.locate import Path, block_path, need, primitive, replace, the_block
from tilewright.schedule.primitives.compute_inline import simplify_indices
from tilewright.schedule.primitives.transform_layout import read_mapping


@primitive("transform the axes of block '{block}' by {mapping}")
def transform_block_layout(func: Func, block: str, mapping: str) -> tuple[Func, tuple[str, ...]]:
    """Replace a block's axes and loops by new ones; gives the names of the new loops.

    rewrite: transform_block_layout("C", lambda i, j: (i * 4 + j,))
        for i in serial(0, 8):
            for j in serial(0, 4):
                with block("C"):
                    vi = spatial(8, i)
                    vj = spatial(4, j)
                    reads(A[vi, vj])
                    writes(C[vi, vj])
                    C[vi, vj] = A[vi, vj] * 2.0
    →
        for i_j_f in serial(0, 32):
            with block("C"):
                vi_j_f = spatial(32, i_j_f)
                reads(A[vi_j_f // 4, vi_j_f % 4])
                writes(C[vi_j_f // 4, vi_j_f % 4])
                C[vi_j_f // 4, vi_j_f % 4] = A[vi_j_f // 4, vi_j_f % 4] * 2.0
    needs:
        P1  the block has serial loops of its own and all its instances run; no axis is ordered
        P2  the mapping has a variable for each axis and can be inverted
        P3  a new axis is made of spatial axes only, or of reduce axes only
    """
    path = block_path(func, block)
    old = the_block(path)
    depth = _own_nest(func, path)
    extents = tuple(a.extent for a in old.axes)
    _, _, inverse = read_mapping(func, block, extents, mapping)
    removed = replace(func, path, None)
    own = {a.var.name for a in old.axes}
    taken = locate.variable_names(removed) | (nest.bound_names(old) - own)
    names = {v: a.var.name for (v, _), a in zip(inverse.old, old.axes, strict=True)}
    kinds = {v: a.kind for (v, _), a in zip(inverse.old, old.axes, strict=True)}
    axes: list[Axis] = []
    for row, extent in zip(inverse.rows, inverse.extents, strict=True):
        mixed = {kinds[d.var] for d in row.digits}
        why = "a new axis would mix spatial and reduce axes"
        need("P3", len(mixed) <= 1, func, block, why, "keep the two apart in the mapping")
        name = Var(fresh(_name(row, inverse.rows, names), taken))
        axes.append(Axis(name, mixed.pop() if mixed else "spatial", extent, access.ZERO))
    indices = [a.var for a in axes]
    known = Facts(ranges_at(func, [old.replace(axes=tuple(axes))]))
    values = {
        a.var: known.simplify(v)
        for a, v in zip(old.axes, inverse.values(indices).values(), strict=True)
    }
    inside = inverse.guard(indices, inverse.extents)
    made = _with_axes(old, tuple(axes), values, known)
    new, loops = nest.around(removed, made, {}, path[:depth], [] if inside is None else [inside])
    return replace(func, path[: depth + 1], new), loops


def _own_nest(func: Func, path: Path) -> int:
    """P1: where in `path` the block's own loops begin."""
    order = list(access.outer_block_paths(func))
    access.only_outer(func, path, order, "P1")
    block = the_block(path)
    depth = access.nest_around(path, [p for p in order if p[-1] is not block])
    around = {s.var for s in path[:depth] if isinstance(s, For)}
    remedy = "transform it before it is moved, guarded or marked"
    for axis in block.axes:
        need("P1", axis.kind != "ordered", func, block, "it runs in order", remedy)
        why = f"its axis '{axis.var.name}' is bound to loops that it shares with other blocks"
        need("P1", not free_vars(axis.value) & around, func, block, why, remedy)
    plain = all(s.kind == "serial" for s in path[depth:] if isinstance(s, For))
    need("P1", plain, func, block, "its loops are marked already", remedy)
    whole = spans.runs_whole(func, path)
    need("P1", whole, func, block, "some of its instances do not run", remedy)
    return depth


def _name(row: index_map.Row, rows: tuple[index_map.Row, ...], names: dict[Var, str]) -> str:
    """What to call a new axis: an old one's name, its part's, or those of the axes it fuses."""
    used = list(dict.fromkeys(d.var for d in reversed(row.digits)))
    if not used:
        return "vone"
    if len(used) > 1:
        return "v" + "_".join(nest.base_name(names[v]) for v in used) + "_f"
    same = [r for r in rows if any(d.var == used[0] for d in r.digits)]
    if len(same) == 1:
        return names[used[0]]
    suffix = "oi"[same.index(row)] if len(same) == 2 else str(same.index(row))
    return f"{names[used[0]]}_{suffix}"


def _with_axes(old: Block, axes: tuple[Axis, ...], values: dict[Var, Expr], known: Facts) -> Block:
    """The block over the new axes."""

    def change(part: Any) -> Any:
        return simplify_indices(substitute(part, values), known)

    def region(r: Region) -> Region:
        moved = substitute(r, values)
        return moved.replace(starts=tuple(known.simplify(e) for e in moved.starts))

    return old.replace(
        axes=axes,
        reads=tuple(region(r) for r in old.reads),
        writes=tuple(region(r) for r in old.writes),
        init=None if old.init is None else change(old.init),
        body=change(old.body),
        where=None,
    )
