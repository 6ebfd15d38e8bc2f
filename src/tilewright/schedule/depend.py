"""Dependences: may a loop's iterations run in another order, or at once?

In: a loop (or a nest and its new order). Out: None, or the statement at fault and the reason. The
one idea: a block's axes promise that instances of other spatial coordinates write other elements,
so the question is whether the values of those axes *determine* the loop's variable; different
blocks, and plain statements, are compared by the regions they touch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf

from tilewright.arith.affine import Affine, Forms
from tilewright.arith.prove import prove_less_equal
from tilewright.arith.region import cover, cover_region
from tilewright.arith.simplify import Facts, loop_range
from tilewright.ir.expr import Buffer, Const, Expr, Var, as_int, const
from tilewright.ir.stmt import Alloc, Block, For, Func, If, Region, Seq, Stmt, Store
from tilewright.ir.walk import free_vars, loads, statements, substitute
from tilewright.schedule.determine import follows, heavy, plainly_follows
from tilewright.schedule.domain import Ranges, conditions, conjunction, ranges_at
from tilewright.schedule.locate import inner
from tilewright.support.node import Node
from tilewright.support.record import record

Obstacle = tuple[Node, str]  # the statement at fault, and the reason


class Access:
    """One statement's use of a region of a buffer; `stmt` is a Block or the plain statement."""

    __slots__ = ("_own", "_region", "_values", "stmt", "writes")

    def __init__(self, stmt: Stmt, own: Region, writes: bool, values: Mapping[Var, Expr]) -> None:
        self.stmt, self.writes = stmt, writes
        self._own, self._values = own, values
        self._region: Region | None = None

    @property
    def buffer(self) -> str:
        """The buffer's name."""
        return self._own.buffer.name

    @property
    def region(self) -> Region:
        """The region in terms of loop variables."""
        if self._region is None:
            self._region = bind_axes(self._own, self._values) if self._values else self._own
        return self._region


@record
class Body:
    """What stands below a loop; `allocated` are the buffers that live inside only."""

    blocks: tuple[Block, ...]
    accesses: tuple[Access, ...]
    loops: tuple[For, ...]
    allocated: tuple[Buffer, ...]


def below(stmt: Stmt, skip: Stmt | None = None) -> Body:
    """Collect what stands below `stmt` (without `skip`), in program order.

    Blocks are opaque, their regions say what they touch.
    """
    blocks: list[Block] = []
    accesses: list[Access] = []
    loops: list[For] = []
    allocated: list[Buffer] = []
    stack: list[Stmt] = [stmt]
    while stack:
        s = stack.pop()
        if s is skip:
            continue
        accesses += accesses_of(s)
        if isinstance(s, Block):
            blocks.append(s)
            continue
        if isinstance(s, For):
            loops.append(s)
        elif isinstance(s, Alloc):
            allocated.append(s.buffer)
        stack.extend(reversed(inner(s)))
    return Body(tuple(blocks), tuple(accesses), tuple(loops), tuple(allocated))


def accesses_of(s: Stmt) -> Iterator[Access]:
    """What a statement touches itself: a block its regions, others not what inner ones touch."""
    if isinstance(s, Block):
        values = {a.var: a.value for a in s.axes}
        yield from (Access(s, r, False, values) for r in s.reads)
        yield from (Access(s, r, True, values) for r in s.writes)
        return
    kind = s.__class__
    if kind is Seq or kind is Alloc:
        return
    if isinstance(s, Store):
        yield Access(s, _point(s.buffer, s.indices), True, {})
    for part in s.children():
        if isinstance(part, Expr):
            for n in loads(part):
                yield Access(s, _point(n.buffer, n.indices), False, {})


def bind_axes(region: Region, values: Mapping[Var, Expr]) -> Region:
    """A block's region in terms of the loops that `values` bind its axes to."""
    starts = tuple([substitute(e, values) for e in region.starts])
    extents = tuple([substitute(e, values) for e in region.extents])
    return Region(region.buffer, starts, extents)


def _point(buffer: Buffer, indices: tuple[Expr, ...]) -> Region:
    return Region(buffer, indices, (Const(1, indices[0].dtype),) * len(indices) if indices else ())


def uses(axes_of: Block, kinds: Iterable[str]) -> set[Var]:
    """The loop variables in the values of a block's axes of some kinds."""
    wanted = set(kinds)
    found: set[Var] = set()
    for a in axes_of.axes:
        if a.kind in wanted:
            found |= {a.value} if isinstance(a.value, Var) else free_vars(a.value)
    return found


