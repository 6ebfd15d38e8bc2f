"""Translators of ATen operators that reduce what belongs together: bags, segments, histograms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.frontend.torch.convert import Refusal
from tilewright.frontend.torch.reductions import reduced
from tilewright.frontend.torch.registry import TRANSLATORS, NodeContext, axis_of, translates
from tilewright.graph import sizes
from tilewright.graph.bounds import from_start
from tilewright.graph.graph import Value

NEUTRAL = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}


def ordinals(n: NodeContext, count: Any) -> Value:
    return n.emit("arange", length=count)


@translates("_embedding_bag_forward_only.default", "_embedding_bag.default")
def embedding_bag(
    n: NodeContext,
    weight: Value,
    indices: Value,
    offsets: Value,
    scale: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample: Value | None = None,
    include_last: bool = False,
    padding: int = -1,
) -> Any:
    """The sum, mean or greatest of the rows that the indices from one offset to the next name."""
    starts, count, of = n.cast(offsets, "i64"), indices.shape[0], weight.dtype
    if include_last:
        starts = n.cut(starts, 0, 0, starts.shape[0] - 1)
    bags, width = starts.shape[0], weight.shape[1]
    begun = n.emit("less_equal", starts, n.reshape(ordinals(n, count), (count, 1)))
    bag = n.emit("sub", reduced(n, "sum", n.cast(begun, "i64"), 1), n.constant(1, "i64"))
    neutral = -math.inf if mode == 2 else 0.0
    indices = n.indices(indices, from_start(weight.shape[0]))
    rows = n.emit("gather", weight, indices, axis=0)
    if per_sample is not None:
        rows = n.emit("mul", rows, n.reshape(per_sample, (count, 1)))
    kept = n.emit("not_equal", indices, n.constant(padding, indices.dtype))
    rows = n.emit("where", n.reshape(kept, (count, 1)), rows, n.constant(neutral, of))
    positions = n.expand(n.reshape(bag, (count, 1)), (count, width))
    kind = "max" if mode == 2 else "add"
    start = n.full(neutral, of, (bags, width))
    y = n.emit("scatter_elements", start, positions, rows, axis=0, reduction=kind)
    held = n.emit(
        "scatter_elements", n.full(0, of, (bags,)), bag, n.cast(kept, of), axis=0, reduction="add"
    )
    held = n.reshape(held, (bags, 1))
    if mode == 1:
        y = n.emit("div", y, n.emit("maximum", held, n.constant(1, of)))
    elif mode == 2:
        y = n.emit("where", n.emit("greater", held, n.constant(0, of)), y, n.constant(0, of))
    return y, None, None, None


@translates("segment_reduce.default")
def segment_reduce(
    n: NodeContext, x: Value, reduce: str, *, lengths: Value | None = None, indices: Any = None,
    offsets: Value | None = None, axis: int = 0, unsafe: bool = False, initial: Any = None,
) -> Any:  # fmt: skip
    """Each segment of an axis reduced; segments are given by their lengths or their ends."""
    axis = axis_of(axis, x.rank)
    count, lead = x.shape[axis], sizes.product(x.shape[:axis])
    rest = sizes.product(x.shape[axis + 1 :])
    if lengths is not None:
        many = lengths.shape[-1]
        each = n.reshape(n.cast(lengths, "i64"), (lead, many))
        ends = n.emit("cumsum", each, axis=1)
        starts = n.emit("sub", ends, each)
    elif offsets is not None:
        many = sizes.size(offsets.shape[-1] - 1)
        every = n.reshape(n.cast(offsets, "i64"), (lead, offsets.shape[-1]))
        starts, ends = n.cut(every, 1, 0, many), n.cut(every, 1, 1, many)
    else:
        raise Refusal("it has neither lengths nor offsets")
    at = ordinals(n, count)
    starts, ends = (n.reshape(v, (lead, many, 1)) for v in (starts, ends))
    inside = n.emit("logical_and", n.emit("less_equal", starts, at), n.emit("less", at, ends))
    neutral = n.constant(NEUTRAL[reduce], x.dtype)
    mask = n.reshape(inside, (lead, many, count, 1))
    wide = n.emit("where", mask, n.reshape(x, (lead, 1, count, rest)), neutral)
    y = reduced(n, "sum" if reduce == "mean" else reduce, wide, 2)
    if initial is not None:
        op = {"sum": "add", "mean": "add", "prod": "mul", "max": "maximum", "min": "minimum"}
        y = n.emit(op[reduce], y, n.constant(initial, x.dtype))
    if reduce == "mean":
        held = n.cast(n.emit("sub", ends, starts), x.dtype)
        some = n.emit("greater", held, n.constant(0, x.dtype))
        none = y if initial is not None else n.constant(math.nan, x.dtype)
        y = n.emit("where", some, n.emit("div", y, held), none)
    return n.reshape(y, n.shape)


# histograms -------------------------------------------------------------------------------------


def edges_of(n: NodeContext, x: Value, bins: int, span: Any) -> Value:
    """The bins + 1 ends of equal bins over a range, or from the least element to the greatest."""
    if span is not None:
        low, high = (n.constant(v, x.dtype) for v in span)
    elif sizes.static(x.shape) is not None and 0 in (sizes.static(x.shape) or ()):
        low, high = n.constant(0, x.dtype), n.constant(1, x.dtype)
    else:
        low, high = (reduced(n, e, n.reshape(x, (x.elements,)), 0) for e in ("min", "max"))
    same, half = n.emit("equal", low, high), n.constant(0.5, x.dtype)
    low, high = (
        n.emit("where", same, n.emit(op, v, half), v) for op, v in (("sub", low), ("add", high))
    )
    step = n.emit("div", n.emit("sub", high, low), n.constant(bins, x.dtype))
    k = np.arange(bins + 1)
    near = n.emit("add", low, n.emit("mul", step, n.constant(k, x.dtype)))
    far = n.emit("sub", high, n.emit("mul", step, n.constant(bins - k, x.dtype)))
    return n.emit("where", n.constant(k < (bins + 1) // 2, "bool"), near, far)


def bin_of(n: NodeContext, x: Value, edges: Value) -> tuple[Value, Value]:
    """The bin of each element of a vector, and whether it has one; the last holds its upper end."""
    column, last = n.reshape(x, (x.elements, 1)), edges.shape[0] - 1
    begun = reduced(n, "sum", n.cast(n.emit("less_equal", edges, column), "i64"), 1)
    high = n.reshape(n.cut(edges, 0, last, 1), ())
    inside = n.emit("greater", begun, n.constant(0, "i64"))
    flat = n.reshape(x, (x.elements,))
    inside = n.emit("logical_and", inside, n.emit("less_equal", flat, high))
    most = n.build.from_sizes(np.array(sizes.size(last - 1), object), begun.dtype)
    return n.emit("minimum", n.emit("sub", begun, n.constant(1, "i64")), most), inside


def counted(
    n: NodeContext, points: list[Value], edges: list[Value], weight: Value | None, density: bool
) -> Value:
    """How many points (or how much weight) the cells of a grid hold."""
    of, shape = edges[0].dtype, [e.shape[0] - 1 for e in edges]
    count = points[0].elements
    position, inside = n.full(0, n.cast(n.constant(0), "i64").dtype, (count,)), None
    for x, e, size in zip(points, edges, shape, strict=True):
        at, ok = bin_of(n, x, e)
        steps = n.build.from_sizes(np.array(sizes.size(size), object), at.dtype)
        position = n.emit("add", n.emit("mul", position, steps), at)
        inside = ok if inside is None else n.emit("logical_and", inside, ok)
    assert inside is not None
    total = sizes.product(shape)
    each = n.full(1, of, (count,)) if weight is None else n.reshape(weight, (count,))
    each = n.emit("where", inside, each, n.constant(0, of))
    position = n.emit("where", inside, position, n.constant(0, "i64"))
    empty = n.full(0, of, (total,))
    held = n.emit("scatter_elements", empty, position, each, axis=0, reduction="add")
    held = n.reshape(held, shape)
    if not density:
        return held
    for d, (e, size) in enumerate(zip(edges, shape, strict=True)):
        width = n.emit("sub", n.cut(e, 0, 1, size), n.cut(e, 0, 0, size))
        column = [size if k == d else 1 for k in range(len(shape))]
        held = n.emit("div", held, n.reshape(width, column))
    return n.emit("div", held, reduced(n, "sum", n.cast(each, of), 0))


@translates("histogram.bin_ct", "histogram.bins_tensor")
def histogram(
    n: NodeContext, x: Value, bins: Any = 100, *, range: Any = None, weight: Value | None = None,
    density: bool = False,
) -> Any:  # fmt: skip
    edges = bins if isinstance(bins, Value) else edges_of(n, x, bins, range)
    return counted(n, [n.reshape(x, (x.elements,))], [edges], weight, density), edges


def coordinate(n: NodeContext, x: Value, d: int) -> Value:
    """Number `d` of each point."""
    points = x.elements // x.shape[-1]
    return n.reshape(n.cut(n.reshape(x, (points, x.shape[-1])), 1, d, 1), (points,))


@translates("_histogramdd_bin_edges.default")
def histogramdd_bin_edges(
    n: NodeContext, x: Value, bins: list[int], *, range: Any = None, **named: Any
) -> Any:
    spans = [None] * len(bins) if range is None else list(zip(range[::2], range[1::2], strict=True))
    return [
        edges_of(n, coordinate(n, x, d), k, s)
        for d, (k, s) in enumerate(zip(bins, spans, strict=True))
    ]


@translates("_histogramdd_from_bin_cts.default", "_histogramdd_from_bin_tensors.default")
def histogramdd(
    n: NodeContext, x: Value, bins: Any, *, range: Any = None, weight: Value | None = None,
    density: bool = False,
) -> Any:  # fmt: skip
    given = all(isinstance(b, Value) for b in bins)
    edges = bins if given else histogramdd_bin_edges(n, x, bins, range=range)
    points = [coordinate(n, x, d) for d, _ in enumerate(bins)]
    return counted(n, points, list(edges), weight, density)


# a loss over chunks -----------------------------------------------------------------------------


def linear_cross_entropy(
    n: NodeContext, x: Value, weight: Value, target: Value, bias: Value | None, scale: Value | None,
    *rest: Any,
) -> Any:  # fmt: skip
    """The cross entropy of a linear layer's results; that it may be computed in chunks shows in
    PyTorch's use of memory only."""
    if isinstance(rest[0], str):
        reduction, ignore, smoothing = rest[:3]
    else:
        reduction, ignore, smoothing = "none", rest[0], 0.0
    if target.dtype.is_float:
        raise Refusal("its targets are probabilities")
    rows, classes, of = x.shape[0], weight.shape[0], x.dtype
    logits = n.emit("matmul", x, weight, transpose_b=True)
    logits = logits if bias is None else n.emit("add", logits, bias)
    loss = n.emit("neg", n.emit("log_softmax", logits, axis=1))
    factor = n.full(1, of, (classes,)) if scale is None else n.cast(scale, of)
    loss = n.emit("mul", loss, factor)
    kept = n.emit("not_equal", target, n.constant(ignore, target.dtype))
    position = n.emit("where", kept, target, n.constant(0, target.dtype))
    position = n.indices(position, from_start(classes))
    own = n.emit("gather_elements", loss, n.reshape(position, (rows, 1)), axis=1)
    own = n.reshape(own, (rows,))
    if smoothing:
        spread = reduced(n, "mean", loss, 1)
        spread = n.emit("mul", spread, n.constant(smoothing, of))
        own = n.emit("add", n.emit("mul", own, n.constant(1 - smoothing, of)), spread)
    own = n.emit("where", kept, own, n.constant(0, of))
    if reduction != "none":
        total = reduced(n, "sum", own, 0)
        if reduction == "mean":
            divisor = n.emit("gather", factor, position, axis=0)
            divisor = n.emit("where", kept, divisor, n.constant(0, of))
            total = n.emit("div", total, reduced(n, "sum", divisor, 0))
        own = total
    return (own, *(None,) * (len(n.fakes) - 1)) if len(n.fakes) > 1 else own


for _name in ("chunked", "chunked_no_reduction"):
    TRANSLATORS[f"torch_nn._linear_cross_entropy_batch_{_name}.default"] = linear_cross_entropy
