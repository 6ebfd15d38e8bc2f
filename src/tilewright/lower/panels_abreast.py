"""Neighbouring panels side by side: rounds of a loop around a tile of few sums, written out
together.

In: what a tile does, and the loop over panels (columns of weights, blocks of channels) around it.
Out: the same for several panels at once. A tile of one row has fewer sums than keep a machine busy,
each waiting for itself; those of the next panels wait for none of them. The order of each sum stays
as it was, so the numbers do. Of `narrow_tails`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith.affine import Affine
from tilewright.arith.simplify import Facts, loop_range
from tilewright.ir.dtype import i64
from tilewright.ir.expr import Binary, BinaryOp, Cast, Expr, Load, Var, as_int, const
from tilewright.ir.stmt import Alloc, Buffer, For, If, Let, Seq, Stmt, Store, seq
from tilewright.ir.walk import free_vars, fresh, substitute, visit
from tilewright.lower.lower_blocks import all_of, parts_of


def panels_abreast(
    tile: Stmt, panel: For, count: int, own: set[Buffer], known: Facts, taken: set[str]
) -> Stmt | None:
    """What a round of loop `panel` does by `tile`, for `count` rounds (or all, if there are fewer)
    in the first of them. Those at the end that make no group, or ask where they end, stay alone.
    None: they must not be mixed. `own` are the tile's own buffers, `known` what holds in it.
    """
    panels = as_int(panel.extent)
    count = min(count, panels or 0)
    if count < 2 or panels is None or as_int(panel.start) != 0:
        return None
    if panel.kind != "parallel":
        if panel.kind != "serial" or not _is_apart(tile, panel.var, own, known):
            return None
    for groups in (panels // count, panels // count - 1):
        if groups < 1:
            return None
        inside = known.bind(panel.var, 0, groups * count - 1)
        try:
            made = _Abreast(panel.var, count, own, taken).stmt(tile, inside)
        except _Mixed:
            continue
        whole = groups * count
        beyond: Expr = const(0) if whole == panels else Cast(i64, panel.var >= const(whole))
        first = _equals(panel.var % const(count) + beyond * count, 0)
        alone = [] if whole == panels else [If(_equals(beyond, 1), tile)]
        return seq(If(first, made), *alone)
    return None


class _Mixed(Exception):
    """Something asks for the panel around a loop."""


def _equals(a: Expr, number: int) -> Expr:
    """As no bound of the loop over panels: it must not be cut there."""
    return Binary(BinaryOp.eq, a, const(number))


def _is_apart(s: Stmt, panel: Var, own: set[Buffer], known: Facts) -> bool:
    """Does each panel store elsewhere, along some axis of what it stores to?"""
    for n in visit(s):
        if isinstance(n, For):
            known = known.bind(n.var, *loop_range(n))
    return all(
        any(_is_of_panel(known.affine(i), panel, known) for i in n.indices)
        for n in visit(s)
        if isinstance(n, Store) and n.buffer not in own
    )


def _is_of_panel(index: Affine, panel: Var, known: Facts) -> bool:
    """Is it step * panel + what is from 0 to step - 1?"""
    step = index.terms.get(panel, 0)
    rest = Affine({t: c for t, c in index.terms.items() if t != panel}, index.const)
    if step < 1 or any(panel in known.variables(t) for t in rest.terms):
        return False
    low, high = known.bounds(rest)
    return low >= 0 and high < step


class _Abreast:
    """`count` rounds of a panel's loop in what is unrolled, each with buffers of its own."""

    def __init__(self, panel: Var, count: int, own: set[Buffer], taken: set[str]) -> None:
        self.panel, self.count, self.taken = panel, count, taken
        self.own: dict[Buffer, Buffer] = {
            b: b.replace(shape=(const(count), *b.shape)) for b in own if b.strides is None
        }
        if len(self.own) < len(own):
            raise _Mixed

    def stmt(self, s: Any, known: Facts) -> Stmt:
        if isinstance(s, For):
            inside = known.bind(s.var, *loop_range(s))
            if s.kind in ("unroll", "vectorize"):
                return self.rounds(s, known)
            if self.varies(s.start, s.stop) or s.kind != "serial":
                raise _Mixed
            return s.replace(body=self.stmt(s.body, inside))
        if isinstance(s, Seq):
            return seq(*(self.stmt(c, known) for c in s.stmts))
        if isinstance(s, Alloc) and s.buffer in self.own:
            return Alloc(self.own[s.buffer], self.stmt(s.body, known))
        if isinstance(s, Let) and not self.varies(s.value):
            return s.replace(body=self.stmt(s.body, known))
        if isinstance(s, If) and s.other is None:
            left = self.asked(s.cond, known)
            then = self.stmt(s.then, known)
            return If(all_of(left), then) if left else then
        if isinstance(s, Store):
            return self.rounds(s, known)
        raise _Mixed

    def varies(self, *found: Expr) -> bool:
        return any(self.panel in free_vars(e) for e in found)

    def asked(self, cond: Expr, known: Facts) -> Sequence[Expr]:
        """The parts of a condition that do not follow, none of which may ask for the panel."""
        left = [p for p in parts_of(known.condition(cond)) if as_int(p) != 1]
        if self.varies(*left):
            raise _Mixed
        return left

    def rounds(self, s: Stmt, known: Facts) -> Stmt:
        """Unrolled statements, once for each panel."""
        u = Var(fresh("u", self.taken))
        body = self.unguarded(s, known)
        body = substitute(body, {self.panel: self.panel + u})
        return For(u, const(0), const(self.count), "unroll", self.owned(body, u))

    def unguarded(self, s: Any, known: Facts) -> Any:
        """Without the conditions that follow."""
        if isinstance(s, For):
            inside = known.bind(s.var, *loop_range(s))
            return s.replace(body=self.unguarded(s.body, inside))
        if isinstance(s, If):
            left = self.asked(s.cond, known)
            then = self.unguarded(s.then, known)
            other = None if s.other is None else self.unguarded(s.other, known)
            return If(all_of(left), then, other) if left else then
        if isinstance(s, Store):
            return s

        def inner(c: Any) -> Any:
            return self.unguarded(c, known) if isinstance(c, Stmt) else c

        return s.map_children(inner)

    def owned(self, s: Any, u: Var) -> Any:
        """With the buffers of round `u`. Loops that are unrolled in several rounds are as many."""
        if isinstance(s, Alloc | Let):
            raise _Mixed

        def inner(c: Any) -> Any:
            return self.owned(c, u)

        made = s.map_children(inner)
        if isinstance(made, Load | Store) and made.buffer in self.own:
            return made.replace(buffer=self.own[made.buffer], indices=(u, *made.indices))
        return made
