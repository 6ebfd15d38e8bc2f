"""Sizes that only the run can tell: the elements of a computed tensor become symbols.

`measure` binds symbols to what a small integer tensor holds; later nodes use them in shapes and
attributes as if the caller had given them. `view_as` gives a tensor such a shape: that it holds as
many elements does not show in the symbols, so whoever emits it has computed the sizes so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import te
from tilewright.graph import sizes
from tilewright.graph.operator import (
    HOST,
    INJECTIVE,
    MOVES,
    OPAQUE,
    SHAPED,
    Type,
    need,
    operator,
)
from tilewright.graph.ops.movement import Sizes, ravel, unravel
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Buffer, Expr, Load, Var, as_int, const
from tilewright.ir.stmt import For, If, Stmt, Store, seq

MOST = 1 << 40  # a size beyond this is nobody's intention


def _measure_type(x: Any, *, symbols: tuple[str, ...], what: str = "") -> Type:
    need(x.dtype.name == "i64", f"sizes are i64, not {x.dtype}")
    need(len(x.shape) == 1, "sizes stand in a vector")
    need(
        as_int(x.shape[0]) == len(symbols),
        f"{sizes.text(x.shape[0])} sizes have {len(symbols)} names",
    )
    return x.dtype, x.shape


@operator(
    fusion=OPAQUE, infer=_measure_type, reference=lambda x, symbols, what: x, view=True, traits=HOST
)
def measure(x: Any, *, symbols: tuple[str, ...], what: str = "") -> Any:
    """Let `symbols` be the elements of x from here on; a view of x.

    Sizes are never negative, whoever finds them: all that is proved of indices rests on it. The
    run stops where one is not from 0 to `MOST`; `what` says then which sizes they are. A number
    that may be negative is the difference of two such sizes.
    """
    return te.compute(x.shape, lambda i: x[i], name="measure")


def _view_as_type(x: Any, *, shape: Sizes) -> Type:
    return x.dtype, sizes.shape(shape)


@operator(
    fusion=INJECTIVE,
    infer=_view_as_type,
    reference=lambda x, shape: np.resize(x, shape),  # where nobody reads it, x may hold others
    view=True,
    traits=MOVES | SHAPED,
)
def view_as(x: Any, *, shape: Sizes) -> Any:
    """The elements of x in row-major order under a shape that holds as many; a view."""
    goal = sizes.shape(shape)

    def at(*i: Expr) -> Expr:
        return x[unravel(ravel(i, goal), x.shape)]

    return te.compute(goal, at, name="view_as")


def _chosen_type(condition: Any, a: Any, b: Any, *, length: Any) -> Type:
    need(condition.dtype.is_bool and condition.shape == (), "its condition is one bool")
    need(a.dtype is b.dtype, f"chooses between {a.dtype} and {b.dtype}")
    need(len(a.shape) > 0 and a.shape[1:] == b.shape[1:], "only first sizes may differ")
    return a.dtype, (sizes.size(length), *a.shape[1:])


@operator(
    fusion=OPAQUE,
    infer=_chosen_type,
    reference=lambda condition, a, b, length: (a if condition else b)[:length],
)
def chosen(condition: Any, a: Any, b: Any, *, length: Any) -> Any:
    """a where the condition holds, else b, whose first sizes may differ: the run has found that of
    the chosen one to be `length`. The other is not read."""

    def body(inputs: list[Buffer], outputs: list[Buffer]) -> Stmt:
        (holds, *sides), (out,) = inputs, outputs

        def copy(source: Buffer, label: str) -> Stmt:
            index = tuple(Var(f"chosen_{label}{d}") for d in range(out.rank))
            made: Stmt = Store(out, index, Load(source, index))
            for var, size in reversed(list(zip(index, out.shape, strict=True))):
                made = For(var, const(0), size, "serial", made)
            return made

        then, other = (copy(side, label) for side, label in zip(sides, "ab", strict=True))
        return If(Load(holds, ()), then, other)

    shape = (sizes.size(length), *a.shape[1:])
    return te.extern(shape, [condition, a, b], body, dtype=a.dtype, name="chosen")


def _axes_last_type(x: Any, mask: Any, *, rows: Any, columns: Any) -> Type:
    need(mask.dtype.is_bool, f"the mask holds {mask.dtype}, not booleans")
    need(
        mask.shape == (sizes.size(len(x.shape)),),
        f"needs a truth value for each of {len(x.shape)} axes",
    )
    return x.dtype, (sizes.size(rows), sizes.size(columns))


def _axes_last(x: np.ndarray, mask: np.ndarray, rows: int, columns: int) -> np.ndarray:
    order = [d for d in range(x.ndim) if not mask[d]] + [d for d in range(x.ndim) if mask[d]]
    return x.transpose(order).reshape(rows, columns)


@operator(fusion=INJECTIVE, infer=_axes_last_type, reference=_axes_last)
def axes_last(x: Any, mask: Any, *, rows: Any, columns: Any) -> Any:
    """x as a matrix: its columns run along the axes where `mask` holds, its rows along the others.

    So a reduction over axes that only the run knows is one over columns. rows and columns must be
    the products of those sizes.
    """

    def at(*i: Expr) -> Expr:
        row, column = i
        index: list[Expr] = []
        for d in range(len(x.shape) - 1, -1, -1):
            size = te.maximum(x.shape[d], 1)
            chosen = mask[te.const(d)]
            index.append(te.select(chosen, column % size, row % size))
            column = te.select(chosen, column // size, column)
            row = te.select(chosen, row, row // size)
        return x[tuple(reversed(index))]

    return te.compute((sizes.size(rows), sizes.size(columns)), at, name="axes_last")


def _nonzero_type(mask: Any) -> list[Type]:
    need(mask.dtype.is_bool and len(mask.shape) == 1, "needs a vector of booleans")
    i64 = dtype("i64")
    return [(i64, mask.shape), (i64, (sizes.size(1),))]


def _nonzero(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    found = np.flatnonzero(mask)
    return np.pad(found, (0, mask.size - found.size)), np.array([found.size])


@operator(fusion=OPAQUE, infer=_nonzero_type, reference=_nonzero)
def nonzero(mask: Any) -> Any:
    """Where a vector of truth values holds, in order, then zeros; and how many such indices there
    are."""

    def body(inputs: list[Buffer], outputs: list[Buffer]) -> Stmt:
        (source,), (found, count) = inputs, outputs
        clear, at = Var("nonzero_clear"), Var("nonzero_at")
        size, zero = source.shape[0], const(0)
        so_far = Load(count, (zero,))
        keep = seq(Store(found, (so_far,), at), Store(count, (zero,), so_far + 1))
        return seq(
            For(clear, zero, size, "serial", Store(found, (clear,), zero)),
            Store(count, (zero,), zero),
            For(at, zero, size, "serial", If(Load(source, (at,)), keep)),
        )

    i64 = dtype("i64")
    return te.extern([mask.shape, (sizes.size(1),)], [mask], body, dtype=[i64, i64], name="nonzero")
