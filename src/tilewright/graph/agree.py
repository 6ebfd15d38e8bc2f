"""Two sizes that an operator needs to be one, though only the run can tell.

In: a builder, the two sizes, and values that have them. Out: the values under the one of them that
is a number, or under a new size to which the run binds both; it compares them and refuses what
differs.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tilewright.graph import sizes
from tilewright.graph.folding import Folding
from tilewright.graph.graph import Value
from tilewright.ir.expr import Expr, Var, as_int


def agree(
    build: Folding, a: Expr, b: Expr, values: Iterable[Value], label: str, what: str
) -> dict[Value, Value]:
    """The values that have an axis of size a or b, by themselves under their common size; none if
    the two never agree. label: what the size is named after; what: what it is, for messages."""
    if as_int(sizes.size(a - b)) is not None:
        return {}
    number = next((s for s in (a, b) if as_int(s) is not None), None)
    open_sizes = {s for s in (a, b) if s is not number}
    shown = [v for v in dict.fromkeys(values) if open_sizes & {*v.shape}]
    if not shown:
        return {}
    one, other = build.size_vector(a), build.size_vector(b)
    none = build.constant(np.array([-1]), "none")
    same = build.emit("where", build.emit("equal", one, other), one, none)
    name = build.fresh(f"{label}_size")
    build.emit("measure", same, symbols=(name,), what=what)
    (size,) = build.name_measured(same, [Var(name)])
    if number is None:
        return {
            v: build.emit("view_as", v, shape=tuple(size if s in (a, b) else s for s in v.shape))
            for v in shown
        }
    last = build.size_vector(size - 1)
    places = build.emit("minimum", build.emit("arange", length=number), last)
    made = {}
    for v in shown:  # read by way of the size, so that its check stays
        made[v] = v
        for axis, s in enumerate(v.shape):
            if s in open_sizes:
                made[v] = build.emit("gather", made[v], places, axis=axis)
    return made
