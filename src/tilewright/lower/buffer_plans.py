"""buffer_plans: where each allocated buffer lives, and how much of it is used there.

In: a function in stage "blocks". Out: a `Plan` for each buffer whose allocation it may move: the
innermost loop that all uses share and that reads only what its own round wrote, what is left of the
buffer, and where that begins. `compact_buffers` does what is found here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from itertools import pairwise
from math import inf

from tilewright.arith.affine import Affine
from tilewright.arith.coverage import reach, values_of
from tilewright.arith.interval import Ranges
from tilewright.arith.region import cover, cover_region, union
from tilewright.arith.simplify import Facts, loop_range, simplify
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Const,
    Expr,
    Load,
    Unary,
    UnaryOp,
    Var,
    as_int,
    const,
)
from tilewright.ir.stmt import Alloc, Block, For, Func, If, Let, Region, Seq, Stmt, Store
from tilewright.ir.walk import (
    accesses,
    free_vars,
    loads,
    reads,
    statements,
    substitute,
)
from tilewright.lower.hoist_buffers import can_hoist
from tilewright.lower.lower_blocks import parts_of
from tilewright.support.node import Node
from tilewright.support.record import record


def plans(func: Func) -> tuple[dict[Buffer, Plan], set[Buffer]]:
    """The plans of a function's buffers, and the buffers that nothing uses."""
    uses = _Uses()
    params = {p for p in func.params if isinstance(p, Var)}
    uses.walk(func.body, (), Facts(dict.fromkeys(params, (0, None))), False)
    depths = {b: len(loops) for b, loops in uses.alloc_loops.items()}
    found = {b: _plan(b, u, depths[b], params) for b, u in uses.of.items() if b in depths}
    return found, {b for b in uses.alloc_loops if b not in uses.of}


@record
class _Access:
    """A region that a block (or statement) touches, in terms of the loops around it."""

    region: Region
    loops: tuple[For, ...]
    known: Facts  # under the guards that hold there
    writes: bool
    surely: bool  # not under an If, so that a write counts
    carried: set[Var]  # loops over which the accesses combine: the buffer must outlive them
    relaxed: dict[int, Region] = field(default_factory=dict[int, Region])  # by depth: `_relaxed`


@record
class Plan:
    """Where a buffer lives (None: outside all loops), what is left of it, and where that begins."""

    loop: str | None
    buffer: Buffer
    starts: tuple[Expr, ...]


class _Uses:
    """All accesses to allocated buffers, in program order, and the loops around each allocation."""

    def __init__(self) -> None:
        self.of: dict[Buffer, list[_Access]] = {}
        self.alloc_loops: dict[Buffer, tuple[For, ...]] = {}

    def walk(self, s: Stmt, loops: tuple[For, ...], known: Facts, guarded: bool) -> None:
        if isinstance(s, For):
            self.reads((s.start, s.stop), loops, known, guarded)
            inside = known.bind(s.var, *loop_range(s))
            self.walk(s.body, (*loops, s), inside, guarded)
        elif isinstance(s, Seq):
            for c in s.stmts:
                self.walk(c, loops, known, guarded)
        elif isinstance(s, Alloc):
            if not guarded:
                self.alloc_loops[s.buffer] = loops
            self.walk(s.body, loops, known, guarded)
        elif isinstance(s, If):
            self.reads((s.cond,), loops, known, guarded)
            self.walk(s.then, loops, known.during(s.cond, s.then), True)
            if s.other is not None:
                otherwise = Unary(UnaryOp.logical_not, s.cond)
                self.walk(s.other, loops, known.during(otherwise, s.other), True)
        elif isinstance(s, Let):
            self.reads((s.value,), loops, known, guarded)
            self.walk(s.body, loops, known, guarded)
        elif isinstance(s, Block):
            self.block(s, loops, known, guarded)
        elif isinstance(s, Store):
            self.reads((*s.indices, s.value), loops, known, guarded)
            self.element(s, loops, known, guarded)
        else:
            self.reads(s.children(), loops, known, guarded)

    def block(self, s: Block, loops: tuple[For, ...], known: Facts, guarded: bool) -> None:
        values = {a.var: a.value for a in s.axes}
        inside = known if s.where is None else known.under(s.where)
        surely = not guarded and _guards_the_domain(s, known)
        carried: set[Var] = set()
        for a in s.axes:
            if a.kind == "reduce":
                carried |= free_vars(a.value)
        parts = [part for part in (s.init, s.body) if part is not None]
        inner = {n.buffer for part in parts for n in statements(part) if isinstance(n, Alloc)}
        for r in s.reads:
            if r.buffer not in inner:
                access = _Access(substitute(r, values), loops, inside, False, surely, set())
                self.of.setdefault(r.buffer, []).append(access)
        for r in s.writes:
            if r.buffer not in inner:
                # without the guard: what it keeps out is not part of the buffer
                access = _Access(substitute(r, values), loops, known, True, surely, carried)
                self.of.setdefault(r.buffer, []).append(access)
        declared = {r.buffer for r in (*s.reads, *s.writes)} | inner
        for n in (n for part in parts for n in accesses(part)):
            if n.buffer not in declared:
                whole = Region(n.buffer, (const(0),) * n.buffer.rank, n.buffer.shape)
                access = _Access(whole, loops, known, isinstance(n, Store), False, carried)
                self.of.setdefault(n.buffer, []).append(access)

    def reads(
        self, parts: Iterable[Node], loops: tuple[For, ...], known: Facts, guarded: bool
    ) -> None:
        """Loads in expressions outside any block."""
        for n in (n for part in parts for n in loads(part)):
            self.element(n, loops, known, guarded)

    def element(self, n: Load | Store, loops: tuple[For, ...], known: Facts, guarded: bool) -> None:
        """One element; or the whole buffer, where an index is itself loaded."""
        region = Region(n.buffer, n.indices, (const(1),) * n.buffer.rank)
        if any(map(reads, n.indices)):
            region = Region(n.buffer, (const(0),) * n.buffer.rank, n.buffer.shape)
        access = _Access(region, loops, known, isinstance(n, Store), not guarded, set())
        self.of.setdefault(n.buffer, []).append(access)


