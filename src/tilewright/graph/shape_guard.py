"""Runtime shape assertions: two sizes that an operator needs to be one, though only the run can
tell.

In: a builder, the two sizes, and values that have them. Out: the values under one size. Sizes that
follow from those of the inputs are compared before anything runs, and the simpler one stands for
both. Where data decides, a new size does, to which the run binds both where they are the same.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tilewright.graph import sizes
from tilewright.graph.folding import Folding
from tilewright.graph.graph import Value
from tilewright.ir.expr import Expr, Var, as_int


def guard_equal(
    build: Folding, a: Expr, b: Expr, values: Iterable[Value], label: str, what: str
) -> dict[Value, Value]:
    """The values that have an axis of size a or b, by themselves under their common size; none if
    the two are never equal. label: what the size is named after; what: what it is, for messages."""
    if as_int(sizes.size(a - b)) is not None:
        return {}
    number = next((s for s in (a, b) if as_int(s) is not None), None)
    open_sizes = {s for s in (a, b) if s is not number}
    shown = [v for v in dict.fromkeys(values) if open_sizes & {*v.shape}]
    if not shown:
        return {}
    if build.from_inputs((a, b)):
        build.require_equal(a, b, what)
        size = simpler(a, b)
        build.unify(a, b, size)
        if not any(s in v.shape for v in shown for s in open_sizes - {size}):
            (size,) = {a, b} - {size}  # the operator makes the other one itself
        return {v: viewed(build, v, (a, b), size) for v in shown}
    build.compared.setdefault((a, b), build.about)
    one, other = build.size_vector(a), build.size_vector(b)
    none = build.constant(np.array([-1]), "none")
    same = build.emit("where", build.emit("equal", one, other), one, none)
    if build.under is not None:
        build.unify_under(a, b)
        nothing = build.constant(np.array([0]), "nothing")
        same = build.emit("where", build.under, same, nothing)
    name = build.fresh(f"{label}_size")
    build.emit("measure", same, symbols=(name,), what=what)
    (size,) = build.name_elements(same, [Var(name)])
    if number is None:
        build.unify(a, b, size)
        return {v: viewed(build, v, (a, b), size) for v in shown}
    last = build.size_vector(size - 1)
    indices = build.emit("minimum", build.emit("arange", length=number), last)
    made = {}
    for v in shown:  # read by way of the size, so that its check stays
        made[v] = v
        for axis, s in enumerate(v.shape):
            if s in open_sizes:
                made[v] = build.emit("gather", made[v], indices, axis=axis)
    return made


def simpler(a: Expr, b: Expr) -> Expr:
    """A number before others, then the shorter one."""
    return min(a, b, key=lambda s: (as_int(s) is None, len(sizes.text(s)), sizes.text(s)))


def viewed(build: Folding, v: Value, old: Iterable[Expr], new: Expr) -> Value:
    """v with `new` for the sizes `old`, which are the same."""
    shape = tuple(new if s in old else s for s in v.shape)
    return v if shape == v.shape else build.emit("view_as", v, shape=shape)
