"""Translators of ATen operators whose results have as many elements as they find.

The count is computed and read back (`measure`): PyTorch's symbol for it becomes one of the graph,
which later nodes use in their shapes like any other size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tilewright.frontend.torch.elementwise import truth
from tilewright.frontend.torch.registry import NodeContext, axis_of, translates
from tilewright.graph import sizes
from tilewright.graph.graph import Value
from tilewright.graph.ops.data_dependent import MOST
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Expr


def nonzero_indices(n: NodeContext, mask: Value, size: Any) -> Value:
    """Where a vector of truth values holds; `size` is PyTorch's name for how many there are."""
    positions, count = n.emit("nonzero", mask)
    return n.emit("slice", positions, starts=(0,), shape=(data_dependent_size(n, count, size),))


def data_dependent_size(n: NodeContext, count: Value, size: Any) -> Any:
    """The one element of `count` as a size; `size` is PyTorch's name for it."""
    if not isinstance(size, torch.SymInt) or not size.node.expr.is_Symbol:
        return n.sizes([size])[0]
    name = str(size.node.expr)
    known = n.known(count)
    if name not in n.symbols and known is not None:
        n.symbols[name] = sizes.size(int(known[0]))
    elif name not in n.symbols:
        n.symbols[name] = symbol = n.build.symbol(f"{n.node.name}_count")
        n.emit("measure", count, symbols=(symbol.name,), what=f"the number in {n.node.name}")
    return n.symbols[name]


def name_size(n: NodeContext, size: Any, found: Expr) -> None:
    """Let PyTorch's name for a size, if it has a new one, stand for what the size is."""
    if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
        n.symbols.setdefault(str(size.node.expr), found)


def number_in(n: NodeContext, x: Value, name: Any) -> Any:
    """The one whole number in a tensor as a size; `name` is PyTorch's for it. Any other number
    stays a tensor, without axes."""
    if not x.dtype.is_int or not isinstance(name, torch.SymInt):
        return n.reshape(x, ())
    return data_dependent_size(n, n.cast(n.reshape(x, (1,)), "i64"), name)


def new_size(n: NodeContext) -> Any:
    """The first size of the result that no node before has made; 0 where there is none."""
    new = [s for s in n.fakes[0].shape if isinstance(s, torch.SymInt) and s.node.expr.is_Symbol]
    return next((s for s in new if str(s.node.expr) not in n.symbols), 0)


def flat(n: NodeContext, x: Value) -> Value:
    return n.reshape(x, (x.elements,))


def coordinates(n: NodeContext, positions: Value, shape: tuple[Expr, ...]) -> Value:
    """Flat positions as rows of indices."""
    many = positions.shape[0]
    if not shape:
        return n.full(0, dtype("i64"), (many, 0))
    table = np.empty((2, 1, len(shape)), object)
    for d in range(len(shape)):
        table[:, 0, d] = sizes.product(shape[d + 1 :]), shape[d]
    steps, ends = (n.build.from_sizes(row, dtype("i64")) for row in table)
    one = n.constant(1, "i64")
    steps, ends = n.emit("maximum", steps, one), n.emit("maximum", ends, one)
    column = n.reshape(positions, (many, 1))
    rest = n.emit("sub", column, n.emit("floormod", column, steps))
    return n.emit("floormod", n.emit("div", rest, steps), ends)


@translates("nonzero.default")
def nonzero(n: NodeContext, x: Value) -> Any:
    positions = nonzero_indices(n, flat(n, truth(n, x)), n.fakes[0].shape[0])
    return coordinates(n, positions, x.shape)


@translates("nonzero_numpy.default")
def nonzero_numpy(n: NodeContext, x: Value) -> Any:
    x = n.reshape(x, x.shape or (1,))
    rows = coordinates(n, nonzero_indices(n, flat(n, truth(n, x)), n.fakes[0].shape[0]), x.shape)
    return [n.reshape(n.cut(rows, 1, d, 1), (rows.shape[0],)) for d in range(x.rank)]


@translates("masked_select.default")
def masked_select(n: NodeContext, x: Value, mask: Value) -> Any:
    shape = n.sizes(torch.broadcast_shapes(n.fake(0).shape, n.fake(1).shape))
    positions = nonzero_indices(n, flat(n, n.expand(mask, shape)), n.fakes[0].shape[0])
    return n.emit("gather", flat(n, n.expand(x, shape)), positions, axis=0)


@translates("repeat_interleave.Tensor")
def repeat_interleave(n: NodeContext, repeats: Value, *, output_size: Any = None) -> Any:
    """Each position as often as it says: position i of the result is that of the first sum beyond
    i."""
    ends = n.emit("cumsum", n.cast(repeats, "i64"), axis=0)
    total = n.emit("reduce_sum", n.cast(repeats, "i64"), axes=(0,), keepdims=True)
    many = data_dependent_size(n, total, n.fakes[0].shape[0])
    at = n.reshape(n.emit("arange", length=many), (many, 1))
    passed = n.emit("less_equal", n.reshape(ends, (1, ends.shape[0])), at)
    return n.cast(n.emit("reduce_sum", n.cast(passed, "i64"), axes=(1,)), n.of)