def _guards_the_domain(block: Block, known: Facts) -> bool:
    """Whether the guard keeps out only instances of which an axis is beyond its extent."""
    if block.where is None:
        return True
    ends = [known.sum(known.affine(a.extent), known.affine(a.value), -1) - 1 for a in block.axes]
    for part in parts_of(block.where):
        if not isinstance(part, Binary) or part.op not in (BinaryOp.lt, BinaryOp.le):
            return False
        gap = known.sum(known.affine(part.b), known.affine(part.a), -1)
        form = gap - (part.op is BinaryOp.lt)
        if not any(_fails_with(form, end, known) for end in ends):
            return False
    return True


def _fails_with(form: Affine, end: Affine, known: Facts) -> bool:
    """Is `end` negative wherever `form` is?

    Of form ≤ -1 follows n * form + n - 1 ≤ -1; a guard on whole tiles of n is n times too small.
    """
    if end.terms.keys().isdisjoint(form.terms):
        return False  # one says nothing of the other
    times = {1}
    for t, c in form.terms.items():
        n, rest = divmod(end.terms.get(t, 0), c)
        if rest == 0 and n > 1:
            times.add(n)
    return any(known.nonnegative(known.sum(form * n + (n - 1), end, -1)) for n in times)


# ---- where a buffer lives, and how much of it


def _plan(buffer: Buffer, uses: list[_Access], alloc_depth: int, params: set[Var]) -> Plan:
    depth = _deepest(buffer, uses, alloc_depth)
    while depth > alloc_depth and not _is_whole_inside(uses, depth):
        depth -= 1
    starts, shape = _shrink(buffer, uses, depth, params)
    if depth > alloc_depth and any(as_int(extent) is None for extent in shape):
        # it will be outside again, as large, for each thread: unless that is less than the whole
        if shape == buffer.shape or not can_hoist(uses[0].loops[:depth], shape, params):
            depth = alloc_depth
            starts, shape = _shrink(buffer, uses, depth, params)
    loops = uses[0].loops[:depth]
    made = buffer.replace(shape=shape, strides=_strides(buffer, shape))
    return Plan(loops[-1].name if loops else None, made, starts)


def _deepest(buffer: Buffer, uses: list[_Access], alloc_depth: int) -> int:
    """The most loops that all uses share and that the buffer's scope may stand in."""
    common = uses[0].loops
    for use in uses[1:]:
        n = 0
        while n < min(len(common), len(use.loops)) and common[n] is use.loops[n]:
            n += 1
        common = common[:n]
    carried: set[Var] = set()
    for use in uses:
        carried |= use.carried
    for n, loop in enumerate(common):
        if n >= alloc_depth and (loop.var in carried or not _may_enter(buffer.scope, loop)):
            return n
    return len(common)


def _may_enter(scope: str, loop: For) -> bool:
    """Whether each iteration of `loop` may have a buffer of its own."""
    if loop.kind == "thread":
        return scope != "global"
    return loop.kind in ("serial", "parallel", "unroll", "vthread")


def _is_whole_inside(uses: list[_Access], depth: int) -> bool:
    """Whether one iteration of the loops outside `depth` reads only what it wrote before."""
    written: list[Region] = []
    for use in uses:
        if use.writes:
            region = _surely_written(use, depth) if use.surely else None
            if region is not None:
                written.append(region)
        elif not written or not _holds(union(written, use.known), _relaxed(use, depth), use.known):
            return False
    return True


def _relaxed(use: _Access, depth: int) -> Region:
    """The relaxed region: what an access may touch while the loops inside `depth` run."""
    found = use.relaxed.get(depth)
    if found is None:
        found = cover_region(use.region, _varying(use, depth), use.known)
        use.relaxed[depth] = found
    return found


