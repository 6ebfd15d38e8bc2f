"""Translators of ONNX operators that select: as many results as the run finds."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontend.onnx import measured
from tilewright.frontend.onnx.arithmetic import Floats
from tilewright.frontend.onnx.measured import op
from tilewright.frontend.onnx.registry import Refusal, Site, translates
from tilewright.frontend.onnx.tensors import axis
from tilewright.graph import sizes
from tilewright.graph.graph import Value
from tilewright.ir.expr import Expr


@translates("NonMaxSuppression")
def non_max_suppression(n: Site) -> Any:
    """Boxes by falling score, without those that overlap one taken before."""
    boxes, scores, build, f = n[0], n[1], n.build, Floats(n, "f32")
    batch, classes, count = scores.shape
    ranked, order = build.emit("top_k", scores, k=count)
    flat = build.emit("reshape", order, shape=(batch, sizes.size(classes * count), 1))
    found = build.emit("gather_nd", boxes, flat, batch_dims=1)
    rows = sizes.size(batch * classes)
    corners = corners_of(n, f, build.emit("reshape", found, shape=(rows, count, 4)))
    rows_of = [build.emit("reshape", v, shape=(1, rows, count)) for v in corners]
    boxed = build.emit("concat", *rows_of, axis=0)
    most = n.optional(3)
    most = f.number(0.0) if most is None else most
    most = build.emit("reshape", most, shape=(1,))
    allowed = build.emit("full", shape=(rows, count), value=1, of="bool")
    if n.optional(4) is not None:
        rank = build.emit("reshape", ranked, shape=(rows, count))
        allowed = f("greater", rank, given(n, 4))
    limit = measured.vector(n, 2, 1) if n.optional(2) is not None else measured.numbers(n, [0])
    kept, _ = build.emit("keep_apart", boxed, most, allowed, limit)
    total = sizes.size(rows * count)
    places = measured.places_of(n, op(n, "reshape", kept, shape=(total,)))
    many = places.shape[0]
    box = op(n, "gather", op(n, "reshape", order, shape=(total,)), places)
    row = measured.floordiv(n, places, number(n, count))
    each = number(n, classes)
    parts = measured.floordiv(n, row, each), op(n, "floormod", row, each), box
    return n.emit("concat", *[op(n, "reshape", p, shape=(many, 1)) for p in parts], axis=1)


def given(n: Site, k: int) -> Value | float:
    """The number in input `k` (0 if it is left out)."""
    value = n.optional(k)
    return 0.0 if value is None else n.build.emit("reshape", value, shape=())


def number(n: Site, size: Expr) -> Value:
    made = np.empty((), object)
    made[()] = size
    return n.build.from_sizes(made, measured.I64)


def corners_of(n: Site, f: Floats, boxes: Value) -> list[Value]:
    """Least and greatest places of boxes [rows, count, 4] along both axes, each [rows, count]."""
    rows, count = boxes.shape[:2]
    a, b, c, d = (
        n.build.emit(
            "reshape",
            n.build.emit("slice", boxes, starts=(0, 0, k), shape=(rows, count, 1)),
            shape=(rows, count),
        )
        for k in range(4)
    )
    if n.int("center_point_box", 0):  # x, y of the centre, width, height
        w, h = f("mul", c, 0.5), f("mul", d, 0.5)
        return [f("sub", b, h), f("sub", a, w), f("add", b, h), f("add", a, w)]
    least, most = "minimum", "maximum"
    return [f(least, a, c), f(least, b, d), f(most, a, c), f(most, b, d)]


@translates("Unique")
def unique(n: Site) -> Any:
    """Equal slices once: in rising order, or in that of their first places.

    Slices are ranked by comparing each two of them: for n slices n² comparisons.
    """
    x, at, build = n[0], n.int("axis"), n.build
    if at is None:
        rows = build.emit("reshape", x, shape=(x.elements, 1))
        along = 0
    else:
        d = axis(n, at, x.rank)
        along = d
        rows = build.emit("transpose", x, perm=(d, *(k for k in range(x.rank) if k != d)))
        width = sizes.product(s for k, s in enumerate(x.shape) if k != d)
        rows = build.emit("reshape", rows, shape=(x.shape[d], width))
    count = rows.shape[0]
    same, before = compared(n, rows)
    place = op(n, "arange", length=count)
    column = op(n, "reshape", place, shape=(count, 1))
    earlier = op(n, "logical_and", same, op(n, "less", place, column))
    first = op(n, "logical_not", op(n, "reduce_any", earlier, axes=(1,)))
    leads = op(n, "less", place, column) if not n.flag("sorted", True) else before
    counted = op(n, "logical_and", leads, op(n, "reshape", first, shape=(1, count)))
    # the number of a slice: how many different ones stand before the first that equals it
    rank = op(n, "reduce_sum", op(n, "cast", counted, to="i64"), axes=(1,))
    owner = op(n, "argmax", op(n, "cast", same, to="i32"), axis=1)
    number_of = op(n, "gather", rank, owner)
    firsts = measured.places_of(n, first)
    many = firsts.shape[0]
    wanted = op(n, "reshape", op(n, "arange", length=many), shape=(many, 1))
    is_of = op(n, "equal", wanted, op(n, "reshape", op(n, "gather", rank, firsts), shape=(1, many)))
    across = op(n, "reshape", firsts, shape=(1, many))
    ordered = op(n, "reduce_sum", measured.choose(n, is_of, across, 0), axes=(1,))
    belongs = op(n, "equal", wanted, op(n, "reshape", number_of, shape=(1, count)))
    counts = op(n, "reduce_sum", op(n, "cast", belongs, to="i64"), axes=(1,))
    if at is None:
        flat = build.emit("reshape", x, shape=(x.elements,))
        return n.emit("gather", flat, ordered), ordered, number_of, counts
    return n.emit("gather", x, ordered, axis=along), ordered, number_of, counts


def compared(n: Site, rows: Value) -> tuple[Value, Value]:
    """For each two rows: are they equal; does the second stand before the first in order? NaN
    equals NaN and is greater than all numbers, as in NumPy."""
    build, (count, width) = n.build, rows.shape
    if rows.dtype.is_bool:
        rows = build.emit("cast", rows, to="u8")
    a = build.emit("reshape", rows, shape=(count, 1, width))
    b = build.emit("reshape", rows, shape=(1, count, width))
    differs = build.emit("not_equal", a, b)
    if rows.dtype.is_float:
        both = op(n, "logical_and", op(n, "isnan", a), op(n, "isnan", b))
        differs = op(n, "logical_and", differs, op(n, "logical_not", both))
    same = build.emit("logical_not", build.emit("reduce_any", differs, axes=(2,)))
    where = build.emit("argmax", build.emit("cast", differs, to="i32"), axis=2)
    flat = build.emit("reshape", rows, shape=(sizes.size(count * width),))
    if sizes.lowest(flat.shape[0]) == 0:  # rows of no elements have one to be read
        flat = build.emit("pad", flat, before=(0,), after=(1,))
        where = op(n, "minimum", where, number(n, width))
    places = op(n, "mul", op(n, "arange", length=count), number(n, width))
    mine = op(n, "add", op(n, "reshape", places, shape=(count, 1)), where)
    other = op(n, "add", op(n, "reshape", places, shape=(1, count)), where)
    x, y = op(n, "gather", flat, other), op(n, "gather", flat, mine)
    less = op(n, "less", x, y)
    if rows.dtype.is_float:
        only = op(n, "logical_and", op(n, "isnan", y), op(n, "logical_not", op(n, "isnan", x)))
        less = op(n, "logical_or", less, only)
    return same, less


@translates("TensorScatter")
def tensor_scatter(n: Site) -> Any:
    """A cache with new rows written from each sequence's own place on."""
    past, update, build = n[0], n[1], n.build
    d = axis(n, n.int("axis", -2), past.rank)
    if d == 0:
        raise Refusal("its axis is the batch")
    have, new = past.shape[d], update.shape[d]
    batch = past.shape[0]
    start = n.optional(2)
    start = measured.numbers(n, [0]) if start is None else measured.any_vector(n, 2, batch)
    lead = sizes.size(batch) if n.optional(2) is not None else sizes.size(1)
    if n.text("mode", "linear") == "linear":
        start = n.checked(start, [(sizes.size(0), sizes.size(have - new))])

    def along(v: Value, size: Any, k: int) -> Value:
        return build.emit(
            "reshape", v, shape=tuple(size if e == k else 1 for e in range(past.rank))
        )

    gap = op(n, "sub", along(op(n, "arange", length=have), have, d), along(start, lead, 0))
    if n.text("mode", "linear") == "circular":
        gap = op(n, "floormod", gap, number(n, have))
    inside = op(
        n, "logical_and", op(n, "greater_equal", gap, 0), op(n, "less", gap, number(n, new))
    )
    last = op(n, "sub", number(n, new), 1)
    held = op(n, "minimum", op(n, "maximum", gap, 0), last)
    places = build.emit("expand", held, shape=past.shape)
    found = build.emit("gather_elements", update, places, axis=d)
    return n.emit("where", inside, found, past)
