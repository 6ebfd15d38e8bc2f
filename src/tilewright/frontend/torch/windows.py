"""Adaptive max pooling that also tells where the greatest values are.

A table has the positions that each window covers (-1: none), a constant where the sizes are known:
the windows are gathered beside each other, and the greatest of each is found together with its
position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.frontend.torch.reductions import position, reduced
from tilewright.frontend.torch.registry import NodeContext
from tilewright.graph import sizes
from tilewright.graph.graph import Value
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import as_int


def adaptive_windows(n: NodeContext, size: Any, count: int) -> Value:
    """[count, longest] positions of the windows of adaptive pooling; -1 behind the end of one."""
    known = as_int(size)
    if known is not None:
        starts = np.arange(count) * known // count
        ends = -(-np.arange(1, count + 1) * known // count)
        positions = starts[:, None] + np.arange(int((ends - starts).max(initial=0)))
        return n.constant(np.where(positions < ends[:, None], positions, -1))
    longest = sizes.size((size + count - 1) // count + 1)
    whole = dtype("i64")
    edges = n.emit("mul", n.constant(np.arange(count + 1)), n.operand(size, whole))
    by = n.constant(count, "i64")
    starts = n.emit("div", n.cut(edges, 0, 0, count), by)
    ends = n.emit("div", n.emit("add", n.cut(edges, 0, 1, count), n.constant(count - 1)), by)
    positions = n.emit("add", n.reshape(starts, (count, 1)), n.counted(longest))
    lies = n.emit("less", positions, n.reshape(ends, (count, 1)))
    return n.emit("where", lies, positions, n.constant(-1, "i64"))


def greatest(n: NodeContext, x: Value, axes: Sequence[Value]) -> tuple[Value, Value]:
    """The greatest value in each window of x [batch, channels, *space], and its position in the
    flattened space; `axes` has the positions that the windows cover on each axis of space."""
    rank, space = len(axes), x.shape[2:]
    flat, inside = n.constant(np.zeros((1,) * (2 * rank), np.int64)), None
    for d, positions in enumerate(axes):  # positions of axis d vary along d and rank + d
        shape: list[Any] = [1] * (2 * rank)
        shape[d], shape[rank + d] = positions.shape
        positions = n.reshape(positions, shape)
        flat = n.emit("add", n.emit("mul", flat, n.operand(space[d], dtype("i64"))), positions)
        lies = n.emit("greater_equal", positions, n.constant(0, "i64"))
        inside = lies if inside is None else n.emit("logical_and", inside, lies)
    assert inside is not None
    counts = [a.shape[0] for a in axes]
    wide = (sizes.product(counts), sizes.product([a.shape[1] for a in axes]))
    table = n.reshape(n.emit("where", inside, flat, n.constant(-1, "i64")), wide)
    lead = x.shape[:2]
    covered = n.emit(
        "gather",
        n.reshape(x, (*lead, sizes.product(space))),
        n.emit("maximum", table, n.constant(0, "i64")),
        axis=2,
    )
    known = n.known(table)
    if known is None or (known < 0).any():
        lowest = n.constant(x.dtype.lowest, x.dtype)
        there = n.emit("greater_equal", table, n.constant(0, "i64"))
        covered = n.emit("where", there, covered, lowest)
    values = reduced(n, "max", covered, -1)
    first = position(n, "argmax", covered, -1, True)
    assert first is not None
    if x.dtype.is_float:  # the last of several NaN
        lacks = n.emit("isnan", covered)
        latest = n.emit("argmax", n.cast(lacks, "u8"), axis=3, keepdims=True, last=True)
        first = n.emit(
            "where", n.emit("isnan", reduced(n, "max", covered, -1, True)), latest, first
        )
    spread = n.expand(table, (*lead, *table.shape))
    indices = n.emit("gather_elements", spread, first, axis=3)
    shape = (*lead, *counts)
    return n.reshape(values, shape), n.reshape(indices, shape)