def _varying(use: _Access, depth: int) -> Ranges:
    """The loops that run while a buffer at `depth` lives: those inside, threads that share it."""
    shared = use.region.buffer.scope != "local"
    ranges = use.known.ranges
    return {
        loop.var: ranges[loop.var]
        for n, loop in enumerate(use.loops)
        if n >= depth or (shared and loop.thread.startswith("threadIdx"))
    }


def _surely_written(use: _Access, depth: int) -> Region | None:
    """The rectangle of which the loops inside `depth` write every element; None if it has gaps."""
    varying = _varying(use, depth)
    moving, terms = frozenset(varying), list[Expr]()
    if any(free_vars(e) & moving for f in use.loops for e in (f.start, f.stop)):
        return None
    for start, extent in zip(use.region.starts, use.region.extents, strict=True):
        width = as_int(extent)
        if width is None:
            return None
        steps: list[tuple[int, float]] = []
        for t, c in use.known.affine(start).terms.items():
            if not use.known.variables(t) & moving:
                continue
            ends = use.known.term_bounds(t) if isinstance(t, Var) else values_of(t, varying)
            if ends is None:
                return None
            steps.append((abs(c), ends[1] - ends[0]))
            terms.append(t)
        if reach(width, steps) is None:
            return None
    if not _are_independent(terms, varying, use.known):
        return None
    try:
        starts, counts = cover(use.region.starts, varying, use.known)
    except ValueError:
        return None
    extents = [n + (e - 1) for n, e in zip(counts, use.region.extents, strict=True)]
    return Region(use.region.buffer, starts, tuple(extents))


def _are_independent(terms: Iterable[Expr], varying: Ranges, known: Facts) -> bool:
    """Do terms take all combinations of their values: do those of different bases follow from
    different variables, and are those of one base digits that do not overlap, of whole rounds of
    all but the highest?"""
    by_base: dict[Expr, list[tuple[int, int | None]]] = {}
    for t in terms:
        digit = known.names.digits.get(t)
        base, of = (t, (1, None)) if digit is None else (digit.base, (digit.l, digit.u))
        by_base.setdefault(base, []).append(of)
    seen = set[Var]()
    for base, digits in by_base.items():
        moving = known.variables(base) & varying.keys()
        if moving & seen:
            return False
        seen |= moving
        if len(digits) > 1:
            digits.sort(key=lambda digit: digit[0])
            if any(u is None or l % u for (_, u), (l, _) in pairwise(digits)):
                return False
            ends, highest = values_of(base, varying), digits[-1][0]
            if ends is None or ends[0] % highest or (ends[1] + 1) % highest:
                return False
    return True


def _holds(outer: Region, inner: Region, known: Facts) -> bool:
    """Whether all that is in `inner` is in `outer`; beyond the buffer, guards keep accesses out."""
    for d, size in enumerate(outer.buffer.shape):
        if outer.starts[d] == inner.starts[d] and outer.extents[d] == inner.extents[d]:
            continue
        a, b = known.affine(outer.starts[d]), known.affine(inner.starts[d])
        a_end = known.sum(a, known.affine(outer.extents[d]))
        b_end = known.sum(b, known.affine(inner.extents[d]))
        if not known.nonnegative(known.sum(b, a, -1)):
            return False
        ends = b_end, known.affine(size)
        if not any(known.nonnegative(known.sum(a_end, end, -1)) for end in ends):
            return False
    return True


def _shrink(
    buffer: Buffer, uses: list[_Access], depth: int, params: set[Var]
) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """Where the part in use begins, and its shape."""
    ranges = {loop.var: loop_range(loop) for loop in uses[0].loops[:depth]}
    known = Facts({**ranges, **dict.fromkeys(params, (0, None))})
    region = union([_relaxed(use, depth) for use in uses], known)
    still = set(ranges) | params  # over threads that share the buffer it is relaxed
    starts: list[Expr] = []
    shape: list[Expr] = []
    for start, extent, size in zip(region.starts, region.extents, buffer.shape, strict=True):
        most = known.bounds(known.affine(extent))[1]
        old = as_int(size)
        if isinstance(extent, Const):
            length: Expr = extent
        elif most != inf:
            length = const(int(most))
        else:
            length = size
        new = as_int(length)
        no_gain = old is not None and new is not None and new >= old
        if length is size or no_gain or not free_vars(start) <= still:
            start, length = const(0), size
        starts.append(start)
        shape.append(length)
    return tuple(starts), tuple(shape)


def _strides(buffer: Buffer, shape: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
    """Strides of the smaller shape; the gaps that the old strides left between rows stay."""
    if buffer.strides is None or shape == buffer.shape:
        return buffer.strides
    made: list[Expr] = [buffer.strides[-1]]
    for d in range(len(shape) - 2, -1, -1):
        gap = buffer.strides[d] - buffer.shape[d + 1] * buffer.strides[d + 1]
        made.insert(0, simplify(shape[d + 1] * made[0] + gap))
    return tuple(made)
