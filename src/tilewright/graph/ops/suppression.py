"""Suppression: of boxes that overlap, the best stays.

In: rows of boxes in the order of their worth, by how much two may overlap at most, which are
candidates. Out: which stay, and how many of each row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import te
from tilewright.graph import sizes
from tilewright.graph.operator import OPAQUE, Type, need, operator
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Buffer, Expr, Load, Var, const, maximum, minimum, select
from tilewright.ir.stmt import For, If, Stmt, Store, seq


def _keep_apart_type(boxes: Any, most: Any, allowed: Any, limit: Any) -> list[Type]:
    need(boxes.dtype.is_float and allowed.dtype.is_bool, "needs boxes and truth values")
    need(len(boxes.shape) == 3 and len(allowed.shape) == 2, "needs rows of candidates")
    rows, count = allowed.shape
    need(boxes.shape == (sizes.size(4), rows, count), "needs four corners for each candidate")
    need(most.dtype is boxes.dtype and most.shape == (sizes.size(1),), "needs one greatest overlap")
    need(limit.dtype.name == "i64" and limit.shape == (sizes.size(1),), "the limit is one i64")
    return [(allowed.dtype, allowed.shape), (dtype("i64"), (rows,))]


def _keep_apart(
    boxes: np.ndarray, most: np.ndarray, allowed: np.ndarray, limit: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    kept = np.zeros_like(allowed)
    for r, i in np.ndindex(allowed.shape):
        room = allowed[r, i] and kept[r].sum() < limit[0]
        kept[r, i] = (
            room and not (kept[r, :i] & (_overlap(boxes[:, r, :i], boxes[:, r, i]) > most[0])).any()
        )
    return kept, kept.sum(1)


def _overlap(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Shared area over joint area of boxes a [4, count] and a box b [4]; nothing has no overlap."""
    none = a.dtype.type(0)

    def area(low: Any, high: Any) -> Any:
        return np.maximum(high[0] - low[0], none) * np.maximum(high[1] - low[1], none)

    overlap = area(
        [np.maximum(a[k], b[k]) for k in (0, 1)], [np.minimum(a[k], b[k]) for k in (2, 3)]
    )
    joint = area(a[:2], a[2:]) + area(b[:2], b[2:]) - overlap
    return np.divide(overlap, joint, out=np.zeros_like(overlap), where=joint > 0)


@operator(fusion=OPAQUE, infer=_keep_apart_type, reference=_keep_apart)
def keep_apart(boxes: Any, most: Any, allowed: Any, limit: Any) -> Any:
    """Which boxes of each row stay, and how many: from first to last each that is allowed and
    overlaps no other that stays by more than `most` of their joint area, at most `limit`. boxes
    [4, rows, count]: least and greatest coordinates along both axes.

    Each is compared with those that stay only, of which there are few. Threads divide the rows.
    """

    def body(inputs: list[Buffer], outputs: list[Buffer]) -> Stmt:
        (box, threshold, may, limits), (kept, count) = inputs, outputs
        row, i, j, zero = Var("apart_row"), Var("apart_i"), Var("apart_j"), const(0)
        so_far, here = Load(count, (row,)), Load(kept, (row, i))
        a, b = ([Load(box, (const(k), row, n)) for k in range(4)] for n in (j, i))
        none = const(0.0, box.dtype)

        def area(low: list[Any], high: list[Any]) -> Expr:
            return maximum(high[0] - low[0], none) * maximum(high[1] - low[1], none)

        overlap = area([maximum(a[k], b[k]) for k in (0, 1)], [minimum(a[k], b[k]) for k in (2, 3)])
        joint = area(a[:2], a[2:]) + area(b[:2], b[2:]) - overlap
        # a quotient is greater than `most` only of a joint area; of none it is taken as 0
        clash = select(joint > none, overlap / joint, none) > Load(threshold, (zero,))
        compared = If(
            here & Load(kept, (row, j)), If(clash, Store(kept, (row, i), const(False, "bool")))
        )
        each = seq(
            Store(kept, (row, i), Load(may, (row, i)) & (so_far < Load(limits, (zero,)))),
            If(here, For(j, zero, i, "serial", compared)),
            If(here, Store(count, (row,), so_far + 1)),
        )
        over_row = seq(Store(count, (row,), zero), For(i, zero, kept.shape[1], "serial", each))
        return For(row, zero, kept.shape[0], "parallel", over_row)

    shapes = [allowed.shape, (allowed.shape[0],)]
    types = [allowed.dtype, dtype("i64")]
    return te.extern(shapes, [boxes, most, allowed, limit], body, dtype=types, name="keep_apart")
