"""A tile's unrolled loops that stop together, and windows of their rounds.

In: the body of a loop over tiles, and what `narrow_tails` found of one. Out: whether its rounds may
run in any groups, one after the other; and the body for some of them. The one idea: a window is the
body with a shorter loop that begins elsewhere, and without the conditions that all its rounds meet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilewright.arith.affine import Affine
from tilewright.arith.simplify import Facts
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Call,
    Expr,
    Load,
    Select,
    Var,
    as_int,
    const,
)
from tilewright.ir.stmt import Eval, For, If, Stmt, Store, annotated
from tilewright.ir.walk import free_vars, statements
from tilewright.lower.copies import is_prefetch
from tilewright.lower.lanes import FIRST_LANE_RUNS
from tilewright.lower.lower_blocks import all_of, parts_of
from tilewright.support.node import Node


class Tile:
    """Unrolled loops that stop together: `rest` elements are left, `unit` a round (1, or the lanes
    of a vector inside), of at most `wide` rounds; `guards` are the conditions that say so. All but
    the last `edges` of the elements are `free` of these choices, which come out true."""

    def __init__(self, rest: Affine, unit: int = 1) -> None:
        self.rest, self.unit = rest, unit
        self.wide = self.edges = 0
        self.loops: set[Var] = set()
        self.guards: set[Expr] = set()
        self.free: set[Expr] = set()


def is_separable(body: Stmt, tile: Tile, own: set[Buffer], known: Facts) -> bool:
    """Whether the rounds of a tile's loops may run in any groups, one after the other: they make
    results of their own, from what no round makes but itself. `own` are the body's own buffers."""
    positions: dict[Buffer, list[tuple[int, int] | None]] = {}
    loops = [n for n in statements(body) if isinstance(n, For) and n.kind == "vectorize"]
    lanes = {n.var: as_int(n.extent) or 0 for n in loops}
    written: set[Buffer] = set()
    read: set[Buffer] = set()
    for n, inside, asked in _accesses(body, tile, False):
        if not isinstance(n, Load | Store):
            return False
        if n.buffer not in own:
            (written if isinstance(n, Store) else read).add(n.buffer)
            if isinstance(n, Store) and not (inside and asked):
                return False
            continue
        position = [_round(known.affine(index), tile, known, lanes) for index in n.indices]
        if _NEITHER in position or (isinstance(n, Store) and inside and not any(position)):
            return False
        if not _has_room(n.buffer, position, tile):
            return False
        if positions.setdefault(n.buffer, position) != position:
            return False
    return not written & read


_NEITHER = 0, 0


def _has_room(buffer: Buffer, position: list[tuple[int, int] | None], tile: Tile) -> bool:
    """Does a buffer hold all rounds of a tile? An open size that is known to be small makes it
    smaller: a tile that takes rounds twice would write beyond it."""
    sizes = zip(buffer.shape, position, strict=True)
    rounds = [(as_int(size), at) for size, at in sizes if at is not None]
    return all(size is None or at[0] * (tile.wide - 1) + at[1] < size for size, at in rounds)


def _round(
    index: Affine, tile: Tile, known: Facts, lanes: dict[Var, int]
) -> tuple[int, int] | None:
    """Of an index c * u + k, u the round of a tile's loop, c and k; None without a round. Beside a
    round of a vector there may be its lane."""
    rounds = [t for t in index.terms if known.variables(t) & tile.loops]
    if not rounds:
        return None
    step = index.terms[rounds[0]]
    others = [(t, c) for t, c in index.terms.items() if t != rounds[0]]
    alone = all(c == 1 and isinstance(t, Var) and lanes.get(t) == step for t, c in others)
    alone = alone and len(others) < 2
    return (step, index.const) if alone and rounds[0] in tile.loops else _NEITHER


