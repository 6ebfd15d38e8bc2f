"""Axes, shapes, counts and positions that are computed while the model runs.

ONNX gives them as tensors. Where such a tensor is known when compiling, translators read its
numbers; where it is not, they compute with it (the helpers here, on small i64 vectors) and at last
`measure` it: its elements become symbolic sizes. What does not fit becomes -1 on the way, which is
no size, and the run says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.frontend.onnx.registry import NodeContext, Refusal
from tilewright.graph import sizes
from tilewright.graph.bounds import into
from tilewright.graph.graph import Value
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Expr, Var, as_int

I64 = dtype("i64")
FAR = 1 << 40  # beyond every size


def is_known(n: NodeContext, k: int) -> bool:
    """Are the numbers of input `k` known when compiling (or is it left out)?"""
    value = n.optional(k)
    return value is None or n.build.sizes_in(value) is not None or value in n.build.constants


def is_constant(n: NodeContext, k: int) -> bool:
    """Is input `k` numbers, not sizes that may be symbolic (or is it left out)?"""
    value = n.optional(k)
    return value is None or value in n.build.constants


def numbers(n: NodeContext, content: Any) -> Value:
    """A constant of whole numbers."""
    return n.build.constant(np.asarray(content, np.int64), "n")


def vector(n: NodeContext, k: int, many: int | None = None) -> Value:
    """Input `k` as an i64 vector of known length. many: the one that it has to have, if that is
    known and the input does not show it."""
    if as_int(n[k].elements) is None and (many is None or many < 0):
        raise Refusal(f"input {k} ({n[k]!r}) has no known number of elements")
    return any_vector(n, k, many)


def any_vector(n: NodeContext, k: int, many: Any = None) -> Value:
    """Input `k` as an i64 vector, perhaps of open length; `many` (None: unknown), if the input does
    not show it, is the one that it has to have."""
    value = n[k]
    if as_int(value.elements) is None and many is not None:
        value = view_of(n, value, (many,))
    if value.dtype.is_float:  # what is no number is no size
        is_number = op(n, "equal", value, value)
        value = choose(n, is_number, n.build.emit("cast", value, to="i64"), -1)
    elif value.dtype is not I64:
        value = n.build.emit("cast", value, to="i64")
    return n.build.emit("reshape", value, shape=(value.elements,)) if value.rank != 1 else value


def told_rank(n: NodeContext) -> int | None:
    """The rank that the model says the node's result has, which may be how many sizes it takes."""
    return n.importer.told_rank(n.node.output[0])


def dims(n: NodeContext, x: Value) -> Value:
    """The shape of x as an i64 vector."""
    made = np.empty(x.rank, object)
    made[:] = x.shape
    return n.build.from_sizes(made, I64)


def counted(n: NodeContext, size: Expr) -> Value:
    """A size as an i64 vector of one element."""
    return n.build.size_vector(size)


def length(v: Value) -> int:
    """How many elements a vector of known length has."""
    found = as_int(v.shape[0])
    assert found is not None
    return found


def op(n: NodeContext, name: str, *operands: Value | int, **attrs: Any) -> Value:
    """An operator on values and whole numbers."""
    return n.build.emit(
        name, *[numbers(n, x) if isinstance(x, int) else x for x in operands], **attrs
    )


def choose(n: NodeContext, condition: Value, then: Value | int, other: Value | int) -> Value:
    return op(n, "where", condition, then, other)


def floordiv(n: NodeContext, a: Value, b: Value) -> Value:
    """The whole part of a / b, rounded down."""
    return op(n, "div", op(n, "sub", a, op(n, "floormod", a, b)), b)


def from_front(n: NodeContext, axes: Value, rank: int) -> Value:
    """Axes counted from the front; the run ends where there are not so many."""
    axes = n.checked(axes, into(rank))
    return choose(n, op(n, "less", axes, 0), op(n, "add", axes, rank), axes)


