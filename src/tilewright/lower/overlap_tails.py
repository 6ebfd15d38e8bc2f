"""overlap_tails: the last vector of an open extent begins so early that it is whole.

In: stage "loops". Out: stage "loops". Vectors along an open extent end in one of which some lanes
are off; where elements lie apart, each of its loads has masks of its own to make. The one idea: of
n elements, more than a vector has lanes, the last vector takes the last ones, and computes some
that the one before it has computed. It stores the same numbers twice, so that operands must not lie
where results do, as they never do where a kernel reduces; what it reads of the function's own
memory it must have written; and nothing but the element may say what is computed. What only moves
into another shape does not lie over its operand either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilewright.arith.affine import Affine
from tilewright.arith.simplify import Facts, loop_range
from tilewright.ir.dtype import i64
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Expr,
    Load,
    Select,
    Unary,
    UnaryOp,
    Var,
    as_int,
    const,
)
from tilewright.ir.stmt import Alloc, Eval, For, Func, If, Seq, Stmt, Store, annotated, seq
from tilewright.ir.walk import (
    distinct,
    free_vars,
    fresh,
    loads,
    names,
    statements,
    stores,
    substitute,
    visit,
)
from tilewright.lower.comparisons import BOUNDS
from tilewright.lower.copies import (
    accumulates,
    is_of_element,
    own_memory,
    stores_of,
    whole_numbers,
)
from tilewright.lower.last_elements import (
    MOST_EDGES,
    Last,
    Narrower,
    Tile,
    decided_ends,
    edges_of,
)
from tilewright.lower.lower_blocks import all_of, parts_of
from tilewright.lower.narrow_tails import sums_of_a_round
from tilewright.lower.stage_rows import stages

# of a function: results may lie over operands, and no read of one may move behind a store
IN_PLACE = "in_place"
MOST_REMAINDERS = 3  # of which each has code of its own
LEAST_SUMS = 4  # of a narrower tile: fewer wait for each other
FEW_LANES = 4  # of the narrowest vectors for windows, or half of all
WORD = 32  # bits of an element: masks of narrower ones are slow
MOST_STORES = 24  # unrolled, of what may have several copies


def overlap_tails(
    func: Func, *, masks: bool = True, holds: bool = False, staged: bool = False
) -> Func:
    """Let the last vector of windows over an open extent end where that does.

    Without `masks` a vector of which some lanes are off takes longer than several whole ones: up to
    one vector of elements that are only moved is made of narrower vectors, too; with masks those of
    lines that are transposed, if they have less than 32 bits. `holds`: a store of some lanes takes
    longer than one of all, so that the last vector is held wherever it may be, as it is without
    masks. Where rows are `staged` (stage_rows), taps ask nothing, and vectors of which some lanes
    are off are no slower.

    rewrite:
        for i_o in serial(0, (n + 3) // 4):             if n >= 5:
            for i_i in vectorize(0, 4):                     for i_o in serial(0, (n - 1) // 4):
                if i_o * 4 + i_i < n:              →            for i_i in vectorize(0, 4):
                    B[i_o * 4 + i_i] = …                            B[i_o * 4 + i_i] = …
                                                            for i_i in vectorize(0, 4):
                                                                B[n - 4 + i_i] = …
                                                        else:
                                                            …
    """
    symbols = frozenset(p for p in func.params if isinstance(p, Var))
    if not symbols:
        return func
    temporary = {n.buffer for n in statements(func.body) if isinstance(n, Alloc)}
    overlap = _Overlap(symbols, masks, holds or not masks, staged, names(func), temporary)
    body = overlap.go(func.body, Facts(dict.fromkeys(symbols, (0, None))))
    if body is func.body:
        return func
    notes = annotated(func.annotations, IN_PLACE, True) if overlap.holds else func.annotations
    body = own_memory(body, {b.name for b in func.buffers})
    return func.replace(body=body, annotations=notes)


class _Overlap:
    def __init__(
        self,
        symbols: frozenset[Var],
        masks: bool,
        may_hold: bool,
        staged: bool,
        taken: set[str],
        temporary: set[Buffer],
    ) -> None:
        self.symbols, self.masks, self.staged, self.taken = symbols, masks, staged, taken
        self.may_hold = may_hold
        self.temporary = temporary  # memory of the function's own
        self.rows = 0  # loops around
        self.holds = False  # are values in registers until their operands are written over?

    def go(self, s: Stmt, known: Facts) -> Stmt:
        if isinstance(s, For):
            inside = known.bind(s.var, *loop_range(s))
            made = self.overlapped(s, inside) if s.kind == "serial" else None
            if s.kind == "parallel" and not self.masks:
                made = self.in_vectors(s, inside)
            if made is not None:
                return made
            self.rows += 1
            body = self.go(s.body, inside)
            self.rows -= 1
            return s if body is s.body else self.around(s, body)
        if isinstance(s, Store | Eval):
            return s
        if isinstance(s, If) and s.other is not None:
            then, other = known.during(s.cond, s.then), known.during(_not(s.cond), s.other)
            return If(s.cond, self.go(s.then, then), self.go(s.other, other))
        return s.map_children(lambda c: self.go(c, known) if isinstance(c, Stmt) else c)

    def around(self, s: For, body: Stmt) -> Stmt:
        """The loop; where its body asks what sizes alone decide, that is asked once, around it, so
        that each side's loops are cut as if there were no other."""
        by_size = isinstance(body, If) and free_vars(body.cond) <= self.symbols
        if s.kind != "serial" or not isinstance(body, If) or not by_size:
            return s.replace(body=body)
        other = None if body.other is None else self.around(s, body.other)
        return If(body.cond, self.around(s, body.then), other)

    def overlapped(self, s: For, known: Facts) -> Stmt | None:
        """The loop with a whole last vector; None where it has none, or must not compute twice."""
        for inner in statements(s.body):
            if isinstance(inner, For):
                known = known.bind(inner.var, *loop_range(inner))
        own = {n.buffer for n in statements(s.body) if isinstance(n, Alloc)}
        moves = _moves(s.body)
        asks = _asks(s.body, s.var)
        apart = asks or _strides(s.body, known) or not self.masks
        windows = apart and accumulates(s.body, own)
        holds = self.may_hold and not (moves or windows) and self.rows > 0
        holds = holds and _is_one_store(s.body)
        if not (moves or windows or holds):
            return None
        tile = self.tile(s, known)
        if tile is None or not self.may_repeat(s.body, tile, own, known, in_place=holds):
            return None
        if tile.unrolled:
            if moves or not asks or not _is_innermost(s.body):
                return None
            return self.rounds(s, tile, own, known)
        several = known.expr(tile.count - tile.lanes) > const(0)
        before = known.expr(tile.count - 1) // const(tile.lanes)
        body = without_guards(s.body, tile.guards)
        if holds:
            others = [n for n in visit(body) if isinstance(n, For) and as_int(n.extent) != 1]
            if tile.unrolled or len(others) != 1:  # one vector is held: of several rows the last
                return None
            whole = s.replace(stop=before, body=body)
            last = Last(tile, tile.lanes, known).go(body)
            return If(several, self.held(last, tile, whole), self.one(s, known))
        last, count = Last(tile, tile.lanes, known).go(body), known.expr(tile.count)
        few: Stmt = s
        if not moves:
            staged = self.staged and stages(s.body, known)
            last = self.last(last, body, tile, known, staged)
            if staged:
                few = _by_width(tile, lambda n: Narrower(tile, n, known).loop(s), count)
            else:
                few = self.halves(s, body, tile, known)
        else:
            first = substitute(body, {tile.loop: const(0)})
            several = all_of([several, *decided_ends([first, last], tile, known.under(several))])
            if not self.masks or _transposes_narrow(s.body):
                few = self.few(body, tile, known, count)
        return If(several, seq(s.replace(stop=before, body=body), last), few)

    def held(self, last: Stmt, tile: Tile, others: Stmt) -> Stmt:
        """The last vector's values are computed before the others are stored, which may lie over
        what they are computed from, and are stored after them."""
        (store,) = [n for n in visit(last) if isinstance(n, Store)]
        (lane,), self.holds = tile.inner, True
        kept = Buffer(fresh("held", self.taken), (const(tile.lanes),), store.buffer.dtype, "local")

        def each(made: Callable[[Store], Store]) -> Stmt:
            return _rewritten(last, made)

        hold = each(lambda n: Store(kept, (lane,), n.value))
        give = each(lambda n: n.replace(value=Load(kept, (lane,))))
        return Alloc(kept, seq(hold, others, give))

    def one(self, s: For, known: Facts) -> Stmt:
        """What a loop does if it has one round at most."""
        return If(known.simplify(s.stop) > const(0), substitute(s.body, {s.var: const(0)}))

    def few(self, body: Stmt, tile: Tile, known: Facts, count: Expr, at: int = 0) -> Stmt:
        """Up to one vector of elements: the first and the last of them, of as many lanes as go in,
        a power of two. They begin with the row, or `at` so many for each vector before."""

        def step(wide: int, first: bool) -> Stmt:
            made = Last(tile, wide, known, first=first)
            if first and at:
                made.start = Affine({tile.loop: at}, 0)
            return made.go(body)

        made, wide = If(count >= const(1), step(1, True)), 1
        while (wide := 2 * wide) < tile.lanes:
            made = If(count >= const(wide), seq(step(wide, True), step(wide, False)), made)
        return made

    def in_vectors(self, s: For, known: Facts) -> Stmt | None:
        """A loop that threads share, of which each round moves one vector: the last of a row is
        made of narrower ones, which reach into no other round."""
        loop, of = self.along(s)
        if loop is None:
            return None
        known = known.bind(loop.var, *loop_range(loop))
        for var in of:
            known = known if var == loop.var else known.bind(var, 0, None)
        for inner in visit(loop.body):
            if isinstance(inner, For):
                known = known.bind(inner.var, *loop_range(inner))
        tile = self.tile(loop, known) if _moves(loop.body) else None
        if tile is None or tile.unrolled or _asks(loop.body, loop.var):
            return None
        if not self.may_repeat(loop.body, tile, set(), known, in_place=False):
            return None
        body = without_guards(loop.body, tile.guards)
        left = known.expr(known.sum(tile.count, known.affine(loop.var), -tile.lanes))
        few = self.few(body, tile, known, left, tile.lanes)
        made = If(left >= const(tile.lanes), body, few)
        return s.replace(body=substitute(made, of))

    def along(self, s: For) -> tuple[For | None, dict[Var, Expr]]:
        """The loop over vectors that a fused loop goes along, and what its variable and those of
        the loops fused with it are."""
        found = {
            n for n in visit(s.body)
            if isinstance(n, Binary) and n.op is BinaryOp.floormod and s.var in free_vars(n.a)
            and as_int(n.b) is None
        }  # fmt: skip
        if not found:
            return s.replace(kind="serial"), {}
        vector = next(iter(found))
        inside = vector.a  # what goes along each vector has been fused, too
        apart = as_int(inside.b) if isinstance(inside, Binary) else 1
        if len(found) > 1 or apart is None or inside not in (s.var, s.var // const(apart)):
            return None, {}
        parts = [vector, inside // vector.b, *([s.var % const(apart)] if apart > 1 else ())]
        names = [Var(fresh(n, self.taken)) for n in ("vector", "row", "inside")][: len(parts)]
        of = dict(zip(names, parts, strict=True))
        new = dict(zip(parts, names, strict=True))

        def renamed(n: Any) -> Any:
            return new[n] if n in new else n.map_children(renamed)

        body = renamed(s.body)
        if s.var in free_vars(body):
            return None, {}
        return For(names[0], const(0), vector.b, "serial", body), of

    def halves(self, s: For, body: Stmt, tile: Tile, known: Facts, most: int = 0) -> Stmt:
        """Up to one vector of windows, or `most` of them: where more than half its lanes are on,
        two vectors of half as many; of fewer two of a quarter, if that is a few lanes. The first
        reaches over no other end than the row's first, the last over its last."""
        wide = (most or tile.lanes) // 2
        if wide < max(2, min(FEW_LANES, tile.lanes // 2)) or stores_of(body) > MOST_STORES:
            return s
        first = Last(tile, wide, known, first=True).go(body)
        last = _by_remainder(Last(tile, wide, known).go(body), known)
        fewer = s if wide % 2 else self.halves(s, body, tile, known, wide)
        return If(known.expr(tile.count) > const(wide), seq(first, last), fewer)

    def rounds(self, s: For, tile: Tile, own: set[Buffer], known: Facts) -> Stmt | None:
        """The loop over tiles that are unrolled, and after it of the rounds that are left over as
        few as a narrower tile has. Only the first tile and the last ones are at ends of windows."""
        edges = self.edges(s.body, tile, known)
        sums = sums_of_a_round(s.body, set(tile.inner), own)
        widths = _widths(tile.lanes, sums)
        more = min((w for w in widths if w >= edges - 1), default=tile.lanes)
        if edges > MOST_EDGES or more + edges > tile.lanes:
            return None
        body = without_guards(s.body, tile.guards)
        inside = known.expr(tile.count - edges)

        def step(wide: int, but: int = 0) -> Stmt:
            return _by_remainder(Last(tile, wide, known, but=but).go(body), known)

        def fewer(wide: int) -> Stmt:
            """Of rows of less than `wide` rounds and an edge."""
            half = -(
                -(wide - 1 + edges) // 2
            )  # its first tile, which leaves no more than that over
            if half >= wide or half * sums < LEAST_SUMS:
                return Narrower(tile, wide, known).loop(s)
            beyond, ends = inside - const(half - edges), step(half)
            for narrow in (w for w in widths if edges <= w < half):
                ends = If(beyond <= const(narrow), step(narrow), ends)
            first = Last(tile, half, known, first=True).go(body)
            return If(inside >= const(half), seq(first, ends), fewer(half))

        left = inside % const(tile.lanes) + edges
        last = step(tile.lanes)
        for wide in widths:
            last = If(left <= const(wide), step(wide), last)
        if edges > 1:  # some more than a tile has may be left over, after a whole one
            two = known.expr(tile.count - (tile.lanes + more + edges)) >= const(0)
            last = seq(If(all_of([left > const(tile.lanes), two]), step(more, tile.lanes)), last)
        whole = s.replace(stop=inside // const(tile.lanes), body=body)
        return If(inside >= const(tile.lanes), seq(whole, last), fewer(tile.lanes))

    def edges(self, body: Stmt, tile: Tile, known: Facts) -> int:
        """How many elements at an end may be asked whether what they read is there: at least 1."""
        most = 1
        for n in visit(body):
            for part in parts_of(n.cond) if isinstance(n, Select) else ():
                if free_vars(part) & (tile.inner | {tile.loop}):
                    most = max(most, edges_of(part, tile, known))
        return most

    def last(self, whole: Stmt, body: Stmt, tile: Tile, known: Facts, staged: bool) -> Stmt:
        """The last vector, or where one element is left over that alone; code for each remainder
        that decides which taps they have. Where none asks, of few elements a narrower one."""
        if stores_of(body) > MOST_STORES:
            return whole
        beyond = known.expr(tile.count - 1) % const(tile.lanes)
        if staged:
            several = _by_width(tile, lambda n: Last(tile, n, known).go(body), beyond + 1)
        else:
            several = _by_remainder(whole, known)
        single = _by_remainder(Last(tile, 1, known).go(body), known)
        return If(beyond > const(0), several, single)

    def tile(self, s: For, known: Facts) -> Tile | None:
        """The vectors that a loop walks, if all that its body does is under one condition on their
        lanes and what the taps of windows are asked."""
        found: dict[tuple[Any, int, int, bool], tuple[Affine, set[Var], set[Expr]]] = {}
        if as_int(s.start) != 0:
            return None
        for part, around in conditions_of(s.body, ()):
            if not around or s.var not in free_vars(part):
                continue
            if not isinstance(part, Binary) or part.op not in BOUNDS or part.a.dtype is not i64:
                return None
            sign, more = BOUNDS[part.op]
            form = known.sum(known.affine(part.b), known.affine(part.a), -1) * sign + more
            fit = [f for f in around if form.terms.get(f.var) == -1]
            lanes = as_int(fit[0].extent) or 0 if fit else 0
            if len(fit) != 1 or lanes < 2 or form.terms.get(s.var) != -lanes:
                return None
            terms = {t: c for t, c in form.terms.items() if t not in (fit[0].var, s.var)}
            if not all(known.variables(t) <= self.symbols for t in terms):
                return None
            count = Affine(terms, form.const + 1)
            name = frozenset(terms.items()), count.const, lanes, fit[0].kind == "unroll"
            _, vectors, guards = found.setdefault(name, (count, set(), set()))
            vectors.add(fit[0].var)
            guards.add(part)
        if len(found) != 1:
            return None
        (((_, _, lanes, unrolled), (count, vectors, guards)),) = found.items()
        divides = not any(isinstance(n, Alloc) for n in visit(s.body))
        return Tile(s.var, lanes, count, frozenset(vectors), frozenset(guards), unrolled, divides)

    def may_repeat(
        self, body: Stmt, tile: Tile, own: set[Buffer], known: Facts, *, in_place: bool
    ) -> bool:
        """Whether what is computed and where it is stored follows from which element it is.
        `in_place`: elements may be read where they are stored."""
        stored = {n.buffer: n.indices for n in visit(body) if isinstance(n, Store)}
        again = (
            n.buffer
            for n in visit(body)
            if isinstance(n, Load) and not (in_place and stored.get(n.buffer) == n.indices)
        )
        read = (set(again) - own) & stored.keys()
        if any(isinstance(n, Eval) for n in visit(body)) or not all(
            self.is_made_anew(b, body, tile, known) for b in read
        ):
            return False
        return all(
            is_of_element(e, tile.loop, tile.inner, tile.lanes, known, quotients=tile.divides)
            for e in whole_numbers(body, own)
        )

    def is_made_anew(self, buffer: Buffer, body: Stmt, tile: Tile, known: Facts) -> bool:
        """Is it memory of the function's own, of which a round writes the part of its element
        before it reads that?"""
        if buffer not in self.temporary or not _is_written_first(buffer, body):
            return False
        mine, found = {tile.loop, *tile.inner}, set[tuple[int, int]]()
        for n in visit(body):
            if isinstance(n, Load | Store) and n.buffer == buffer:
                along = [(d, i) for d, i in enumerate(n.indices) if free_vars(i) & mine]
                if len(along) != 1:
                    return False
                form = known.affine(along[0][1])
                if form.terms.get(tile.loop) != tile.lanes or len(form.terms) != 2:
                    return False
                found.add((along[0][0], form.const))
        return len(found) == 1


def _by_width(tile: Tile, made: Callable[[int], Stmt], count: Expr) -> Stmt:
    """What is made for the narrowest vectors, from a few lanes on, that hold `count` elements."""
    wide = min(FEW_LANES, tile.lanes)
    found = made(wide)
    while wide < tile.lanes:
        inside, wide = count <= const(wide), 2 * wide
        found = If(inside, found, made(wide))
    return found


def _not(cond: Expr) -> Expr:
    return Unary(UnaryOp.logical_not, cond)


def _by_remainder(s: Stmt, known: Facts) -> Stmt:
    """A statement under a branch for each value of the remainder that its choices ask for, if it is
    one of few: whether the last tap of a window is there may follow from whether a size is even."""
    asked: set[Expr] = set()
    for n in visit(s):
        for part in parts_of(n.cond) if isinstance(n, Select) else ():
            if isinstance(part, Binary) and part.op in BOUNDS and part.a.dtype is i64:
                form = known.sum(known.affine(part.b), known.affine(part.a), -1)
                asked |= {t for t in form.terms if _is_remainder(t)}
    if len(asked) != 1:
        return s
    (t,) = asked
    values = range(int(known.term_bounds(t)[1]), 0, -1)
    return s if len(values) >= MOST_REMAINDERS else _cases(s, t, values)


def _cases(s: Stmt, t: Expr, values: Sequence[int]) -> Stmt:
    return If(t >= const(values[0]), s, _cases(s, t, values[1:])) if values else s


def _is_remainder(t: Expr) -> bool:
    return isinstance(t, Binary) and t.op is BinaryOp.floormod and as_int(t.b) is not None


def conditions_of(s: Any, around: tuple[For, ...]) -> Iterator[tuple[Expr, tuple[For, ...]]]:
    """Parts of the conditions of branches, with the vectorised and unrolled loops around each."""
    if isinstance(s, For) and s.kind in ("vectorize", "unroll"):
        around = (*around, s)
    if isinstance(s, If):
        yield from ((p, around) for p in parts_of(s.cond))
    for c in () if isinstance(s, Store) else s.children():
        if isinstance(c, Stmt):
            yield from conditions_of(c, around)


def _is_innermost(body: Stmt) -> bool:
    """Has it no loop of open extent?"""
    return all(as_int(n.extent) is not None for n in visit(body) if isinstance(n, For))


def _widths(most: int, sums: int) -> list[int]:
    """Powers of two below the rounds of a tile: of fewer sums than a few each waits for itself."""
    powers = (1 << k for k in range(most.bit_length() - 1, -1, -1))
    return [w for w in powers if w < most and w * sums >= LEAST_SUMS]


def _is_written_first(buffer: Buffer, s: Stmt) -> bool:
    """Does a statement write all that it writes of a buffer before it reads any of it?"""

    def writes(c: Stmt) -> bool:
        return any(isinstance(n, Store) and n.buffer == buffer for n in visit(c))

    def reads(c: Stmt) -> bool:
        return any(isinstance(n, Load) and n.buffer == buffer for n in visit(c))

    if isinstance(s, Alloc):
        return _is_written_first(buffer, s.body)
    if not isinstance(s, Seq):
        return not (writes(s) and reads(s))
    first = next((i for i, c in enumerate(s.stmts) if reads(c)), len(s.stmts))
    before = all(_is_written_first(buffer, c) for c in s.stmts)
    return before and not any(writes(c) for c in s.stmts[first + 1 :])


def _asks(body: Stmt, loop: Var) -> bool:
    """Are there choices of what to read that depend on the vector, as at the ends of windows?"""
    return any(isinstance(n, Select) and loop in free_vars(n.cond) for n in distinct([body]))


def _strides(body: Stmt, known: Facts) -> bool:
    """Do lanes read elements that lie apart, as at the steps of windows?"""
    lanes = [n.var for n in statements(body) if isinstance(n, For) and n.kind == "vectorize"]
    indices = [i for n in loads(body) for i in n.indices]
    return any(abs(known.affine(i).terms.get(v, 0)) > 1 for i in indices for v in lanes)


def _moves(body: Stmt) -> bool:
    """Is it one store of what lies in tensors of other shapes? Such a result is never written over
    an operand."""
    if not _is_one_store(body):
        return False
    (store,) = stores(body)
    return all(n.buffer.shape != store.buffer.shape for n in loads(body))


def _transposes_narrow(body: Stmt) -> bool:
    """Does it unroll vectors of elements of less than 32 bits, as where lines are transposed? A
    Zen 4 takes ten times as long for masks of those as for others."""
    unrolled = any(isinstance(n, For) and n.kind == "unroll" for n in statements(body))
    touched = {n.buffer.dtype for n in (*loads(body), *stores(body))}
    return unrolled and any(d.bits < WORD and not d.is_packed for d in touched)


def _is_one_store(body: Stmt) -> bool:
    """Does it store one element, in loops and under conditions?"""
    kinds = [n for n in statements(body) if not isinstance(n, For | If)]
    return len(kinds) == 1 and isinstance(kinds[0], Store)


def _rewritten(s: Any, change: Callable[[Store], Store]) -> Any:
    """A statement with its stores changed."""
    if isinstance(s, Store):
        return change(s)

    def inner(c: Any) -> Any:
        return _rewritten(c, change) if isinstance(c, Stmt) else c

    return s.map_children(inner)


def without_guards(s: Stmt, guards: frozenset[Expr]) -> Stmt:
    """A statement without these conditions."""
    if isinstance(s, If):
        left = [p for p in parts_of(s.cond) if p not in guards]
        if not left:
            return without_guards(s.then, guards)
        s = s.replace(cond=all_of(left))
    return s.map_children(lambda c: without_guards(c, guards) if isinstance(c, Stmt) else c)