def _accesses(
    s: Any, tile: Tile, inside: bool, asked: bool = False
) -> Iterator[tuple[Node, bool, bool]]:
    """Every access below `s`, what else forbids a separation, and whether it is in one of the
    tile's loops and under its condition."""
    if isinstance(s, For):
        inside = inside or s.var in tile.loops
    elif isinstance(s, If) and not asked and tile.guards.intersection(parts_of(s.cond)):
        yield from _accesses(s.cond, tile, inside)
        yield from _accesses(s.then, tile, inside, True)
        if s.other is not None:
            yield from _accesses(s.other, tile, inside)
        return
    if isinstance(s, Load | Store):
        yield s, inside, asked
    elif isinstance(s, Eval):
        if not is_prefetch(s):
            yield s, inside, asked
        return
    elif isinstance(s, Call) and s.name == "choose" and free_vars(s.args[0]) & tile.loops:
        yield s, inside, asked  # of several values, by a round that must be known
    for c in s.children():
        yield from _accesses(c, tile, inside, asked)


class Window:
    """The rounds from `at` on, `wide` of them (at None: all), without the tile's conditions;
    `asks`: with the choices that other rounds are free of. `back`: 0 or 1 each, by which the last
    round, two and three rounds are earlier, to do what the one before them does. The body's own
    buffers count from the window's first round."""

    def __init__(
        self,
        tile: Tile,
        own: set[Buffer],
        at: Expr | None,
        wide: int = 0,
        *,
        asks: bool = False,
        back: Sequence[Var] = (),
    ) -> None:
        self.tile, self.own, self.at, self.wide = tile, own, at, wide
        self.back = back
        self.keeps = at is not None and tile.unit > 1  # the last of its vectors may be cut
        self.free = set[Expr]() if asks else tile.free

    def stmt(self, s: Any) -> Any:
        if isinstance(s, For) and s.var in self.tile.loops and self.at is not None:
            return s.replace(stop=const(self.wide), body=self.stmt(s.body))
        if isinstance(s, For) and s.kind == "vectorize" and self.keeps:
            s = s.replace(annotations=annotated(s.annotations, FIRST_LANE_RUNS, True))
        if isinstance(s, If) and self.keeps and self.tile.guards.intersection(parts_of(s.cond)):
            cond = all_of([self.of_last(p) for p in parts_of(s.cond)])
            other = None if s.other is None else self.stmt(s.other)
            return If(cond, self.stmt(s.then), other)
        if isinstance(s, If) and not self.keeps:
            left = [p for p in parts_of(s.cond) if p not in self.tile.guards]
            then = self.stmt(s.then)
            if not left:
                return then
            other = None if s.other is None else self.stmt(s.other)
            return If(self.expr(all_of(left)), then, other)
        if isinstance(s, Store) and s.buffer in self.own:
            return s.replace(value=self.expr(s.value))

        def inner(c: Any) -> Any:
            return self.stmt(c) if isinstance(c, Stmt) else self.expr(c)

        return s.map_children(inner)

    def of_last(self, part: Expr) -> Expr:
        """A condition that only the last of some vectors asks: those before it are whole."""
        made, whole = self.expr(part), self.wide - 1 - len(self.back)
        if part not in self.tile.guards or whole < 1:
            return made
        (loop,) = free_vars(part) & self.tile.loops
        return Binary(BinaryOp.logical_or, loop < const(whole), made)

    def expr(self, e: Any) -> Any:
        if isinstance(e, Select) and self.free:
            left = [p for p in parts_of(e.cond) if p not in self.free]
            if not left:
                return self.expr(e.then)
            e = Select(all_of(left), e.then, e.other)
        if self.at is None:
            return e.map_children(self.expr) if self.free else e
        if isinstance(e, Var):
            if e not in self.tile.loops:
                return e
            at = e + self.at
            for n, back in enumerate(self.back):  # the last n + 1 rounds are earlier
                at = at - back * ((e + n) // const(self.wide - 1))
            return at
        if isinstance(e, Load) and e.buffer in self.own:
            return e
        return e.map_children(self.expr)
