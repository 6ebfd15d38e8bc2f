"""Unroll and jam of panels: rounds of a loop around a tile of few sums, unrolled and computed
together.

In: what a tile does, and the loop over panels (columns of weights, blocks of channels) around it.
Out: the same for several panels at once. A tile of one row has fewer sums than keep a machine busy,
each waiting for itself; those of the next panels wait for none of them. A tile of three rows
regroups the vectors of a few panels. The order of each sum stays as it was, so the numbers do. Of
`narrow_tails`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd, lcm
from typing import Any

from tilewright.arith.affine import Affine
from tilewright.arith.simplify import Facts, loop_range
from tilewright.ir.dtype import i64
from tilewright.ir.expr import Binary, BinaryOp, Buffer, Cast, Expr, Load, Var, as_int, const
from tilewright.ir.stmt import Alloc, For, If, Let, Seq, Stmt, Store, seq
from tilewright.ir.walk import free_vars, fresh, reads, substitute, visit
from tilewright.lower.copies import is_of_element
from tilewright.lower.covers import BUSY
from tilewright.lower.lower_blocks import all_of, parts_of

REGROUPED = 3  # rounds of a tile that takes three vectors where panels have two


def jam_panels(
    tile: Stmt, panel: For, count: int, own: set[Buffer], known: Facts, taken: set[str]
) -> Stmt | None:
    """What a round of loop `panel` does by `tile`, for `count` rounds (or all, if there are fewer)
    in the first of them. Those at the end that make no group, or ask where they end, stay alone.
    None: they must not be mixed. `own` are the tile's own buffers, `known` what holds in it.
    """
    count = min(count, as_int(panel.extent) or 0)

    def jammed(whole: int) -> Stmt:
        inside = known.bind(panel.var, 0, whole - 1)
        return _Jam(panel.var, count, own, taken).stmt(tile, inside)

    return _in_groups(tile, panel, count, own, known, jammed)


def jammed_rounds(
    body: Stmt, loop: For, count: int, own: set[Buffer], known: Facts, taken: set[str]
) -> Stmt | None:
    """What `count` rounds of `loop` do together, from one on: its body, unrolled for all. None:
    they must not be mixed. `own` are the body's own buffers, `known` what holds in each."""
    try:
        return _Jam(loop.var, count, own, taken).stmt(body, known)
    except _Mixed:
        return None


