"""Bounds checks: what the run holds indices to, before a kernel trusts them.

`check_bounds` is a view that costs one pass over the numbers it checks, in the host program: the
kernels that read them afterwards need not know of it. Without it (see the knob
`TILEWRIGHT_CHECK_INDICES`) an index outside reads or writes the nearest element.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import te
from tilewright.graph.operator import (
    HOST,
    MOVES,
    OPAQUE,
    Type,
    need,
    operator,
)
from tilewright.graph.ops.movement import Sizes
from tilewright.ir.expr import as_int
from tilewright.support.errors import InputError


def _check_bounds_type(
    x: Any, numbers: Any, only: Any = None, *, least: Sizes, most: Sizes, what: str
) -> Type:
    need(numbers.dtype.is_int and numbers.dtype.bits >= 8, f"indices hold {numbers.dtype}")
    need(len(least) == len(most) > 0, "needs a least and a most for each column")
    last = as_int(numbers.shape[-1]) if len(numbers.shape) else 1
    need(len(least) == 1 or len(least) == last, f"has bounds for {len(least)} columns of {last}")
    if only is not None:
        need(only.dtype.is_bool and only.shape == (), "its condition is one bool")
    return x.dtype, x.shape


def _check_bounds(
    x: np.ndarray, numbers: np.ndarray, only: np.ndarray | None = None, *,
    least: tuple[int, ...], most: tuple[int, ...], what: str,
) -> np.ndarray:  # fmt: skip
    if only is None or bool(only):
        flat = np.asarray(numbers).reshape(-1, len(least)).astype(np.int64)
        wrong = (flat < np.array(least)) | (flat > np.array(most))
        if wrong.any():
            row, column = (int(k[0]) for k in np.nonzero(wrong))
            raise InputError(
                "cannot run the graph",
                outside(what, int(flat[row, column]), least[column], most[column]),
            )
    return x


def outside(what: str, index: int, least: int, most: int) -> str:
    """The message about an index outside its bounds, as the native runtime words it too."""
    return f"{what}: index {index} is not from {least} to {most}"


@operator(
    fusion=OPAQUE, infer=_check_bounds_type, reference=_check_bounds, view=True, traits=MOVES | HOST
)
def check_bounds(
    x: Any, numbers: Any, only: Any = None, *, least: Sizes, most: Sizes, what: str
) -> Any:
    """x; the run ends with an error that names `what` if one of the numbers is not from `least` to
    `most`.

    Each column (index along the last axis of `numbers`) has its own bounds, or one pair holds for
    all. only: a bool, () ; where it does not hold nothing is checked. numbers may be x itself.
    """
    return te.compute(x.shape, lambda *i: x[i], name="check_bounds")
