"""skip_zeros: leave out the steps of a sum of products in which one factor is padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.arith.simplify import Facts
from tilewright.ir.expr import Binary, BinaryOp, Const, Expr, Load, Select, Var, minimum
from tilewright.ir.stmt import Block, Func, If, Store
from tilewright.ir.walk import blocks, free_vars, stores
from tilewright.schedule.depend import below
from tilewright.schedule.domain import conditions, conjunction, guard, ranges_at
from tilewright.schedule.locate import loop_path, need, primitive, refuse, replace, the_loop
from tilewright.schedule.primitives.prefetch import read_inside

_SIDES = {BinaryOp.ge: (True, 0), BinaryOp.gt: (True, 1), BinaryOp.lt: (False, 0)}
_SIDES[BinaryOp.le] = False, 1
Bounds = dict[int, tuple[Expr | None, Expr | None]]  # of an axis: where what is inside begins, ends


@primitive("skip the zeros of '{buffer}' in loop '{loop}'")
def skip_zeros(func: Func, buffer: str, loop: str) -> Func:
    """In iterations of a loop that read nothing of a padded buffer but its padding, do nothing.

    What the loop does is a sum of products with that buffer: a zero adds nothing to it, where the
    other factors are finite. Of a last tile only what the block's guard leaves of it counts.

    rewrite: skip_zeros("P", "r")
        P = alloc(f32[26], "global")
        for p in serial(0, 26):
            with block("P"):
                vp = spatial(26, p)
                reads(A[vp - 8])
                writes(P[vp])
                P[vp] = select(vp >= 8 and vp < 18, A[vp - 8], 0.0)
        for x in serial(0, 2):
            for r in serial(0, 3):
                for i in serial(0, 5):
                    with block("B"):
                        vx = spatial(10, x * 5 + i)
                        vr = reduce(3, r)
                        reads(B[vx], P[vx + vr * 8], W[vr])
                        writes(B[vx])
                        B[vx] = B[vx] + P[vx + vr * 8] * W[vr]
    →
        P = alloc(f32[26], "global")
        for p in serial(0, 26):
            with block("P"):
                vp = spatial(26, p)
                reads(A[vp - 8])
                writes(P[vp])
                P[vp] = select(vp >= 8 and vp < 18, A[vp - 8], 0.0)
        for x in serial(0, 2):
            for r in serial(0, 3):
                if x * 5 + r * 8 >= 4 and x * 5 + r * 8 < 18:
                    for i in serial(0, 5):
                        with block("B"):
                            vx = spatial(10, x * 5 + i)
                            vr = reduce(3, r)
                            reads(B[vx], P[vx + vr * 8], W[vr])
                            writes(B[vx])
                            B[vx] = B[vx] + P[vx + vr * 8] * W[vr]
    needs:
        P1  the loop lies in no block, and all that its body does is to add products with the buffer
            to a sum that it does not begin
        P2  one block writes the buffer, element by element, and writes zero outside of bounds
    """
    path = loop_path(func, loop)
    old = the_loop(path)
    inside = below(old.body)
    outer = not any(isinstance(s, Block) for s in path)
    adds = bool(inside.blocks) and all(_adds(b, buffer) for b in inside.blocks)
    why = f"it does more than to add products with '{buffer}' to a sum"
    need("P1", outer and adds, func, old, why, "split the start of the sum off first")
    read = read_inside(func, path, buffer)
    bounds = padding(func, buffer)
    if read is None or bounds is None:
        why = f"'{buffer}' is not written once, with zeros outside of bounds"
        raise refuse("P2", func, old, why, "name a padded buffer")
    known = Facts(ranges_at(func, path))
    moving = frozenset(f.var for f in inside.loops)
    parts: list[Expr] = []
    for d, (low, high) in bounds.items():
        start, extent = read.starts[d], read.extents[d]
        if old.var not in free_vars(start):
            continue  # asked around the loop, if it is
        if low is not None:
            indices = [a.region.starts[d] for a in inside.accesses if a.buffer == buffer]
            for last in _lasts(inside.blocks, indices, moving, known):
                extent = minimum(extent, last + 1 - start)
            parts.append(start + extent > low)
        if high is not None:
            parts.append(start < high)
    some = guard(conjunction(parts), known)
    return func if some is None else replace(func, path, old.replace(body=If(some, old.body)))


def _lasts(
    blocks: Sequence[Block], indices: Sequence[Expr], moving: frozenset[Var], known: Facts
) -> Iterator[Expr]:
    """Ends, told by the blocks' guards, of what is read at the only index: of `c * i + r` where
    `i < n` is asked of the `moving` i, c * (n - 1) + r."""
    if len(blocks) != 1 or len(indices) != 1:
        return
    form = known.affine(indices[0])
    for part in conditions(blocks[0].where):
        if not (isinstance(part, Binary) and part.op is BinaryOp.lt):
            continue
        asked = known.affine(part.a)
        steps = {form.terms.get(v, 0) // asked.terms[v] for v in moving if v in asked.terms}
        step = max(steps, default=0)
        if step <= 0:
            continue
        rest = known.sum(form, asked, -step)
        if not any(v in moving for term in rest.terms for v in free_vars(term)):
            yield (part.b - 1) * step + known.expr(rest)


def _adds(block: Block, buffer: str) -> bool:
    """Is the block `sum = sum + product`, with the buffer's element a factor?"""
    body = block.body
    if block.init is not None or not isinstance(body, Store):
        return False
    total = body.value
    if not (isinstance(total, Binary) and total.op is BinaryOp.add and total.dtype.is_float):
        return False
    own, term = total.a, total.b
    factors = (term.a, term.b) if isinstance(term, Binary) and term.op is BinaryOp.mul else ()
    return own == Load(body.buffer, body.indices) and any(
        isinstance(f, Load) and f.buffer.name == buffer for f in factors
    )


def padding(func: Func, buffer: str) -> Bounds | None:
    """Outside of which bounds, by axis, a buffer holds zeros; None if that is not known."""
    writers = [b for b in blocks(func.body) if any(s.buffer.name == buffer for s in stores(b.body))]
    if len(writers) != 1 or not isinstance(store := writers[0].body, Store):
        return None
    value, indices = store.value, store.indices
    zero = isinstance(value, Select) and isinstance(value.other, Const) and not value.other.value
    if not zero or not all(isinstance(i, Var) for i in indices):
        return None
    assert isinstance(value, Select)
    bounds: Bounds = {}
    for part in conditions(value.cond):
        if not (isinstance(part, Binary) and part.op in _SIDES and part.a in indices):
            return None
        if free_vars(part.b) & {axis.var for axis in writers[0].axes}:
            return None
        axis = indices.index(part.a)
        low, high = bounds.get(axis, (None, None))
        is_low, more = _SIDES[part.op]
        bound = part.b + more if more else part.b
        bounds[axis] = (bound, high) if is_low else (low, bound)
    return bounds
