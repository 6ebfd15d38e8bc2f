"""transform_layout: store an intermediate buffer in another layout."""

from __future__ import annotations

from typing import Any

from tilewright.arith import region
from tilewright.arith.simplify import Facts
from tilewright.ir.expr import Buffer, Call, Expr, Load, Var, const
from tilewright.ir.stmt import Alloc, Axis, Block, For, Func, Region, Stmt, Store, seq
from tilewright.ir.walk import fresh, statements
from tilewright.schedule import access, index_map, locate, nest
from tilewright.schedule.domain import ranges_at
from tilewright.schedule.locate import (
    alloc_path,
    find_buffer,
    map_blocks,
    need,
    primitive,
    refuse,
    replace,
    the_block,
)
from tilewright.schedule.primitives.compute_inline import check_unnamed


@primitive("lay out '{buffer}' by {mapping}")
def transform_layout(func: Func, buffer: str, mapping: str, pad: float | int | None = None) -> Func:
    """Keep the element at indices (n, c) of a buffer where `mapping` says: (n, c // 16, c % 16).

    A dimension that does not divide evenly is padded. With `pad` the padding holds that value, as
    soon as the buffer is made; else nobody may read it.

    rewrite: transform_layout("B", lambda x: (x // 4, x % 4))
        B = alloc(f32[8], "global")
        for i in serial(0, 8):
            with block("B"):
                vi = spatial(8, i)
                reads(A[vi])
                writes(B[vi])
                B[vi] = A[vi] * 2.0
        for j in serial(0, 8):
            with block("C"):
                vj = spatial(8, j)
                reads(B[vj])
                writes(C[vj])
                C[vj] = B[vj] + 1.0
    →
        B = alloc(f32[2, 4], "global")
        for i in serial(0, 8):
            with block("B"):
                vi = spatial(8, i)
                reads(A[vi])
                writes(B[vi // 4, vi % 4])
                B[vi // 4, vi % 4] = A[vi] * 2.0
        for j in serial(0, 8):
            with block("C"):
                vj = spatial(8, j)
                reads(B[vj // 4, vj % 4])
                writes(C[vj])
                C[vj] = B[vj // 4, vj % 4] + 1.0
    needs:
        P1  the buffer is an intermediate
        P2  the mapping has a variable for each dimension and can be inverted: each index is made of
            digits (x // d % m) that say each variable once
        P3  no intrinsic takes an address in the buffer, and only blocks name it
        P4  padding with a value needs one nest that makes all of the buffer
    """
    old = find_buffer(func, buffer)
    remedy = "copy it first: s.cache_read or s.cache_write"
    need("P1", alloc_path(func, old), func, buffer, f"'{buffer}' is a parameter", remedy)
    variables, outputs, inverse = read_mapping(func, old.name, old.shape, mapping)
    check_unnamed(func, old, "P3")
    new = Buffer(old.name, inverse.extents, old.dtype, old.scope)

    def change(block: Block) -> Stmt:
        return _Relayout(func, old, new, variables, outputs).block(block)

    body = map_blocks(func.body, change)
    moved = Func(func.name, func.params, body, func.annotations)
    path = alloc_path(moved, old)
    assert path is not None and isinstance(path[-1], Alloc)
    moved = replace(moved, path, Alloc(new, path[-1].body))
    return moved if pad is None or inverse.is_exact else _fill(moved, new, inverse, pad)


def read_mapping(
    func: Func, name: str, shape: tuple[Expr, ...], mapping: str
) -> tuple[tuple[Var, ...], tuple[Expr, ...], index_map.Inverse]:
    """P2: the variables, the outputs and the inverse of a mapping."""
    remedy = "as in lambda n, c: (n, c // 16, c % 16)"
    try:
        variables, outputs = index_map.parse_mapping(mapping)
    except ValueError as error:
        raise refuse("P2", func, name, str(error), remedy) from None
    why = f"it has {len(shape)} dimensions, the mapping {len(variables)} variables"
    need("P2", len(variables) == len(shape), func, name, why, remedy)
    inverse = index_map.invert(variables, shape, outputs)
    if inverse is None or any(row.offset for row in inverse.rows):
        raise refuse("P2", func, name, "the mapping does not say each index once", remedy)
    return variables, outputs, inverse


