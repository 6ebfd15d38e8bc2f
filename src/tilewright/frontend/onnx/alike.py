"""Operands that belong together though only the run knows whether their sizes fit.

`alike`: the operands of an element-wise node, stretched to one shape where a size that depends on
data meets another one: the run finds it to be one or the same, or refuses. So is the first row of
an axis of open size, which may have none. `agreed`: the operands
of another node, under one size where an operator needs two to be the same (those inside a matrix
product): the run compares them. What can be told when compiling is left to the operators.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.frontend.onnx.measured import counted, dims, measure, numbers, op, valid
from tilewright.frontend.onnx.registry import Site
from tilewright.graph import sizes
from tilewright.graph.graph import Value
from tilewright.graph.settle import meet
from tilewright.ir.expr import Expr, Var, as_int, minimum

BROADCASTS = {
    ("", op)
    for op in "Add Sub Mul Div Mod Pow And Or Xor Equal Greater GreaterOrEqual Less LessOrEqual"
    " BitShift BitwiseAnd BitwiseOr BitwiseXor Max Min Mean Sum Where".split()
}


def alike(n: Site, values: Sequence[Value]) -> list[Value]:
    """The values, stretched along the axes where sizes of the run differ from others."""
    rank = max(v.rank for v in values)
    shapes = [(sizes.size(1),) * (rank - v.rank) + v.shape for v in values]
    met = [{s for s in column if as_int(s) != 1} for column in zip(*shapes, strict=True)]
    longer = {d: whole for d, some in enumerate(met) if (whole := whole_of(some)) is not None}
    if longer:
        return alike(n, [_stretched(n, v, list(longer.items()), rank) for v in values])
    open_axes = [d for d, different in enumerate(met) if len(different) > 1]
    if not open_axes or not all(left_to_the_run(n, met[d]) for d in open_axes):
        return list(values)
    padded = [_padded(n, v, rank) for v in values]
    goal = padded[0]
    for other in padded[1:]:
        goal = op(n, "maximum", goal, other)
    fits = None
    for own in padded:
        each = op(n, "logical_or", op(n, "equal", own, 1), op(n, "equal", own, goal))
        fits = each if fits is None else op(n, "logical_and", fits, each)
    assert fits is not None
    all_fit = op(n, "reduce_all", fits, axes=(0,))
    asked = measure(n, valid(n, all_fit, goal), "the shape of the operands")
    return [_stretched(n, v, [(d, asked[d]) for d in open_axes], rank) for v in values]


def agreed(n: Site, a: Expr, b: Expr) -> bool:
    """Give the node's inputs one size for a and b, which the run finds to be the same or refuses;
    False if they never are, or no input shows them."""
    if as_int(sizes.size(a - b)) is not None:
        return False
    shown = [k for k, v in enumerate(n.inputs) if isinstance(v, Value) and {a, b} & {*v.shape}]
    if not shown:
        return False
    fits = op(n, "equal", counted(n, a), counted(n, b))
    (size,) = measure(n, valid(n, fits, counted(n, a)), "the size that the operands share")
    for k in shown:
        v = n[k]
        shape = [size if s in (a, b) else s for s in v.shape]
        n.inputs[k] = op(n, "view_as", v, shape=tuple(shape))
    return True


def whole_of(different: set[Expr]) -> Expr | None:
    """Of two sizes the one whose first element, if there is any, the other keeps: x and x[:1]."""
    if len(different) != 2:
        return None
    a, b = different
    one = sizes.size(1)
    firsts = [
        whole for whole, first in ((a, b), (b, a)) if first == sizes.size(minimum(whole, one))
    ]
    return firsts[0] if firsts else None


def left_to_the_run(n: Site, different: set[Expr]) -> bool:
    """Does a size among these depend on data, or do no sizes of the inputs make them one?"""
    measured = {Var(s) for node in n.build.nodes if node.op == "measure" for s in node["symbols"]}
    if not measured.isdisjoint(sizes.symbols(different)):
        return True
    first, *others = different
    symbols = sizes.symbols([s for v in n.build.inputs for s in v.shape])
    apart = [other for other in others if as_int(sizes.size(first - other)) is None]
    return any(not meet(first, other, symbols, n.build.hints) for other in apart)


def _padded(n: Site, v: Value, rank: int) -> Value:
    if v.rank == rank:
        return dims(n, v)
    ones = numbers(n, [1] * (rank - v.rank))
    return op(n, "concat", ones, dims(n, v), axis=0) if v.rank else ones


def _stretched(n: Site, v: Value, goal: Sequence[tuple[int, Expr]], rank: int) -> Value:
    """v with each size along those axes as asked: its own, or its one element again and again."""
    for d, size in goal:
        axis = d - rank + v.rank
        if axis < 0 or as_int(v.shape[axis]) == 1 or v.shape[axis] == size:
            continue
        last = op(n, "sub", counted(n, v.shape[axis]), 1)
        places = op(n, "minimum", op(n, "arange", length=size), last)
        v = op(n, "gather", v, places, axis=axis)
    return v
