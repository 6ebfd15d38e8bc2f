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
from tilewright.graph.operator import INJECTIVE, OPAQUE, Type, need, operator
from tilewright.graph.ops.movement import Sizes, ravel, unravel
from tilewright.ir.expr import Expr, as_int

MOST = 1 << 40  # a size beyond this is nobody's intention


def _measure_type(x: Any, *, symbols: tuple[str, ...], least: int = 0, what: str = "") -> Type:
    need(x.dtype.name == "i64", f"sizes are i64, not {x.dtype}")
    need(len(x.shape) == 1, "sizes stand in a vector")
    need(as_int(x.shape[0]) == len(symbols), f"{sizes.text(x.shape[0])} sizes have {len(symbols)} names")
    return x.dtype, x.shape


@operator(
    fusion=OPAQUE, infer=_measure_type, reference=lambda x, symbols, least, what: x, view=True
)
def measure(x: Any, *, symbols: tuple[str, ...], least: int = 0, what: str = "") -> Any:
    """Let `symbols` be the elements of x from here on; a view of x.

    The run stops where one is below `least`; `what` says then which sizes they are.
    """
    return te.compute(x.shape, lambda i: x[i], name="measure")


def _view_as_type(x: Any, *, shape: Sizes) -> Type:
    return x.dtype, sizes.shape(shape)


@operator(
    fusion=INJECTIVE,
    infer=_view_as_type,
    reference=lambda x, shape: np.reshape(x, shape),
    view=True,
)
def view_as(x: Any, *, shape: Sizes) -> Any:
    """The elements of x in row-major order under a shape that holds as many; a view."""
    goal = sizes.shape(shape)

    def at(*i: Expr) -> Expr:
        return x[unravel(ravel(i, goal), x.shape)]

    return te.compute(goal, at, name="view_as")
