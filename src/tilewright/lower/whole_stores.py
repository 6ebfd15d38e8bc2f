"""whole_stores: the last vector of a row in a kernel's own memory is stored whole.

In: stage "loops". Out: stage "loops". What is read back soon after it was stored comes from the
store itself, if that was one whole vector; from under a mask, or from two vectors that overlap, it
comes once both are in the cache, which takes longer than an exponential. The one idea: the rows of
a buffer of the kernel's own may end with a whole vector, and what its last lanes hold nobody reads.
So what these lanes read is asked for, and not what they store.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright.arith.affine import Affine
from tilewright.arith.simplify import Facts, loop_range
from tilewright.ir.expr import Binary, BinaryOp, Buffer, Expr, Load, Select, Var, as_int, const
from tilewright.ir.stmt import Alloc, For, Func, If, Stmt, Store
from tilewright.ir.walk import free_vars, loads, reads, replace_buffers, rewrite, statements, visit
from tilewright.lower.comparisons import form_of
from tilewright.lower.lower_blocks import all_of, parts_of
from tilewright.support.record import record

_WHOLE = (BinaryOp.floordiv, BinaryOp.floormod, BinaryOp.truncdiv, BinaryOp.truncmod)


def whole_stores(func: Func) -> Func:
    """Pad rows of own memory to whole vectors, and store those.

    rewrite:
        T = alloc(f32[n], "global")                     T = alloc(f32[(n + 3) // 4 * 4], "global")
        for i_o in serial(0, (n + 3) // 4):             for i_o in serial(0, (n + 3) // 4):
            for i_i in vectorize(0, 4):                     for i_i in vectorize(0, 4):
                if i_o * 4 + i_i < n:             →             T[i_o * 4 + i_i] = exp(
                    T[i_o * 4 + i_i] =                              select(i_o * 4 + i_i < n,
                        exp(A[i_o * 4 + i_i])                              A[i_o * 4 + i_i], 0.0))
    """
    symbols = dict.fromkeys((p for p in func.params if isinstance(p, Var)), (0, None))
    rows = {n.buffer for n in statements(func.body) if isinstance(n, Alloc) and _is_row(n.buffer)}
    if not symbols or not rows:
        return func
    ends = list(_ends(func.body, (), Facts(symbols), rows))
    lanes = {e.store.buffer: e.lanes for e in ends}
    mixed = {e.store.buffer for e in ends if e.lanes != lanes[e.store.buffer]}
    padded = {b: _padded(b, n) for b, n in lanes.items() if b not in mixed}
    if not padded:
        return func
    whole = {id(e.branch): e for e in ends if e.store.buffer in padded}
    return func.replace(body=replace_buffers(_changed(func.body, whole), padded))


@record
class _End:
    """A branch that stores a vector of `lanes` elements in a row if they are within it, as `part`
    of its condition says."""

    branch: If
    store: Store
    part: Expr
    lane: Var
    lanes: int


def _is_row(buffer: Buffer) -> bool:
    """Is it memory, not registers, of floats, with rows of open length?"""
    memory = buffer.scope == "global" and buffer.strides is None and buffer.dtype.is_float
    return memory and buffer.rank > 0 and as_int(buffer.shape[-1]) is None


def _padded(buffer: Buffer, lanes: int) -> Buffer:
    """The buffer with rows of whole vectors."""
    *outer, row = buffer.shape
    return buffer.replace(shape=(*outer, (row + (lanes - 1)) // const(lanes) * lanes))


def _ends(s: Stmt, loops: tuple[For, ...], known: Facts, rows: set[Buffer]) -> Iterator[_End]:
    """The branches of a statement that store a vector of a row, if it is in bounds."""
    if isinstance(s, For):
        loops, known = (*loops, s), known.bind(s.var, *loop_range(s))
    if isinstance(s, If) and isinstance(s.then, Store) and s.then.buffer in rows:
        found = _end(s, s.then, loops, known)
        if found is not None:
            yield found
    for c in s.children():
        if isinstance(c, Stmt):
            yield from _ends(c, loops, known, rows)


def _end(s: If, store: Store, loops: tuple[For, ...], known: Facts) -> _End | None:
    """What a branch stores at the end of a row; None if it is no vector that may be whole."""
    if s.other is not None or not loops or loops[-1].kind != "vectorize":
        return None
    lane, lanes = loops[-1].var, as_int(loops[-1].extent)
    row, index = store.buffer.shape[-1], known.affine(store.indices[-1])
    inside = known.sum(known.affine(row), index, -1) - 1  # ≥ 0: it is within the row
    part = next((p for p in parts_of(s.cond) if _says(p, inside, known)), None)
    others = any(lane in free_vars(i) for i in store.indices[:-1])
    if lanes is None or part is None or others or index.terms.get(lane) != 1:
        return None
    if not _is_total(store.value):
        return None
    # no lane is beyond the last vector
    most = known.affine((row + (lanes - 1)) // const(lanes) * lanes)
    first = known.sum(index, known.affine(lane), -1)
    if not known.nonnegative(known.sum(most, first, -1) - lanes):
        return None
    return _End(s, store, part, lane, lanes)


def _is_total(value: Expr) -> bool:
    """May a value be computed of zeros, whatever they stand for? They are no indices, and nothing
    whole is divided by them."""
    indices = (i for n in loads(value) for i in n.indices)
    divisors = (n.b for n in visit(value) if isinstance(n, Binary) and n.op in _WHOLE)
    return not any(map(reads, (*indices, *divisors)))


def _says(part: Expr, form: Affine, known: Facts) -> bool:
    """Does a condition hold just where a form is ≥ 0?"""
    said = form_of(part, known)
    apart = None if said is None else known.sum(said, form, -1)
    return apart is not None and not apart.terms and not apart.const


def _changed(s: Any, whole: dict[int, _End]) -> Any:
    """A statement that stores whole vectors where it stored what is within a row."""
    if not isinstance(s, Stmt):
        return s
    end = whole.get(id(s))
    if end is None:
        return s.map_children(lambda c: _changed(c, whole))

    def asked(e: Load) -> Expr:
        if not any(end.lane in free_vars(i) for i in e.indices):
            return e
        return Select(end.part, e, const(0, e.dtype))

    store = end.store.replace(value=rewrite(end.store.value, (Load,), asked))
    left = [p for p in parts_of(end.branch.cond) if p is not end.part]
    return If(all_of(left), store) if left else store
