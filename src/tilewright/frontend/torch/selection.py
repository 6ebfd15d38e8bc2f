"""Translators of ATen operators that pick or replace elements by counting, ordering or position."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from tilewright.frontend.torch.convert import Refusal
from tilewright.frontend.torch.data_dependent import coordinates, flat
from tilewright.frontend.torch.elementwise import truth
from tilewright.frontend.torch.indexing import scatter_reduce
from tilewright.frontend.torch.reductions import reduced, vector_norm
from tilewright.frontend.torch.registry import NodeContext, axis_of, translates
from tilewright.graph import sizes
from tilewright.graph.bounds import into
from tilewright.graph.graph import Value
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import BinaryOp, Expr, as_int, binary


@translates("index_reduce.default")
def index_reduce(
    n: NodeContext, x: Value, dim: int, index: Value, source: Value, reduce: str, *,
    include_self: bool = True
) -> Any:  # fmt: skip
    axis = axis_of(dim, x.rank)
    if not x.rank:  # a scalar is a vector of one
        x, source = n.reshape(x, (1,)), n.reshape(source, (source.elements,))
    shape = [1] * x.rank
    shape[axis] = index.shape[0] if index.rank else 1
    wide = n.expand(n.reshape(index, shape), source.shape)
    y = scatter_reduce(n, x, dim, wide, source, reduce, include_self=include_self)
    return n.reshape(y, n.shape)


@translates("put.default")
def put(n: NodeContext, x: Value, index: Value, source: Value, accumulate: bool = False) -> Any:
    """x with elements at flat positions replaced (or added to)."""
    if as_int(index.elements) == 0:
        return x
    index = n.indices(index, into(x.elements))
    flat, positions = n.reshape(x, (x.elements,)), n.reshape(index, (index.elements,))
    y = n.emit(
        "scatter_elements",
        flat,
        positions,
        n.reshape(source, (source.elements,)),
        axis=0,
        reduction="add" if accumulate else "none",
    )
    return n.reshape(y, n.shape)


@translates("nonzero_static.default")
def nonzero_static(n: NodeContext, x: Value, *, size: int, fill_value: int = -1) -> Any:
    """The positions of what is not zero, in order; as many as asked for, filled up: each is written
    where the count of those before it says, and what is too much behind the others."""
    if not x.rank or 0 in (size, as_int(x.elements)):
        return n.full(fill_value)
    line = flat(n, truth(n, x))
    rank = n.emit("cumsum", n.cast(line, "i64"), axis=0)
    many = n.constant(size, "i64")
    asked = n.emit("logical_and", line, n.emit("less_equal", rank, many))
    goal = n.emit("where", asked, n.emit("sub", rank, n.constant(1, "i64")), many)
    empty = n.full(-1, dtype("i64"), (size + 1,))
    found = n.emit("scatter_elements", empty, goal, n.counted(x.elements), axis=0)
    found = n.cut(found, 0, 0, size)
    rows = coordinates(n, n.emit("maximum", found, n.constant(0, "i64")), x.shape)
    there = n.emit("greater_equal", n.reshape(found, (size, 1)), n.constant(0, "i64"))
    return n.emit("where", there, rows, n.constant(fill_value, "i64"))


@translates("diagonal_scatter.default")
def diagonal_scatter(
    n: NodeContext, x: Value, source: Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Any:
    """x with a diagonal replaced: the source has a row for each row of the matrices, those that the
    diagonal does not cross are padded and not read."""
    a, b = axis_of(dim1, x.rank), axis_of(dim2, x.rank)
    order = [*(d for d in range(x.rank) if d not in (a, b)), a, b]
    rows, columns, lead = x.shape[a], x.shape[b], x.rank - 2
    first = sizes.size(binary(BinaryOp.min, sizes.size(max(0, -offset)), rows))
    left = sizes.size(rows - first - source.shape[-1])
    before, after = (*(0,) * lead, first), (*(0,) * lead, left)
    values = n.emit("pad", source, before=before, after=after, value=0)
    row, column = n.reshape(n.counted(rows), (rows, 1)), n.counted(columns)
    on_diagonal = n.emit("equal", n.emit("sub", column, row), n.constant(offset, "i64"))
    values = n.reshape(n.cast(values, x.dtype), (*values.shape, 1))
    y = n.emit("where", on_diagonal, values, n.transpose(x, order))
    return n.transpose(y, [order.index(d) for d in range(x.rank)])


@translates("as_strided_scatter.default")
def as_strided_scatter(
    n: NodeContext,
    x: Value,
    source: Value,
    size: Any,
    stride: Any,
    storage_offset: int | None = None,
) -> Any:
    if not n.fake(0).is_contiguous():
        raise Refusal("it writes the memory of a tensor that is not contiguous")
    positions = np.full(n.static(size, "a stride"), storage_offset or 0, np.int64)
    for d, (count, step) in enumerate(
        zip(positions.shape, n.static(stride, "a stride"), strict=True)
    ):
        positions = positions + (np.arange(count) * step).reshape(
            (-1,) + (1,) * (positions.ndim - 1 - d)
        )
    return replaced(n, x, positions, source)


def replaced(n: NodeContext, x: Value, positions: np.ndarray, source: Value) -> Value:
    """x with the elements at known flat positions replaced by those of the source."""
    if not positions.size:
        return x
    y = n.emit(
        "scatter_elements",
        n.reshape(x, (x.elements,)),
        n.constant(np.ascontiguousarray(positions).reshape(-1)),
        n.reshape(n.operand(source), (positions.size,)),
        axis=0,
    )
    return n.reshape(y, n.shape)


@translates("nanmedian.default", "nanmedian.dim")
def nanmedian(n: NodeContext, x: Value, dim: int = 0, keepdim: bool = False) -> Any:
    """The lesser of the middle two of the numbers along an axis; NaN where there are none."""
    whole = str(n.node.target).endswith("default")
    if not x.rank:
        return x if whole else (x, n.constant(0, "i64"))
    x = n.reshape(x, (x.elements,)) if whole else x
    axis = axis_of(dim, x.rank)
    count = x.shape[axis]
    if x.dtype.is_float:
        missing = n.emit("isnan", x)
        key = n.emit("where", missing, n.constant(math.inf, x.dtype), x)
        numbers = reduced(n, "sum", n.cast(n.emit("logical_not", missing), "i64"), axis, True)
    else:
        key, numbers = x, n.reshape(n.operand(count, dtype("i64")), (1,) * x.rank)
    _, order = n.emit("top_k", key, k=count, axis=axis, largest=False)
    middle = n.emit("sub", numbers, n.constant(1, "i64"))
    middle = n.emit("div", n.emit("maximum", middle, n.constant(0, "i64")), n.constant(2, "i64"))
    shape = tuple(1 if d == axis else s for d, s in enumerate(x.shape))
    at = n.emit("gather_elements", order, n.expand(middle, shape), axis=axis)
    value = n.emit("gather_elements", x, at, axis=axis)
    value = n.reshape(value, n.shape)
    return value if whole else (value, n.reshape(at, n.shape))


@translates("histc.default")
def histc(n: NodeContext, x: Value, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """How many elements lie in each of equal bins; the last one holds its upper end."""
    flat = n.reshape(x, (x.elements, 1))
    low, high = n.operand(min), n.operand(max)
    if min == max == 0:
        low, high = (n.reshape(reduced(n, end, flat, None), ()) for end in ("min", "max"))
        same = n.emit("equal", low, high)
        one = n.constant(1, x.dtype)
        low, high = (
            n.emit("where", same, n.emit(op, v, one), v) for op, v in (("sub", low), ("add", high))
        )
    above = n.emit("mul", n.emit("sub", flat, low), n.operand(bins))  # in PyTorch's order
    bin_of = n.emit("floor", n.emit("div", above, n.emit("sub", high, low)))
    bin_of = n.emit("minimum", bin_of, n.operand(bins - 1))
    within = n.emit(
        "logical_and", n.emit("greater_equal", flat, low), n.emit("less_equal", flat, high)
    )
    hit = n.emit("equal", bin_of, n.constant(np.arange(bins).reshape(1, -1), x.dtype))
    return reduced(n, "sum", n.cast(n.emit("logical_and", hit, within), n.of), 0)


@translates("_pdist_forward.default")
def pdist(n: NodeContext, x: Value, p: float = 2) -> Any:
    """The distances of all pairs of rows."""
    pairs = all_pairs(n, x.shape[0])
    if pairs is None:
        return n.full(0)
    a, b = (n.emit("gather", x, k, axis=0) for k in pairs)
    return vector_norm(n, n.emit("sub", a, b), p, -1)


def all_pairs(n: NodeContext, count: Expr) -> tuple[Value, Value] | None:
    """Both positions of each pair of `count`, the first one before the second; None: there is
    none."""
    known = as_int(count)
    if known is not None:
        pairs = np.array(list(itertools.combinations(range(known), 2)), np.int64).reshape(-1, 2)
        return (
            (n.constant(pairs[:, 0].copy()), n.constant(pairs[:, 1].copy())) if known > 1 else None
        )
    one, (total,) = n.constant(1, "i64"), n.shape
    own = n.counted(count)  # the pairs of position i follow those of all positions before it
    twice = n.emit("sub", n.cast(n.build.size_vector(sizes.size(count * 2 - 1)), "i64"), own)
    starts = n.emit("shift_right", n.emit("mul", own, twice), one)
    room = sizes.size(total + 1)  # the last position is the first of no pair
    ones = n.full(1, dtype("i64"), (count,))
    marks = n.emit("scatter_elements", n.full(0, dtype("i64"), (room,)), starts, ones, axis=0)
    first = n.emit("sub", n.emit("cumsum", n.cut(marks, 0, 0, total), axis=0), one)
    behind = n.emit("sub", n.counted(total), n.emit("gather", starts, first, axis=0))
    return first, n.emit("add", n.emit("add", behind, first), one)


@translates("_trilinear.default")
def trilinear(
    n: NodeContext,
    a: Value,
    b: Value,
    c: Value,
    expand1: Any,
    expand2: Any,
    expand3: Any,
    sumdim: Any,
    unroll_dim: int = 1,
) -> Any:
    """The product of three tensors, each spread along its new axes, summed over some."""
    parts = []
    for x, new in ((a, expand1), (b, expand2), (c, expand3)):
        shape = list(x.shape)
        for axis in sorted(new):
            shape.insert(axis, 1)  # type: ignore[arg-type]
        parts.append(n.reshape(x, shape))
    y = n.emit("mul", n.emit("mul", parts[0], parts[1]), parts[2])
    return reduced(n, "sum", y, tuple(sumdim)) if sumdim else y


@translates("mode.default")
def mode(n: NodeContext, x: Value, dim: int = -1, keepdim: bool = False) -> Any:
    """The least of the most frequent values along an axis, and where it stands last."""
    if not x.rank:
        return x, n.constant(0, "i64")
    axis, kind = axis_of(dim, x.rank), x.dtype
    x = n.cast(x, "u8") if kind.is_bool else x
    row = n.reshape(x, (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :]))
    column = n.reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))
    counts = reduced(n, "sum", n.cast(n.emit("equal", row, column), "i64"), axis + 1)
    most = n.emit("equal", counts, reduced(n, "max", counts, axis, True))
    highest = n.constant(x.dtype.highest, x.dtype)
    value = reduced(n, "min", n.emit("where", most, x, highest), axis, True)
    at = n.emit("argmax", n.cast(n.emit("equal", x, value), "u8"), axis=axis, last=True)
    return n.cast(n.reshape(value, n.shape), kind), n.reshape(at, n.shape)
