"""carry_rows: what a round reads again that the round before it has read stays in registers.

In: stage "flat". Out: stage "flat". Windows that follow one another share rows: of three rows with
stride 2, the last is the next window's first. The one idea: what an unrolled loop over rows makes
of each in registers follows from the row alone; where a row of the next round is a later one of
this, the round hands it on, and only the first round makes it for itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tilewright.arith.simplify import simplify
from tilewright.ir.dtype import i64
from tilewright.ir.expr import Buffer, Expr, Load, Var, as_int, const
from tilewright.ir.stmt import Alloc, Eval, For, Func, If, Seq, Stmt, Store, seq
from tilewright.ir.walk import (
    contains,
    free_vars,
    fresh,
    loads,
    names,
    rewrite,
    statements,
    stores,
    substitute,
)
from tilewright.lower.lower_blocks import all_of
from tilewright.support.record import record

MOST_CARRIED = 8  # vectors, of 32 registers


def carry_rows(func: Func) -> Func:
    """Hand on to the next round the rows that it has in common with this one.

    rewrite:
                                              kept = alloc(f32[4], "local")
                                              if 0 < n:
                                                  for r_1 in unroll(0, 1):
                                                      for e in vectorize(0, 4):
                                                          kept[r_1 * 4 + e] = A[…]
        for y in serial(0, n):                for y in serial(0, n):
            for r in unroll(0, 2):                for r_2 in unroll(0, 1):
                row = alloc(f32[4], "local")          B[…] = B[…] + kept[r_2 * 4]
                for e in vectorize(0, 4):   →     for r_3 in unroll(1, 2):
                    row[e] = A[(y + r) * 4 + e]       for e in vectorize(0, 4):
                B[y] = B[y] + row[0]                      kept[(r_3 - 1) * 4 + e] = A[…]
                                                      B[y] = B[y] + kept[(r_3 - 1) * 4]
    """
    body = _carried(func.body, functools.cache(lambda: names(func)))
    return func if body is func.body else func.replace(body=body)


@record
class _Rows:
    """An unrolled `loop` over `count` rows in a loop around: each is `made` in buffers (all of them
    `local`, those that what `uses` it reads `carried`); row r of the next round is row r + step.
    The loop runs under `conds`."""

    loop: For
    count: int
    step: int
    local: tuple[Buffer, ...]
    carried: tuple[Buffer, ...]
    made: Stmt
    uses: Stmt
    conds: tuple[Expr, ...]


def _carried(s: Any, taken: Callable[[], set[str]]) -> Any:
    if not isinstance(s, Stmt) or isinstance(s, Store):
        return s
    rows = _rows_of(s) if isinstance(s, For) and s.kind == "serial" else None
    if rows is not None and isinstance(s, For):
        return _handed_on(s, rows, taken())

    def inner(c: Any) -> Any:
        return _carried(c, taken)

    return s.map_children(inner)


def _handed_on(around: For, rows: _Rows, taken: set[str]) -> Stmt:
    """The loop around, with rows that its rounds hand on."""
    shared, step, first = rows.count - rows.step, rows.step, {around.var: around.start}
    sizes = {b.name: as_int(b.shape[0]) or 0 for b in rows.carried}
    kept = {
        b.name: b.replace(name=fresh("kept", taken), shape=(const(sizes[b.name] * shared),))
        for b in rows.carried
    }

    def part(start: int, stop: int, *, moved: int = 0, body: Stmt) -> Stmt:
        """The rows from `start` on, row r of which is number r - moved of those kept."""
        row = Var(fresh(rows.loop.name, taken))

        def change(n: Any) -> Any:
            if n.buffer.name not in kept:
                return n
            index = (row - moved) * sizes[n.buffer.name] + n.indices[0]
            return n.replace(buffer=kept[n.buffer.name], indices=(index,))

        body = rewrite(substitute(body, {rows.loop.var: row}), (Load, Store), change)
        for b in reversed(rows.local):
            body = body if b.name in kept else Alloc(b, body)
        return For(row, const(start), const(stop), "unroll", body)

    row = Var(fresh(rows.loop.name, taken))
    between = rows.loop.replace(var=row, body=substitute(rows.loop.body, {rows.loop.var: row}))
    between = between.replace(start=const(shared), stop=const(step))
    round_ = seq(
        part(0, shared, body=rows.uses),
        *([between] if shared < step else []),
        part(step, rows.count, moved=step, body=seq(rows.made, rows.uses)),
    )
    begin = substitute(part(0, shared, body=rows.made), first)
    asked = all_of([around.start < around.stop, *(substitute(c, first) for c in rows.conds)])
    made = seq(If(asked, begin), around.map_children(lambda s: _with(s, rows.loop, round_)))
    for buffer in kept.values():
        made = Alloc(buffer, made)
    return made


def _rows_of(around: For) -> _Rows | None:
    """The rows that rounds of a loop have in common, if they are made in few registers."""
    found = _unrolled(around.body)
    if found is None:
        return None
    loop, conds = found
    local, made, uses = tuple[Buffer, ...](), list[Stmt](), list[Stmt]()
    for s in _parts(loop.body):
        if isinstance(s, Alloc):
            local = (*local, s.buffer)
            continue
        mine = {b.name for b in local}
        own = all(n.buffer.name in mine for n in stores(s)) and not contains(s, If)
        (uses if uses or not own else made).append(s)
    if not made or not uses or contains(around.body, Eval):
        return None
    mine, body = {b.name for b in local}, seq(*made)
    written = {n.buffer.name for n in stores(around.body)} - mine
    if any(n.buffer.name in written for n in loads(body)):
        return None  # which another round may have changed
    if mine & {n.buffer.name for n in stores(seq(*uses))}:
        return None
    if any(loads(c) or around.var in free_vars(c) for c in conds):
        return None
    read = {n.buffer.name for n in loads(seq(*uses))}
    carried = tuple(b for b in local if b.name in read)
    count, step = as_int(loop.stop) or 0, _step(around, loop, body)
    vectors = sum(_vectors(b, body) for b in carried) * (count - step)
    if not step or not carried or vectors > MOST_CARRIED:
        return None
    return _Rows(loop, count, step, local, carried, body, seq(*uses), conds)


def _unrolled(s: Stmt) -> tuple[For, tuple[Expr, ...]] | None:
    """The one loop of a round that is unrolled and has buffers of its own, and the conditions
    under which it runs."""
    if isinstance(s, For):
        own = s.kind == "unroll" and isinstance(s.body, Alloc) and as_int(s.start) == 0
        return (s, ()) if own and as_int(s.stop) is not None else None
    if isinstance(s, If):
        if s.other is not None:
            return None
        found = _unrolled(s.then)
        return None if found is None else (found[0], (s.cond, *found[1]))
    if isinstance(s, Alloc):
        return _unrolled(s.body)
    found = [f for c in s.stmts if (f := _unrolled(c))] if isinstance(s, Seq) else []
    return found[0] if len(found) == 1 else None


def _parts(s: Stmt) -> list[Stmt]:
    """What a statement does one after the other, allocations before what is in them."""
    if isinstance(s, Alloc):
        return [s, *_parts(s.body)]
    return [p for c in s.stmts for p in _parts(c)] if isinstance(s, Seq) else [s]


def _step(around: For, loop: For, made: Stmt) -> int:
    """By how many rows a round is further than the one before it, which has up to half of its own
    in common with it; 0: they have none."""
    count = as_int(loop.stop) or 0
    following = substitute(made, {around.var: around.var + 1})
    for step in range((count + 1) // 2, count):
        later = substitute(made, {loop.var: loop.var + step})
        if _as(following, later) == following:
            return step
    return 0


def _as(a: Any, b: Any) -> Any:
    """b, written as a is where it comes to the same."""
    if isinstance(a, Expr) and isinstance(b, Expr) and a.dtype is b.dtype is i64:
        return a if a == b or as_int(simplify(a - b)) == 0 else b
    mine, its = list(a.children()), list(b.children())
    if a.__class__ is not b.__class__ or len(mine) != len(its):
        return b
    each = iter(mine)

    def inner(c: Any) -> Any:
        return _as(next(each), c)

    return b.map_children(inner)


def _vectors(buffer: Buffer, made: Stmt) -> int:
    """How many vectors, or numbers, a buffer holds."""
    lanes = [
        as_int(s.extent) or 1
        for s in statements(made)
        if isinstance(s, For)
        and s.kind == "vectorize"
        and any(n.buffer.name == buffer.name for n in stores(s))
    ]
    return -(-(as_int(buffer.shape[0]) or 0) // max(lanes, default=1))


def _with(s: Any, old: Stmt, new: Stmt) -> Any:
    """A statement that has `new` for `old`."""
    if s is old or not isinstance(s, Stmt):
        return new if s is old else s
    if isinstance(s, Seq):
        return seq(*[_with(c, old, new) for c in s.stmts])

    def inner(c: Any) -> Any:
        return _with(c, old, new)

    return s.map_children(inner)