class _Relayout:
    """The blocks' side: every element of the old buffer moves to its position in the new one."""

    def __init__(
        self,
        func: Func,
        old: Buffer,
        new: Buffer,
        variables: tuple[Var, ...],
        outputs: tuple[Expr, ...],
    ) -> None:
        self.func, self.old, self.new = func, old, new
        self.variables, self.outputs = variables, outputs

    def block(self, block: Block) -> Block:
        if not self.is_used(block):
            return block
        known = Facts(ranges_at(self.func, [block, *statements(block.body)]))

        def go(n: Any) -> Any:
            if n.__class__ is Region:
                return self.region(n, known) if n.buffer == self.old else n
            if n.__class__ is Load and n.buffer == self.old:
                return Load(self.new, self.indices([go(i) for i in n.indices], known))
            if n.__class__ is Store and n.buffer == self.old:
                return Store(self.new, self.indices([go(i) for i in n.indices], known), go(n.value))
            if isinstance(n, Call) and access.is_addressed(n, self.old):
                why = f"it takes the address of '{self.old.name}'"
                raise refuse("P3", self.func, block, why, "lay out before tensorize")
            return n.map_children(go)

        return go(block)

    def is_used(self, block: Block) -> bool:
        return access.touches(block, self.old) or any(
            isinstance(s, Block) and access.touches(s, self.old) for s in statements(block.body)
        )

    def indices(self, old: list[Expr], known: Facts) -> tuple[Expr, ...]:
        found = index_map.apply(self.variables, self.outputs, old)
        return tuple([known.simplify(e) for e in found])

    def region(self, old: Region, known: Facts) -> Region:
        if all(e == access.ONE for e in old.extents):
            return access.point(self.new, self.indices(list(old.starts), known))
        moving = {
            v: (start, start + extent - 1)
            for v, start, extent in zip(self.variables, old.starts, old.extents, strict=True)
        }
        starts, extents = region.cover(self.outputs, moving, known, self.new.shape)
        return Region(self.new, starts, extents)


def _fill(func: Func, buffer: Buffer, inverse: index_map.Inverse, pad: float) -> Func:
    """P4: a block behind the buffer's makers that stores `pad` into the padding."""
    order = list(access.outer_block_paths(func))
    writers = [p for p in order if buffer in access.written_buffers(the_block(p))]
    readers = [p for p in order if buffer in access.read_buffers(the_block(p))]
    remedy = "lay it out before its blocks are moved, or without a value for the padding"
    need("P4", writers, func, buffer.name, f"nothing makes '{buffer.name}'", remedy)
    depth = access.nest_around(writers[0], readers)
    nest_path = writers[0][: depth + 1]
    one = all(access.is_inside(p, nest_path) for p in writers)
    one = one and not any(isinstance(s, For) for s in nest_path[:-1])
    need("P4", one, func, writers[-1][-1], f"'{buffer.name}' is not made in one nest", remedy)
    taken = locate.variable_names(func)
    axes = tuple(
        Axis(Var(fresh(f"vp{d}", taken)), "spatial", extent, access.ZERO)
        for d, extent in enumerate(buffer.shape)
    )
    indices = tuple(a.var for a in axes)
    store = Store(buffer, indices, const(pad, buffer.dtype))
    name = fresh(f"{buffer.name}_pad", set(locate.block_names(func)))
    block = Block(name, axes, (), (access.point(buffer, indices),), None, store)
    inside = inverse.guard(indices, buffer.shape)
    assert inside is not None
    fill, _ = nest.around(func, block, {}, (), [~inside])
    return replace(func, nest_path, seq(nest_path[-1], fill))