def _in_groups(
    tile: Stmt,
    panel: For,
    count: int,
    own: set[Buffer],
    known: Facts,
    grouped: Callable[[int], Stmt],
) -> Stmt | None:
    """`tile` of a panel; where it is the first of `count`, what is `grouped` for them all. That is
    told how many panels are in groups."""
    panels = as_int(panel.extent)
    if count < 2 or panels is None or as_int(panel.start) != 0:
        return None
    if panel.kind != "parallel":
        if panel.kind != "serial" or not _is_apart(tile, panel.var, own, known):
            return None
    for groups in (panels // count, panels // count - 1):
        if groups < 1:
            return None
        try:
            made = grouped(groups * count)
        except _Mixed:
            continue
        whole = groups * count
        beyond: Expr = const(0) if whole == panels else Cast(i64, panel.var >= const(whole))
        first = _equals(panel.var % const(count) + beyond * count, 0)
        alone = [] if whole == panels else [If(_equals(beyond, 1), tile)]
        return seq(If(first, made), *alone)
    return None


def panels_regrouped(
    tile: Stmt,
    panel: For | None,
    sums: int,
    rounds: set[Var],
    own: set[Buffer],
    known: Facts,
    taken: set[str],
    keep: int = BUSY,
) -> Stmt | None:
    """What some rounds of loop `panel` do by `tile` of REGROUPED rounds, each for `sums` vectors,
    in the first of them, in tiles of as many vectors as keep a machine busy: where all that it says
    of a vector is which of all panels' it is. `rounds`: the tile's loops over rounds."""
    if panel is None:
        return None
    wide = -(-keep // REGROUPED)
    count = lcm(sums, wide) // sums
    tiles = count * sums // wide
    group = Var(fresh("group", taken))

    def regroup(whole: int) -> Stmt:
        inside = known.bind(panel.var, 0, whole - count).bind(group, 0, tiles - 1)
        made = _Regroup(panel.var, group, sums, wide, rounds, own, known).stmt(tile, inside)
        return For(group, const(0), const(tiles), "serial", made)

    return _in_groups(tile, panel, count, own, known, regroup)


class _Regroup:
    """A tile of `wide` vectors of a group of panels with `sums` vectors each."""

    def __init__(
        self,
        panel: Var,
        group: Var,
        sums: int,
        wide: int,
        rounds: set[Var],
        own: set[Buffer],
        known: Facts,
    ) -> None:
        self.panel, self.sums, self.wide, self.known = panel, sums, wide, known  # of any panel
        self.first = group * const(wide)
        self.rounds, self.own = rounds, own
        self.vectors = set[Var]()
        self.wider: dict[Buffer, Buffer] = {}

    def stmt(self, s: Any, known: Facts, vector: Var | None = None) -> Any:
        """`vector`: the loop over a panel's vectors that this is in."""
        if isinstance(s, Alloc) and s.buffer in self.own:
            for n in visit(s.body):
                if isinstance(n, Load | Store) and n.buffer == s.buffer:
                    used = {v for i in n.indices for v in free_vars(i)}
                    self.vectors |= used - self.rounds
            body = self.stmt(s.body, known, vector)
            return Alloc(self.wider.get(s.buffer, s.buffer), body)
        if isinstance(s, For):
            if s.kind == "unroll" and s.var in self.vectors and as_int(s.extent) == self.sums:
                if vector is not None or as_int(s.start) != 0:
                    raise _Mixed
                inside = known.extended({s.var: (0, self.wide - 1)})
                return s.replace(stop=const(self.wide), body=self.stmt(s.body, inside, s.var))
            if self.asks(s.start, vector) or self.asks(s.stop, vector):
                raise _Mixed
            known = known.bind(s.var, *loop_range(s))
            return s.replace(body=self.stmt(s.body, known, vector))
        if isinstance(s, If) and s.other is None:
            cond = known.condition(self.expr(s.cond, known, vector))
            left = [p for p in parts_of(cond) if as_int(p) != 1]
            if any(self.asks(p, vector) for p in left):
                raise _Mixed
            then = self.stmt(s.then, known, vector)
            return If(all_of(left), then) if left else then
        if isinstance(s, Store):
            if s.buffer in self.own:
                value = self.expr(s.value, known, vector)
                return s.replace(buffer=self.held(s, vector), value=value)
            return s.map_children(lambda c: self.expr(c, known, vector))
        if isinstance(s, Seq):
            return seq(*(self.stmt(c, known, vector) for c in s.stmts))
        if isinstance(s, Let) and not self.asks(s.value, vector):
            return s.replace(body=self.stmt(s.body, known, vector))
        raise _Mixed

    def asks(self, e: Expr, vector: Var | None) -> bool:
        """For the panel, or which of its vectors it is?"""
        return not free_vars(e).isdisjoint((self.panel, vector))

    def held(self, s: Load | Store, vector: Var | None) -> Buffer:
        """The tile's own buffer of an access, with room for more vectors, the last along an axis
        but for what a vector has there."""
        at = [n for n, i in enumerate(s.indices) if vector in free_vars(i)]
        if vector is None or len(at) != 1 or s.buffer.strides is not None:
            raise _Mixed
        shape = [*s.buffer.shape]
        apart = self.known.affine(s.indices[at[0]]).terms.get(vector, 0)
        if apart < 1 or as_int(shape[at[0]]) != apart * self.sums:
            raise _Mixed
        shape[at[0]] = const(apart * self.wide)
        wider = s.buffer.replace(shape=tuple(shape))
        if self.wider.setdefault(s.buffer, wider) != wider:
            raise _Mixed
        return wider

    def expr(self, e: Any, known: Facts, vector: Var | None) -> Any:
        if isinstance(e, Load) and e.buffer in self.own:
            return e.replace(buffer=self.held(e, vector))
        if not isinstance(e, Expr) or e.dtype is not i64 or reads(e):

            def inner(c: Any) -> Any:
                return self.expr(c, known, vector)

            return e.map_children(inner)
        if not self.asks(e, vector):
            return e
        if vector is None or not is_of_element(e, self.panel, {vector}, self.sums, self.known):
            raise _Mixed
        return substitute(e, {vector: self.first + vector})


def panels_of_batches(s: For, known: Facts, taken: set[str]) -> tuple[dict[Var, Expr], For] | None:
    """The loop over the panels of a batch of which loop `s` was made where only the run knows how
    many batches there are, and which of its rounds those are; None if it is no such loop."""
    form = known.affine(s.extent)
    panels = gcd(form.const, *form.terms.values())
    if panels < 2 or not form.terms or as_int(s.start) != 0:
        return None
    batch, panel = (Var(fresh(name, taken)) for name in ("batch", "panel"))
    inside = known.extended({batch: (0, None), panel: (0, panels - 1)})
    fused = batch * const(panels) + panel

    def apart(c: Any) -> Any:
        if not isinstance(c, Expr) or c.dtype is not i64 or reads(c):
            return c.map_children(apart)
        if s.var not in free_vars(c):
            return c
        made = inside.affine(substitute(c, {s.var: fused}))
        if any(t != panel and panel in inside.variables(t) for t in made.terms):
            raise _Mixed
        return inside.expr(made)

    try:
        positions = {batch: s.var // const(panels), panel: s.var % const(panels)}
        return positions, For(panel, const(0), const(panels), s.kind, apart(s.body))
    except _Mixed:
        return None


def panels_of_tiles(
    s: For, known: Facts, taken: set[str]
) -> tuple[dict[Var, Expr], For, For] | None:
    """The loop over panels and that over tiles of an open number of rows, of which loop `s` was
    made, maybe with one over batches around them, and which of its rounds those of each are; None
    if it is no such loop."""
    form = known.affine(s.extent)
    if form.const or len(form.terms) != 1 or as_int(s.start) != 0:
        return None
    ((open_part, panels),) = form.terms.items()
    if panels < 2:
        return None
    for tiles, is_batched in ((open_part, False), *((t, True) for t in _factors(open_part))):
        batch, panel, tile = (Var(fresh(name, taken)) for name in ("batch", "panel", "tile"))
        of_panel = s.var // tiles % const(panels) if is_batched else s.var // tiles
        positions = {panel: of_panel, tile: s.var % tiles}
        if is_batched:
            positions[batch] = s.var // tiles // const(panels)
        body = _replaced(s.body, {position: var for var, position in positions.items()})
        if s.var not in free_vars(body):
            loop = For(tile, const(0), tiles, s.kind, body)
            return positions, For(panel, const(0), const(panels), s.kind, loop), loop
    return None


def _factors(product: Expr) -> list[Expr]:
    """What a product is made of; nothing of what is none."""
    if not isinstance(product, Binary) or product.op is not BinaryOp.mul:
        return []
    return [f for side in (product.a, product.b) for f in _factors(side) or [side]]


def _replaced(s: Any, parts: dict[Expr, Var]) -> Any:
    if not isinstance(s, Expr | Stmt):
        return s
    return parts[s] if s in parts else s.map_children(lambda c: _replaced(c, parts))


def told_apart(positions: dict[Var, Expr], body: Stmt) -> Stmt:
    """The body of a loop where it is that of the inner one of several, whose rounds are `positions`
    of it. No names are bound for them: what is asked of a panel can then be asked around the loops
    inside."""
    return substitute(body, positions)


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


class _Jam:
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