def axis_values(block: Block, kind: str) -> list[Expr]:
    """The values of a block's axes of one kind."""
    return [a.value for a in block.axes if a.kind == kind]


# Iterations at once -------------------------------------------------------------------------


def carried(
    func: Func, path: Sequence[Stmt], private: frozenset[str] = frozenset()
) -> Obstacle | None:
    """Why the iterations of the loop that `path` leads to cannot run at once; None if they can.

    Each iteration has its own copy of the buffers in `private`.
    """
    loop = path[-1]
    assert isinstance(loop, For)
    if as_int(loop.extent) in (0, 1):
        return None
    body = below(loop.body)
    ranges = ranges_at(func, (*path, *body.loops))
    forms = Forms(ranges)
    inside = {loop.var, *(f.var for f in body.loops)}
    for block in body.blocks:
        for axis in block.axes:
            if axis.kind != "spatial" and loop.var in free_vars(axis.value):
                why = "reduces over it" if axis.kind == "reduce" else "must run in order along it"
                return block, f"block '{block.name}' {why} (axis '{axis.var.name}')"
        if all(r.buffer.name in private for r in block.writes):
            continue
        values = axis_values(block, "spatial")
        if loop.var not in values and not follows(loop.var, values, inside, forms):
            why = "writes the same element in several of its iterations"
            return block, f"block '{block.name}' {why}"
    return _conflict(body, private, (loop.var,), inside, forms)


def _conflict(
    body: Body,
    private: frozenset[str],
    over: Sequence[Var],
    inside: set[Var],
    forms: Forms,
) -> Obstacle | None:
    """Two accesses, one a write, that overlap in different iterations of a loop of `over`."""
    by_buffer: dict[str, list[Access]] = {}
    for a in body.accesses:
        if a.buffer not in private:
            by_buffer.setdefault(a.buffer, []).append(a)
    for name, accesses in by_buffer.items():
        for w in accesses:
            if not w.writes:
                continue
            for x in accesses:
                if x.writes and x.stmt is w.stmt and isinstance(x.stmt, Block):
                    continue  # its axes promise that
                for v in over:
                    if not apart(w.region, x.region, v, inside, forms):
                        return x.stmt, (
                            f"{_who(x)} {'writes' if x.writes else 'reads'} elements of '{name}'"
                            f" that {_who(w)} writes in other iterations of '{v.name}'"
                        )
    return None


def _who(a: Access) -> str:
    return f"block '{a.stmt.name}'" if isinstance(a.stmt, Block) else "a statement"


def apart(a: Region, b: Region, v: Var, inside: set[Var], forms: Forms) -> bool:
    """Do `a` and `b` never overlap in different iterations of `v`, whatever the loops inside do?

    They do not if starts that both have in common determine v; or if the terms of the starts that
    speak of v are the same in both, and weigh so much that an overlap makes them equal; or if the
    regions never overlap at all.
    """
    same = [
        sa
        for sa, ea, sb, eb in zip(a.starts, a.extents, b.starts, b.extents, strict=True)
        if sa == sb and as_int(ea) == 1 and as_int(eb) == 1 and v in free_vars(sa)
    ]
    if v in same or _plainly_apart(a, b, v, inside, forms):
        return True
    if same and follows(v, same, inside, forms):
        return True
    ranges = forms.ranges
    others: dict[Var, Expr] = {u: Var(u.name + "'", u.dtype) for u in inside | {v}}
    forms = Forms({**ranges, **{o: ranges[u] for u, o in others.items() if u in ranges}})  # type: ignore[misc]
    mine = {u: o for u, o in others.items() if u != v}
    equal: list[Expr] = []
    for sa, ea, sb, eb in zip(a.starts, a.extents, b.starts, b.extents, strict=True):
        if v not in free_vars(sa) or v not in free_vars(sb):
            continue
        fa, fb = forms.affine(sa), forms.affine(substitute(sb, mine))
        terms = {t: c for t, c in fa.terms.items() if v in free_vars(t)}
        if terms == {t: c for t, c in fb.terms.items() if v in free_vars(t)}:
            low, high = _gap(forms, fa, ea, fb, substitute(eb, mine))
            equal += heavy(forms, terms, max(high, -low))
    if equal and (v in equal or follows(v, equal, {v}, forms)):
        return True
    for sa, ea, sb, eb in zip(a.starts, a.extents, b.starts, b.extents, strict=True):
        there, extent = substitute(sb, others), substitute(eb, others)
        low, high = _gap(forms, forms.affine(sa), ea, forms.affine(there), extent)
        if high < 0 or low > 0:
            return True
    return False


