"""Adaptive max pooling that also tells where the greatest values are.

A table of the places that each window covers (-1: padding) is a constant: the windows are gathered
beside each other, and the greatest of each is found together with its place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.frontend.torch.reductions import place, reduced
from tilewright.frontend.torch.registry import Site
from tilewright.graph.graph import Value


def shared(size: int, count: int) -> np.ndarray:
    """[count, longest] places of the windows of adaptive pooling."""
    starts = [o * size // count for o in range(count)]
    ends = [-(-(o + 1) * size // count) for o in range(count)]
    longest = max(e - s for s, e in zip(starts, ends, strict=True))
    return np.array(
        [
            [p if p < e else -1 for p in range(s, s + longest)]
            for s, e in zip(starts, ends, strict=True)
        ]
    )


def greatest(n: Site, x: Value, axes: Sequence[np.ndarray]) -> tuple[Value, Value]:
    """The greatest value in each window of x [batch, channels, *space], and its place in the
    flattened space; `axes` has the places that the windows cover on each axis of space."""
    rank = len(axes)
    space = n.static(x.shape[2:], "a pooled axis")
    flat = np.zeros((1,) * (2 * rank), np.int64)
    inside = np.ones((1,) * (2 * rank), bool)
    for d, places in enumerate(axes):  # places of axis d vary along d and rank + d
        shape = [1] * (2 * rank)
        shape[d], shape[rank + d] = places.shape
        flat = flat * space[d] + places.reshape(shape)
        inside = inside & (places.reshape(shape) >= 0)
    counts = [a.shape[0] for a in axes]
    table = np.where(inside, flat, -1).reshape(math.prod(counts), -1)
    lead = x.shape[:2]
    wide = n.reshape(x, (*lead, math.prod(space)))
    covered = n.emit("gather", wide, n.constant(np.maximum(table, 0)), axis=2)
    if (table < 0).any():
        lowest = n.constant(x.dtype.lowest, x.dtype)
        covered = n.emit("where", n.constant(table >= 0), covered, lowest)
    values = reduced(n, "max", covered, -1)
    first = place(n, "argmax", covered, -1, True)
    assert first is not None
    if x.dtype.is_float:  # the last of several NaN
        lacks = n.emit("isnan", covered)
        latest = n.emit("argmax", n.cast(lacks, "u8"), axis=3, keepdims=True, last=True)
        first = n.emit(
            "where", n.emit("isnan", reduced(n, "max", covered, -1, True)), latest, first
        )
    spread = n.expand(n.constant(table), (*lead, *table.shape))
    indices = n.emit("gather_elements", spread, first, axis=3)
    shape = (*lead, *counts)
    return n.reshape(values, shape), n.reshape(indices, shape)
