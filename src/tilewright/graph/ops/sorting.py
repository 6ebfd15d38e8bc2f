"""Sorting along an axis, in statements: a few kept in order, or all of them by their digits.

In: a tensor, an axis, the shape of the result, and whether the greatest come first. Out: values and
indices (and buffers that the work needs). Both are stable: of equals the first comes first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import cache, partial
from math import log
from typing import Any

from tilewright import te
from tilewright.arith.simplify import simplify
from tilewright.graph import sizes
from tilewright.graph.ops.movement import unravel
from tilewright.ir.dtype import DType, f32, f64, i32, i64, u32, u64
from tilewright.ir.expr import Buffer, Call, Expr, Load, Var, as_int, eq, maximum, minimum, select
from tilewright.ir.expr import const as constant
from tilewright.ir.stmt import Alloc, For, If, Let, Stmt, Store, seq

ZERO, ONE = constant(0), constant(1)
MOST_KEPT = 24  # in order while the rest passes by: more take longer than sorting
LINES = 16  # that are walked side by side, each in a lane
VECTOR = 16  # elements of a row of open length that run together
SQUARE = 8  # elements of each that are read at once
IN_REGISTERS = 8  # elements of a line that are kept there
# Cycles: of an element that passes by, of one that enters and for each step that others move up;
# of sorting a line, and each element of it; of one of a line among others, and for each kept in a
# register, or not, where vectors have 32 bytes.
PASSES, ENTERS, MOVES, SORTS, EACH = 4.0, 20.0, 3.0, 2500.0, 15.0
GATHERED, KEPT, STORED = 0.5, 0.65, 1.25
BITS, DIGITS = 8, 256  # of a digit, and how many there are
LANES = 8  # of counts that are emptied at once
BATCH, LEAST_BATCH = 4, 256  # times the result, or so many, are sorted at once

IndexOf = Callable[[Expr], tuple[Expr, ...]]  # of an element along the axis


def loops(shape: Any, body: Any, name: str, in_vectors: bool = False) -> Stmt:
    """A nest of loops over `shape` around body(*indices), one after the other; `in_vectors`: those
    of the last axis may run together."""
    names = [Var(f"{name}{d}") for d in range(len(shape))]
    if in_vectors and shape and as_int(shape[-1]) is None:
        vector, lane = names[-1], Var(f"{name}_lane")
        at = vector * VECTOR + lane
        nest: Stmt = If(at < shape[-1], body(*names[:-1], at))
        nest = For(lane, ZERO, constant(VECTOR), "vectorize", nest)
        shape = (*shape[:-1], (shape[-1] + VECTOR - 1) // VECTOR)
    else:
        nest = body(*names)
        if in_vectors and shape and (as_int(shape[-1]) or 0) > 1:
            nest = For(names.pop(), ZERO, shape[-1], "vectorize", nest)
    for v, extent in reversed([*zip(names, shape, strict=False)]):
        nest = For(v, ZERO, extent, "serial", nest)
    return nest


def along(
    shape: sizes.Shape, axis: int, row: Callable[[IndexOf], Stmt], apart: bool = True
) -> Stmt:
    """`row` for each line of a tensor along an axis. `apart`: threads may divide the lines."""
    lines = sizes.product((*shape[:axis], *shape[axis + 1 :]))
    line = ZERO if as_int(lines) == 1 else Var("sort_line")
    whole = row(_in_line(line, shape, axis))
    if not isinstance(line, Var):
        return whole
    return For(line, ZERO, lines, "parallel" if apart else "serial", whole)


def _in_line(line: Expr, shape: sizes.Shape, axis: int) -> IndexOf:
    """The indices of the elements of one line along an axis."""
    where = unravel(line, (*shape[:axis], *shape[axis + 1 :]))
    return lambda at: (*where[:axis], at, *where[axis:])


def better(a: Expr, b: Expr, largest: bool) -> Expr:
    """Does a come before b? No number (NaN) counts as greater than all."""
    if not a.dtype.is_float:
        return a > b if largest else a < b
    first, last = (a, b) if largest else (b, a)
    return ~(first <= last) & eq(last, last)


def selection(x: Any, axis: int, shape: sizes.Shape, largest: bool) -> Any:
    """A few of each line are kept in order while the rest passes by."""

    def body(inputs: list[Buffer], outputs: list[Buffer]) -> Stmt:
        (source,), (values, indices) = inputs, outputs
        work = source, values, indices, axis, largest
        return _by_lines(*work, partial(_selected, *work))

    types = [x.dtype, i64]
    return te.extern([shape, shape], [x], body, dtype=types, name="top_k")


def _by_lines(
    source: Buffer,
    values: Buffer,
    indices: Buffer,
    axis: int,
    largest: bool,
    row: Callable[[IndexOf], Stmt],
    apart: bool = True,
) -> Stmt:
    """`row` for each line, as `along` has it, or as many lines side by side as a vector has lanes,
    where that pays: what an open size decides the run asks."""
    shape, side_by_side = source.shape, is_worth_lanes(source, axis, values.shape[axis])
    if side_by_side == ZERO:
        return along(shape, axis, row, apart)
    part, lines = Var("sort_part"), sizes.product((*shape[:axis], *shape[axis + 1 :]))
    groups = (lines + LINES - 1) // LINES
    in_lanes = _selected_in_lanes(source, values, indices, axis, largest, part)
    if side_by_side == ONE:
        return For(part, ZERO, groups, "parallel", in_lanes)
    parts = lines - side_by_side * (lines - groups)
    body = If(side_by_side > 0, in_lanes, row(_in_line(part, shape, axis)))
    return For(part, ZERO, parts, "parallel", body)


def is_worth_lanes(x: Any, axis: int, k: Expr) -> Expr:
    """Whether (1 or 0) lines had better be walked several at a time, each in a lane: without
    asking, everything that is kept takes a step for each element, and so pays for short lines
    only."""
    lines, count = sizes.product((*x.shape[:axis], *x.shape[axis + 1 :])), as_int(k)
    longest = _longest_in_lanes(count) if count and x.dtype.bits == 32 else -1
    if longest < (count or 0):
        return ZERO
    spare = longest - x.shape[axis]
    several, short = (minimum(maximum(e + 1, ZERO), ONE) for e in (lines - LINES, spare))
    return simplify(several * short)


@cache
def _longest_in_lanes(k: int) -> int:
    """How long lines may be, k of which are kept, to be walked several at a time."""

    def is_faster(n: int) -> bool:
        if k <= MOST_KEPT:
            alone = n * PASSES + k * (1 + log(max(1.0, n / k))) * (ENTERS + k * MOVES)
        else:
            alone = SORTS + n * EACH
        return n * (GATHERED + k * (KEPT if k <= IN_REGISTERS else STORED)) < alone

    return bisect_left(range(1 << 30), True, key=lambda n: not is_faster(n)) - 1


def _selected(
    source: Buffer, values: Buffer, indices: Buffer, axis: int, largest: bool, full: IndexOf
) -> Stmt:
    """Of one line: each element that beats the last one kept moves up to its position among them, n
    steps, and k for each that is kept on the way."""
    n, k = source.shape[axis], values.shape[axis]
    seen, step = Var("sort_at"), Var("sort_step")
    new, last = Load(source, full(seen)), minimum(seen, k - 1)
    position = last - step
    here, above = full(position), full(maximum(position - 1, ZERO))
    free = eq(position, seen)  # nothing is kept there yet
    moves = (position > 0) & better(new, Load(values, above), largest)
    enters = free | better(new, Load(values, here), largest)

    def chosen(kept: Buffer, own: Expr) -> Expr:
        return select(moves, Load(kept, above), select(enters, own, Load(kept, here)))

    shift = seq(  # indices first: the values decide
        Store(indices, here, chosen(indices, seen)),
        Store(values, here, chosen(values, new)),
    )
    beaten = Load(values, full(maximum(k - 1, ZERO)))
    wanted = (seen < k) | better(new, beaten, largest)
    insert = For(step, ZERO, last + 1, "serial", shift)
    return For(seen, ZERO, n, "serial", If(wanted, insert))


def _selected_in_lanes(
    source: Buffer, values: Buffer, indices: Buffer, axis: int, largest: bool, group: Expr
) -> Stmt:
    """Of as many lines side by side as a vector has lanes. The last ones are some of those before
    again, where lines are no number of vectors."""
    n, k = source.shape[axis], as_int(values.shape[axis]) or 0
    rest = (*source.shape[:axis], *source.shape[axis + 1 :])
    block, column, lane = Var("sort_block"), Var("sort_column"), Var("sort_lane")
    seen, many = block * SQUARE + column, minimum(constant(SQUARE), n - block * SQUARE)
    line = minimum(group * LINES, sizes.product(rest) - LINES) + lane
    where = unravel(line, rest)
    new = Buffer("sort_new", (constant(SQUARE), constant(LINES)), source.dtype, "local")
    kept = Buffer("sort_values", (constant(k), constant(LINES)), source.dtype, "local")
    positions = Buffer("sort_positions", kept.shape, i32, "local")
    passing = Load(new, (column, lane))

    def full(at: Expr) -> tuple[Expr, ...]:
        return *where[:axis], at, *where[axis:]

    def in_lanes(body: Stmt) -> Stmt:
        return For(lane, ZERO, constant(LINES), "vectorize", body)

    def by_slots(name: str, step: Callable[[Expr], Stmt]) -> Stmt:
        slot = Var(f"sort_slot_{name}")
        kind = "unroll" if k <= IN_REGISTERS else "serial"
        return For(slot, ZERO, constant(k), kind, in_lanes(step(slot)))

    def wins(slot: Expr) -> Expr:
        return (seen <= slot) | better(passing, Load(kept, (slot, lane)), largest)

    def shift(step: Expr) -> Stmt:
        slot = k - 1 - step
        above = maximum(slot - 1, ZERO)
        moves, enters = (slot > 0) & wins(above), wins(slot)

        def chosen(of: Buffer, own: Expr) -> Expr:
            there = select(enters, own, Load(of, (slot, lane)))
            return select(moves, Load(of, (above, lane)), there)

        return seq(  # indices first: the values decide
            Store(positions, (slot, lane), chosen(positions, seen.astype(i32))),
            Store(kept, (slot, lane), chosen(kept, passing)),
        )

    def empty(slot: Expr) -> Stmt:
        none = constant(0, source.dtype)
        return seq(
            Store(kept, (slot, lane), none), Store(positions, (slot, lane), constant(0, i32))
        )

    def leave(slot: Expr) -> Stmt:
        return seq(
            Store(values, full(slot), Load(kept, (slot, lane))),
            Store(indices, full(slot), Load(positions, (slot, lane)).astype(i64)),
        )

    def fetch(kind: str, count: Expr) -> Stmt:
        at = Var(f"sort_{kind}")
        moved = Store(new, (at, lane), Load(source, full(block * SQUARE + at)))
        return For(at, ZERO, count, kind, in_lanes(moved))

    square = constant(SQUARE)
    read = If(many >= SQUARE, fetch("unroll", square), fetch("serial", many))
    pass_by = For(column, ZERO, many, "serial", by_slots("shift", shift))
    walk = For(block, ZERO, (n + SQUARE - 1) // SQUARE, "serial", seq(read, pass_by))
    whole = seq(by_slots("empty", empty), walk, by_slots("leave", leave))
    for own in (new, kept, positions):
        whole = Alloc(own, whole)
    return whole


def radix_sort(x: Any, axis: int, shape: sizes.Shape, largest: bool) -> Any:
    """Whole numbers in the elements' order are sorted by one digit after the other, the last first;
    a digit that is the same in all is left out. So many steps for an element, whatever the others.

    Of what is no more than a few times the result, all is sorted at once. Else what is read is
    sorted whenever there is so much of it, and from then on only what comes before the last one
    kept is. Lines of which a known number lies in memory at once have memory of their own, and
    threads divide them.
    """
    kind, digits = _keys_of(x.dtype)
    n, k = x.shape[axis], shape[axis]
    most = maximum(k * BATCH, constant(LEAST_BATCH))
    length, batch = as_int(n), as_int(most)
    whole = length is not None and batch is not None and length <= batch * 2
    held = most if batch is not None and not whole else n  # elements at once
    line = (sizes.size(held * 2),)
    several = as_int(sizes.product((*x.shape[:axis], *x.shape[axis + 1 :]))) != 1
    apart = several and as_int(held) is not None

    def body(inputs: list[Buffer], outputs: list[Buffer]) -> Stmt:
        (source,), (values, indices, *buffers) = inputs, outputs
        if apart:
            buffers = [Buffer("sort_keys", line, kind, "local")]
            buffers.append(Buffer("sort_positions", line, i64, "local"))
        keys, positions = buffers
        sort = _Digits(keys, positions, digits)

        def row(full: IndexOf) -> Stmt:
            at, kept = Var("sort_at"), Var("sort_kept")
            key, position, end = Var("sort_key", kind), Var("sort_position"), Var("sort_end")
            enter: Stmt = seq(
                Store(keys, (end,), key),
                Store(positions, (end,), at),
                sort.set_many(end - sort.now + 1),
            )
            if not whole:
                last = Load(keys, (sort.now + maximum(k - 1, ZERO),))
                one = constant(1, kind)
                cut = seq(
                    sort.by_all("batch"),
                    Store(sort.limit, (ZERO,), maximum(last, one) - one),
                    sort.set_many(k),
                )
                enter = seq(enter, If(sort.many >= most, cut))
            enter = Let(end, sort.now + sort.many, enter)
            if not whole:
                enter = If(key <= Load(sort.limit, (ZERO,)), enter)
            leave = seq(
                Store(values, full(kept), Load(source, full(position))),
                Store(indices, full(kept), position),
            )
            found = Load(positions, (sort.now + kept,))
            steps = seq(
                Store(sort.side, (ZERO,), ZERO),
                Store(sort.limit, (ZERO,), ~constant(0, kind)),
                sort.set_many(ZERO),
                For(at, ZERO, n, "serial", Let(
                    key, _key(Load(source, full(at)), kind, digits, largest), enter
                )),
                If(sort.many > ZERO, sort.by_all("rest")),
                For(kept, ZERO, k, "serial", Let(position, found, leave)),
            )  # fmt: skip
            for own in (*sort.own, *(buffers if apart else ())):
                steps = Alloc(own, steps)
            return steps

        return _by_lines(source, values, indices, axis, largest, row, apart)

    more = [] if apart else [(line, kind), (line, i64)]
    shapes, types = [shape, shape, *(s for s, _ in more)], [x.dtype, i64, *(t for _, t in more)]
    return te.extern(shapes, [x], body, dtype=types, name="sort")


class _Digits:
    """Sorting by digits, between the two halves of `keys` and `positions`: `side` says where the
    half begins that holds `many` of them now. `counts` tells how many have each digit, then where
    the next one goes."""

    def __init__(self, keys: Buffer, positions: Buffer, digits: int) -> None:
        self.keys, self.positions, self.digits = keys, positions, digits
        self.half = keys.shape[0] // 2

        def own(name: str, count: int = 1, of: DType = i64) -> Buffer:
            return Buffer(f"sort_{name}", (constant(count),), of, "local")

        self.counts, self.side = own("counts", digits * DIGITS), own("side")
        self.total, self.length = own("total"), own("length")
        self.limit = own("limit", of=keys.dtype)
        self.own = [self.counts, self.side, self.total, self.length, self.limit]
        self.now, self.many = Load(self.side, (ZERO,)), Load(self.length, (ZERO,))

    def set_many(self, many: Expr) -> Stmt:
        return Store(self.length, (ZERO,), many)

    def cell(self, key: Expr, digit: Expr) -> Expr:
        shifted = key >> (digit * BITS).astype(key.dtype)
        return digit * DIGITS + (shifted & constant(DIGITS - 1, key.dtype)).astype(i64)

    def by_all(self, name: str) -> Stmt:
        zero, lane, at, digit = (Var(f"sort_{n}_{name}") for n in ("zero", "lane", "each", "digit"))
        empty = Store(self.counts, (zero * LANES + lane,), ZERO)
        empty = For(lane, ZERO, constant(LANES), "vectorize", empty)
        key = Var(f"sort_of_{name}", self.keys.dtype)
        cells = [self.cell(key, constant(d)) for d in range(self.digits)]
        count = seq(*(Store(self.counts, (c,), Load(self.counts, (c,)) + 1) for c in cells))
        same = Load(self.counts, (self.cell(Load(self.keys, (self.now,)), digit),))
        move = If(same < self.many, self.by_one(digit, name))
        return seq(
            For(zero, ZERO, constant(self.digits * DIGITS // LANES), "serial", empty),
            For(at, ZERO, self.many, "serial", Let(key, Load(self.keys, (self.now + at,)), count)),
            For(digit, ZERO, constant(self.digits), "serial", move),
        )

    def by_one(self, digit: Expr, name: str) -> Stmt:
        each, at, begins, cell = (
            Var(f"sort_{n}_{name}") for n in ("value", "from", "begins", "cell")
        )
        many, goal = Var(f"sort_many_{name}"), Var(f"sort_to_{name}")
        key = Var(f"sort_moved_{name}", self.keys.dtype)
        total, other = Load(self.total, (ZERO,)), self.half - self.now
        begin: Stmt = seq(
            Store(self.counts, (begins,), total), Store(self.total, (ZERO,), total + many)
        )
        begin = Let(begins, digit * DIGITS + each, Let(many, Load(self.counts, (begins,)), begin))
        move: Stmt = seq(
            Store(self.counts, (cell,), goal + 1),
            Store(self.keys, (other + goal,), key),
            Store(self.positions, (other + goal,), Load(self.positions, (self.now + at,))),
        )
        for var, value in (
            (goal, Load(self.counts, (cell,))),
            (cell, self.cell(key, digit)),
            (key, Load(self.keys, (self.now + at,))),
        ):
            move = Let(var, value, move)
        return seq(
            Store(self.total, (ZERO,), ZERO),
            For(each, ZERO, constant(DIGITS), "serial", begin),
            For(at, ZERO, self.many, "serial", move),
            Store(self.side, (ZERO,), other),
        )


def _keys_of(of: DType) -> tuple[DType, int]:
    """The unsigned numbers that elements are sorted as, and how many digits they have."""
    bits = max(of.bits, 32) if of.is_float else of.bits  # narrow floats count as f32
    return (u32 if bits <= 32 else u64), -(-bits // BITS)


def _key(x: Expr, kind: DType, digits: int, largest: bool) -> Expr:
    """A number that is less where `x` comes before: of a float its bits, inverted if it is
    negative, else only the first; -0 is 0, and what is no number (NaN) greater than all."""
    if x.dtype.is_float:
        wide = x.astype(f32 if kind is u32 else f64)
        bits: Expr = Call("reinterpret", (wide,), kind)
        top = constant(1 << (kind.bits - 1), kind)
        key = select(bits >= top, ~bits, bits | top)
        key = select(eq(wide, constant(0, wide.dtype)), top, key)
        key = select(eq(wide, wide), key, ~constant(0, kind))
    else:
        least = -x.dtype.lowest if x.dtype.is_int else 0
        key = x.astype(kind) + constant(int(least), kind)
    return constant((1 << digits * BITS) - 1, kind) - key if largest else key
