"""region: the rectangle of a buffer that accesses touch while some variables run.

In: indices, and the ranges of the variables that vary; all other variables stand still. Out: a
start and an extent for each dimension, in terms of the variables that stand still. The one idea:
the affine form of an index separates what varies from what stands still; a term that mixes both is
monotone in its operands or is bounded by numbers.

A region is never too small. It is exact where the varying part is affine and covers without gaps.
Regions may reach past the buffer where a guard keeps the accesses inside (padding); `clip` cuts
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd, inf

from tilewright.arith.interval import Ranges
from tilewright.arith.simplify import Facts, facts, loop_range
from tilewright.arith.terms import Affine
from tilewright.ir.dtype import i64
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    UnaryOp,
    Var,
)
from tilewright.ir.stmt import Alloc, Axis, Block, Eval, For, If, Let, Region, Seq, Stmt, Store, seq
from tilewright.ir.walk import loads, substitute

Rectangle = tuple[tuple[Expr, ...], tuple[Expr, ...]]  # starts, extents
Span = tuple[Affine, Affine]  # the least and the greatest value

_ONE = Const(1, i64)


def cover(
    indices: Sequence[Expr],
    varying: Ranges,
    still: Ranges | Facts | None = None,
    shape: Sequence[Expr] | None = None,
) -> Rectangle:
    """The (starts, extents) that `indices` touch while `varying` variables run.

    still: ranges of the other variables. shape: of the buffer; where nothing better is known the
    whole dimension is touched (without it: ValueError).
    """
    known = facts(still).telling(varying)
    cells = [(e, _ONE) for e in indices]
    return _cover(cells, frozenset(varying), known, shape)


def cover_region(region: Region, varying: Ranges, still: Ranges | Facts | None = None) -> Region:
    """The region that `region` covers while the variables of `varying` run over their ranges."""
    known = facts(still).telling(varying)
    cells = list(zip(region.starts, region.extents, strict=True))
    starts, extents = _cover(cells, frozenset(varying), known, region.buffer.shape)
    return Region(region.buffer, starts, extents)


def union(regions: Iterable[Region], ranges: Ranges | Facts | None = None) -> Region:
    """The least rectangle known to hold all `regions`, which are of one buffer."""
    known = facts(ranges)
    regions = list(regions)
    first = regions[0]
    if all(r == first for r in regions):
        return first
    starts: list[Expr] = []
    extents: list[Expr] = []
    for d, size in enumerate(first.buffer.shape):
        parts = list(dict.fromkeys((r.starts[d], r.extents[d]) for r in regions))
        start, extent = parts[0]
        for part in parts[1:]:
            start, extent = _join(known, (start, extent), part, size)
        starts.append(start)
        extents.append(extent)
    return Region(first.buffer, tuple(starts), tuple(extents))


def clip(region: Region, ranges: Ranges | Facts | None = None) -> Region:
    """The part of `region` that lies inside its buffer."""
    known = facts(ranges)
    starts: list[Expr] = []
    extents: list[Expr] = []
    for start, extent, size in zip(region.starts, region.extents, region.buffer.shape, strict=True):
        a = known.affine(start)
        end = known.sum(a, known.affine(extent))
        low = known.greatest(a, Affine({}, 0))
        high = known.least(end, known.affine(size))
        starts.append(known.expr(low, start))
        extents.append(known.expr(known.sum(high, low, -1), extent))
    return Region(region.buffer, tuple(starts), tuple(extents))


def touched(
    stmt: Stmt, ranges: Ranges | Facts | None = None, varying: Ranges | None = None
) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
    """What `stmt` reads and writes: one region for each buffer, in terms of free variables.

    ranges: of those variables. It is relaxed over the loops inside, and over `varying` too; a
    nested block counts by its signature. Buffers allocated inside are left out. The conditions of
    If, Select and where narrow what is touched. What an intrinsic writes is known to the block
    around it only.
    """
    known = facts(ranges).extended(varying or {})
    walk = _Touched()
    walk.stmt(stmt, known, frozenset(varying or ()))
    return walk.result(walk.reads, known), walk.result(walk.writes, known)


def signature(
    axes: Sequence[Axis], init: Stmt | None, body: Stmt, ranges: Ranges | Facts | None = None
) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
    """The (reads, writes) that a block with these parts declares, in terms of its axes.

    A reduction reads what it accumulates into, which its signature does not mention.
    """
    known = facts(ranges).extended({a.var: (0, a.extent - 1) for a in axes})
    reads, writes = touched(body if init is None else seq(init, body), known)
    return tuple([r for r in reads if init is None or r not in writes]), writes


# ---- one dimension


def _cover(
    cells: Sequence[tuple[Expr, Expr]],
    moving: frozenset[Var],
    known: Facts,
    shape: Sequence[Expr] | None,
) -> Rectangle:
    starts: list[Expr] = []
    extents: list[Expr] = []
    for d, (start, extent) in enumerate(cells):
        size = None if shape is None else shape[d]
        first, length = _dimension(start, extent, moving, known, size)
        starts.append(first)
        extents.append(length)
    return tuple(starts), tuple(extents)


def _dimension(
    start: Expr, extent: Expr, moving: frozenset[Var], known: Facts, size: Expr | None
) -> tuple[Expr, Expr]:
    """The cells [start, start + extent) while `moving` moves."""
    if type(start) is Const and type(extent) is Const and type(size) is Const:
        first, end = max(start.value, 0), min(start.value + extent.value, size.value)
        same = first == start.value and end == first + extent.value
        return (start, extent) if same else (Const(first, i64), Const(max(end - first, 0), i64))
    form = known.affine(start)
    span = _span(form, moving, known)
    length = known.affine(extent)
    if span is not None and length.terms:
        longest = _span(length, moving, known)
        span = None if longest is None else span
        length = length if longest is None else longest[1]
    if span is None:
        if size is None:
            raise ValueError("an index has no known bounds, and no shape was given to fall back on")
        return Const(0, i64), size
    low, high = span
    total = known.sum(known.sum(high, low, -1), length)
    most = None if size is None else known.affine(size)
    if most is not None and not most.terms and not low.terms and not total.terms:
        first = max(low.const, 0)
        last = min(low.const + total.const, most.const)
        return Const(first, i64), Const(max(last - first, 0), i64)
    if size is not None and known.nonnegative(known.sum(total, known.affine(size), -1)):
        return Const(0, i64), size
    return known.expr(low, start), known.expr(total, extent)


def _span(form: Affine, moving: frozenset[Var], known: Facts) -> Span | None:
    """The least and the greatest value of a form, in terms of what stands still."""
    low = high = Affine({}, form.const)
    for t, c in form.terms.items():
        ends = _term_span(t, moving, known)
        if ends is None:
            return None
        a, b = ends if c > 0 else (ends[1], ends[0])
        if low is high and a is b:  # nothing has moved yet
            low = high = known.sum(low, a, c)
        else:
            low, high = known.sum(low, a, c), known.sum(high, b, c)
    return low, high


def _term_span(t: Expr, moving: frozenset[Var], known: Facts) -> Span | None:
    used = known.variables(t) & moving
    if not used:
        same = Affine({t: 1}, 0)
        return same, same
    lo, hi = known.term_bounds(t)
    if isinstance(t, Var):
        low, high = known.symbolic_ends(t)
        low = low or (None if lo == -inf else Affine({}, int(lo)))
        high = high or (None if hi == inf else Affine({}, int(hi)))
        if low is None or high is None:
            return None
        first, last = _span(low, moving - {t}, known), _span(high, moving - {t}, known)
        return None if first is None or last is None else (first[0], last[1])
    numbers = None if lo == -inf or hi == inf else (Affine({}, int(lo)), Affine({}, int(hi)))
    if used == known.variables(t) and numbers is not None:
        return numbers
    return _mixed(t, moving, known) or numbers


def _mixed(t: Expr, moving: frozenset[Var], known: Facts) -> Span | None:
    """A term in which moving and still variables meet: monotone operators map ends to ends."""
    if not isinstance(t, Binary):
        return None
    a = _span(known.affine(t.a), moving, known)
    b = _span(known.affine(t.b), moving, known)
    if a is None or b is None:
        return None
    if t.op is BinaryOp.min or t.op is BinaryOp.max:
        choose = known.least if t.op is BinaryOp.min else known.greatest
        widths = known.sum(a[1], a[0], -1), known.sum(b[1], b[0], -1)
        low = choose(a[0], b[0])
        if widths[0].terms or widths[1].terms:
            return low, choose(a[1], b[1])
        return low, low + max(w.const for w in widths)  # too large at a clamp, but a constant
    if t.op is BinaryOp.floordiv and isinstance(t.b, Const) and t.b.value > 0:
        c = t.b.value
        low = known.quotient(a[0], c)
        width = known.sum(a[1], a[0], -1)
        if width.terms:
            return low, known.quotient(a[1], c)
        g = gcd(c, *a[0].terms.values())
        farthest = c - g + a[0].const % g  # from the border of a block that a[0] can lie
        return low, low + (farthest + width.const) // c
    if t.op is BinaryOp.mul:
        still, ends = (t.b, a) if not known.variables(t.b) & moving else (t.a, b)
        by = known.affine(still)
        if not known.variables(still) & moving and known.nonnegative(by):
            return known.product(ends[0], by), known.product(ends[1], by)
    return None


def _join(
    known: Facts, a: tuple[Expr, Expr], b: tuple[Expr, Expr], size: Expr
) -> tuple[Expr, Expr]:
    """The least interval known to hold both (start, extent) pairs."""
    start, other = known.affine(a[0]), known.affine(b[0])
    length, more = known.affine(a[1]), known.affine(b[1])
    gap = known.sum(other, start, -1)  # the second starts this much after the first
    lo, hi = known.bounds(gap)
    if lo == -inf or hi == inf:
        end = known.greatest(known.sum(start, length), known.sum(other, more))
        low = known.least(start, other)
        return known.expr(low), known.expr(known.sum(end, low, -1))
    if lo != hi:
        low, high = start + min(int(lo), 0), known.greatest(length, more + int(hi))
        return known.expr(low), known.expr(high - min(int(lo), 0))
    low = start if lo >= 0 else other
    end = (
        known.greatest(length, more + int(lo))
        if lo >= 0
        else known.greatest(length - int(lo), more)
    )
    return known.expr(low), known.expr(end)


# ---- statements


class _Touched:
    """The walk of `touched`: the regions of each buffer, in the order of first access."""

    def __init__(self) -> None:
        self.reads: dict[Buffer, list[Region]] = {}
        self.writes: dict[Buffer, list[Region]] = {}
        self.inner: set[Buffer] = set()

    def result(self, of: dict[Buffer, list[Region]], known: Facts) -> tuple[Region, ...]:
        """One region for each buffer from outside."""
        return tuple([union(found, known) for b, found in of.items() if b not in self.inner])

    def stmt(self, s: Stmt, known: Facts, moving: frozenset[Var]) -> None:
        """Note what a statement touches."""
        if isinstance(s, Seq):
            for x in s.stmts:
                self.stmt(x, known, moving)
        elif isinstance(s, Store):
            self._access(self.writes, s.buffer, s.indices, known, moving)
            for e in (*s.indices, s.value):
                self.expr(e, known, moving)
        elif isinstance(s, For):
            self.expr(s.start, known, moving)
            self.expr(s.stop, known, moving)
            self.stmt(s.body, known.bind(s.var, *loop_range(s)), moving | {s.var})
        elif isinstance(s, If):
            self.expr(s.cond, known, moving)
            self.stmt(s.then, known.during(s.cond, s.then), moving)
            if s.other is not None:
                otherwise = Unary(UnaryOp.logical_not, s.cond)
                self.stmt(s.other, known.during(otherwise, s.other), moving)
        elif isinstance(s, Let):
            self.expr(s.value, known, moving)
            self.stmt(substitute(s.body, {s.var: s.value}), known, moving)
        elif isinstance(s, Alloc):
            self.inner.add(s.buffer)
            self.stmt(s.body, known, moving)
        elif isinstance(s, Eval):
            self.expr(s.value, known, moving)
        elif isinstance(s, Block):
            self._block(s, known, moving)

    def _block(self, s: Block, known: Facts, moving: frozenset[Var]) -> None:
        if s.where is not None:
            self.expr(s.where, known, moving)
            known = known.under(s.where)
        values = {a.var: a.value for a in s.axes}
        for into, regions in ((self.reads, s.reads), (self.writes, s.writes)):
            for r in regions:
                r = substitute(r, values)
                cells = list(zip(r.starts, r.extents, strict=True))
                starts, extents = _cover(cells, moving, known, r.buffer.shape)
                into.setdefault(r.buffer, []).append(Region(r.buffer, starts, extents))

    def expr(self, e: Expr, known: Facts, moving: frozenset[Var]) -> None:
        """Note what an expression reads."""
        if e.__class__ is Const or isinstance(e, Var):
            return
        if isinstance(e, Load):
            self._access(self.reads, e.buffer, e.indices, known, moving)
        if isinstance(e, Select):
            self.expr(e.cond, known, moving)
            if loads(e.then):
                self.expr(e.then, known.under(e.cond), moving)
            if loads(e.other):
                self.expr(e.other, known.under(Unary(UnaryOp.logical_not, e.cond)), moving)
            return
        for c in e.children():
            self.expr(c, known, moving)  # type: ignore[arg-type]

    def _access(
        self,
        into: dict[Buffer, list[Region]],
        buffer: Buffer,
        indices: tuple[Expr, ...],
        known: Facts,
        moving: frozenset[Var],
    ) -> None:
        starts, extents = _cover([(i, _ONE) for i in indices], moving, known, buffer.shape)
        into.setdefault(buffer, []).append(Region(buffer, starts, extents))
