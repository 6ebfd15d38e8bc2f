"""stage_rows: taps of a window are lanes of a row that is read once.

In: stage "loops". Out: stage "loops". Vectors of windows with a stride read lanes that lie apart:
each tap of a row is two or three vectors of memory, of which it takes some lanes. At the ends of an
open row each of these reads has a mask of its own. The one idea: what all taps of a row read is one
run of memory; it is read once, in whole vectors, into registers, and each tap is a permutation of
those. Whether an element is in the image is asked where it is read, with one mask for a vector, the
same in every row; no tap asks anything.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.affine import Affine
from tilewright.arith.simplify import Facts, loop_range
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Const,
    Expr,
    Load,
    Select,
    Var,
    as_int,
    const,
)
from tilewright.ir.stmt import Alloc, For, Func, If, Stmt, Store, seq
from tilewright.ir.walk import (
    free_vars,
    fresh,
    loads,
    names,
    statements,
    stores,
    substitute,
    visit,
)
from tilewright.lower.comparisons import form_of
from tilewright.lower.lanes import lane_reduction
from tilewright.lower.lower_blocks import all_of, parts_of
from tilewright.support.record import record

LEAST_LANES = 4  # of fewer each is read by itself
MOST_VECTORS = 4  # of a row: of more, taps choose among too many
LEAST_READ = 2  # lanes of the last vector: one alone would be a number, under a branch
WIDE = (32, 64)  # bits of elements of which every machine permutes vectors
_ENDS = (BinaryOp.max, BinaryOp.min)


def stage_rows(func: Func) -> Func:
    """Read rows of windows with a stride over open sizes once.

    rewrite:
                                                        row = alloc(f32[8], "local")
                                                        for e in vectorize(0, 4):
                                                            row[e] = select(e < w, A[e], 0.0)
        for rx in unroll(0, 2):                         for e_1 in vectorize(0, 4):
            for x in vectorize(0, 4):                       row[e_1 + 4] =
                S[x] = S[x] + select(        →                  select(e_1 + 4 < w, A[e_1 + 4], 0.0)
                    x * 2 + rx < w,                     for rx in unroll(0, 2):
                    A[x * 2 + rx], 0.0)                     for x in vectorize(0, 4):
                                                                S[x] = S[x] + row[x * 2 + rx]
    """
    symbols = dict.fromkeys((p for p in func.params if isinstance(p, Var)), (0, None))
    if not symbols:
        return func
    body = _Stage(names(func)).go(func.body, Facts(symbols))
    return func if body is func.body else func.replace(body=body)


def stages(body: Stmt, known: Facts) -> bool:
    """Are there loops over taps of which rows are read at once?"""
    loops = [s for s in statements(body) if isinstance(s, For)]
    for s in loops:
        known = known.bind(s.var, *loop_range(s))
    return any(taps_of(s, known) is not None for s in loops)


@record
class _Taps:
    """What a loop over taps reads of a row, in vectors of windows that lie `stride` elements apart:
    taps are `dilation` apart, all together a run of `length` elements.

    read: what each reads, a load or a choice between `load` and a number; `rest`: of its last
    index, what neither `lane` nor tap says. Asked are of the row `rows`, and of the element at
    position p of the run whether form + p * times ≥ 0 for each of `positions`."""

    lane: Var
    lanes: int
    stride: int
    dilation: int
    length: int
    read: Load | Select
    load: Load
    rest: Affine
    rows: tuple[Expr, ...]
    positions: tuple[tuple[Affine, int], ...]


class _Stage:
    def __init__(self, taken: set[str]) -> None:
        self.taken = taken

    def go(self, s: Any, known: Facts) -> Any:
        if isinstance(s, Store) or not isinstance(s, Stmt):
            return s
        if isinstance(s, For):
            known = known.bind(s.var, *loop_range(s))
            taps = taps_of(s, known)
            if taps is not None:
                return self.staged(s, taps, known)

        def inner(c: Any) -> Any:
            return self.go(c, known)

        return s.map_children(inner)

    def staged(self, s: For, taps: _Taps, known: Facts) -> Stmt:
        """The loop over taps behind the reads of the row."""
        lanes, starts = taps.lanes, range(0, taps.length, taps.lanes)
        size = const(len(starts) * lanes)
        row = Buffer(fresh("row", self.taken), (size,), taps.load.dtype, "local")
        reads = [self.vector(row, taps, start, known) for start in starts]
        own = Load(row, (taps.lane * taps.stride + s.var * taps.dilation,))
        return Alloc(row, seq(*reads, self.combined(_with(s, taps.read, own), own)))

    def vector(self, row: Buffer, taps: _Taps, start: int, known: Facts) -> Stmt:
        """The read of one vector of the row, within the image's row and what taps need."""
        element, lanes = Var(fresh("element", self.taken)), const(taps.lanes)
        known = known.extended({element: (0, taps.lanes - 1)})
        needed = max(LEAST_READ, taps.length - start)
        parts = [element < const(needed)] if needed < taps.lanes else []
        position, index = (
            Affine({element: 1}, start),
            known.sum(taps.rest, Affine({element: 1}, start)),
        )
        asked = [known.sum(form, position, times) for form, times in taps.positions]
        parts += [known.expr(form) >= const(0) for form in asked]
        within = known
        for part in parts:
            within = within.under(part)
        end = known.sum(known.affine(taps.load.buffer.shape[-1]), index, -1) - 1
        parts += [known.expr(f) >= const(0) for f in (index, end) if not within.nonnegative(f)]
        value: Expr = taps.load.replace(indices=(*taps.load.indices[:-1], known.expr(index)))
        if parts or taps.rows:
            read = taps.read
            other = read.other if isinstance(read, Select) else const(0, value.dtype)
            value = Select(all_of([*taps.rows, *parts]), value, other)
        return For(element, const(0), lanes, "vectorize", Store(row, (element + start,), value))

    def combined(self, s: For, own: Load) -> Stmt:
        """The loop over taps, which are chosen before. The greatest (or least) of a row's taps
        waits for no other row: it is found first, in whatever order that is the same number."""
        (store,) = stores(s)
        found = lane_reduction(store)
        first = {s.var: const(0)}
        loop = next(n for n in statements(s) if isinstance(n, For) and n.kind == "vectorize")
        if found is None or found[0] not in _ENDS or found[1] != own:
            size = const((as_int(s.extent) or 0) * (as_int(loop.extent) or 0))
            part = Buffer(fresh("part", self.taken), (size,), own.dtype, "local")
            chosen = Load(part, (s.var * loop.extent + loop.var,))
            choose = s.replace(body=loop.replace(body=Store(part, chosen.indices, own)))
            return Alloc(part, seq(choose, _with(s, own, chosen)))
        part = Buffer(fresh("part", self.taken), (loop.extent,), own.dtype, "local")
        chosen = Load(part, (loop.var,))
        begin = Store(part, chosen.indices, substitute(own, first))
        go_on = Store(part, chosen.indices, Binary(found[0], chosen, own))
        others = s.replace(start=const(1), body=loop.replace(body=go_on))
        end = substitute(_with(s.body, own, chosen), first)
        return Alloc(part, seq(loop.replace(body=begin), others, end))