def chosen(n: NodeContext, axes: Value, rank: int) -> Value:
    """For each axis of a tensor: is it among `axes`?"""
    column = op(n, "reshape", from_front(n, axes, rank), shape=(axes.elements, 1))
    same = op(n, "equal", column, numbers(n, np.arange(rank)[None]))
    return op(n, "reduce_any", same, axes=(0,))


def each_once(n: NodeContext, mask: Value, axes: Value) -> Value:
    """Did axes choose as many positions of a mask, none of them twice? One truth value."""
    found = op(n, "reduce_sum", op(n, "cast", mask, to="i64"), axes=(0,), keepdims=True)
    return op(n, "equal", found, counted(n, axes.elements))


def spread(n: NodeContext, axes: Value, given: Value, default: Value) -> Value:
    """A vector for all axes of a tensor: `given` at `axes`, `default` elsewhere."""
    rank = length(default)
    column = op(n, "reshape", from_front(n, axes, rank), shape=(axes.elements, 1))
    same = op(n, "equal", column, numbers(n, np.arange(rank)[None]))
    each = op(n, "reshape", given, shape=(axes.elements, 1))
    total = op(n, "reduce_sum", choose(n, same, each, 0), axes=(0,))
    return choose(n, op(n, "reduce_any", same, axes=(0,)), total, default)


def where_not(n: NodeContext, mask: Value, values: Value, count: int) -> Value:
    """The `count` elements of `values` where `mask` is false, in order."""
    kept = op(n, "logical_not", mask)
    position = op(n, "cumsum", op(n, "cast", kept, to="i64"), axis=0)
    wanted = numbers(n, np.arange(1, count + 1)[:, None])
    at = op(n, "logical_and", op(n, "equal", position, wanted), kept)
    return op(n, "reduce_sum", choose(n, at, values, 0), axes=(1,))


def valid(n: NodeContext, condition: Value, values: Value) -> Value:
    """`values` if the condition holds, else -1: no sizes."""
    return choose(n, condition, values, -1)


def measure(n: NodeContext, values: Value, what: str) -> tuple[Expr, ...]:
    """The elements of an i64 vector as sizes. Raises nothing: the run checks them."""
    found = n.build.sizes_in(values)
    if found is not None:
        return tuple(sizes.size(v) for v in found.ravel().tolist())
    if n.build.under is not None:  # a branch that is not taken has no sizes
        values = choose(n, n.build.under, values, 0)
    label = n.node.output[0] if n.node.output else n.op
    names = [n.build.fresh(f"{label}_size{k}") for k in range(length(values))]
    told = f"{what} of {n.op} '{n.node.name or label}'"
    n.build.emit("measure", values, symbols=tuple(names), what=told)
    return n.build.name_elements(values, [Var(s) for s in names])


