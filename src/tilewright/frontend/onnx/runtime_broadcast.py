"""Broadcasting of operands of which only the run knows whether their sizes fit.

`broadcast_operands`: the operands of an element-wise node, stretched to one shape where a
data-dependent size stands beside another one: the run finds it to be one or the same, or refuses.
So is the first row of an axis of open size, which may have none, and so are the batches of a matrix
product. `unify_operands`: the operands of any other node, under one size where an operator needs
two to be the same (those inside a matrix product): the run compares them. What can be told when
compiling is left to the operators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from tilewright.frontend.onnx.data_dependent import I64, choose, measure, op, valid
from tilewright.frontend.onnx.registry import NodeContext
from tilewright.frontend.onnx.registry import Sequence as Elements
from tilewright.graph import sizes
from tilewright.graph.graph import Value
from tilewright.graph.operator import broadcast_shape
from tilewright.graph.shape_guard import guard_equal, simpler
from tilewright.graph.unify import unify
from tilewright.ir.expr import Expr, Var, as_int, maximum, minimum
from tilewright.support.errors import ONE_MAY_BE_1

BROADCASTS = {  # and how many of their operands' last axes are not broadcast
    ("", op): 2 if op == "MatMul" else 0
    for op in "Add Sub Mul Div Mod Pow And Or Xor Equal Greater GreaterOrEqual Less LessOrEqual"
    " BitShift BitwiseAnd BitwiseOr BitwiseXor Max Min Mean Sum Where MatMul".split()
}


def broadcast_operands(n: NodeContext, values: Sequence[Value], own: int = 0) -> list[Value]:
    """The values, stretched along the axes where sizes of the run differ from others. own: how many
    of the last axes are not broadcast."""
    shapes = [v.shape[: max(0, v.rank - own)] for v in values]
    rank = max(map(len, shapes))
    shapes = [(sizes.size(1),) * (rank - len(s)) + s for s in shapes]
    distinct = [{s for s in column if as_int(s) != 1} for column in zip(*shapes, strict=True)]
    longer = {d: whole for d, some in enumerate(distinct) if (whole := whole_of(some)) is not None}
    if longer:
        return broadcast_operands(
            n, [_stretched(n, v, list(longer.items()), rank + own) for v in values], own
        )
    open_axes = [d for d, different in enumerate(distinct) if len(different) > 1]
    if not open_axes:
        return list(values)
    for d in open_axes:
        if n.build.from_inputs(distinct[d]):
            values = of_inputs(n, values, d - rank - own, distinct[d])
    open_axes = [d for d in open_axes if not n.build.from_inputs(distinct[d])]
    if n.importer.in_kernel:
        return list(values)
    if not open_axes or not all(left_to_the_run(n, distinct[d]) for d in open_axes):
        return list(values)
    for d in open_axes:
        first, *others = sorted(distinct[d], key=sizes.text)
        n.build.compared.update({(first, other): n.build.about for other in others})
    told = {d: whole for d in open_axes if (whole := told_by(n, distinct[d])) is not None}
    goals = {d - rank - own: whole for d, whole in told.items()}
    values = [stretched(n, v, goals, "the shape of the operands") for v in values]
    open_axes = [d for d in open_axes if d not in told]
    if not open_axes:
        return list(values)
    shapes = [tuple(_along(v, d - rank - own) for d in open_axes) for v in values]
    padded = [n.build.from_sizes(np.array(s, object), I64) for s in shapes]
    goal = padded[0]
    for other in padded[1:]:
        goal = choose(n, op(n, "equal", goal, 1), other, goal)  # 1 beside 0: none are left
    fits = None
    for one in padded:
        each = op(n, "logical_or", op(n, "equal", one, 1), op(n, "equal", one, goal))
        fits = each if fits is None else op(n, "logical_and", fits, each)
    assert fits is not None
    all_fit = op(n, "reduce_all", fits, axes=(0,))
    asked = measure(n, valid(n, all_fit, goal), "the shape of the operands")
    goals = list(zip(open_axes, asked, strict=True))
    return [_stretched(n, v, goals, rank + own) for v in values]


def _along(v: Value, axis: int) -> Expr:
    """The size along an axis counted from the last one; 1 in front of the first."""
    return v.shape[axis] if v.rank + axis >= 0 else sizes.size(1)


def unify_operands(n: NodeContext, a: Expr, b: Expr) -> bool:
    """Give the node's inputs one size for a and b, which the run finds to be the same or refuses;
    False if they never are, no input shows them, or they may differ from round to round."""
    label = n.node.output[0] if n.node.output else n.op
    what = f"the common size of the operands of {n.op} '{n.node.name or label}'"
    if n.importer.in_kernel and not n.build.from_inputs((a, b)):
        return False
    lists = [v if isinstance(v, Elements) else [v] for v in n.inputs]
    values = [v for some in lists for v in some if isinstance(v, Value)]
    made = guard_equal(n.build, a, b, values, label, what)

    def put(v: Any) -> Any:
        if isinstance(v, Elements):
            return Elements(map(put, v))
        return made.get(v, v) if isinstance(v, Value) else v

    n.inputs = [*map(put, n.inputs)]
    return bool(made)


def of_inputs(
    n: NodeContext, values: Sequence[Value], axis: int, distinct: set[Expr]
) -> Sequence[Value]:
    """The values under one size where they have several that the inputs decide: sizes that inputs
    have by themselves, beside others of them or a number, may differ where all but one are 1;
    others have to be the same."""
    numbers = {s for s in distinct if as_int(s) is not None}
    own = [n.build.broadcasts.get(s, {s}) for s in distinct - numbers]
    if len(numbers) < 2 and all(s.__class__ is Var for some in own for s in some):
        whole = next(iter(numbers)) if numbers else either(n, set().union(*own))
        return broadcast(n, values, axis, distinct, whole)
    return one_size(n, values, axis, distinct) if left_to_the_run(n, distinct) else values


def either(n: NodeContext, symbols: set[Expr]) -> Expr:
    """The size that broadcasting these symbols gives, each of which is 1 or that: the greatest of
    them, but 0 where one is."""
    named = sorted(symbols, key=sizes.text)
    least = reduce(minimum, named)
    whole = sizes.size(reduce(maximum, named) * (least // maximum(least, 1)))
    n.build.broadcasts[whole] = symbols
    return whole


def broadcast(
    n: NodeContext, values: Sequence[Value], axis: int, distinct: set[Expr], whole: Expr
) -> list[Value]:
    """The values stretched to the size that broadcasting gives; runs in which one of theirs is
    neither that nor 1 do not start."""
    label = n.node.name or n.node.output[0]
    for s in sorted(distinct - {whole}, key=sizes.text):
        is_one = minimum(sizes.size(1 - s), sizes.size(s - 1))
        is_whole = minimum(sizes.size(whole - s), sizes.size(s - whole))
        fits = sizes.size(maximum(is_one, is_whole))
        told = f"{sizes.text(s)} has to be 1 or {sizes.text(whole)}"
        told = f"the shape of the operands of {n.op} '{label}', where {told}{_or_else(n, whole)}"
        n.build.required.setdefault(fits, told)
        n.build.compared.setdefault((s, whole), n.build.about)
    made = []
    for v in values:
        d = axis + v.rank
        if d >= 0 and v.shape[d] in distinct - {whole}:
            v = op(n, "stretch", v, shape=(*v.shape[:d], whole, *v.shape[d + 1 :]))
        made.append(v)
    return made


def one_size(
    n: NodeContext, values: Sequence[Value], axis: int, distinct: set[Expr]
) -> list[Value]:
    """The values under one size where they have several that the inputs decide; runs in which these
    differ do not start."""
    label = n.node.name or n.node.output[0]
    first, *others = sorted(distinct, key=sizes.text)
    whole = first
    for other in others:
        whole = simpler(whole, other)
    for s in distinct - {whole}:
        what = f"the shape of the operands of {n.op} '{label}'"
        n.build.require_equal(whole, s, what, ONE_MAY_BE_1)
    made = []
    for v in values:
        if v.rank + axis >= 0 and v.shape[axis] in distinct - {whole}:
            d = axis + v.rank
            v = op(n, "view_as", v, shape=(*v.shape[:d], whole, *v.shape[d + 1 :]))
        made.append(v)
    return made


def told_by(n: NodeContext, distinct: set[Expr]) -> Expr | None:
    """The size that different ones broadcast to, as far as they say so themselves: a number, or
    the only one that is made of others. That such a one is 1 and others are not happens to the
    smallest of images only, and would cost all the others their kernels. Where data decides them
    all, kernels know none of them, and nothing is told."""
    numbers = {s for s in distinct if as_int(s) is not None}
    made = numbers or {s for s in distinct if s.__class__ is not Var}
    if not numbers and all(not n.build.found.isdisjoint(sizes.symbols([s])) for s in distinct):
        return None
    return next(iter(made)) if len(made) == 1 else None


def stretched(n: NodeContext, v: Value, goals: Mapping[int, Expr], what: str) -> Value:
    """v with the sizes of `goals`, by axes counted from the last: those that it has there are 1 or
    these, or the run ends."""
    there = {d + v.rank: s for d, s in goals.items() if d + v.rank >= 0}
    asked = {d: s for d, s in there.items() if v.shape[d] != s and as_int(v.shape[d]) != 1}
    if not asked:
        return v
    have = n.build.from_sizes(np.array([v.shape[d] for d in asked], object), I64)
    want = n.build.from_sizes(np.array([*asked.values()], object), I64)
    fits = choose(n, op(n, "equal", have, 1), want, have)
    what = f"{what} of {n.build.about}"
    what += next((also for s in asked.values() if (also := _or_else(n, s))), "")
    v = n.importer.checked(fits, [(s, s) for s in asked.values()], what, v)
    return op(n, "stretch", v, shape=tuple(asked.get(d, s) for d, s in enumerate(v.shape)))


def _or_else(n: NodeContext, whole: Expr) -> str:
    """What to say besides where a size is taken for that of the result though it may be 1."""
    is_known = as_int(whole) is not None or whole in n.build.broadcasts
    return "" if is_known else f" ({ONE_MAY_BE_1})"


def expanded(n: NodeContext, x: Value, goal: Sequence[Expr]) -> Value | None:
    """x broadcast to sizes, where these and its own tell what that is; None if data decides."""
    rank = max(x.rank, len(goal))
    goal = (*[sizes.size(1)] * (rank - len(goal)), *goal)
    of_data: dict[int, Expr] = {}
    for d in range(-x.rank, 0):
        distinct = {s for s in (x.shape[d], goal[d]) if as_int(s) != 1}
        if len(distinct) < 2:
            continue
        n.build.compared.setdefault((x.shape[d], goal[d]), n.build.about)
        whole, is_known = told_by(n, distinct), n.build.from_inputs(distinct)
        if whole is None and is_known and all(s.__class__ is Var for s in distinct):
            whole = either(n, distinct)
        if whole is None or n.importer.in_kernel:
            return None
        if is_known:
            (x,) = broadcast(n, [x], d, distinct, whole)
        else:
            of_data[d] = whole
        goal = (*goal[: d + rank], whole, *goal[d + rank + 1 :])
    x = stretched(n, x, of_data, "the shape")
    shape = broadcast_shape(x.shape, goal)
    return x if shape == x.shape else n.emit("expand", x, shape=shape)


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


def left_to_the_run(n: NodeContext, different: set[Expr]) -> bool:
    """Does a size among these depend on data, or do no sizes of the inputs make them one?"""
    if not n.build.from_inputs(different):
        return True
    first, *others = different
    symbols = sizes.symbols([s for v in n.build.inputs for s in v.shape])
    apart = [other for other in others if as_int(sizes.size(first - other)) is None]
    return any(not unify(first, other, symbols, n.build.hints) for other in apart)


def _stretched(n: NodeContext, v: Value, goal: Sequence[tuple[int, Expr]], rank: int) -> Value:
    """v with each size along those axes as asked: its own, or its one element again and again."""
    asked = {d - rank + v.rank: size for d, size in goal}
    shape = [s if as_int(s) == 1 else asked.get(d, s) for d, s in enumerate(v.shape)]
    return v if tuple(shape) == v.shape else op(n, "stretch", v, shape=tuple(shape))
