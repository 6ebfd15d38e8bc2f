"""Sequences whose length, or the shapes in it, only the run knows.

A `Ragged` holds its elements end to end in one vector and their shapes as rows of a matrix; what an
operator does to the sequence is a gather from that vector and one of those rows. Only where an
element leaves the sequence do its sizes become symbols.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontend.onnx.data_dependent import (
    I64,
    choose,
    counted,
    dims,
    floordiv,
    measure,
    numbers,
    op,
    valid,
)
from tilewright.frontend.onnx.registry import NodeContext, Ragged, Refusal, Sequence
from tilewright.graph import sizes
from tilewright.graph.graph import Value
from tilewright.ir.dtype import DType
from tilewright.ir.expr import Expr, as_int


def flat(n: NodeContext, x: Value) -> Value:
    """The elements of x as a vector."""
    return x if x.rank == 1 else op(n, "reshape", x, shape=(x.elements,))


def row_of(n: NodeContext, x: Value, axes: int) -> Value:
    """The shape of x as a row of `axes` numbers: [1, axes]."""
    made = np.full((1, axes), -1, object)
    made[0, : x.rank] = x.shape
    return n.build.from_sizes(made, I64)


def widened(n: NodeContext, shapes: Value, axes: int) -> Value:
    """Rows of shapes with at least `axes` columns."""
    have = as_int(shapes.shape[1])
    assert have is not None
    if have >= axes:
        return shapes
    fill = op(n, "full", shape=(shapes.shape[0], axes - have), value=-1, of="i64")
    return op(n, "concat", shapes, fill, axis=1)


def ragged(n: NodeContext, sequence: Any, of: DType | None = None) -> Ragged:
    """Any sequence as a Ragged one; `of` is the type of the elements of an empty one."""
    if isinstance(sequence, Ragged):
        return sequence
    if not all(isinstance(v, Value) for v in sequence):
        raise Refusal("its elements are no numbers, and the run alone knows its positions")
    if not sequence:
        if of is None:
            raise Refusal("the type of an empty sequence is not known")
        empty = n.build.constant(np.zeros(0, of.numpy), "empty", of)
        return Ragged(empty, numbers(n, np.zeros((0, 1))), None)
    axes = max(1, *(v.rank for v in sequence)) if len(sequence) > 1 else max(1, sequence[0].rank)
    flats, rows = [flat(n, v) for v in sequence], [row_of(n, v, axes) for v in sequence]
    ranks = {v.rank for v in sequence}
    if len(sequence) == 1:
        return Ragged(flats[0], rows[0], ranks.pop())
    data, shapes = op(n, "concat", *flats, axis=0), op(n, "concat", *rows, axis=0)
    return Ragged(data, shapes, ranks.pop() if len(ranks) == 1 else None)


def type_of(sequence: Any) -> DType | None:
    """The type of the elements, where it shows."""
    if isinstance(sequence, Ragged):
        return sequence.data.dtype
    return sequence[0].dtype if sequence else None


def common(a: Ragged, b: Ragged) -> int | None:
    """The rank of what two sequences hold together."""
    if as_int(a.shapes.shape[0]) == 0:
        return b.rank
    return b.rank if as_int(b.shapes.shape[0]) == 0 or a.rank == b.rank else None


def extents(n: NodeContext, shapes: Value) -> Value:
    """How many numbers each element holds: [count]."""
    sizes_ = choose(n, op(n, "less", shapes, 0), 1, shapes)
    return op(n, "reduce_prod", sizes_, axes=(1,))


def starts(n: NodeContext, counts: Value) -> Value:
    """Where each of several neighbours begins, and where the last one ends: [count + 1]."""
    return op(n, "concat", numbers(n, [0]), op(n, "cumsum", counts, axis=0), axis=0)


def position(n: NodeContext, at: Value, count: Expr) -> Value:
    """A position as a vector of one number, counted from the front."""
    at = at if at.dtype is I64 else op(n, "cast", at, to="i64")
    if as_int(at.elements) != 1:
        raise Refusal("a position in a sequence is one number")
    at = op(n, "reshape", at, shape=(1,))
    return choose(n, op(n, "less", at, 0), op(n, "add", at, counted(n, count)), at)


def inside(n: NodeContext, at: Value, count: Value) -> Value:
    """Is 0 <= at < count?"""
    low, high = op(n, "greater_equal", at, 0), op(n, "less", at, count)
    return op(n, "logical_and", low, high)


def at(n: NodeContext, sequence: Any, k: Value) -> Value:
    """The element at a position that the run gives."""
    if not isinstance(sequence, Ragged) and len({(v.dtype, v.shape) for v in sequence}) == 1:
        return one_of_like(n, sequence, k)
    r = ragged(n, sequence)
    if r.rank is None:
        raise Refusal("which rank the element has depends on data")
    count = r.shapes.shape[0]
    k = position(n, k, count)
    fits = inside(n, k, counted(n, count))
    k = choose(n, fits, k, counted(n, count))  # a row of its own, of no sizes
    shapes = op(n, "concat", r.shapes, numbers(n, [[-1] * max(1, r.rank)]), axis=0)
    row = op(n, "reshape", op(n, "gather", shapes, k), shape=(max(1, r.rank),))
    first = op(n, "gather", starts(n, extents(n, r.shapes)), k)
    if r.rank == 0:
        (start,) = measure(n, valid(n, fits, first), "the position")
        return op(n, "reshape", op(n, "slice", r.data, starts=(start,), shape=(1,)), shape=())
    total = op(n, "reduce_prod", row, axes=(0,), keepdims=True)
    asked = op(n, "concat", row, first, valid(n, fits, total), axis=0)
    *shape, start, many = measure(n, asked, "the position")
    part = op(n, "slice", r.data, starts=(start,), shape=(many,))
    return n.emit("view_as", part, shape=tuple(shape))


def one_of_like(n: NodeContext, sequence: Any, k: Value) -> Value:
    """The element at a position, of elements of one shape: a gather. It runs inside loops, too."""
    shape = sequence[0].shape
    parts = [op(n, "reshape", v, shape=(1, *shape)) for v in sequence]
    table = op(n, "concat", *parts, axis=0) if len(parts) > 1 else parts[0]
    k = op(n, "reshape", position(n, k, sizes.size(len(parts))), shape=())
    return n.emit("gather", table, k, axis=0)


def insert(n: NodeContext, sequence: Any, x: Value, k: Value | None) -> Ragged:
    """The sequence with x at position k (None: behind it)."""
    r = ragged(n, sequence, x.dtype)
    axes = max(as_int(r.shapes.shape[1]) or 1, x.rank)
    one = Ragged(flat(n, x), row_of(n, x, axes), x.rank)
    if k is None:
        return joined(n, r, one)
    count, total = r.shapes.shape[0], r.data.shape[0]
    have, k = counted(n, count), position(n, k, count)
    fits = op(n, "logical_or", inside(n, k, have), op(n, "equal", k, have))
    first = op(n, "gather", starts(n, extents(n, r.shapes)), choose(n, fits, k, 0))
    both = joined(n, r, one)
    (rows,) = measure(n, valid(n, fits, op(n, "add", have, 1)), "the position")
    data = moved_in(n, both.data, total, sizes.size(total + x.elements), first)
    return Ragged(data, moved_in(n, both.shapes, count, rows, k), both.rank)


def moved_in(n: NodeContext, x: Value, old: Expr, new: Expr, first: Value) -> Value:
    """The rows of x (`old` of them, then those to be inserted) with those in at `first`."""
    p, have = op(n, "arange", length=new), counted(n, old)
    added = op(n, "sub", counted(n, x.shape[0]), have)
    behind = op(n, "add", op(n, "sub", p, first), have)
    later = op(n, "less", p, op(n, "add", first, added))
    after = choose(n, later, behind, op(n, "sub", p, added))
    return op(n, "gather", x, choose(n, op(n, "less", p, first), p, after), axis=0)


def joined(n: NodeContext, a: Ragged, b: Ragged) -> Ragged:
    """One sequence behind another."""
    if a.data.dtype is not b.data.dtype:
        raise Refusal(f"a sequence holds {a.data.dtype} or {b.data.dtype}, not both")
    axes = max(as_int(s.shapes.shape[1]) or 1 for s in (a, b))
    rows = [widened(n, s.shapes, axes) for s in (a, b)]
    data, shapes = op(n, "concat", a.data, b.data, axis=0), op(n, "concat", *rows, axis=0)
    return Ragged(data, shapes, common(a, b))


def erase(n: NodeContext, sequence: Any, k: Value) -> Ragged:
    """The sequence without the element at position k."""
    r = ragged(n, sequence)
    count = r.shapes.shape[0]
    have, k = counted(n, count), position(n, k, count)
    fits = inside(n, k, have)
    k = choose(n, fits, k, 0)
    ends = starts(n, extents(n, r.shapes))
    first = op(n, "gather", ends, k)
    gone = op(n, "sub", op(n, "gather", ends, op(n, "minimum", op(n, "add", k, 1), have)), first)
    rest = op(n, "sub", counted(n, r.data.shape[0]), gone)
    left = op(n, "concat", op(n, "sub", have, 1), rest, axis=0)
    rows, total = measure(n, valid(n, fits, left), "the position")
    made = []
    for x, size, start, by in ((r.data, total, first, gone), (r.shapes, rows, k, 1)):
        p = op(n, "arange", length=size)
        p = choose(n, op(n, "less", p, start), p, op(n, "add", p, by))
        made.append(op(n, "gather", x, p, axis=0))
    data, shapes = made
    return Ragged(data, shapes, r.rank)


def spans(n: NodeContext, counts: Value, total: Expr) -> tuple[Value, Value, Value]:
    """For each of `total` positions in neighbours of these sizes: in which it lies, where that one
    begins, and its size."""
    ends = starts(n, counts)
    p = op(n, "reshape", op(n, "arange", length=total), shape=(total, 1))
    last = op(n, "slice", ends, starts=(1,), shape=counts.shape)
    past = op(n, "greater_equal", p, op(n, "reshape", last, shape=(1, counts.shape[0])))
    which = op(n, "reduce_sum", op(n, "cast", past, to="i64"), axes=(1,))
    return which, op(n, "gather", ends, which), op(n, "gather", counts, which)


def of_rank(n: NodeContext, r: Ragged, rank: int) -> Ragged:
    """The sequence, of which the model says what rank its elements have; the run sees whether they
    have it."""
    if rank < 0:
        raise Refusal(f"its elements cannot have rank {rank}")
    shapes, axes = widened(n, r.shapes, max(1, rank)), max(1, rank)
    there = op(n, "greater_equal", shapes, 0)
    wanted = op(n, "less", numbers(n, np.arange(as_int(shapes.shape[1]) or 0)), rank)
    fits = op(n, "reduce_all", op(n, "equal", there, wanted), axes=(0, 1))
    shapes = checked(n, fits, shapes, f"elements of rank {rank}")
    own = op(n, "slice", shapes, starts=(0, 0), shape=(shapes.shape[0], axes))
    return Ragged(r.data, own, rank)


def concat(n: NodeContext, r: Ragged, d: int, stacked: bool) -> Value:
    """The elements side by side along axis d, a new one if they are `stacked`."""
    if r.rank is None or not (0 <= d < r.rank + stacked):
        raise Refusal("its elements must have one rank that is known, and the axis")
    rows, count, rank = r.shapes, r.shapes.shape[0], r.rank + stacked
    if stacked:
        ones = op(n, "full", shape=(count, 1), value=1, of="i64")
        order = [*range(d), r.rank, *range(d, r.rank)]
        rows = op(n, "concat", rows, ones, axis=1) if r.rank else ones
        rows = op(n, "gather", rows, numbers(n, order), axis=1)
    counts = op(n, "reshape", op(n, "slice", rows, starts=(0, d), shape=(count, 1)), shape=(count,))
    along = op(n, "reduce_sum", counts, axes=(0,), keepdims=True)
    # The greatest of each size, and 0 of an empty sequence.
    least = op(n, "concat", rows, numbers(n, np.zeros((1, rank))), axis=0)
    shape = op(n, "reduce_max", least, axes=(0,))
    is_own = op(n, "equal", numbers(n, np.arange(rank)), d)
    same = op(n, "logical_or", is_own, op(n, "equal", rows, shape))
    same = op(n, "reduce_all", same, axes=(0, 1))
    goal = measure(n, valid(n, same, choose(n, is_own, along, shape)), "the shapes")
    if d == 0:
        return n.emit("view_as", r.data, shape=goal)
    outer, inner = sizes.product(goal[:d]), sizes.product(goal[d + 1 :])
    _, first, size = spans(n, counts, goal[d])
    line = (1, goal[d], 1)
    first, size = op(n, "reshape", first, shape=line), op(n, "reshape", size, shape=line)
    a = op(n, "reshape", op(n, "arange", length=outer), shape=(outer, 1, 1))
    j = op(n, "reshape", op(n, "arange", length=goal[d]), shape=line)
    c = op(n, "reshape", op(n, "arange", length=inner), shape=(1, 1, inner))
    row = op(n, "add", op(n, "mul", first, counted(n, outer)), op(n, "mul", a, size))
    row = op(n, "add", row, op(n, "sub", j, first))
    at_ = op(n, "add", op(n, "mul", row, counted(n, inner)), c)
    return n.emit("view_as", op(n, "gather", r.data, at_, axis=0), shape=goal)


def split(n: NodeContext, x: Value, d: int, counts: Value, keep: bool = True) -> Ragged:
    """x in parts along axis d, as many positions in each as `counts` says (they make up the
    axis)."""
    count, rank = counts.shape[0], x.rank
    outer, inner = sizes.product(x.shape[:d]), sizes.product(x.shape[d + 1 :])
    rows = op(n, "expand", op(n, "reshape", dims(n, x), shape=(1, x.rank)), shape=(count, x.rank))
    own = op(n, "equal", numbers(n, np.arange(x.rank)), d)
    column = op(n, "reshape", counts, shape=(count, 1))
    shapes = choose(n, own, column, rows)
    if not keep:
        rank, stay = x.rank - 1, [k for k in range(x.rank) if k != d]
        none = op(n, "full", shape=(count, 1), value=-1, of="i64")
        shapes = op(n, "gather", shapes, numbers(n, stay), axis=1) if stay else none
    if as_int(outer) == 1:
        return Ragged(flat(n, x), shapes, rank)
    # Positions of the parts end to end: (part, a, b, c) reads x[a, first of the part + b, c].
    each = sizes.size(outer * inner)
    _, first, size = spans(n, counts, x.shape[d])
    p = op(n, "arange", length=x.elements)
    column_ = floordiv(n, p, counted(n, sizes.size(each)))
    first, size = op(n, "gather", first, column_), op(n, "gather", size, column_)
    local = op(n, "sub", p, op(n, "mul", first, counted(n, each)))
    deep = counted(n, inner)
    a = floordiv(n, local, op(n, "mul", size, deep))
    b = op(n, "floormod", floordiv(n, local, deep), size)
    c = op(n, "floormod", local, deep)
    row = op(n, "add", op(n, "mul", a, counted(n, x.shape[d])), op(n, "add", first, b))
    at_ = op(n, "add", op(n, "mul", row, deep), c)
    return Ragged(op(n, "gather", flat(n, x), at_), shapes, rank)


def parts_of(n: NodeContext, size: Expr, each: Value) -> Value:
    """How an axis is cut into parts of `each` positions, the last one with what is left:
    [count]."""
    each = op(n, "cast", each, to="i64") if each.dtype is not I64 else each
    each, have = op(n, "reshape", each, shape=(1,)), counted(n, size)
    fits = op(n, "greater", each, 0)
    safe = op(n, "maximum", each, 1)
    many = floordiv(n, op(n, "sub", op(n, "add", have, safe), 1), safe)
    (count,) = measure(n, valid(n, fits, many), "the parts")
    first = op(n, "mul", op(n, "arange", length=count), safe)
    return op(n, "minimum", op(n, "sub", have, first), safe)


def either(n: NodeContext, condition: Value, a: Value, b: Value) -> Value:
    """Which of two arrays the condition chooses; they may differ in their first size."""
    if a.shape == b.shape:
        return op(n, "where", condition, a, b)
    ours, theirs = counted(n, a.shape[0]), counted(n, b.shape[0])
    if not n.importer.in_kernel:
        many = measure(n, choose(n, condition, ours, theirs), "what the condition chooses")[0]
        holds = op(n, "reshape", condition, shape=())
        return op(n, "chosen", holds, a, b, length=many)
    # inside a loop's body kernels are made of expressions
    chosen = [choose(n, condition, 0, ours), choose(n, condition, ours, theirs)]
    start, many = measure(n, op(n, "concat", *chosen, axis=0), "what the condition chooses")
    both, rest = op(n, "concat", a, b, axis=0), a.shape[1:]
    return op(n, "slice", both, starts=(start, *[0] * len(rest)), shape=(many, *rest))


def merged(n: NodeContext, condition: Value, a: Any, b: Any) -> Ragged:
    """Which of two sequences the condition chooses."""
    of = type_of(a) or type_of(b)
    a, b = ragged(n, a, of), ragged(n, b, of)
    if a.data.dtype is not b.data.dtype:
        raise Refusal(f"its branches give sequences of {a.data.dtype} and of {b.data.dtype}")
    axes = max(as_int(s.shapes.shape[1]) or 1 for s in (a, b))
    shapes = either(n, condition, *(widened(n, s.shapes, axes) for s in (a, b)))
    return Ragged(either(n, condition, a.data, b.data), shapes, common(a, b))


def merged_tensor(n: NodeContext, condition: Value, a: Value, b: Value) -> Value:
    """Which of two tensors of one rank the condition chooses, of whatever shapes."""
    goal = measure(n, choose(n, condition, dims(n, a), dims(n, b)), "what the condition chooses")
    return n.emit("view_as", either(n, condition, flat(n, a), flat(n, b)), shape=goal)


def checked(n: NodeContext, condition: Value, x: Value, what: str) -> Value:
    """x; the run stops if the condition does not hold."""
    if not x.rank:
        x = checked(n, condition, op(n, "reshape", x, shape=(1,)), what)
        return op(n, "reshape", op(n, "slice", x, starts=(0,), shape=(1,)), shape=())
    goal = measure(n, valid(n, condition, dims(n, x)), what)
    return op(n, "view_as", x, shape=goal)


def is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence | Ragged)
