"""The order of rows: their indices from the least row to the greatest.

In: a matrix. Out: indices of its rows. Rows are compared from their first element on, as words in
a dictionary are; only indices move, so wide rows cost no more to merge than narrow ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import te
from tilewright.graph.operator import OPAQUE, Type, need, operator
from tilewright.graph.ops.sorting import ONE, ZERO, better
from tilewright.ir.dtype import dtype, i64
from tilewright.ir.expr import Buffer, Expr, Load, Var, as_int, const, eq, minimum, select
from tilewright.ir.stmt import Alloc, For, If, Let, Stmt, Store, seq

MOST_LEVELS = 32  # of merging four runs each, for a length that only the run knows
FIRST, LATER = const(1), const(2)  # how a row compares with another; 0 while they are equal


def _row_order_type(x: Any) -> list[Type]:
    need(len(x.shape) == 2 and not x.dtype.is_bool, "needs rows of numbers")
    return [(dtype("i64"), x.shape[:1])]


def _row_order(x: np.ndarray) -> np.ndarray:
    keys = [x[:, k] for k in reversed(range(x.shape[1]))]  # NaN is last in NumPy, too
    indices = np.arange(len(x))
    return np.lexsort(keys).astype(np.int64) if keys else indices


@operator(fusion=OPAQUE, infer=_row_order_type, reference=_row_order)
def row_order(x: Any) -> Any:
    """The indices of the rows of x [rows, width], from the least to the greatest, i64[rows]; of
    equals the first comes first, and NaN is greater than all numbers and equals itself.

    Runs of 1, 2, 4, … indices are merged in pairs, from one buffer into the other and back.
    """

    def body(inputs: list[Buffer], outputs: list[Buffer]) -> Stmt:
        (rows,), (ours, theirs) = inputs, outputs
        n, at, level = rows.shape[0], Var("order_at"), Var("order_level")
        width = Buffer("order_width", (ONE,), i64, "local")
        now = Load(width, (ZERO,))
        twice = seq(
            _merged(rows, ours, theirs, now, "a"),
            _merged(rows, theirs, ours, now * 2, "b"),
            Store(width, (ZERO,), now * 4),
        )
        known = as_int(n)
        rounds = MOST_LEVELS if known is None else ((max(known, 1) - 1).bit_length() + 1) // 2
        begin = For(at, ZERO, n, "serial", Store(ours, (at,), at))
        sort = For(level, ZERO, const(rounds), "serial", If(now < n, twice))
        return Alloc(width, seq(begin, Store(width, (ZERO,), ONE), sort))

    line = (x.shape[0],)
    return te.extern([line, line], [x], body, dtype=[i64, i64], name="row_order")[0]


def _merged(rows: Buffer, source: Buffer, goal: Buffer, width: Expr, name: str) -> Stmt:
    """Neighbouring runs of `width` indices, in order, as runs of twice that."""
    n = rows.shape[0]
    run, at, column = (Var(f"order_{what}_{name}") for what in ("run", "out", "column"))
    cells = [
        Buffer(f"order_{what}_{name}", (ONE,), i64, "local") for what in ("left", "right", "found")
    ]
    left, right, found = (Load(c, (ZERO,)) for c in cells)
    start = run * width * 2
    middle, end = minimum(start + width, n), minimum(start + width * 2, n)
    a, b = (Load(rows, (Load(source, (minimum(side, n - 1),)), column)) for side in (left, right))
    compare = If(
        eq(found, ZERO),
        seq(
            If(better(b, a, False), Store(cells[2], (ZERO,), FIRST)),
            If(better(a, b, False), Store(cells[2], (ZERO,), LATER)),
        ),
    )
    other, index = Var(f"order_other_{name}"), Var(f"order_index_{name}")
    move = seq(
        Store(goal, (start + at,), Load(source, (index,))),
        Store(cells[0], (ZERO,), left + 1 - other),
        Store(cells[1], (ZERO,), right + other),
    )
    step = Let(index, select(eq(other, ONE), right, left), move)
    takes_right = (right < end) & ((left >= middle) | eq(found, FIRST))
    step = seq(
        Store(cells[2], (ZERO,), ZERO),
        If((left < middle) & (right < end), For(column, ZERO, rows.shape[1], "serial", compare)),
        Let(other, select(takes_right, ONE, ZERO), step),
    )
    inner = For(at, ZERO, end - start, "serial", step)
    body: Stmt = seq(Store(cells[0], (ZERO,), start), Store(cells[1], (ZERO,), middle), inner)
    for cell in cells:
        body = Alloc(cell, body)
    return For(run, ZERO, (n + width * 2 - 1) // (width * 2), "serial", body)
