"""pad_einsum: round the axes of a sum of products up, so that tiles fit."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Expr,
    Load,
    Var,
    ceildiv,
    const,
    select,
)
from tilewright.ir.stmt import Alloc, Axis, Block, For, Func, Store, seq
from tilewright.ir.walk import fresh, replace_buffers
from tilewright.schedule import access, nest, spans
from tilewright.schedule.domain import ZERO, conjunction
from tilewright.schedule.locate import (
    Path,
    block_names,
    block_path,
    buffers,
    need,
    primitive,
    refuse,
    replace,
    the_block,
    variable_names,
)


@primitive("pad the axes of block '{block}' to multiples of {multiples}")
def pad_einsum(func: Func, block: str, multiples: Sequence[int]) -> Func:
    """Run a sum of products over axes rounded up to `multiples` (one for each axis).

    Operands are copied into buffers with zeros in the padding; the result is cut out of one. The
    copies carry the names `A_pad` and `C_pad`.

    rewrite: pad_einsum("C", [1, 4])
        for i in serial(0, 8):
            for k in serial(0, 6):
                with block("C"):
                    vi = spatial(8, i)
                    vk = reduce(6, k)
                    reads(A[vi, vk])
                    writes(C[vi])
                    with init():
                        C[vi] = 0.0
                    C[vi] = C[vi] + A[vi, vk]
    →
        A_pad = alloc(f32[8, 8], "global")
        for i_1 in serial(0, 8):
            for k_1 in serial(0, 8):
                with block("A_pad"):
                    vi_1 = spatial(8, i_1)
                    vk_1 = spatial(8, k_1)
                    reads(A[vi_1, vk_1])
                    writes(A_pad[vi_1, vk_1])
                    A_pad[vi_1, vk_1] = select(vk_1 < 6, A[vi_1, vk_1], 0.0)
        for i in serial(0, 8):
            for k in serial(0, 8):
                with block("C"):
                    vi = spatial(8, i)
                    vk = reduce(8, k)
                    reads(A_pad[vi, vk])
                    writes(C[vi])
                    with init():
                        C[vi] = 0.0
                    C[vi] = C[vi] + A_pad[vi, vk]
    needs:
        P1  the block adds products of loads (or their casts) to its result, in no other block
        P2  each index of an operand or the result is one of the axes, and each is that axis's whole
            dimension
        P3  there is a multiple of at least 1 for each axis
        P4  the block stands in serial loops of its own, one for each axis, and runs all instances
    """
    path = block_path(func, block)
    old = the_block(path)
    order = list(access.outer_block_paths(func))
    access.only_outer(func, path, order, "P1")
    store, loads = _einsum(func, old)
    _check_operands(func, old, [*loads, Load(store.buffer, store.indices)])
    sane = len(multiples) == len(old.axes) and all(m >= 1 for m in multiples)
    why = f"it has {len(old.axes)} axes, and there are {len(multiples)} multiples"
    need("P3", sane, func, old, why, "give each axis a multiple, 1 to leave it")
    extents = {a.var: _rounded(a.extent, m) for a, m in zip(old.axes, multiples, strict=True)}
    _own_loops(func, path)
    result = Load(store.buffer, store.indices)
    for operand in dict.fromkeys([*loads, result]):
        if _extents(operand, extents) != operand.buffer.shape:
            func = _pad(func, block, operand, extents, operand == result)
    path = block_path(func, block)
    depth = _own_loops(func, path)
    body = the_block(path)
    grown = body.replace(axes=tuple(a.replace(extent=extents[a.var]) for a in body.axes))
    made, _ = nest.around(replace(func, path, None), grown, {}, path[:depth])
    return replace(func, path[: depth + 1], made)


def _einsum(func: Func, block: Block) -> tuple[Store, list[Load]]:
    """P1: the store, and the loads whose products it adds."""
    remedy = "pad sums of products, or pad in the algorithm"
    store = block.body
    found: list[Load] = []

    def factors(e: Expr) -> bool:
        if isinstance(e, Binary) and e.op is BinaryOp.mul:
            return factors(e.a) and factors(e.b)
        if isinstance(e, Cast):
            return factors(e.a)
        if isinstance(e, Load):
            found.append(e)
        return isinstance(e, Load)

    if isinstance(store, Store) and isinstance(store.value, Binary):
        result = Load(store.buffer, store.indices)
        sides = (store.value.a, store.value.b)
        if store.value.op is BinaryOp.add and result in sides and block.init is not None:
            product = sides[1] if sides[0] == result else sides[0]
            if factors(product) and result not in found:
                return store, found
    raise refuse("P1", func, block, "it is no sum of products", remedy)


def _check_operands(func: Func, block: Block, operands: Sequence[Load]) -> None:
    """P2."""
    axes = {a.var: a.extent for a in block.axes}
    for operand in operands:
        whole = all(
            isinstance(i, Var) and axes.get(i) == size
            for i, size in zip(operand.indices, operand.buffer.shape, strict=True)
        )
        single = len(set(operand.indices)) == len(operand.indices)
        why = f"an index of '{operand.buffer.name}' is no axis, or not a whole dimension"
        remedy = "bring operands into this form first: s.reindex"
        need("P2", whole and single, func, block, why, remedy)
    for buffer in {o.buffer for o in operands}:
        same = len({o.indices for o in operands if o.buffer == buffer}) == 1
        why = f"several elements of '{buffer.name}' are read"
        need("P2", same, func, block, why, "copy it first: s.cache_read")


def _own_loops(func: Func, path: Path) -> int:
    """P4: where in `path` the block's own loops begin."""
    block = the_block(path)
    others = [p for p in access.outer_block_paths(func) if p[-1] is not block]
    depth = access.nest_around(path, others)
    own = {s.var: s for s in path[depth:] if isinstance(s, For)}
    plain = all(isinstance(a.value, Var) and a.value in own for a in block.axes)
    serial = all(s.kind == "serial" for s in own.values())
    inside = any(isinstance(s, For) for s in path[:depth])
    fits = plain and serial and not inside and spans.runs_whole(func, path)
    why = "its loops are split, marked, partitioned or shared"
    need("P4", fits, func, block, why, "pad before other rewrites of its loops")
    return depth


