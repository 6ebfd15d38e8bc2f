"""overlap_tiles: the last register tile of many begins so early that it is whole.

In: stage "loops". Out: stage "loops". Rows in tiles of six leave some over; a tile of those few has
code of its own, a third of a kernel's. The one idea, as in `overlap_tails`: the last tile takes the
last six, and computes some again that the one before it has computed, where these are few beside
all. It stores the same numbers twice, which is legal where a kernel reduces in buffers of its own
and nothing but the row says what is computed. Tiles at whose ends taps lie beside an image stay as
they are: their ends have code of their own in any case, and the middle asks nothing.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.affine import Affine
from tilewright.arith.simplify import Facts, loop_range
from tilewright.ir.dtype import i64
from tilewright.ir.expr import Binary, Buffer, Expr, Select, Var, as_int, const, minimum
from tilewright.ir.stmt import Alloc, Eval, For, Func, Let, Stmt, Store
from tilewright.ir.walk import distinct, free_vars, fresh, loads, names, reads, statements
from tilewright.lower.comparisons import BOUNDS
from tilewright.lower.copies import accumulates, is_of_element, is_prefetch, whole_numbers
from tilewright.lower.overlap_tails import conditions_of, without_guards
from tilewright.support.record import record

FEW = 40  # rows at least for each that is computed twice


def overlap_tiles(func: Func) -> Func:
    """Let the last tile of a known number of rows end where they do.

    rewrite:
        for i_o in serial(0, 34):                   for i_o in serial(0, 34):
            T = alloc(f32[6], "local")                  at: i64 = min(i_o * 6, 194)
            for i_i in unroll(0, 6):                    T = alloc(f32[6], "local")
                if i_o * 6 + i_i < 200:      →          for i_i in unroll(0, 6):
                    T[i_i] = T[i_i] + …                     T[i_i] = T[i_i] + …
            for i_i in unroll(0, 6):                    for i_i in unroll(0, 6):
                if i_o * 6 + i_i < 200:                     B[at + i_i] = T[i_i]
                    B[i_o * 6 + i_i] = T[i_i]
    """
    if any(isinstance(p, Var) for p in func.params):
        return func  # `overlap_tails`, `narrow_tails`
    body = _Overlap(func).go(func.body, Facts({}))
    return func if body is func.body else func.replace(body=body)


@record
class _Tiles:
    """A loop over tiles of `rows`, of which `count` are left where it begins; `inner` loops walk
    the rows of one, and `guards` say where they end."""

    loop: Var
    rows: int
    count: Affine
    inner: frozenset[Var]
    guards: frozenset[Expr]


class _Overlap:
    def __init__(self, func: Func) -> None:
        self.func = func
        self.taken: set[str] = set()

    def go(self, s: Stmt, known: Facts) -> Stmt:
        if s.__class__ is Store or s.__class__ is Eval:
            return s
        if isinstance(s, For):
            inside = known.bind(s.var, *loop_range(s))
            made = self.overlapped(s, inside) if s.kind == "serial" else None
            if made is not None:
                return made
            body = self.go(s.body, inside)
            return s if body is s.body else s.replace(body=body)
        return s.map_children(lambda c: self.go(c, known) if isinstance(c, Stmt) else c)

    def overlapped(self, s: For, known: Facts) -> Stmt | None:
        """The loop with a whole last tile; None where it has one, or must not compute twice."""
        tiles = _tiles(s, known)
        if tiles is None:
            return None
        least, _ = known.bounds(tiles.count)
        again = -int(least) % tiles.rows if least >= tiles.rows else 0
        if not again or again * FEW > least:
            return None
        for inner in statements(s.body):
            if isinstance(inner, For):
                known = known.bind(inner.var, *loop_range(inner))
        body = without_guards(s.body, tiles.guards)
        if not _may_repeat(body, tiles, known):
            return None
        self.taken = self.taken or names(self.func)
        at = Var(fresh(f"{s.name}_at", self.taken))
        last = known.expr(tiles.count - tiles.rows)
        stop = minimum(s.stop, known.expr(tiles.count + (tiles.rows - 1)) // const(tiles.rows))
        body = Let(at, minimum(s.var * tiles.rows, last), _moved(body, tiles, at, known))
        return s.replace(stop=known.simplify(stop), body=body)


def _tiles(s: For, known: Facts) -> _Tiles | None:
    """The tiles that a loop walks, if all that its body asks of it is whether a row is there."""
    found: dict[tuple[Any, int, int], tuple[Affine, set[Var], set[Expr]]] = {}
    others: dict[Expr, Affine] = {}
    if as_int(s.start) != 0 or as_int(s.stop) is None:
        return None
    for part, around in conditions_of(s.body, ()):
        if s.var not in free_vars(part):
            continue
        if not isinstance(part, Binary) or part.op not in BOUNDS or reads(part):
            return None
        sign, more = BOUNDS[part.op]
        form = known.sum(known.affine(part.b), known.affine(part.a), -1) * sign + more
        rows = -form.terms.get(s.var, 0)
        walking = [f for f in around if form.terms.get(f.var)]
        if not walking:
            others[part] = form
            continue
        inner = walking[0]
        if len(walking) > 1 or inner.kind != "unroll" or as_int(inner.start) != 0:
            return None
        if rows < 2 or as_int(inner.extent) != rows or form.terms[inner.var] != -1:
            return None
        terms = {t: c for t, c in form.terms.items() if t not in (inner.var, s.var)}
        inside = {s.var, *(f.var for f in around)}
        if any(known.variables(t) & inside for t in terms):
            return None
        count = Affine(terms, form.const + 1)
        name = frozenset(terms.items()), count.const, rows
        _, loops, parts = found.setdefault(name, (count, set(), set()))
        loops.add(inner.var)
        parts.add(part)
    if len(found) != 1:
        return None
    (((_, _, rows), (count, loops, parts)),) = found.items()
    some = count - Affine({s.var: rows}, 1)  # not negative where a tile has a row
    for form in others.values():  # of form < 0 follows form * rows + rows - 1 < 0
        if not known.nonnegative(known.sum(form * rows + (rows - 1), some, -1)):
            return None
    return _Tiles(s.var, rows, count, frozenset(loops), frozenset(parts | others.keys()))


def _may_repeat(body: Stmt, tiles: _Tiles, known: Facts) -> bool:
    """Whether it reduces in buffers of its own, and what is computed and where it is stored follows
    from which row it is."""
    inside = list(statements(body))
    own: set[Buffer] = {s.buffer for s in inside if isinstance(s, Alloc)}
    written = {s.buffer for s in inside if isinstance(s, Store)} - own
    if any(n.buffer in written for n in loads(body)) or not accumulates(body, own):
        return False
    if any(isinstance(s, Eval) and not is_prefetch(s) for s in inside):
        return False
    chosen = (n.cond for n in distinct([body]) if isinstance(n, Select))
    if any(tiles.loop in free_vars(cond) for cond in chosen):
        return False  # taps beside the image: `partition_loops` cuts where a tile has none
    return all(
        is_of_element(e, tiles.loop, tiles.inner, tiles.rows, known)
        for e in whole_numbers(body, own)
    )


def _moved(s: Any, tiles: _Tiles, at: Var, known: Facts) -> Any:
    """The body of a tile that begins at row `at`; its prefetches stay."""

    def inside(c: Any) -> Any:
        return _moved(c, tiles, at, known)

    if isinstance(s, Eval):
        return s
    if not isinstance(s, Expr) or s.dtype is not i64 or reads(s):
        return s.map_children(inside)
    if tiles.loop not in free_vars(s):
        return s
    form = known.affine(s)
    made = Affine({}, form.const)
    for t, c in form.terms.items():
        here = t == tiles.loop
        moved: Expr = at if here else t.map_children(inside)
        made = known.sum(made, known.affine(moved), c // tiles.rows if here else c)
    return known.expr(made)
