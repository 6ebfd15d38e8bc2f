"""Running sums and products along an axis that is not the innermost, in statements.

In: a tensor, an axis, and how two values combine. Out: the tensor of what is combined up to each
place. The one idea: what lies behind the axis is cut into strips, of which each has its state in
registers while the axis goes by: an element is read once, and its result stored once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.graph import sizes
from tilewright.graph.ops.movement import unravel
from tilewright.ir.dtype import DType
from tilewright.ir.expr import Expr, Load, Var, as_int, const
from tilewright.ir.stmt import Alloc, Buffer, For, Stmt, Store, seq

LANES, VECTORS = 16, 8  # of a strip

Combine = Callable[[Expr, Expr], Expr]


def strips(shape: sizes.Shape, axis: int) -> tuple[int, int]:
    """How many elements lie behind the axis, and how many vectors a strip of them has; (0, 0)
    where they fill no vector, or only the run knows."""
    behind = as_int(sizes.product(shape[axis + 1 :])) or 0
    return (behind, min(VECTORS, behind // LANES)) if behind >= LANES else (0, 0)


def in_strips(
    x: Any, axis: int, exclusive: bool, reverse: bool, combine: Combine, neutral: int, wide: DType
) -> Any:
    """The combination of all elements up to each along `axis`, accumulated in `wide`; where
    `exclusive`, without the element itself. The last strip covers some of the one before again
    where strips are no part of what lies behind the axis."""
    shape = x.shape
    behind, vectors = strips(shape, axis)
    width, length = vectors * LANES, shape[axis]

    def body(inputs: list[Buffer], outputs: list[Buffer]) -> Stmt:
        (source,), (result,) = inputs, outputs
        part, step, vector, lane = (Var(f"running_{n}") for n in ("strip", "at", "vector", "lane"))
        many = const(-(-behind // width))
        first = te.minimum(part % many * width, const(behind - width))
        place = unravel(first + vector * LANES + lane, shape[axis + 1 :])
        before = unravel(part // many, shape[:axis])
        at = (*before, length - 1 - step if reverse else step, *place)
        state = Buffer("running_state", (const(vectors), const(LANES)), wide, "local")
        own = (vector, lane)

        def each(body: Stmt) -> Stmt:
            inner = For(lane, const(0), const(LANES), "vectorize", body)
            return For(vector, const(0), const(vectors), "unroll", inner)

        moved = Store(state, own, combine(Load(state, own), Load(source, at).astype(wide)))
        stored = Store(result, at, Load(state, own).astype(x.dtype))
        steps = seq(stored, moved) if exclusive else seq(moved, stored)
        walk = seq(
            each(Store(state, own, const(neutral, wide))),
            For(step, const(0), length, "serial", each(steps)),
        )
        parts = sizes.size(sizes.product(shape[:axis]) * many)
        return For(part, const(0), parts, "parallel", Alloc(state, walk))

    return te.extern([shape], [x], body, dtype=[x.dtype], name="running")[0]
