"""Which lanes of a private buffer anybody looks at.

In: an allocation. Out: whether its masked stores may write all lanes. The one idea: if every read
of the buffer is under the very condition on lanes under which it is written, then what the other
lanes hold is never seen, and an accumulator needs no mask.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.dtype import i64
from tilewright.ir.expr import Binary, BinaryOp, Buffer, Const, Expr, Var, as_int
from tilewright.ir.stmt import Alloc, Eval, For, If, Let, Seq, Stmt, Store
from tilewright.ir.walk import accesses, free_vars, loads, statements, substitute

_LANE = Var("lane", i64)  # stands for the variable of any vectorised loop
Loops = dict[Var, int]  # unrolled loops around a statement, with their extents

# writes; conditions on the lane (None: not understood)
Access = tuple[bool, frozenset[Expr] | None]


def only_live_lanes_are_read(stmt: Alloc) -> bool:
    """Whether lanes that a masked store leaves out are never read."""
    if not any(isinstance(s, If) for s in statements(stmt.body)):  # no store has a mask
        return False
    found = list(_accesses(stmt.buffer, stmt.body, None, (), {}))
    masks = {conds for writes, conds in found if writes and conds}
    if len(masks) != 1 or any(conds is None for _, conds in found):
        return False
    (mask,) = masks
    return all(writes or (conds is not None and conds >= mask) for writes, conds in found)


def _accesses(
    buffer: Buffer, s: Stmt, loop: For | None, conds: tuple[Expr, ...], unrolled: Loops
) -> Iterator[Access]:
    if isinstance(s, For):
        extent = as_int(s.extent) if s.kind == "unroll" and as_int(s.start) == 0 else None
        if extent is not None:
            unrolled = {**unrolled, s.var: extent}
        inner = (s, ()) if s.kind == "vectorize" else (loop, conds)
        yield from _accesses(buffer, s.body, *inner, unrolled)
    elif isinstance(s, Seq):
        for c in s.stmts:
            yield from _accesses(buffer, c, loop, conds, unrolled)
    elif isinstance(s, Alloc):
        yield from _accesses(buffer, s.body, loop, conds, unrolled)
    elif isinstance(s, If):
        own = [c for c in _parts(s.cond) if loop is not None and loop.var in free_vars(c)]
        yield from _accesses(buffer, s.then, loop, (*conds, *own), unrolled)
        if s.other is not None and _uses(buffer, s.other):
            yield False, None
    elif isinstance(s, Store):
        if s.buffer == buffer:
            yield True, _mask(s.indices[0], loop, conds, unrolled)
        for n in loads(s.value):
            if n.buffer == buffer:
                yield False, _mask(n.indices[0], loop, conds, unrolled)
    elif isinstance(s, Let | Eval) and _uses(buffer, s):
        yield False, None


def _mask(
    index: Expr, loop: For | None, conds: tuple[Expr, ...], unrolled: Loops
) -> frozenset[Expr] | None:
    """The conditions, in terms of the lane and of the index's digits; None where lanes and elements
    do not go together."""
    if loop is None:
        return None
    lanes = as_int(loop.extent)
    if lanes is None or as_int(loop.start) != 0 or not _is_lane(index, loop.var, lanes):
        return None
    names: dict[Var, Expr] = {loop.var: _LANE}
    if conds:
        names |= _digits(index, loop.var, lanes, unrolled)
    return frozenset(substitute(c, names) for c in conds)


def _digits(index: Expr, lane: Var, lanes: int, unrolled: Loops) -> dict[Var, Expr]:
    """The unrolled loops whose variables an index tells, each by its step: loops of another name
    that reach the same elements are under the same condition. Empty if indices do not tell them."""
    steps: dict[Var, int] = {}
    stack = [(index, 1)]
    while stack:
        e, c = stack.pop()
        if isinstance(e, Binary) and e.op is BinaryOp.add:
            stack += [(e.a, c), (e.b, c)]
        elif isinstance(e, Binary) and e.op is BinaryOp.mul and isinstance(e.b, Const):
            stack.append((e.a, c * e.b.value))
        elif isinstance(e, Var) and (e == lane or e in unrolled):
            steps[e] = steps.get(e, 0) + c
        else:
            return {}
    reach = lanes
    for var, step in sorted(steps.items(), key=lambda item: item[1]):
        if var == lane:
            continue
        if step < reach:
            return {}
        reach = step * unrolled[var]
    return {var: Var(f"digit {step}", i64) for var, step in steps.items() if var != lane}


def _is_lane(index: Expr, var: Var, lanes: int) -> bool:
    """Whether `index` is `var` plus a multiple of `lanes`."""
    seen = 0
    stack = [(index, 1)]
    while stack:
        e, c = stack.pop()
        if isinstance(e, Binary) and e.op in (BinaryOp.add, BinaryOp.sub):
            stack += [(e.a, c), (e.b, c if e.op is BinaryOp.add else -c)]
        elif isinstance(e, Binary) and e.op is BinaryOp.mul and isinstance(e.b, Const):
            stack.append((e.a, c * e.b.value))
        elif e == var:
            seen += c
        elif isinstance(e, Const):
            c *= e.value
            if c % lanes:
                return False
        elif c % lanes or var in free_vars(e):
            return False
    return seen == 1


def _uses(buffer: Buffer, s: Stmt) -> bool:
    return any(n.buffer == buffer for n in accesses(s))


def _parts(cond: Expr) -> list[Expr]:
    if isinstance(cond, Binary) and cond.op is BinaryOp.logical_and:
        return _parts(cond.a) + _parts(cond.b)
    return [cond]