def _plainly_apart(a: Region, b: Region, v: Var, inside: set[Var], forms: Forms) -> bool:
    """As `apart`, of starts in which v stands beside the other variables of `inside`, in the same
    terms in both, and which the other terms cannot make up for; False for others.

    What varies inside is taken as independent in both, so that no variable needs a second name.
    """
    equal: list[Expr] = []
    for sa, ea, sb, eb in zip(a.starts, a.extents, b.starts, b.extents, strict=True):
        many_a, many_b = as_int(ea), as_int(eb)
        if many_a is None or many_b is None:
            continue
        if v not in forms.variables(sa) or v not in forms.variables(sb):
            continue
        fa, fb = forms.affine(sa), forms.affine(sb)
        terms: dict[Expr, int] = {}
        low: float = fa.const - fb.const - many_b + 1
        high: float = fa.const - fb.const + many_a - 1
        for t in fa.terms.keys() | fb.terms.keys():
            ka, kb = fa.terms.get(t, 0), fb.terms.get(t, 0)
            variables = forms.variables(t)
            least, most = forms.term_bounds(t)
            moving = not variables.isdisjoint(inside)
            if v in variables:
                if ka != kb or not variables & inside <= {v}:
                    break
                terms[t] = ka
                continue
            for k in (ka, -kb) if moving else (ka - kb,):
                if k:
                    low += k * (least if k > 0 else most)
                    high += k * (most if k > 0 else least)
        else:
            equal += heavy(forms, terms, max(high, -low))
    return v in equal or plainly_follows(v, equal, {v}, forms)


def _gap(forms: Forms, a: Affine, ea: Expr, b: Affine, eb: Expr) -> tuple[float, float]:
    """By how much an element of [a, a + ea) may lie behind one of [b, b + eb): the ends."""
    gap = forms.sum(a, b, -1)
    low = forms.bounds(gap - forms.affine(eb) + 1)[0]
    return low, forms.bounds(gap + forms.affine(ea) - 1)[1]


# Memory of one iteration ---------------------------------------------------------------------


def private_to(func: Func, path: Sequence[Stmt]) -> frozenset[str]:
    """The buffers of which each iteration of a loop could have a copy of its own.

    They are allocated outside of the loop, used only inside it, and every iteration writes first
    what it reads; or every iteration of a loop further inside, if all uses are there.
    """
    loop = path[-1]
    assert isinstance(loop, For)
    around = {s.buffer.name for s in path if isinstance(s, Alloc)}
    body = below(loop.body)
    used = {a.buffer for a in body.accesses} & around
    if not used:
        return frozenset()
    outside = {a.buffer for a in below(func.body, skip=loop).accesses}
    known = Facts(ranges_at(func, (*path, *body.loops)))
    return frozenset(
        n
        for n in used - outside
        if _written_first(body, n, known) or _written_first(_around(body, n), n, known)
    )


def _around(body: Body, buffer: str) -> Body:
    """What stands below the innermost loop that all uses of a buffer are in."""

    def uses(body: Body) -> int:
        return sum(a.buffer == buffer for a in body.accesses)

    everywhere = uses(body)
    inside = (below(f.body) for f in reversed(body.loops))
    return next((b for b in inside if uses(b) == everywhere), body)


def _written_first(body: Body, buffer: str, known: Facts) -> bool:
    """Does an iteration write all it reads of a buffer before it reads it?"""
    varying: Ranges = {f.var: loop_range(f) for f in body.loops}
    written: list[Region] = []
    for a in body.accesses:
        if a.buffer != buffer:
            continue
        if not a.writes:
            relaxed = cover_region(a.region, varying, known)
            if not any(_holds(w, relaxed, known) for w in written):
                return False
        elif isinstance(a.stmt, Block) and _always_runs(a.stmt, a.region, known):
            made = _filled(a.region, varying, known)
            written += [] if made is None else [made]
    return True


