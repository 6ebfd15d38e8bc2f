"""Translators of products in groups: rows that lie sorted by their group, each times the weights of
its group, as a mixture of experts has them.

Where the rows of a group end is data. Each group is a product of its own, of as many rows as the
run finds, so that no row is multiplied by weights of another; rows fewer than the groups read
their own weights one by one instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontend.torch.convert import Refusal
from tilewright.frontend.torch.registry import TRANSLATORS, NodeContext, translates
from tilewright.graph import sizes
from tilewright.graph.graph import Value
from tilewright.ir.expr import as_int


@translates("_grouped_mm.default")
def grouped_mm(
    n: NodeContext, x: Value, weights: Value, ends: Value | None = None, bias: Any = None,
    out_dtype: Any = None,
) -> Any:  # fmt: skip
    """Rows [S, K] times [G, K, N]; rows from `ends[g - 1]` to `ends[g]` are of group g. Rows behind
    the last give 0."""
    if ends is None or bias is not None or (x.rank, weights.rank) != (2, 3):
        raise Refusal("only rows by stacked weights are supported, with ends and no bias")
    many, count = x.shape[0], as_int(weights.shape[0])
    if count is None:
        raise Refusal("the number of groups depends on a symbolic size")
    ends = n.cast(ends, "i64")
    few = as_int(many)
    y = (
        one_by_one(n, x, weights, ends)
        if few is not None and few < count
        else group_by_group(n, x, weights, ends, count)
    )
    return n.cast(y, n.of)


TRANSLATORS["transformers.grouped_mm_fallback.default"] = grouped_mm


def one_by_one(n: NodeContext, x: Value, weights: Value, ends: Value) -> Value:
    """Each row by the weights of its group alone."""
    (many, deep), (count, _, wide) = x.shape, weights.shape
    at = n.reshape(n.emit("arange", length=many), (many, 1))
    passed = n.emit("less_equal", n.reshape(ends, (1, count)), at)
    group = n.emit("reduce_sum", n.cast(passed, "i64"), axes=(1,))
    last = n.constant((as_int(count) or 1) - 1, "i64")
    own = n.emit("gather", weights, n.emit("minimum", group, last), axis=0)
    y = n.reshape(n.emit("matmul", n.reshape(x, (many, 1, deep)), own), (many, wide))
    inside = n.reshape(n.emit("less_equal", group, last), (many, 1))
    return n.emit("where", inside, y, n.constant(0, y.dtype))


def group_by_group(n: NodeContext, x: Value, weights: Value, ends: Value, count: int) -> Value:
    """A product for each group. None ends before one in front of it does."""
    (many, deep), wide = x.shape, weights.shape[2]
    earlier = n.constant(np.tri(count, dtype=bool), "bool")
    ends = n.emit("where", earlier, ends, n.constant(0, "i64"))
    ends = n.emit("reduce_max", ends, axes=(1,))
    known = n.known(ends)
    if known is not None:
        positions = [sizes.size(int(end)) for end in known]
    else:
        positions = [n.build.symbol(f"{n.node.name}_end{g}") for g in range(count)]
        what = f"the ends of the groups in {n.node.name}"
        n.emit("measure", ends, symbols=tuple(s.name for s in positions), what=what)
    parts, start = [], sizes.size(0)
    for g, end in enumerate(positions):
        own = n.reshape(n.cut(weights, 0, g, 1), (deep, wide))
        rows = n.cut(x, 0, start, sizes.size(end - start))
        parts.append(n.emit("matmul", rows, own))
        start = sizes.size(end)
    parts.append(n.full(0, x.dtype, (sizes.size(many - start), wide)))
    return n.emit("concat", *parts, axis=0)