def measure_signed(
    n: NodeContext, values: Value, what: str
) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The elements of an i64 vector, which are `near`, as differences of two sizes each, one of
    which is 0."""
    sides = op(n, "concat", values, op(n, "neg", values), axis=0)
    found = measure(n, op(n, "maximum", sides, 0), what)
    return found[: length(values)], found[length(values) :]


def near(n: NodeContext, values: Value) -> Value:
    """Numbers beyond any size made smaller ones that still are, so that -x and sums are exact."""
    return op(n, "minimum", op(n, "maximum", values, -1 - FAR), 1 + FAR)


def view(n: NodeContext, x: Value, goal: Value, what: str, known: Sequence[Any] = ()) -> Value:
    """x under the shape in the vector `goal`, which the run finds to hold as many elements. Those
    of its sizes that are `known` numbers stay so, if others are not."""
    total = op(n, "reduce_prod", goal, axes=(0,))
    fits = op(n, "equal", total, op(n, "reduce_prod", dims(n, x), axes=(0,)))
    shape = measure(n, valid(n, fits, goal), what)
    if any(as_int(k) is None for k in known):
        shape = tuple(s if as_int(k) is None else k for s, k in zip(shape, known, strict=True))
    return n.emit("view_as", x, shape=shape)


def view_of(n: NodeContext, x: Value, shape: Sequence[Any]) -> Value:
    """x under `shape`, by a check of the run if it does not show that it holds as many elements."""
    goal = sizes.shape(shape)
    count = sizes.product(goal)
    if count == x.elements or n.build.from_inputs((count, x.elements)):
        return n.emit("reshape", x, shape=goal)
    made = np.empty(len(goal), object)
    made[:] = goal
    return view(n, x, n.build.from_sizes(made, I64), "the shape", goal)


def of_one_shape(n: NodeContext, values: Sequence[Value], what: str) -> list[Value]:
    """The values, under one shape: the run checks it if their sizes do not show it."""
    first, *others = (v.shape for v in values)
    if all(s == first for s in others):
        return list(values)
    columns = list(zip(first, *others, strict=False))
    never = any(len({as_int(s) for s in column} - {None}) > 1 for column in columns)
    if never or any(len(s) != len(first) for s in others):
        kinds = sorted({v.type_text for v in values})
        raise Refusal(f"{what} is not one: {', '.join(kinds)}")
    goal = dims(n, values[0])
    fits = n.build.constant(np.asarray(True))
    for v in values[1:]:
        same = op(n, "reduce_all", op(n, "equal", dims(n, v), goal), axes=(0,))
        fits = op(n, "logical_and", fits, same)
    asked = measure(n, valid(n, fits, goal), what)
    shape = tuple(a if len(set(c)) > 1 else c[0] for a, c in zip(asked, columns, strict=True))
    return [n.emit("view_as", v, shape=shape) for v in values]


# ---- translations with values that only the run knows --------------------------------------------


def reshape(n: NodeContext) -> Value:
    x, goal = n[0], vector(n, 1, told_rank(n))
    rank = length(goal)
    if not n.flag("allowzero"):
        own = [x.shape[d] if d < x.rank else -1 for d in range(rank)]
        made = np.empty(rank, object)
        made[:] = own
        goal = choose(n, op(n, "equal", goal, 0), n.build.from_sizes(made, I64), goal)
    wild = op(n, "equal", goal, -1)
    rest = op(n, "reduce_prod", choose(n, wild, 1, goal), axes=(0,), keepdims=True)
    count = op(n, "reduce_prod", dims(n, x), axes=(0,), keepdims=True)
    each = op(n, "div", count, op(n, "maximum", rest, 1))
    return view(n, x, choose(n, wild, each, goal), "the shape")


def expand(n: NodeContext) -> Value:
    """Axes of x other than 1 stay; the others take the size that is asked for."""
    x, goal = n[0], vector(n, 1, told_rank(n))
    rank = max(x.rank, length(goal))
    padded = goal
    if rank > length(goal):
        padded = op(n, "concat", numbers(n, [1] * (rank - length(goal))), goal, axis=0)
    own = [sizes.size(1)] * (rank - x.rank) + list(x.shape)
    ours = dims(n, x)
    if rank > x.rank:
        ours = op(n, "concat", numbers(n, [1] * (rank - x.rank)), ours, axis=0)
    one, free = op(n, "equal", ours, 1), op(n, "equal", padded, 1)
    fits = op(n, "logical_or", op(n, "logical_or", one, free), op(n, "equal", ours, padded))
    all_fit = op(n, "reduce_all", fits, axes=(0,))
    asked = measure(n, valid(n, all_fit, choose(n, free, ours, padded)), "the shape")
    known = n.build.sizes_in(padded)
    shape = tuple(o if (as_int(o) or 0) > 1 else s for s, o in zip(asked, own, strict=True))
    for d, (size, have) in enumerate(zip(shape, own, strict=True)):
        if as_int(have) is None:  # one or as asked: the run knows
            want = size if known is None else sizes.size(known[d])
            if as_int(want) != 1:
                n.build.compared.setdefault((have, want), n.build.about)
            positions = op(n, "arange", length=size)
            last = op(n, "sub", counted(n, have), 1)
            x = op(n, "gather", x, op(n, "minimum", positions, last), axis=d - rank + x.rank)
    return n.emit("expand", x, shape=shape)


def slice_(n: NodeContext) -> Value:
    x, rank = n[0], n[0].rank
    given = [n[k].elements for k in range(1, 5) if n.optional(k) is not None]
    count = next((size for size in given if as_int(size) is not None), given[0])
    firsts, lasts = any_vector(n, 1, count), any_vector(n, 2, count)
    if n.importer.in_kernel and is_known(n, 3) and (many := as_int(count)) is not None:
        along = n.numbers(3) if n.optional(3) is not None else range(many)
        return slice_within(n, x, firsts, lasts, [d % rank for d in along])
    axes = any_vector(n, 3, count) if n.optional(3) is not None else op(n, "arange", length=count)
    if n.optional(4) is not None:
        steps = any_vector(n, 4, count)
    else:
        steps = op(n, "full", shape=(count,), value=1, of="i64")
    have, zero = dims(n, x), numbers(n, np.zeros(rank))
    step = spread(n, axes, steps, numbers(n, np.ones(rank)))
    most = op(n, "maximum", have, 1)  # a longer step takes the same positions
    step = op(n, "minimum", op(n, "maximum", step, op(n, "neg", most)), most)
    back = op(n, "less", step, 0)

    high = choose(n, back, op(n, "sub", have, 1), have)  # -1 behind no positions: none are taken

    def clamp(values: Value, low: Value) -> Value:
        counted = choose(n, op(n, "less", values, 0), op(n, "add", values, have), values)
        return op(n, "minimum", op(n, "maximum", counted, low), high)

    start = clamp(spread(n, axes, firsts, zero), zero)
    end = clamp(spread(n, axes, lasts, have), choose(n, back, -1, zero))
    reach = op(n, "sub", choose(n, back, op(n, "sub", start, end), op(n, "sub", end, start)), 1)
    width = op(n, "maximum", op(n, "abs", step), 1)
    many = op(n, "maximum", op(n, "add", floordiv(n, reach, width), 1), 0)
    fits = op(n, "not_equal", step, 0)
    if as_int(count) not in (0, 1):
        fits = op(n, "logical_and", fits, each_once(n, chosen(n, axes, rank), axes))
    shape = measure(n, valid(n, fits, many), "positions")
    start = choose(n, op(n, "equal", many, 0), 0, start)
    starts = measure(n, start, "starts")
    forth, back_ = measure_signed(n, near(n, step), "steps")
    strides = tuple(sizes.size(a - b) for a, b in zip(forth, back_, strict=True))
    return n.emit("slice", x, starts=starts, shape=shape, steps=strides)


def slice_within(n: NodeContext, x: Value, firsts: Value, lasts: Value, axes: list[int]) -> Value:
    """A slice inside a loop: a gather along each axis, of at most its positions."""
    y = x
    for k, d in enumerate(axes):
        have = op(n, "slice", dims(n, x), starts=(d,), shape=(1,))
        ends = [op(n, "slice", v, starts=(k,), shape=(1,)) for v in (firsts, lasts)]
        step = op(n, "slice", vector(n, 4), starts=(k,), shape=(1,)) if n.optional(4) else None
        back = op(n, "less", step, 0) if step is not None else None
        zero = low = numbers(n, [0])
        high = have
        if back is not None:
            low, high = choose(n, back, -1, zero), choose(n, back, op(n, "sub", have, 1), have)
        ends = [choose(n, op(n, "less", v, 0), op(n, "add", v, have), v) for v in ends]
        first, last = (
            op(n, "minimum", op(n, "maximum", v, least), high)
            for v, least in zip(ends, (zero, low), strict=True)
        )
        many = op(n, "sub", last, first)
        if step is not None and back is not None:
            width = op(n, "maximum", op(n, "abs", step), 1)
            reach = choose(n, back, op(n, "sub", first, last), many)
            many = op(n, "add", floordiv(n, op(n, "sub", reach, 1), width), 1)
            many = valid(n, op(n, "not_equal", step, 0), op(n, "maximum", many, 0))
        else:
            many = op(n, "maximum", many, 0)
        (size,) = measure(n, many, "positions")
        n.importer.body.bound(size, x.shape[d])
        position = op(n, "arange", length=size)
        position = op(n, "mul", position, step) if step is not None else position
        position = op(n, "maximum", op(n, "add", position, first), 0)
        position = op(n, "minimum", position, op(n, "sub", have, 1))
        y = op(n, "gather", y, position, axis=d)
    return y


def pad(n: NodeContext, mode: str) -> Value:
    """Negative pads cut; the others extend what they leave by its own elements, or by a number:
    then positions that are cut away are outside like all others."""
    x = n[0]
    axes = numbers(n, np.arange(x.rank))
    if n.optional(3) is not None:
        both = as_int(n[1].elements)
        axes = any_vector(n, 3, None if both is None else both // 2)
    half, zero = axes.elements, numbers(n, np.zeros(x.rank))
    pads = any_vector(n, 1, sizes.size(half * 2))
    if pads.elements != sizes.size(half * 2):
        raise Refusal(f"it has {sizes.text(pads.elements)} pads for {sizes.text(half)} axes")
    rows = op(n, "reshape", pads, shape=(2, half))
    ends = [op(n, "slice", rows, starts=(k, 0), shape=(1, half)) for k in (0, 1)]
    parts = [near(n, spread(n, axes, end, zero)) for end in ends]
    if mode != "constant":
        cut = op(n, "add", *(op(n, "minimum", p, 0) for p in parts))
        kept = measure(n, op(n, "add", dims(n, x), cut), "what negative pads leave")
        skipped = measure(n, op(n, "maximum", op(n, "neg", parts[0]), 0), "pads")
        x = n.build.emit("slice", x, starts=skipped, shape=kept)
        parts = [op(n, "maximum", p, 0) for p in parts]
    # The padded sizes get names of their own: products of sums of pads would be long.
    padded_dims = op(n, "add", op(n, "add", dims(n, x), parts[0]), parts[1])
    more, less = measure_signed(n, parts[0], "pads")
    shape = measure(n, padded_dims, "the padded size")
    before = tuple(sizes.size(a - b) for a, b in zip(more, less, strict=True))
    after = tuple(sizes.size(s - h - b) for s, h, b in zip(shape, x.shape, before, strict=True))
    given = n.optional(2) if mode == "constant" else None
    if given is None or given in n.build.constants:
        value = 0 if given is None else n.scalar(2, 0)
        return n.emit("pad", x, before=before, after=after, mode=mode, value=value)
    return padded(n, x, before, after)


def padded(n: NodeContext, x: Value, before: Any, after: Any) -> Value:
    """x padded with the number in input 2, which only the run knows."""
    inside = n.build.emit("full", shape=x.shape, value=1, of="bool")
    inside = n.build.emit("pad", inside, before=before, after=after)
    y = n.build.emit("pad", x, before=before, after=after)
    value = n[2] if not n[2].rank else n.build.emit("reshape", n[2], shape=())
    return n.emit("where", inside, y, value)


def squeeze(n: NodeContext) -> Value:
    x, rank = n[0], told_rank(n)
    axes = vector(n, 1, None if rank is None else x.rank - rank)
    mask = chosen(n, axes, x.rank)
    stays = op(n, "logical_not", mask)
    fits = op(n, "logical_or", stays, op(n, "equal", dims(n, x), 1))
    fits = op(n, "reduce_all", fits, axes=(0,), keepdims=True)
    fits = op(n, "logical_and", fits, each_once(n, mask, axes))
    rest = where_not(n, mask, dims(n, x), x.rank - length(axes))
    return view(n, x, valid(n, fits, rest), "the squeezed shape")


def unsqueeze(n: NodeContext) -> Value:
    x, rank = n[0], told_rank(n)
    axes = vector(n, 1, None if rank is None else rank - x.rank)
    rank = x.rank + length(axes)
    mask = chosen(n, axes, rank)
    if not x.rank:
        return n.emit("reshape", x, shape=(1,) * rank)
    position = op(n, "cumsum", op(n, "cast", op(n, "logical_not", mask), to="i64"), axis=0)
    own = op(n, "gather", dims(n, x), op(n, "maximum", op(n, "sub", position, 1), 0))
    return view(n, x, choose(n, mask, 1, own), "the new axes")


def as_columns(n: NodeContext, x: Value, keep: bool, none: bool) -> tuple[Value, tuple[Expr, ...]]:
    """x as a matrix whose columns run along the axes in input 1, and the shape that the rows then
    take. Of no axes are meant all, or `none`."""
    rank = None if keep or (told := told_rank(n)) is None else x.rank - told
    axes = any_vector(n, 1) if keep else vector(n, 1, rank)
    mask = chosen(n, axes, x.rank)
    have, once = dims(n, x), each_once(n, mask, axes)
    if as_int(axes.elements) is None and not none:
        mask = op(n, "logical_or", mask, op(n, "equal", counted(n, axes.elements), 0))
    counts = [
        op(n, "reduce_prod", choose(n, m, have, 1), axes=(0,), keepdims=True)
        for m in (op(n, "logical_not", mask), mask)
    ]
    rows, columns = measure(n, op(n, "concat", *counts, axis=0), "the extents")
    goal = choose(n, mask, 1, have) if keep else where_not(n, mask, have, x.rank - length(axes))
    if as_int(axes.elements) not in (0, 1):
        goal = valid(n, once, goal)
    shape = measure(n, goal, "the reduced shape")
    return op(n, "axes_last", x, mask, rows=rows, columns=columns), shape


def around(n: NodeContext, x: Value, axis: Value) -> Value:
    """x as (all axes before, `axis`, all after); the axis is a vector of one number."""
    table = np.empty((3, x.rank), object)
    for d in range(x.rank):
        table[:, d] = sizes.product(x.shape[:d]), x.shape[d], sizes.product(x.shape[d + 1 :])
    of = op(n, "gather", n.build.from_sizes(table, I64), from_front(n, axis, x.rank), axis=1)
    goal = op(n, "reshape", of, shape=(3,))
    return op(n, "view_as", x, shape=measure(n, goal, "the axis"))


def range_(n: NodeContext) -> Value:
    """start + step * (0, 1, …): the count is known once the run knows the three numbers."""
    of = n[0].dtype
    start, limit, step = (op(n, "reshape", n[k], shape=(1,)) for k in range(3))
    if of.is_int:
        wide = [op(n, "cast", v, to="i64") for v in (start, limit, step)]
        fits, count = op(n, "not_equal", wide[2], 0), steps_between(n, *wide)
    else:
        wide = [op(n, "cast", v, to="f64") for v in (start, limit, step)]
        ratio = op(n, "div", op(n, "sub", wide[1], wide[0]), wide[2])
        count = op(n, "maximum", op(n, "cast", op(n, "ceil", ratio), to="i64"), 0)
        fits = op(n, "logical_and", op(n, "equal", ratio, ratio),
                  op(n, "not_equal", wide[2], n.constant(0, wide[2].dtype)))  # fmt: skip
    (many,) = measure(n, valid(n, fits, count), "the count")
    positions = op(n, "arange", length=many, of=of.name)
    return n.emit("add", op(n, "mul", positions, step), start)


def steps_between(n: NodeContext, start: Value, limit: Value, step: Value) -> Value:
    """How many of start, start + step, … come before the limit. Distances may be as long as the
    whole range of i64: they are counted in u64."""
    forth = op(n, "greater", step, 0)
    first, last = choose(n, forth, start, limit), choose(n, forth, limit, start)
    gap, width = op(n, "sub", last, first), choose(n, forth, step, op(n, "neg", step))
    width = choose(n, op(n, "equal", width, 0), 1, width)
    far, each = (op(n, "cast", v, to="u64") for v in (op(n, "sub", gap, 1), width))
    count = op(n, "add", op(n, "cast", op(n, "div", far, each), to="i64"), 1)
    # as i64 a count beyond its range is negative, which is no size either
    return choose(n, op(n, "less", first, last), count, 0)


def split(n: NodeContext, x: Value, d: int) -> tuple[Value, ...]:
    parts = vector(n, 1, len(n.node.output))
    total = op(n, "reduce_sum", parts, axes=(0,))
    at = np.empty((), object)
    at[()] = x.shape[d]
    fits = op(n, "equal", total, n.build.from_sizes(at, I64))
    found = list(measure(n, valid(n, fits, parts), "the parts"))
    if found:  # the last is what the others leave: together they are known to be the whole
        found[-1] = sizes.size(x.shape[d] - sum(found[:-1], start=sizes.size(0)))
    made, start = [], sizes.size(0)
    names = n.node.output if len(n.node.output) == len(found) else [""] * len(found)
    for part, name in zip(found, names, strict=True):
        starts = tuple(start if k == d else 0 for k in range(x.rank))
        shape = (*x.shape[:d], part, *x.shape[d + 1 :])
        made.append(n.build.emit("slice", x, starts=starts, shape=shape, name=name))
        start = sizes.size(start + part)
    return tuple(made)


def trilu(n: NodeContext) -> Value:
    x = n[0]
    rows = op(n, "reshape", op(n, "arange", length=x.shape[-2]), shape=(x.shape[-2], 1))
    gap = op(n, "sub", op(n, "arange", length=x.shape[-1]), rows)
    k = op(n, "reshape", op(n, "cast", n[1], to="i64"), shape=())
    kept = op(n, "greater_equal" if n.flag("upper", True) else "less_equal", gap, k)
    return n.emit("where", kept, x, n.constant(0, x.dtype))


def count(n: NodeContext, k: int, most: Any = None) -> Expr:
    """The one number of input `k`, at most the size `most`."""
    given = vector(n, k, 1)
    if most is not None:
        at = np.empty(1, object)
        at[0] = most
        given = valid(n, op(n, "less_equal", given, n.build.from_sizes(at, I64)), given)
    return measure(n, given, "the count")[0]


def nonzero_indices(n: NodeContext, mask: Value) -> Value:
    """Where a vector of truth values holds: as many positions as the run finds."""
    positions, found = n.build.emit("nonzero", mask)
    (many,) = measure(n, found, "the count")
    return n.build.emit("slice", positions, starts=(0,), shape=(many,))


def compress(n: NodeContext, x: Value, axis: int) -> Value:
    condition = n[1] if n[1].dtype.is_bool else op(n, "cast", n[1], to="bool")
    positions = n.checked(nonzero_indices(n, condition), into(x.shape[axis]))
    return n.emit("gather", x, positions, axis=axis)


def nonzero(n: NodeContext) -> Value:
    x = n[0]
    flat = op(n, "reshape", x, shape=(x.elements,))
    if not flat.dtype.is_bool:
        flat = op(n, "not_equal", flat, n.constant(0, x.dtype))
    positions = nonzero_indices(n, flat)
    many = positions.shape[0]
    shape = x.shape or (sizes.size(1),)
    table = np.empty((2, len(shape)), object)
    for d in range(len(shape)):
        table[:, d] = sizes.product(shape[d + 1 :]), shape[d]
    made = n.build.from_sizes(table, I64)
    rows = []
    for k in (0, 1):
        row = op(n, "slice", made, starts=(k, 0), shape=(1, len(shape)))
        rows.append(op(n, "reshape", row, shape=(len(shape), 1)))
    flat_positions = op(n, "reshape", positions, shape=(1, many))
    part = floordiv(n, flat_positions, op(n, "maximum", rows[0], 1))
    return n.emit("floormod", part, op(n, "maximum", rows[1], 1))