@translates("bincount.default")
def bincount(n: NodeContext, x: Value, weights: Value | None = None, minlength: int = 0) -> Any:
    """How often each number occurs, or the sum of its weights."""
    x = n.indices(x, [(sizes.size(0), sizes.size(MOST))])
    least = n.constant([minlength - 1], "i64")
    most = n.emit("concat", n.cast(x, "i64"), least, axis=0)
    most = n.emit("reduce_max", most, axes=(0,), keepdims=True)
    many = data_dependent_size(n, n.emit("add", most, n.constant(1, "i64")), n.fakes[0].shape[0])
    bins = n.emit("full", shape=(many,), value=0, of=n.of.name)
    each = n.full(1, n.of, x.shape) if weights is None else n.cast(weights, n.of)
    return n.emit("scatter_elements", bins, n.cast(x, "i64"), each, axis=0, reduction="add")


@translates("_unique2.default", "unique_consecutive.default")
def unique(n: NodeContext, x: Value, *args: Any, **named: Any) -> Any:
    """Different elements in rising order (or one of each run of equals), the position of each
    element among them, and how often each occurs."""
    dim = named.get("dim", args[2] if len(args) > 2 else None)
    if n.op == "unique_consecutive" and dim is not None:
        return slices(n, x, dim, runs=True)
    line = flat(n, x)
    order: Value | None = None
    if n.op == "_unique2":
        key = n.cast(line, "u8") if line.dtype.is_bool else line
        line, order = n.emit("top_k", key, k=line.elements, axis=0, largest=False)
        line = n.cast(line, x.dtype)
    same = n.emit("equal", line, n.emit("gather", line, before(n, line.elements), axis=0))
    return counted(n, x.shape, line, order, same, 0)


def before(n: NodeContext, count: Any) -> Value:
    """The position before each; the first is its own."""
    at = n.emit("arange", length=count)
    return n.emit("maximum", n.emit("sub", at, n.constant(1, "i64")), n.constant(0, "i64"))


def counted(
    n: NodeContext, shape: Any, x: Value, order: Value | None, same: Value, axis: int
) -> tuple[Value, ...]:
    """What `unique` returns, of slices of x in order; `same`: does each equal the one before?
    `order`: where each stood at first; `shape`: that of the second result."""
    count = same.shape[0]
    at = n.emit("arange", length=count)
    first = n.emit("equal", at, n.constant(0, "i64"))
    starts = n.emit("logical_or", n.emit("logical_not", same), first)
    new = new_size(n)
    size = n.fakes[0].shape[axis] if isinstance(new, int) else new
    positions = nonzero_indices(n, starts, size)
    rank = n.emit("cumsum", n.cast(starts, "i64"), axis=0)
    rank = n.emit("sub", rank, n.constant(1, "i64"))
    if order is not None:
        rank = n.emit("scatter_elements", rank, order, rank, axis=0)
    many = positions.shape[0]
    end = n.build.from_sizes(np.array([count], object), dtype("i64"))
    nexts = n.emit("slice", n.emit("concat", positions, end, axis=0), starts=(1,), shape=(many,))
    values = n.emit("gather", x, positions, axis=axis)
    results = (values, n.reshape(rank, shape), n.emit("sub", nexts, positions))
    empty = n.full(0, dtype("i64"), (0,))
    asked = [True, *(n.sizes(f.shape) != (0,) for f in n.fakes[1:])]
    return tuple(v if a else empty for v, a in zip(results, asked, strict=True))


@translates("unique_dim.default")
def unique_dim(n: NodeContext, x: Value, dim: int, *_: Any, **named: Any) -> Any:
    return slices(n, x, axis_of(dim, x.rank), runs=False)


def slices(n: NodeContext, x: Value, axis: int, runs: bool) -> Any:
    """`unique` of slices along an axis, in lexicographic order where not only runs are looked
    for."""
    axis = axis_of(axis, x.rank)
    count = x.shape[axis]
    moved = n.transpose(x, (axis, *(d for d in range(x.rank) if d != axis)))
    rows = n.reshape(moved, (count, sizes.product(moved.shape[1:])))
    order = None
    if not runs:
        order = n.emit("row_order", n.cast(rows, "u8") if rows.dtype.is_bool else rows)
        x, rows = (n.emit("gather", v, order, axis=d) for v, d in ((x, axis), (rows, 0)))
    earlier = n.emit("gather", rows, before(n, count), axis=0)
    same = n.emit("reduce_all", n.emit("equal", rows, earlier), axes=(1,))
    return counted(n, (count,), x, order, same, axis)
