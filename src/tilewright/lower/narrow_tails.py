"""narrow_tails: where only the run knows how many rounds of a tile's loop there are, the last tile
is computed in narrower ones.

In: stage "loops". Out: stage "loops". A register tile is unrolled; over an open extent each of its
rounds would ask whether it is still inside, and nothing would stay in registers. The one idea: a
tile that is whole asks once, and what a last one leaves over, r rounds of T, is a sum of powers of
two: for each that may be in r there is a tile of that width, without conditions. Of sums, few of
which wait for themselves, up to three rounds are taken twice where that makes fewer tiles. Where
windows reach over the end of a row, what the last rounds ask is asked by them alone, each a tile by
itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tilewright.arith.affine import Affine
from tilewright.arith.simplify import Facts, loop_range
from tilewright.ir.dtype import bool_, i64
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Var,
    as_int,
    const,
    maximum,
    minimum,
)
from tilewright.ir.stmt import Alloc, Eval, For, Func, If, Let, Seq, Stmt, Store, seq
from tilewright.ir.walk import free_vars, fresh, names, statements, visit
from tilewright.lower.comparisons import BOUNDS
from tilewright.lower.copies import (
    accumulates,
    is_of_element,
    is_prefetch,
    own_memory,
    whole_numbers,
)
from tilewright.lower.covers import BUSY, covers, covers_of_vectors, overlaps, panels_beside
from tilewright.lower.jam_panels import (
    REGROUPED,
    jam_panels,
    panels_of_batches,
    panels_of_tiles,
    panels_regrouped,
    told_apart,
)
from tilewright.lower.lower_blocks import all_of, parts_of
from tilewright.lower.tile_windows import Tile, Window, is_separable

Names = frozenset[Var]
MOST_EDGES = 4  # rounds at the end of a row, each with code of its own


def narrow_tails(func: Func, keep: int = BUSY) -> Func:
    """Compute the last tile of an open extent in tiles of 2^k rounds, where `keep` sums keep the
    machine busy.

    rewrite:
        for i_o in serial(0, (n + 3) // 4):         for i_o in serial(0, (n + 3) // 4):
            for i_i in unroll(0, 4):                    if 0 <= n - i_o * 4 - 4:
                if i_o * 4 + i_i < n:                       for i_i in unroll(0, 4):
                    B[i_o * 4 + i_i] = 0.0                      B[i_o * 4 + i_i] = 0.0
                                             →          else:
                                                            let rest = max(n - i_o * 4, 0)
                                                            if 0 < rest // 2 % 2:
                                                                let at = rest - rest % 4
                                                                for i_i in unroll(0, 2):
                                                                    B[i_o * 4 + (i_i + at)] = 0.0
                                                            if 0 < rest % 2:
                                                                …
    """
    symbols = frozenset(p for p in func.params if isinstance(p, Var))
    if not symbols:
        return func
    narrow = _Narrow(symbols, names(func), keep)
    body = narrow.go(func.body, Facts(dict.fromkeys(symbols, (0, None))))
    if body is func.body:
        return func
    return func.replace(body=own_memory(body, {b.name for b in func.buffers}))


class _Narrow:
    def __init__(self, symbols: Names, taken: set[str], keep: int) -> None:
        self.symbols, self.taken, self.keep = symbols, taken, keep

    def go(self, s: Any, known: Facts, around: For | None = None) -> Any:
        """`around`: the loop around this one, with nothing else in it."""
        if isinstance(s, For):
            nest = panels_of_tiles(s, known, self.taken) if s.kind == "parallel" else None
            if nest and (made := self.jammed(s, *nest, known)):
                return made
            inside = known.bind(s.var, *loop_range(s))
            made = self.narrowed(s, inside, around) if s.kind in ("serial", "parallel") else None
            if made is not None:
                return made
            if (
                s.kind == "parallel"
                and isinstance(s.body, If)
                and s.var not in free_vars(s.body.cond)
            ):
                return self.each_way(s, s.body, known, around)
            if s.kind == "parallel" and (parted := panels_of_batches(s, inside, self.taken)):
                positions, panel = parted
                inside = inside.bind(panel.var, *loop_range(panel))
                body = self.go(panel.body, inside, panel)
                if body is panel.body:
                    return s
                return s.replace(body=told_apart(positions, body))
            body = self.go(s.body, inside, around if as_int(s.extent) == 1 else s)
            return s if body is s.body else s.replace(body=body)
        if isinstance(s, Store | Eval):
            return s

        def inner(c: Any) -> Any:
            return self.go(c, known) if isinstance(c, Stmt) else c

        return s.map_children(inner)

    def jammed(
        self, fused: For, positions: dict[Var, Expr], panel: For, loop: For, known: Facts
    ) -> For | None:
        """A loop over the tiles of each panel as those would be that it was made of."""
        known = known.extended(dict.fromkeys(positions, (0, None)))
        for s in (panel, loop):
            known = known.bind(s.var, *loop_range(s))
        made = self.narrowed(loop, known, panel)
        return made and fused.replace(body=told_apart(positions, made.body))

    def each_way(self, loop: For, choice: If, known: Facts, around: For | None) -> For:
        """A parallel loop whose rounds all go the same way: the tiles of each are its own."""
        then = self.go(loop.replace(body=choice.then), known, around).body
        other = choice.other and self.go(loop.replace(body=choice.other), known, around).body
        if then is choice.then and other is choice.other:
            return loop
        return loop.replace(body=If(choice.cond, then, other))

    def narrowed(self, loop: For, known: Facts, panel: For | None) -> For | None:
        """A loop over tiles; None if it has no tile that may be cut off. `panel`: the loop around
        it, with nothing else in it."""
        for tile in self.tiles(loop, known):
            own = {n.buffer for n in statements(loop.body) if isinstance(n, Alloc)}
            if not is_separable(loop.body, tile, own, known):
                continue
            self.look_at_edges(loop.body, tile, known)
            if tile.unit == 1 and _may_repeat(loop.body, tile, own):
                made = self.overlapping(loop, tile, own, known, panel)
            else:
                made = self.apart(loop.body, tile, own, known)
            return loop.replace(stop=self.stop(loop, tile, known), body=made)
        return None

    def stop(self, loop: For, tile: Tile, known: Facts) -> Expr:
        """Where the loop ends: the tiles of a chunk of a row may be fewer than those of others."""
        step = tile.wide * tile.unit
        count = known.sum(tile.rest, known.affine(loop.var), step)
        if loop.kind != "serial" or any(loop.var in known.variables(t) for t in count.terms):
            return loop.stop
        return known.simplify(minimum(loop.stop, known.expr(count + (step - 1)) // const(step)))

    def apart(self, body: Stmt, tile: Tile, own: set[Buffer], known: Facts) -> Stmt:
        """A tile of which no round is taken twice."""
        whole = Window(tile, own, None).stmt(body)
        rest = Var(fresh("rest", self.taken))
        inside = tile.rest - tile.edges
        left = known.expr(inside + (tile.unit - 1)) // const(tile.unit)
        enough = known.expr(inside - tile.wide * tile.unit) >= const(0)
        if _may_repeat(body, tile, own):  # vectors, the last of which are the same one
            narrow = self.repeating(body, tile, own, rest, known, None)
        else:
            narrow = self.steps(body, tile, own, rest)
        narrow = Let(rest, maximum(left, const(0)), narrow)
        return If(enough, self.go(whole, known), seq(narrow, *self.edges(body, tile, own, known)))

    def overlapping(
        self, loop: For, tile: Tile, own: set[Buffer], known: Facts, panel: For | None
    ) -> Stmt:
        """A tile of sums. Where there are several in a row, the last one, if it is nearly whole,
        begins earlier than the one before it ends, and so does the last of two narrower ones that
        stand for a whole one and a few rounds."""
        left = maximum(known.expr(tile.rest), const(0))
        rest = Var(fresh("rest", self.taken))
        sums = sums_of_a_round(loop.body, tile.loops, own)
        jammed = _has_several(panel)  # no sum waits there
        again, few, half = overlaps(tile.wide, sums, not jammed, self.keep)
        if jammed or not (again or few) or not _are_numbered(loop, tile, own, known):
            enough = known.expr(tile.rest - tile.wide) >= const(0)
            whole: Stmt = Window(tile, own, None).stmt(loop.body)
            narrow = Let(rest, left, self.repeating(loop.body, tile, own, rest, known, panel))
            return If(enough, self.go(whole, known), narrow)
        wide, count = const(tile.wide), known.sum(tile.rest, known.affine(loop.var), tile.wide)
        full = known.expr(count) // wide
        several = minimum(known.expr(count + again) // wide, full * 2) if again else full
        if few:  # 1 where so many are left over after the first tile or a later one, else 0
            over = 1 - (known.expr(count - 1) % wide + (tile.wide - few)) // wide
            several = several - minimum(over, full)
            pair, all_left = (Var(fresh(name, self.taken)) for name in ("pair", "left"))
            first = pair * minimum(all_left - half, const(0))
            narrow = Let(
                rest,
                all_left + pair * (const(half) - all_left),
                self.repeating(loop.body, tile, own, rest, known, panel, first),
            )
            narrow = Let(pair, minimum(over, full), Let(all_left, left, narrow))
        else:
            narrow = Let(rest, left, self.repeating(loop.body, tile, own, rest, known, panel))
        earlier = Var(fresh("earlier", self.taken))
        whole = Window(tile, own, -earlier if again else None, tile.wide).stmt(loop.body)
        if again:
            by = known.expr(tile.rest * -1 + tile.wide)
            whole = Let(earlier, maximum(by, const(0)), whole)
        return If(loop.var < several, self.go(whole, known), narrow)

    def steps(self, body: Stmt, tile: Tile, own: set[Buffer], rest: Var) -> Stmt:
        """The rounds that a last tile leaves over, in narrower tiles."""
        most = tile.wide - (tile.unit == 1)  # all vectors, if the last of them is cut
        steps = list[Stmt]()
        wide = 1 << most.bit_length() - 1
        while wide:
            at = Var(fresh("at", self.taken))
            step = Window(tile, own, at, wide).stmt(body)
            there = rest // const(wide) % const(2) > const(0)
            steps.append(If(there, Let(at, rest - rest % const(2 * wide), step)))
            wide //= 2
        return seq(*steps)

    def repeating(
        self,
        body: Stmt,
        tile: Tile,
        own: set[Buffer],
        rest: Var,
        known: Facts,
        panel: For | None,
        first: Expr | None = None,
    ) -> Stmt:
        """The same of sums, of which the last may be computed again: of more rounds than there are,
        where that makes fewer tiles. `first`: where they begin."""
        sums = sums_of_a_round(body, tile.loops, own)
        quiet = without_prefetches(body)
        groups = panel, sums, tile.loops, own, known, self.taken, self.keep
        regrouped = sums == 2 and 4 < tile.wide < 8 and panels_regrouped(quiet, *groups)
        if tile.unit > 1:
            found = covers_of_vectors(tile.wide)
        else:
            few = REGROUPED if regrouped else 0
            found = covers(tile.wide, sums, not _has_several(panel), few, self.keep)
        counts = {0: (), **{r + again: tiles for r, (tiles, again) in found.items()}}
        among, count = [*counts], Var(fresh("count", self.taken))
        made: list[tuple[Stmt, Var, Expr]] = []  # a tile, and where the next one begins
        at = const(0) if first is None else first
        for wide in sorted({w for tiles in counts.values() for w in tiles}, reverse=True):
            there = _is_one_of(count, [wide in tiles for tiles in counts.values()], among)
            ends = _is_one_of(count, [tiles[-1:] == (wide,) for tiles in counts.values()], among)
            most = max((n for tiles, n in found.values() if tiles[-1] == wide), default=0)
            again = Var(fresh("again", self.taken))
            back = [Var(fresh("back", self.taken)) for _ in range(most)]
            step = Window(tile, own, at, wide, back=back)
            step = step.stmt(body if wide * sums >= self.keep else quiet)
            if panel is not None:
                several = panels_beside(wide, sums, tile.wide, self.keep)
                if regrouped and wide == REGROUPED:
                    step = panels_regrouped(step, *groups) or step
                else:
                    step = jam_panels(step, panel, several, own, known, self.taken) or step
            for n in range(most, 0, -1):
                step = Let(back[n - 1], _if(again >= const(n)), step)
            if most:
                step = Let(again, (count - rest) * _if(ends), step)
            following = Var(fresh("at", self.taken))
            made.append((If(there, step), following, at + _if(there) * wide))
            at = following
        steps = made[-1][0]
        for step, following, value in reversed(made[:-1]):
            steps = seq(step, Let(following, value, steps))
        rounded: Expr = const(0)
        for r, (_, more) in found.items():
            step_up = r + more - (r - 1 + found[r - 1][1] if r > 1 else 0)
            if step_up:
                rounded = rounded + _if(rest >= const(r)) * step_up
        return Let(count, rounded, steps)

    def edges(self, body: Stmt, tile: Tile, own: set[Buffer], known: Facts) -> list[Stmt]:
        """The last rounds that ask, those of them that are of this tile."""
        if not tile.edges:
            return []
        left, steps = Var(fresh("left", self.taken)), list[Stmt]()
        for n in range(tile.edges, 0, -1):
            step = Window(tile, own, known.expr(tile.rest - n), 1, asks=True).stmt(body)
            steps.append(If(all_of([left >= const(n), left < const(n + tile.wide)]), step))
        return [Let(left, known.expr(tile.rest), seq(*steps))]

    def look_at_edges(self, body: Stmt, tile: Tile, known: Facts) -> None:
        """Find the choices in the body that all rounds but some last ones are free of."""
        if tile.unit > 1:
            return

        def walk(s: Any, known: Facts) -> None:
            if isinstance(s, For):
                known = known.bind(s.var, *loop_range(s))
            elif isinstance(s, Select):
                for part in parts_of(s.cond):
                    edges = self.edges_of(part, tile, known)
                    if edges is not None:
                        tile.free.add(part)
                        tile.edges = max(tile.edges, edges)
            for c in s.children():
                walk(c, known)

        walk(body, known)

    def edges_of(self, part: Expr, tile: Tile, known: Facts) -> int | None:
        """How many of the last rounds may find a condition false, which becomes so along the tile;
        None if it does not, or if they may be many."""
        if not isinstance(part, Binary) or part.op not in BOUNDS or part.a.dtype is not i64:
            return None
        sign, more = BOUNDS[part.op]
        form = known.sum(known.affine(part.b), known.affine(part.a), -1) * sign + more
        along = [t for t in form.terms if known.variables(t) & tile.loops]
        if len(along) != 1 or along[0] not in tile.loops or form.terms[along[0]] > 0:
            return None
        slope = form.terms[along[0]]
        others = Affine({t: c for t, c in form.terms.items() if t != along[0]}, form.const)
        last = known.sum(others, tile.rest - 1, slope)
        return next((n for n in range(MOST_EDGES + 1) if known.nonnegative(last - n * slope)), None)

    def tiles(self, loop: For, known: Facts) -> list[Tile]:
        """The tiles that a loop walks: what its body unrolls under a condition on the loop."""
        found: dict[Any, Tile] = {}

        def walk(s: Stmt, unrolled: dict[Var, int], inner: Names, known: Facts) -> None:
            if isinstance(s, For):
                known = known.bind(s.var, *loop_range(s))
                count = as_int(s.extent)
                if s.kind in ("unroll", "vectorize") and count and as_int(s.start) == 0:
                    unrolled = {**unrolled, s.var: count if s.kind == "unroll" else -count}
                inner |= {s.var}
            elif isinstance(s, Let):
                inner |= {s.var}
            elif isinstance(s, If):
                for part in parts_of(s.cond):
                    self.guard(part, loop, unrolled, inner, known, found)
            elif isinstance(s, Store):
                return
            for c in s.children():
                if isinstance(c, Stmt):
                    walk(c, unrolled, inner, known)

        walk(loop.body, {}, frozenset(), known)
        return [t for t in found.values() if t.wide > 1]

    def guard(
        self,
        part: Expr,
        loop: For,
        unrolled: dict[Var, int],
        inner: Names,
        known: Facts,
        found: dict[Any, Tile],
    ) -> None:
        """Note a condition `u < rest` on an unrolled loop u, where `rest` is open, or `u * lanes +
        v < rest` with a lane v."""
        if not isinstance(part, Binary) or part.op not in BOUNDS or part.a.dtype is not i64:
            return
        sign, more = BOUNDS[part.op]
        form = known.sum(known.affine(part.b), known.affine(part.a), -1) * sign + more
        for u, count in unrolled.items():
            unit = -form.terms.get(u, 0)
            inside = {u}  # with the lanes of a vector that each round makes one of
            if unit > 1:
                inside |= {v for v, n in unrolled.items() if n == -unit and form.terms.get(v) == -1}
            if count < 0 or unit < 1 or len(inside) != (1 if unit == 1 else 2):
                continue
            terms = {t: c for t, c in form.terms.items() if t not in inside}
            rest = Affine(terms, form.const + 1)
            used = frozenset[Var]().union(*[known.variables(t) for t in rest.terms])
            if used & inner or not used & self.symbols:
                continue
            if loop.var not in used and as_int(loop.extent) != 1:  # the only one is no term
                continue
            if any(isinstance(n, Load) for t in rest.terms for n in visit(t)):
                continue
            name = frozenset(rest.terms.items()), rest.const, unit
            tile = found.setdefault(name, Tile(rest, unit))
            if tile.wide in (0, count):
                tile.wide = count
                tile.loops.add(u)
                tile.guards.add(part)


def _asks(body: Stmt, tile: Tile) -> bool:
    """Whether what is read depends on where a round is, as it does at the ends of windows."""
    return any(isinstance(n, Select) and free_vars(n.cond) & tile.loops for n in visit(body))


def _may_repeat(body: Stmt, tile: Tile, own: set[Buffer]) -> bool:
    """May rounds be taken twice? Where they ask what to read, where one is would be a choice in
    itself."""
    return accumulates(body, own) and not _asks(body, tile)


def _are_numbered(loop: For, tile: Tile, own: set[Buffer], known: Facts) -> bool:
    """Whether tiles of a row are told by the loop alone, and all that they do by which elements
    they have, so that one of them may begin earlier."""
    of, rest = tile.rest.terms.get(loop.var), [t for t in tile.rest.terms if t != loop.var]
    if of != -tile.wide or as_int(loop.start) != 0:
        return False
    if any(loop.var in known.variables(t) for t in rest):
        return False
    count = known.sum(tile.rest, known.affine(loop.var), tile.wide)
    tiled = known.affine(loop.stop * tile.wide)  # a chunk of a row may end before it
    if not known.nonnegative(count) or not known.nonnegative(known.sum(tiled, count, -1)):
        return False
    for n in visit(loop.body):
        if isinstance(n, For):
            known = known.bind(n.var, *loop_range(n))
    return all(
        is_of_element(e, loop.var, tile.loops, tile.wide, known)
        for e in whole_numbers(loop.body, own)
    )


def sums_of_a_round(body: Stmt, loops: set[Var], own: set[Buffer]) -> int:
    """How many sums a round of a tile's loops has, which do not wait for each other: unrolled steps
    of a reduction add to the same ones."""

    def most(s: Any, unrolled: dict[Var, int]) -> int:
        if isinstance(s, For) and s.kind == "unroll" and s.var not in loops:
            unrolled = {**unrolled, s.var: as_int(s.extent) or 1}
        if isinstance(s, Store):
            apart = frozenset[Var]().union(*map(free_vars, s.indices))
            return prod(n for v, n in unrolled.items() if v in apart) if accumulates(s, own) else 1
        return max((most(c, unrolled) for c in s.children() if isinstance(c, Stmt)), default=1)

    return most(body, {})


def without_prefetches(s: Stmt) -> Stmt:
    """The same without prefetches: where few sums wait for themselves, those cost more than
    they hide."""
    if isinstance(s, Eval):
        return seq() if is_prefetch(s) else s
    if isinstance(s, Store):
        return s
    if isinstance(s, Seq):
        return seq(*map(without_prefetches, s.stmts))
    made = s.map_children(lambda c: without_prefetches(c) if isinstance(c, Stmt) else c)
    return seq() if isinstance(made, For | Let) and made.body == seq() else made


def _has_several(panel: For | None) -> bool:
    """Is it a loop over panels that may be jammed?"""
    return panel is not None and (as_int(panel.extent) or 0) > 1


def _if(cond: Expr) -> Expr:
    """1 where a condition holds, else 0: as a number, of which no proof tries each way."""
    return Cast(i64, cond)


def _is_one_of(count: Var, chosen: Sequence[bool], among: Sequence[int]) -> Expr:
    """Whether `count`, one of some increasing numbers, is one of those that are chosen."""
    runs: list[Expr] = []
    for i, yes in enumerate(chosen):
        if yes and (i == 0 or not chosen[i - 1]):
            end = next((k for k in range(i, len(chosen)) if not chosen[k]), len(chosen))
            bounds = [count >= const(among[i])] if i else []
            bounds += [count < const(among[end])] if end < len(chosen) else []
            runs.append(all_of(bounds) if bounds else Const(True, bool_))
    found = runs[0] if runs else Const(False, bool_)
    for run in runs[1:]:
        found = Binary(BinaryOp.logical_or, found, run)
    return found
