"""halve_panels: a last panel of columns that is at most half full is half a panel.

In: stage "loops". Out: stage "loops". A matrix with an open number of columns is packed in panels
of two vectors, the last of which may have columns in its first vector alone. The one idea: where
the second vector of a register tile lies beyond the end, nothing of it is stored, so that nothing
of it need be computed. The round of the loop over panels in which that is so has code of its own,
if the sums of one vector are as many as keep a machine busy: fewer take as long as those of both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright.arith.affine import Affine
from tilewright.arith.simplify import Facts, loop_range
from tilewright.ir.expr import Buffer, Expr, Load, Var, as_int, const
from tilewright.ir.stmt import Alloc, Eval, For, Func, If, Let, Stmt, Store, seq
from tilewright.ir.walk import free_vars, fresh, names, statements, substitute, visit
from tilewright.lower.comparisons import form_of
from tilewright.lower.copies import accumulates, is_prefetch, own_memory
from tilewright.lower.covers import BUSY
from tilewright.lower.lower_blocks import parts_of
from tilewright.lower.narrow_tails import sums_of_a_round
from tilewright.support.record import record


def halve_panels(func: Func) -> Func:
    """Give the last panel code for half of it.

    rewrite:
        for p in serial(0, (n + 7) // 8):       for p in serial(0, (n + 3) // 8):
            for v in unroll(0, 2):                  …
                for l in vectorize(0, 4):       if (n + 3) // 8 < (n + 7) // 8:
                    sums[v * 4 + l] = …             p: i64 = (n + 3) // 8
            for u in unroll(0, 2):                  for l in vectorize(0, 4):
                for w in vectorize(0, 4):   →           sums[l] = …
                    if p * 8 + u * 4 + w < n:       for w in vectorize(0, 4):
                        C[p * 8 + u * 4 + w] =          if p * 8 + w < n:
                            sums[u * 4 + w]                 C[p * 8 + w] = sums[w]
    """
    symbols = frozenset(p for p in func.params if isinstance(p, Var))
    if not symbols:
        return func
    body = _go(func.body, symbols, Facts(dict.fromkeys(symbols, (0, None))), names(func))
    if body is func.body:
        return func
    return func.replace(body=own_memory(body, {b.name for b in func.buffers}))


def _go(s: Any, symbols: frozenset[Var], known: Facts, taken: set[str]) -> Any:
    if not isinstance(s, Stmt) or isinstance(s, Store):
        return s
    if isinstance(s, For):
        known = known.bind(s.var, *loop_range(s))
        own = {n.buffer for n in statements(s.body) if isinstance(n, Alloc)}
        if s.kind == "serial" and accumulates(s.body, own):
            panel = _panel(s, symbols, own, known)
            if panel is not None:
                return _halved(s, panel, known, taken)
    return s.map_children(lambda c: _go(c, symbols, known, taken))


@record
class _Panel:
    """Two vectors of `lanes` columns, of `count` in all, in each round of a loop; `vectors` are the
    loops over the two."""

    lanes: int
    count: Affine
    vectors: frozenset[Var]


def _halved(s: For, panel: _Panel, known: Facts, taken: set[str]) -> Stmt:
    """The loop, and its last round where that has one vector."""
    wide = 2 * panel.lanes
    both = known.simplify(known.expr(panel.count + (panel.lanes - 1)) // const(wide))

    def first(c: Any) -> Any:
        if isinstance(c, For) and c.var in panel.vectors:
            return first(substitute(c.body, {c.var: const(0)}))
        return c.map_children(first) if isinstance(c, Stmt) else c

    last = Var(fresh(s.name, taken), s.var.dtype)  # another range than the loop's
    half = substitute(first(s.body), {s.var: last})
    return seq(s.replace(stop=both), If(both < s.stop, Let(last, both, half)))  # nothing to cut


def _panel(s: For, symbols: frozenset[Var], own: set[Buffer], known: Facts) -> _Panel | None:
    """The panel that a round of a loop computes; None if it is another loop."""
    found: dict[tuple[int, frozenset[tuple[Expr, int]], int], _Panel] = {}
    vectors: set[Var] = set()
    if not all(b.rank for b in own):  # no part of a vector
        return None
    for store, around, conds in _stores(s.body, (), ()):
        for f in around:
            known = known.bind(f.var, *loop_range(f))
        pair = {f.var for f in around if f.kind == "unroll" and as_int(f.extent) == 2}
        if store.buffer in own:
            index = known.affine(store.indices[-1])
            mine = [v for v in pair if v in index.terms]
            if len(mine) != 1:
                return None
            vectors.add(mine[0])
            continue
        ends = [e for part in conds if (e := _end(part, s, pair, around, symbols, known))]
        if len(ends) != 1:
            return None
        ((vector, panel),) = ends
        vectors.add(vector)
        found[panel.lanes, frozenset(panel.count.terms.items()), panel.count.const] = panel
    if len(found) != 1:
        return None
    (panel,) = found.values()
    wide = 2 * panel.lanes
    stop = known.simplify(known.expr(panel.count + (wide - 1)) // const(wide))
    if as_int(s.start) != 0 or known.simplify(s.stop) != stop:
        return None
    if not all(_is_lane(n, vectors, panel.lanes, known) for n in visit(s.body)
               if isinstance(n, Load | Store) and n.buffer in own):  # fmt: skip
        return None
    if any(isinstance(n, Eval) and not is_prefetch(n) for n in visit(s.body)):
        return None
    if sums_of_a_round(s.body, vectors, own) < BUSY:  # those of one vector would wait
        return None
    return _Panel(panel.lanes, panel.count, frozenset(vectors))


def _stores(
    s: Stmt, around: tuple[For, ...], conds: tuple[Expr, ...]
) -> Iterator[tuple[Store, tuple[For, ...], tuple[Expr, ...]]]:
    """The stores of a statement, with the loops and the conditions around each."""
    if isinstance(s, Store):
        yield s, around, conds
        return
    if isinstance(s, For):
        around = (*around, s)
    if isinstance(s, If):
        yield from _stores(s.then, around, (*conds, *parts_of(s.cond)))
        if s.other is not None:
            yield from _stores(s.other, around, conds)
        return
    for c in s.children():
        if isinstance(c, Stmt):
            yield from _stores(c, around, conds)


def _end(
    part: Expr,
    s: For,
    pair: set[Var],
    around: tuple[For, ...],
    symbols: frozenset[Var],
    known: Facts,
) -> tuple[Var, _Panel] | None:
    """The vector that a condition keeps within an open number of columns."""
    form = form_of(part, known)
    if form is None or not around or around[-1].kind != "vectorize":
        return None
    lanes = as_int(around[-1].extent) or 0
    mine = [v for v in pair if form.terms.get(v) == -lanes]
    if len(mine) != 1 or form.terms.get(s.var) != -2 * lanes:
        return None
    others = {t: c for t, c in form.terms.items() if t not in (s.var, mine[0], around[-1].var)}
    if form.terms.get(around[-1].var) != -1 or not all(free_vars(t) <= symbols for t in others):
        return None
    return mine[0], _Panel(lanes, Affine(others, form.const + 1), frozenset())


def _is_lane(n: Load | Store, vectors: set[Var], lanes: int, known: Facts) -> bool:
    """Is it the element of the lane that computes it, in a round of `vectors`?"""
    index = known.affine(n.indices[-1])
    mine = [v for v in vectors if v in index.terms]
    if len(mine) != 1 or sorted(index.terms.values()) != [1, lanes] or index.const:
        return False
    if index.terms[mine[0]] != lanes:
        return False
    return not any(free_vars(known.simplify(i)) & vectors for i in n.indices[:-1])
