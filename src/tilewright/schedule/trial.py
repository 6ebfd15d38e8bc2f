"""Trial: what a few iterations compute decides what no rule about digits could.

In: index expressions, the ranges of their variables. Out: whether they tell the iterations of a
loop apart, found by computing all of them. The one idea: for small loops of constant extents that
is a proof, and as quick as one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from tilewright.arith.interval import Ranges
from tilewright.ir.expr import Binary, BinaryOp, Const, Expr, Var
from tilewright.ir.walk import free_vars

MOST = 1 << 14  # iterations that are computed

Numbers = np.ndarray[Any, np.dtype[np.int64]]

_COMPUTED: dict[BinaryOp, Callable[[Numbers, Numbers], Numbers]] = {
    BinaryOp.add: np.add,
    BinaryOp.sub: np.subtract,
    BinaryOp.mul: np.multiply,
    BinaryOp.floordiv: np.floor_divide,
    BinaryOp.floormod: np.mod,
    BinaryOp.min: np.minimum,
    BinaryOp.max: np.maximum,
}


def told_apart(values: Sequence[Expr], v: Var, inside: set[Var], ranges: Ranges) -> bool:
    """Whether `values` determine `v`, the variables that are not `inside` being fixed; False, too,
    where there are too many iterations to compute, or no constant number of them."""
    names = sorted({u for e in values for u in free_vars(e)} | {v}, key=lambda u: u.name)
    spans: list[tuple[int, int]] = []
    for u in names:
        low, high = ranges.get(u, (None, None))
        if not isinstance(low, int) or not isinstance(high, int) or high < low:
            return False
        spans.append((low, high - low + 1))
    if prod(count for _, count in spans) > MOST:
        return False
    counts = [count for _, count in spans]
    grid: Any = np.indices(counts)
    grid = grid.reshape(len(names), -1)
    at = {u: grid[n] + low for n, (u, (low, _)) in enumerate(zip(names, spans, strict=True))}
    rows = [at[u] for u in names if u not in inside and u != v]
    for e in values:
        row = _compute(e, at)
        if row is None:
            return False
        rows.append(np.broadcast_to(row, at[v].shape))
    return _different(np.stack([*rows, at[v]])) == _different(np.stack([*rows, 0 * at[v]]))


def _different(rows: Numbers) -> int:
    """How many columns differ."""
    unique: Numbers = np.unique(rows, axis=1)
    return unique.shape[1]


def _compute(e: Expr, at: Mapping[Var, Numbers]) -> Numbers | None:
    """The expression at all places; None if it has more in it than whole-number arithmetic."""
    if isinstance(e, Var):
        return at[e]
    if isinstance(e, Const) and isinstance(e.value, int):
        return np.array(e.value, np.int64)
    if not isinstance(e, Binary) or e.op not in _COMPUTED:
        return None
    a, b = _compute(e.a, at), _compute(e.b, at)
    if a is None or b is None or (e.op in (BinaryOp.floordiv, BinaryOp.floormod) and not b.all()):
        return None
    return _COMPUTED[e.op](a, b)