def _rounded(extent: Expr, multiple: int) -> Expr:
    return extent if multiple == 1 else ceildiv(extent, multiple) * multiple


def _extents(operand: Load, extents: dict[Var, Expr]) -> tuple[Expr, ...]:
    return tuple(extents[i] for i in operand.indices if isinstance(i, Var))


def _pad(func: Func, block: str, operand: Load, extents: dict[Var, Expr], result: bool) -> Func:
    """The block on a padded copy of one operand (or of its result), which is filled (or cut)."""
    old = operand.buffer
    name = fresh(f"{old.name}_pad", {*buffers(func), *block_names(func)})
    padded = Buffer(name, _extents(operand, extents), old.dtype, old.scope)
    taken = variable_names(func)
    over = old if result else padded
    axes = tuple(
        Axis(Var(fresh(i.name, taken)), "spatial", extent, ZERO)
        for i, extent in zip(operand.indices, over.shape, strict=True)
        if isinstance(i, Var)
    )
    at = tuple(a.var for a in axes)
    value: Expr = Load(padded if result else old, at)
    target = old if result else padded
    if not result:
        pairs = zip(at, padded.shape, old.shape, strict=True)
        inside = conjunction([v < small for v, large, small in pairs if large != small])
        value = select(inside, value, const(0, old.dtype))
    source = padded if result else old
    copy = Block(
        name,
        axes,
        (access.point(source, at),),
        (access.point(target, at),),
        None,
        Store(target, at, value),
    )
    path = block_path(func, block)
    depth = _own_loops(func, path)
    copies, _ = nest.around(func, copy, {}, path[:depth])
    changed = replace_buffers(path[depth], {old: padded})
    both = seq(changed, copies) if result else seq(copies, changed)
    done = replace(func, path[: depth + 1], both)
    return done.replace(body=Alloc(padded, done.body))
