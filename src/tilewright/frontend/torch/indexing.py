"""Translators of ATen operators whose positions depend on data: gathers, scatters, sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.frontend.torch.convert import Refusal
from tilewright.frontend.torch.data_dependent import (
    coordinates,
    data_dependent_size,
    flat,
    new_size,
    nonzero_indices,
)
from tilewright.frontend.torch.reductions import norm_of, reduced
from tilewright.frontend.torch.registry import NodeContext, axis_of, translates
from tilewright.graph import sizes
from tilewright.graph.bounds import Bounds, from_start, into
from tilewright.graph.graph import Value
from tilewright.graph.operator import broadcast_shape
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import as_int


@translates("embedding.default")
def embedding(n: NodeContext, weight: Value, indices: Value, *_: Any, **named: Any) -> Any:
    return n.emit("gather", weight, n.indices(indices, from_start(weight.shape[0])), axis=0)


@translates("embedding_renorm.default")
def embedding_renorm(
    n: NodeContext, weight: Value, indices: Value, max_norm: float, norm_type: float
) -> Any:
    """A table whose rows that indices name are shortened to a norm, if theirs is greater."""
    count = weight.shape[0]
    line = flat(n, n.cast(indices, "i64"))
    none = n.full(False, dtype("bool"), (count,))
    ones = n.full(True, dtype("bool"), line.shape)
    named = n.reshape(n.emit("scatter_elements", none, line, ones, axis=0), (count, 1))
    norm = norm_of(n, weight, norm_type, -1, True)
    shorter = n.emit("div", n.constant(max_norm, norm.dtype),
                     n.emit("add", norm, n.constant(1e-7, norm.dtype)))  # fmt: skip
    wanted = n.emit("logical_and", named, n.emit("greater", norm, n.constant(max_norm, norm.dtype)))
    return n.emit("where", wanted, n.emit("mul", weight, shorter), weight)


@translates("index_select.default")
def index_select(n: NodeContext, x: Value, dim: int, index: Value) -> Any:
    if not x.rank:
        return x
    d = axis_of(dim, x.rank)
    found = n.emit("gather", x, n.indices(index, from_start(x.shape[d])), axis=d)
    return n.reshape(found, n.shape)


@translates("gather.default")
def gather(n: NodeContext, x: Value, dim: int, index: Value, **named: Any) -> Any:
    if not x.rank:
        return n.reshape(x, n.shape)
    if as_int(index.elements) == 0:
        return n.full(0)
    d = axis_of(dim, x.rank)
    index = n.indices(index, from_start(x.shape[d]))
    if not index.rank:
        return n.reshape(n.emit("gather", x, index, axis=0), ())
    return n.emit("gather_elements", x, index, axis=d)


@translates("take.default")
def take(n: NodeContext, x: Value, index: Value) -> Any:
    index = n.indices(index, into(x.elements))
    return n.emit("gather", n.reshape(x, (x.elements,)), index, axis=0)


class Positions:
    """What x[i, :, j] names: the indexed axes and their broadcast indices."""

    def __init__(self, n: NodeContext, x: Value, indices: Any) -> None:
        indices = self.without_masks(n, x, list(indices))
        self.axes = [d for d, i in enumerate(indices) if i is not None]
        given = [indices[d] for d in self.axes]
        self.shape = broadcast_shape(*[i.shape for i in given])
        self.given = [n.cast(i, "i64") for i in given]
        self.rest = [d for d in range(x.rank) if d not in self.axes]
        first = self.axes[0]
        adjacent = self.axes == list(range(first, first + len(self.axes)))
        self.front = first if adjacent else 0  # where the broadcast axes stand in x[...]

    @staticmethod
    def without_masks(n: NodeContext, x: Value, indices: list[Any]) -> list[Any]:
        """Masks become the positions where they hold; other indices are checked."""
        found: list[Any] = []
        for i in indices:
            if i is None or not i.dtype.is_bool:
                surely = i is None or n.op.startswith("_unsafe")
                found.append(i if surely else n.indices(i, into(x.shape[len(found)])))
                continue
            content = n.known(i)
            if content is not None:
                data_dependent_size(n, n.constant([np.count_nonzero(content)], "i64"), new_size(n))
                found += [n.constant(positions) for positions in np.nonzero(content)]
                continue
            rows = coordinates(n, nonzero_indices(n, flat(n, i), new_size(n)), i.shape)
            found += [n.reshape(n.cut(rows, 1, d, 1), (rows.shape[0],)) for d in range(i.rank)]
        return found

    def stacked(self, n: NodeContext) -> Value:
        """The indices side by side: [*broadcast, number of axes]."""
        wide = [n.reshape(n.expand(i, self.shape), (*self.shape, 1)) for i in self.given]
        return wide[0] if len(wide) == 1 else n.emit("concat", *wide, axis=len(self.shape))

    def ordered(self, n: NodeContext, x: Value) -> Value:
        """x with the indexed axes in front."""
        return n.transpose(x, [*self.axes, *self.rest])


@translates("index.Tensor", "_unsafe_index.Tensor")
def index(n: NodeContext, x: Value, indices: Any) -> Any:
    positions = Positions(n, x, indices)
    if len(positions.axes) == 1:
        return n.emit("gather", x, positions.given[0], axis=positions.axes[0])
    found = n.emit("gather_nd", positions.ordered(n, x), positions.stacked(n))
    width, front = len(positions.shape), positions.front
    lead = list(range(width))
    rest = list(range(width, width + len(positions.rest)))
    return n.transpose(found, [*rest[:front], *lead, *rest[front:]])


@translates("index_put.default", "_unsafe_index_put.default")
def index_put(
    n: NodeContext, x: Value, indices: Any, values: Value, accumulate: bool = False, *_: Any
) -> Any:
    """x with values written (or added) at positions; of a position named twice the last value
    stays."""
    mask = indices[0] if len(indices) == 1 else None
    if mask is not None and mask.dtype.is_bool and n.known(mask) is None and not accumulate:
        if as_int(values.elements) != 1:
            return masked_rows(n, x, mask, n.operand(values))
        mask = n.reshape(mask, (*mask.shape, *(1,) * (x.rank - mask.rank)))
        return n.emit("where", mask, n.reshape(values, ()), x)
    positions = Positions(n, x, indices)
    rest = [x.shape[d] for d in positions.rest]
    front = positions.front
    goal = (*rest[:front], *positions.shape, *rest[front:])  # as x[...] has it
    values = n.expand(n.operand(values), goal)
    width = len(positions.shape)
    lead = list(range(front, front + width))
    values = n.transpose(values, [*lead, *(d for d in range(values.rank) if d not in lead)])
    moved = n.emit(
        "scatter_nd",
        positions.ordered(n, x),
        positions.stacked(n),
        values,
        reduction="add" if accumulate else "none",
    )
    order = [*positions.axes, *positions.rest]
    return n.transpose(moved, [order.index(d) for d in range(x.rank)])


@translates("index_add.default")
def index_add(
    n: NodeContext, x: Value, dim: int, index: Value, source: Value, *, alpha: Any = 1
) -> Any:
    if alpha != 1:
        source = n.emit("mul", source, n.constant(alpha, source.dtype))
    return written_at(n, x, dim, n.indices(index, of_axis(from_start, x, dim)), source, True)


@translates("index_copy.default")
def index_copy(n: NodeContext, x: Value, dim: int, index: Value, source: Value) -> Any:
    return written_at(n, x, dim, n.indices(index, of_axis(from_start, x, dim)), source)


@translates("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(n: NodeContext, x: Value, dim: int, index: Value, value: Any) -> Any:
    """The only one of these whose indices may count from the end."""
    index = n.indices(index, of_axis(into, x, dim))
    return written_at(n, x, dim, index, n.cast(n.operand(value, x.dtype), x.dtype))


def of_axis(bounds: Callable[..., Bounds], x: Value, dim: int) -> Bounds:
    """The bounds of indices into an axis; a scalar has one of one element."""
    return bounds(x.shape[axis_of(dim, x.rank)] if x.rank else 1)


def written_at(
    n: NodeContext, x: Value, dim: int, index: Value, source: Value, accumulate: bool = False
) -> Value:
    """x with slices along an axis replaced (or added to)."""
    if not x.rank:
        x, source = n.reshape(x, (1,)), n.reshape(source, (source.elements,))
    indices = [None] * axis_of(dim, x.rank) + [n.reshape(index, (index.elements,))]
    return n.reshape(index_put(n, x, indices, source, accumulate), n.shape)


def masked_rows(n: NodeContext, x: Value, mask: Value, values: Value) -> Value:
    """x with the slices where a mask over its first axes holds replaced: by one, or in order."""
    rest = x.shape[mask.rank :]
    seen = n.reshape(mask, (*mask.shape, *(1,) * len(rest)))
    if values.rank > len(rest) and as_int(values.shape[0]) != 1:
        flat = n.reshape(mask, (mask.elements,))
        positions = n.emit("cumsum", n.cast(flat, "i64"), axis=0, exclusive=True)
        rows = n.emit("gather", values, positions, axis=0)
        rows = n.expand(rows, (mask.elements, *rest))
        values = n.reshape(rows, x.shape)
    return n.emit("where", seen, values, x)


_REDUCTIONS = {"sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "max", "amin":
"min",
               "mean": "add"}  # fmt: skip


@translates("scatter.src", "scatter.value", "scatter.reduce", "scatter.value_reduce",
            "scatter_add.default")  # fmt: skip
def scatter(
    n: NodeContext, x: Value, dim: int, index: Value, source: Any, reduce: str | None = None
) -> Any:
    kind = "sum" if n.op == "scatter_add" else reduce
    return scattered(n, x, dim, index, source, "none" if kind is None else _REDUCTIONS[kind])


def scattered(
    n: NodeContext, x: Value, dim: int, index: Value, source: Any, reduction: str
) -> Value:
    if as_int(index.elements) == 0:
        return x
    flat = (1,) * max(1, x.rank) if not x.rank else None
    if flat:  # scalars are vectors of one
        x, index = n.reshape(x, flat), n.reshape(index, flat)
        source = n.reshape(source, flat) if isinstance(source, Value) else source
    axis = axis_of(dim, x.rank)
    index = n.indices(index, from_start(x.shape[axis]))
    if isinstance(source, Value):
        updates = n.cast(source, x.dtype)
        for d, size in enumerate(index.shape):  # the source may be larger than the index
            updates = n.cut(updates, d, 0, size)
    else:
        updates = n.expand(n.operand(source, x.dtype), index.shape)
    y = n.emit("scatter_elements", x, index, updates, axis=axis, reduction=reduction)
    return n.reshape(y, n.shape)


@translates("scatter_reduce.two")
def scatter_reduce(
    n: NodeContext,
    x: Value,
    dim: int,
    index: Value,
    source: Value,
    reduce: str,
    *,
    include_self: bool = True,
) -> Any:
    kind = _REDUCTIONS[reduce]
    of = x.dtype
    start = x
    if not include_self:  # the positions that are written start from the neutral element
        neutral = {"add": 0, "mul": 1, "max": of.lowest, "min": of.highest}[kind]
        start = scattered(n, x, dim, index, neutral, "none")
    y = scattered(n, start, dim, index, source, kind)
    if reduce != "mean":
        return y
    ones = n.full(1, of, x.shape)
    counts = scattered(n, n.full(0 if not include_self else 1, of, x.shape), dim, index, 1, "add")
    counts = n.emit("maximum", counts, ones)
    if of.is_float:
        return n.emit("div", y, counts)
    return n.emit("div", n.emit("sub", y, n.emit("floormod", y, counts)), counts)


@translates("masked_scatter.default")
def masked_scatter(n: NodeContext, x: Value, mask: Value, source: Value) -> Any:
    """Where the mask holds, the source's elements one after the other."""
    mask, x = n.expand(mask, n.shape), n.expand(x, n.shape)
    flat = n.reshape(mask, (mask.elements,))
    positions = n.emit("cumsum", n.cast(flat, "i64"), axis=0, exclusive=True)
    found = n.emit("gather", n.reshape(source, (source.elements,)), positions, axis=0)
    return n.emit("where", mask, n.reshape(found, n.shape), x)