def _always_runs(block: Block, region: Region, known: Facts) -> bool:
    """Does the guard leave out only instances beyond the buffer, or parts of reductions?"""
    if block.init is None and any(
        isinstance(s, If) or (isinstance(s, Block) and s.where is not None)
        for s in statements(block.body)
    ):
        return False
    reduced = uses(block, ("reduce",)) - uses(block, ("spatial", "ordered"))
    left = [c for c in conditions(block.where) if not free_vars(c) <= reduced]
    if not left:
        return True
    indices = zip(region.starts, region.buffer.shape, strict=True)
    inside = conjunction([c for start, size in indices for c in (start >= 0, start < size)])
    there = known if inside is None else known.under(inside)
    return all(as_int(there.condition(c)) == 1 for c in left)


def _filled(region: Region, varying: Ranges, known: Facts) -> Region | None:
    """The rectangle that a region fills without gaps while loops run; None if that is not known."""
    starts: list[Expr] = []
    extents: list[Expr] = []
    seen: set[Expr] = set()  # a loop that moves two dimensions fills no rectangle
    for start, extent in zip(region.starts, region.extents, strict=True):
        form = known.affine(start)
        reach: float | None = as_int(extent)
        for t, c in sorted(form.terms.items(), key=lambda item: abs(item[1])):
            if t not in varying:
                continue
            if t in seen:
                return None
            seen.add(t)
            low, high = known.term_bounds(t)
            if reach is None or abs(c) > reach or (high == inf and c < 0):
                return None
            form = form - Affine({t: c}, 0) + int(c * (low if c > 0 else high))
            reach += abs(c) * (high - low)
        if any(free_vars(t) & varying.keys() for t in form.terms):
            return None
        starts.append(known.expr(form))
        if reach == inf:  # as far as an open loop runs
            try:
                _, (count,) = cover((start,), varying, known)
            except ValueError:
                return None
            extents.append(count + (extent - 1))
        else:
            extents.append(extent if reach is None else const(int(reach)))
    return Region(region.buffer, tuple(starts), tuple(extents))


def _holds(outer: Region, region: Region, known: Facts) -> bool:
    """Does `outer` hold all of `region` that is in the buffer?"""
    return outer == region or all(
        prove_less_equal(so, s, known)
        and (prove_less_equal(s + e, so + eo, known) or prove_less_equal(size, so + eo, known))
        for so, eo, s, e, size in zip(
            outer.starts,
            outer.extents,
            region.starts,
            region.extents,
            outer.buffer.shape,
            strict=True,
        )
    )


# Another order ------------------------------------------------------------------------------


def reversed_dependence(
    func: Func, path: Sequence[Stmt], nest: Sequence[For], order: Sequence[str]
) -> Obstacle | None:
    """Why `nest` (outermost first; `path` leads to its outermost loop) cannot run in `order`."""
    rank = {name: n for n, name in enumerate(order)}
    swapped = [
        (a.var, b.var)
        for n, a in enumerate(nest)
        for b in nest[n + 1 :]
        if rank[a.name] > rank[b.name]
    ]
    body = below(nest[-1].body)
    ranges = ranges_at(func, (*path, *nest, *body.loops))
    inside = {f.var for f in (*nest, *body.loops)}
    for block in body.blocks:
        found = _out_of_order(block, swapped, inside, ranges)
        if found is not None:
            return block, found
    moved = [f.var for f in nest if any(f.var in pair for pair in swapped)]
    private = frozenset(b.name for b in body.allocated)
    return _conflict(body, private, moved, inside, Forms(ranges))


def _out_of_order(
    block: Block, swapped: Sequence[tuple[Var, Var]], inside: set[Var], ranges: Ranges
) -> str | None:
    """Why one block's instances may not run with the pairs of loops swapped."""
    ordered = uses(block, ("ordered",))
    for a, b in swapped:
        if a in ordered:
            return (
                f"block '{block.name}' must run in order along '{a.name}',"
                f" which would move inside '{b.name}'"
            )
    if block.init is None:
        return None
    reduced, spatial = uses(block, ("reduce",)), uses(block, ("spatial",))
    if not any(a in reduced or b in reduced for a, b in swapped):
        return None
    values, forms = axis_values(block, "spatial"), Forms(ranges)
    for pair in swapped:
        for r, x in (pair, pair[::-1]):
            if r not in reduced:
                continue
            if x in reduced and (x in spatial or r in spatial):
                return (
                    f"the start of block '{block.name}'s reduction hangs on both"
                    f" '{r.name}' and '{x.name}'"
                )
            if x not in reduced and not follows(x, values, inside, forms):
                return (
                    f"block '{block.name}' reduces over '{r.name}' and would start again"
                    f" in several iterations of '{x.name}'"
                )
    return None
