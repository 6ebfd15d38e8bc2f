"""last_elements: the tile that ends where a row does, and what its lanes know of the ends.

In: a loop over vectors of elements, as a `Tile`. Out: its body for the last elements of the row, or
the first, or for narrower vectors: `Last`, `Narrower`. The one idea: indices say which element a
lane takes as `loop * lanes + lane`, and all else follows when the first part is put elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from tilewright.arith.affine import Affine
from tilewright.arith.simplify import Facts
from tilewright.ir.dtype import i64
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Expr,
    Load,
    Var,
    const,
)
from tilewright.ir.stmt import For, Stmt
from tilewright.ir.walk import (
    free_vars,
    visit,
)
from tilewright.lower.comparisons import BOUNDS
from tilewright.lower.copies import (
    SplitQuotient,
    chooses,
    split_quotient,
)
from tilewright.support.record import record

MOST_EDGES = 4  # elements at an end of a row that windows reach over
_HELD = (BinaryOp.max, BinaryOp.min)


@record
class Tile:
    """A loop over vectors of `lanes` elements of `count`, by the lanes of loops `inner`; `guards`
    say where they end. divides: what is made of elements may be numbered by quotients of theirs,
    since no lane has memory of its own."""

    loop: Var
    lanes: int
    count: Affine
    inner: frozenset[Var]
    guards: frozenset[Expr]
    unrolled: bool
    divides: bool


def edges_of(part: Expr, tile: Tile, known: Facts) -> int:
    """How many elements at an end may find a condition false: all others find it true."""
    if not isinstance(part, Binary) or part.op not in BOUNDS or part.a.dtype is not i64:
        return MOST_EDGES + 1
    sign, more = BOUNDS[part.op]
    form = known.sum(known.affine(part.b), known.affine(part.a), -1) * sign + more
    slope = form.terms.get(tile.loop, 0) // tile.lanes
    others = {t: c for t, c in form.terms.items() if t not in tile.inner | {tile.loop}}
    end = Affine(others, form.const)
    if slope < 0:
        end = known.sum(end, tile.count - 1, slope)
    found = (n for n in range(MOST_EDGES + 1) if known.nonnegative(end + n * abs(slope)))
    return next(found, MOST_EDGES + 1) if slope else MOST_EDGES + 1


def decided_ends(vectors: Sequence[Stmt], tile: Tile, known: Facts) -> list[Expr]:
    """Conditions under which vectors know for all their lanes whether an index is held, where that
    is so but for a few elements more than there have to be: lanes near one end of a row are not
    held at the other."""
    found: dict[Expr, None] = {}
    held = [n for s in vectors for n in visit(s) if isinstance(n, Binary) and n.op in _HELD]
    for n in dict.fromkeys(held):
        if n.dtype is not i64:
            continue
        gap = known.sum(known.affine(n.b), known.affine(n.a), -1)
        lanes = {t: c for t, c in gap.terms.items() if free_vars(t) & tile.inner}
        rest = Affine({t: c for t, c in gap.terms.items() if t not in lanes}, gap.const)
        low, high = known.bounds(Affine(lanes, 0))
        if not lanes or not rest.terms or inf in (-low, high):
            continue
        ends = rest + int(low), -(rest + int(high))
        if any(known.nonnegative(end) for end in ends):
            continue
        near = [end for end in ends if known.nonnegative(end + MOST_EDGES)]
        found.update((known.expr(end) >= const(0), None) for end in near[:1])
    return list(found)


class Last:
    """The last `wide` elements of a tile in front of the last `but`, or its `first`, all its lanes
    or fewer: `loop * lanes` becomes `count - but - wide`, or 0."""

    def __init__(
        self, tile: Tile, wide: int, known: Facts, *, first: bool = False, but: int = 0
    ) -> None:
        self.tile, self.wide, self.known = tile, wide, known
        self.start = Affine({}, 0) if first else tile.count - wide - but

    def go(self, s: Any) -> Any:
        loop, lanes = self.tile.loop, self.tile.lanes
        if isinstance(s, For) and s.var in self.tile.inner:
            return s.replace(stop=const(self.wide), body=self.go(s.body))
        if not isinstance(s, Expr) or s.dtype is not i64 or not self.follows(s):
            return s.map_children(self.go)
        if chooses(s) or any(
            isinstance(n, Load) for n in visit(s)
        ):  # elements: sums of them are no indices
            return s.map_children(self.go)
        form, known = self.known.affine(s), self.known
        parts = {t: part for t in form.terms if t != loop and (part := self.split(t))}
        apart = form.terms.get(loop, 0) - sum(form.terms[t] * p.apart for t, p in parts.items())
        made = Affine({}, form.const)
        for t, c in form.terms.items():
            if t in parts:
                made = known.sum(made, parts[t].moved(self.start, known), c)
            elif t != loop:
                made = known.sum(made, known.affine(t.map_children(self.go)), c)
            elif apart:
                made = known.sum(made, self.start, apart // lanes)
        return known.expr(made)

    def follows(self, e: Expr) -> bool:
        """Does a number follow from which element it is, and not from the lane alone?"""
        if self.tile.loop in free_vars(e):
            return True
        return any(isinstance(n, Expr) and self.split(n) for n in visit(e))

    def split(self, e: Expr) -> SplitQuotient | None:
        tile = self.tile
        if not tile.divides or free_vars(e).isdisjoint(tile.inner):
            return None
        return split_quotient(e, tile.loop, tile.inner, tile.lanes, self.known)


class Narrower(Last):
    """Tiles of `wide` elements instead of those there are."""

    def __init__(self, tile: Tile, wide: int, known: Facts) -> None:
        super().__init__(tile, wide, known)
        self.start = Affine({tile.loop: wide}, 0)

    def loop(self, s: For) -> For:
        stop = self.known.expr(self.tile.count + (self.wide - 1)) // const(self.wide)
        return s.replace(stop=self.known.simplify(stop), body=self.go(s.body))