def taps_of(s: For, known: Facts) -> _Taps | None:
    """What a loop over taps reads of a row, if that is better read at once; `known` has the range
    of its variable."""
    count, inner = as_int(s.extent), s.body
    if s.kind != "unroll" or count is None or count < 2 or as_int(s.start) != 0:
        return None
    while isinstance(inner, For) and as_int(inner.extent) == 1:
        known, inner = known.bind(inner.var, inner.start, inner.start), inner.body
    if not isinstance(inner, For) or inner.kind != "vectorize" or as_int(inner.start) != 0:
        return None
    lane, lanes = inner.var, as_int(inner.extent) or 0
    known = known.bind(lane, 0, lanes - 1)
    guards, store = list[Expr](), inner.body
    if isinstance(store, If) and store.other is None:
        guards, store = parts_of(store.cond), store.then
    if not isinstance(store, Store) or lanes < LEAST_LANES:
        return None
    apart = {n for n in loads(store.value) if n.indices and _along(n, lane, known) > 1}
    if len(apart) != 1:
        return None
    (load,) = apart
    form, mine = known.affine(load.indices[-1]), {lane, s.var}
    stride, dilation = form.terms[lane], form.terms.get(s.var, 0)
    length = stride * (lanes - 1) + dilation * (count - 1) + 1
    if load.dtype.bits not in WIDE or dilation < 1 or length > MOST_VECTORS * lanes:
        return None
    rest = _without(form, mine)
    of_rows = {v for i in load.indices[:-1] for v in free_vars(i)}
    others = of_rows - free_vars(load.indices[-1])
    if of_rows & mine or any(free_vars(t) & mine for t in rest.terms):
        return None
    if any(lane not in free_vars(p) or free_vars(p) & others for p in guards):
        return None  # a row that is left out may not be there to be read
    around = [n for n in visit(store.value) if isinstance(n, Select) and load in set(visit(n))]
    read = around[0] if around else load
    rows, positions = list[Expr](), list[tuple[Affine, int]]()
    if isinstance(read, Select):
        if len(around) > 1 or read.then != load or not isinstance(read.other, Const):
            return None
        for part in parts_of(read.cond):
            if not free_vars(part) & mine:
                rows.append(part)
                continue
            asked = form_of(part, known)
            times, left = divmod(asked.terms.get(lane, 0), stride) if asked else (0, 0)
            if asked is None or left or asked.terms.get(s.var, 0) != times * dilation:
                return None
            positions.append((_without(asked, mine), times))
            if any(free_vars(t) & mine for t in positions[-1][0].terms):
                return None
    return _Taps(
        lane, lanes, stride, dilation, length, read, load, rest, tuple(rows), tuple(positions)
    )


def _along(n: Load, lane: Var, known: Facts) -> int:
    """How many elements lie between neighbouring lanes of what is read."""
    return known.affine(n.indices[-1]).terms.get(lane, 0)


def _without(form: Affine, mine: set[Var]) -> Affine:
    """A form without its terms that are these variables."""
    return Affine({t: c for t, c in form.terms.items() if t not in mine}, form.const)


def _with(s: Any, old: Expr, new: Expr) -> Any:
    """A statement that has `new` for `old`."""

    def inner(c: Any) -> Any:
        return _with(c, old, new)

    return new if s == old else s.map_children(inner)
