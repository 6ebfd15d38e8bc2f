"""Translators of ONNX operators that select: as many results as the run finds."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontend.onnx import data_dependent
from tilewright.frontend.onnx.arithmetic import Floats
from tilewright.frontend.onnx.data_dependent import I64, op
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.frontend.onnx.tensors import axis
from tilewright.graph import sizes
from tilewright.graph.graph import Value
from tilewright.ir.expr import Expr


@translates("NonMaxSuppression")
def non_max_suppression(n: NodeContext) -> Any:
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
    limit = (
        data_dependent.vector(n, 2, 1)
        if n.optional(2) is not None
        else data_dependent.numbers(n, [0])
    )
    kept, _ = build.emit("keep_apart", boxed, most, allowed, limit)
    total = sizes.size(rows * count)
    positions = data_dependent.nonzero_indices(n, op(n, "reshape", kept, shape=(total,)))
    many = positions.shape[0]
    box = op(n, "gather", op(n, "reshape", order, shape=(total,)), positions)
    row = data_dependent.floordiv(n, positions, number(n, count))
    each = number(n, classes)
    parts = data_dependent.floordiv(n, row, each), op(n, "floormod", row, each), box
    return n.emit("concat", *[op(n, "reshape", p, shape=(many, 1)) for p in parts], axis=1)


def given(n: NodeContext, k: int) -> Value | float:
    """The number in input `k` (0 if it is left out)."""
    value = n.optional(k)
    return 0.0 if value is None else n.build.emit("reshape", value, shape=())


def number(n: NodeContext, size: Expr) -> Value:
    made = np.empty((), object)
    made[()] = size
    return n.build.from_sizes(made, data_dependent.I64)


def corners_of(n: NodeContext, f: Floats, boxes: Value) -> list[Value]:
    """Least and greatest positions of boxes [rows, count, 4] along both axes, each [rows,
    count]."""
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
def unique(n: NodeContext) -> Any:
    """Equal slices once: in rising order, or in that of their first positions."""
    x, at, build = n[0], n.int("axis"), n.build
    if at is None:
        along, count = 0, x.elements
        line = build.emit("reshape", x, shape=(count,))
        ranked, order = build.emit("top_k", numbers_of(n, line), k=count, axis=0, largest=False)
    else:
        along = axis(n, at, x.rank)
        count, width = x.shape[along], sizes.product(s for k, s in enumerate(x.shape) if k != along)
        line = build.emit("transpose", x, perm=(along, *(k for k in range(x.rank) if k != along)))
        line = numbers_of(n, build.emit("reshape", line, shape=(count, width)))
        order = build.emit("row_order", line)
        ranked = build.emit("gather", line, order, axis=0)
    positions = op(n, "arange", length=count)
    is_first = op(n, "logical_or", op(n, "equal", positions, 0), differs_from_last(n, ranked))
    begins = data_dependent.nonzero_indices(n, is_first)
    many = begins.shape[0]
    rank = op(n, "sub", op(n, "cumsum", op(n, "cast", is_first, to="i64"), axis=0), 1)
    number_of = build.emit("scatter_elements", rank, order, rank, axis=0)
    ends = build.emit("concat", begins, build.from_sizes(np.array([count], object), I64), axis=0)
    ends = build.emit("slice", ends, starts=(1,), shape=(many,))
    counts = op(n, "sub", ends, begins)
    firsts = build.emit("gather", order, begins, axis=0)  # of equals the first comes first
    if not n.flag("sorted", True):
        firsts, by_position = build.emit("top_k", firsts, k=many, axis=0, largest=False)
        counts = build.emit("gather", counts, by_position, axis=0)
        own = op(n, "arange", length=many)
        renamed = build.emit("scatter_elements", own, by_position, own, axis=0)
        number_of = build.emit("gather", renamed, number_of, axis=0)
    x = build.emit("reshape", x, shape=(count,)) if at is None else x
    return n.emit("gather", x, firsts, axis=along), firsts, number_of, counts


def numbers_of(n: NodeContext, x: Value) -> Value:
    return n.build.emit("cast", x, to="u8") if x.dtype.is_bool else x


def differs_from_last(n: NodeContext, x: Value) -> Value:
    """Is each element, or row, another than the one before? NaN equals NaN, as in NumPy."""
    positions = op(n, "arange", length=x.shape[0])
    last = n.build.emit("gather", x, op(n, "maximum", op(n, "sub", positions, 1), 0), axis=0)
    differs = op(n, "not_equal", x, last)
    if x.dtype.is_float:
        both = op(n, "logical_and", op(n, "isnan", x), op(n, "isnan", last))
        differs = op(n, "logical_and", differs, op(n, "logical_not", both))
    return op(n, "reduce_any", differs, axes=(1,)) if x.rank == 2 else differs


@translates("TensorScatter")
def tensor_scatter(n: NodeContext) -> Any:
    """A cache with new rows written from each sequence's own position on."""
    past, update, build = n[0], n[1], n.build
    d = axis(n, n.int("axis", -2), past.rank)
    if d == 0:
        raise Refusal("its axis is the batch")
    have, new = past.shape[d], update.shape[d]
    batch = past.shape[0]
    start = n.optional(2)
    start = (
        data_dependent.numbers(n, [0]) if start is None else data_dependent.any_vector(n, 2, batch)
    )
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
    positions = build.emit("expand", held, shape=past.shape)
    found = build.emit("gather_elements", update, positions, axis=d)
    return n.emit("where", inside, found, past)