@translates("topk.default")
def topk(
    n: NodeContext, x: Value, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Any:
    if not x.rank:
        return x, n.constant(0, "i64")
    return n.emit("top_k", x, k=sizes.size(k), axis=axis_of(dim, x.rank), largest=largest)


@translates("sort.default", "sort.stable", "argsort.default", "argsort.stable")
def sort(n: NodeContext, x: Value, *args: Any, **named: Any) -> Any:
    """All elements in order; equal ones stay in theirs."""
    if str(n.node.target).endswith("stable"):  # sort.stable(x, *, stable, dim, descending)
        args = args[1:] if args and not named.get("stable") else args
    dim = args[0] if args else named.get("dim", -1)
    descending = args[1] if len(args) > 1 else named.get("descending", False)
    if not x.rank:
        values, positions = x, n.constant(0, "i64")
    else:
        axis, key = axis_of(dim, x.rank), n.cast(x, "u8") if x.dtype.is_bool else x
        values, positions = n.emit("top_k", key, k=x.shape[axis], axis=axis, largest=descending)
        values = n.cast(values, x.dtype)
    return positions if n.op == "argsort" else (values, positions)


@translates("kthvalue.default", "median.default", "median.dim")
def kth(n: NodeContext, x: Value, *args: Any) -> Any:
    """The k-th least along an axis and its index; the median is the lesser of the middle two."""
    whole = str(n.node.target) == "aten.median.default"
    if whole:
        x, args = n.reshape(x, (x.elements,)), (0,)
    k, *rest = args if n.op == "kthvalue" else (None, *args)
    axis = axis_of(rest[0] if rest else -1, x.rank)
    if not x.rank:
        return x, n.constant(0, "i64")
    k = sizes.size((x.shape[axis] + 1) // 2 if k is None else k)
    if n.op == "median" and x.dtype.is_float:  # NaN is the greatest and the median of what has one
        hidden = n.emit("isnan", reduced(n, "max", x, axis, True))
    values, positions = n.emit("top_k", x, k=k, axis=axis, largest=False)
    last = sizes.size(k - 1)
    value, position = n.cut(values, axis, last, 1), n.cut(positions, axis, last, 1)
    if n.op == "median" and x.dtype.is_float:
        value = n.emit("where", hidden, n.constant(np.nan, x.dtype), value)
        first = n.emit("argmax", x, axis=axis, keepdims=True)
        position = n.emit("where", hidden, first, position)
    value = n.reshape(value, n.shape)
    return value if whole else (value, n.reshape(position, n.shape))


@translates("one_hot.default")
def one_hot(n: NodeContext, x: Value, num_classes: int = -1) -> Any:
    if num_classes < 0:
        raise Refusal("how many classes there are is only known at run time", "pass num_classes")
    x = n.indices(x, from_start(num_classes))
    return n.emit("one_hot", x, n.constant(np.array([0, 1])), depth=num_classes, axis=-1)


@translates("bucketize.Tensor", "searchsorted.Tensor", "bucketize.Scalar", "searchsorted.Scalar")
def bucketize(
    n: NodeContext,
    first: Any,
    second: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: Any = None,
    sorter: Any = None,
) -> Any:
    """How many boundaries lie below each value (or, `right`, not above it)."""
    x, bounds = (first, second) if n.op == "bucketize" else (second, first)
    if not isinstance(x, Value):  # a number
        if isinstance(x, float) and not bounds.dtype.is_float:
            bounds = n.cast(bounds, "f64")
        x = n.operand(x, bounds.dtype)
    if sorter is not None:
        order = n.cast(n.indices(sorter, from_start(bounds.shape[-1])), "i64")
        bounds = n.emit("gather_elements", bounds, order, axis=bounds.rank - 1)
    if bounds.rank > 1:  # each row of x has its own
        bounds = n.reshape(bounds, (*bounds.shape[:-1], 1, bounds.shape[-1]))
    wide = n.reshape(x, (*x.shape, 1))
    beyond = n.emit("greater" if right or side == "right" else "greater_equal", bounds, wide)
    below = n.emit("logical_not", beyond)  # of NaN, which is greater than all numbers, all are
    return reduced(n, "sum", n.cast(below, n.of), -1)


@translates("_local_scalar_dense.default", "item.default")
def of_data(n: NodeContext, *_: Any, **named: Any) -> Any:
    raise Refusal(
        "the shape or value of its result depends on data",
        "give it a fixed size: masks with torch.where, counts with topk",
    )


@translates("cummax.default", "cummin.default")
def running_extreme(n: NodeContext, x: Value, dim: int) -> Any:
    """The running maximum or minimum, and its index."""
    if not x.rank:
        return x, n.constant(0, "i64")
    kind = x.dtype
    x = n.cast(x, "u8") if kind.is_bool else x
    values, positions = n.emit(n.op, x, axis=axis_of(dim, x.rank))
    return n.cast(values, kind), positions


@translates("cumprod.default")
def cumprod(n: NodeContext, x: Value, dim: int, dtype: Any = None) -> Any:
    x = n.operand(x)
    return n.emit("cumprod", x, axis=axis_of(dim, x.rank)) if x.rank else x


@translates("logcumsumexp.default")
def logcumsumexp(n: NodeContext, x: Value, dim: int) -> Any:
    """A running logarithm of sums: each result reduces the elements up to it, in n² steps."""
    x = n.wide(n.operand(x))
    if not x.rank:
        return n.cast(x, n.of)
    axis = axis_of(dim, x.rank)
    count = x.shape[axis]
    rows = n.reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))
    seen = n.emit("greater_equal", n.reshape(n.counted(count), (count, 1)), n.counted(count))
    seen = n.reshape(seen, (count, count) + (1,) * (rows.rank - axis - 2))
    masked = n.emit("where", seen, rows, n.constant(x.dtype.lowest, x.dtype))
    y = reduced(n, "max", masked, axis + 1, True)
    top = n.emit("where", n.emit("isinf", y), n.constant(0, x.dtype), y)
    sums = reduced(n, "sum", n.emit("exp", n.emit("sub", masked, top)), axis + 1, True)
    return n.cast(n.reshape(n.emit("add", n.emit("log", sums), top), n.shape), n.of)
