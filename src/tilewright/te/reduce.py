"""Reductions: commutative reducers, and the expression that applies one along axes.

In: a value over reduce axes. Out: a `Reduce` expression. A reducer has an identity and a way to
combine an accumulator with a value; those of several values at once (argmax) give a tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.dtype import DType
from tilewright.ir.expr import (
    Const,
    Expr,
    UnaryOp,
    Var,
    const,
    eq,
    expr,
    maximum,
    minimum,
    select,
    unary,
)
from tilewright.ir.walk import distinct
from tilewright.support.node import node
from tilewright.support.recursion import recursive
from tilewright.te.tensor import Compute, Read, ReduceAxis, Shape, Tensor

Values = tuple[Expr, ...]


class Reducer:
    """A commutative, associative way to combine values.

    combine(accumulators, values) -> new accumulators; identity(dtypes) -> the neutral accumulators.
    """

    __slots__ = ("combine", "identity", "name")

    def __init__(
        self,
        name: str,
        combine: Callable[[Values, Values], Values],
        identity: Callable[[tuple[DType, ...]], Values],
    ) -> None:
        self.name, self.combine, self.identity = name, combine, identity

    def __repr__(self) -> str:
        return f"Reducer({self.name})"


@node
class Reduce(Expr):
    """Output `index` of `reducer` over `axes`; `values` are what is reduced."""

    reducer: Any
    axes: tuple[ReduceAxis, ...]
    values: tuple[Expr, ...]
    index: int = 0
    derived = ("dtype",)

    def derive(self) -> None:
        self.dtype = self.values[self.index].dtype


def _axes(axis: Any) -> tuple[ReduceAxis, ...]:
    axes = tuple(axis) if isinstance(axis, list | tuple) else (axis,)
    for a in axes:
        if not isinstance(a, ReduceAxis):
            raise TypeError(f"{a!r} is no reduce axis; make one with te.reduce_axis(extent)")
    return axes


def reducer(
    combine: Callable[[Any, Any], Any], identity: Callable[[Any], Any], name: str = "reducer"
) -> Callable[..., Any]:
    """A reduction of one's own, used like `te.sum`: `f(value, axis)`.

    Args:
        combine: `combine(a, b)` of an accumulator and a value gives the next accumulator; for a
            tuple of values it gets and gives tuples. That it commutes and associates is the
            caller's promise.
        identity: `identity(dtype)` gives the accumulator to begin with, an expression or a number;
            for a tuple of values it gets and gives tuples.
        name: of the reduction, in the program's text.
    """

    def of_values(accumulators: Values, values: Values) -> Values:
        one = len(values) == 1
        made = (combine(accumulators[0], values[0]),) if one else combine(accumulators, values)
        return tuple(expr(m, v.dtype) for m, v in zip(made, values, strict=True))

    def of_types(dtypes: tuple[DType, ...]) -> Values:
        made = (identity(dtypes[0]),) if len(dtypes) == 1 else identity(dtypes)
        return tuple(expr(m, d) for m, d in zip(made, dtypes, strict=True))

    made = Reducer(name, of_values, of_types)

    def apply(value: Any, axis: Any) -> Any:
        values = tuple(expr(v) for v in value) if isinstance(value, tuple) else (expr(value),)
        parts = tuple(Reduce(made, _axes(axis), values, n) for n in range(len(values)))
        return parts if isinstance(value, tuple) else parts[0]

    apply.__name__ = name
    return apply


sum = reducer(lambda a, b: a + b, lambda t: const(0, t), "sum")
prod = reducer(lambda a, b: a * b, lambda t: const(1, t), "prod")
max = reducer(maximum, lambda t: const(t.lowest, t), "max")
min = reducer(minimum, lambda t: const(t.highest, t), "min")
any = reducer(lambda a, b: a | b, lambda t: const(False, t), "any")
all = reducer(lambda a, b: a & b, lambda t: const(True, t), "all")


def extreme_pair(name: str, greatest: bool, latest_nan: bool = False) -> Callable[..., Any]:
    """A reducer of pairs (value, index) that keeps the greatest or least value, of equal ones that
    with the lowest index. NaN is more extreme than all numbers; of several NaN too the first one
    counts, or that with the highest index (`latest_nan`)."""

    def combine(a: Values, b: Values) -> Values:
        (x, i), (y, j) = a, b
        better, equals, earlier = y > x if greatest else y < x, eq(y, x), j < i
        if x.dtype.is_float:
            x_lacks, y_lacks = unary(UnaryOp.isnan, x), unary(UnaryOp.isnan, y)
            better = better | (y_lacks & ~x_lacks)
            if latest_nan:
                better = better | (y_lacks & (j > i))
            else:
                equals = equals | (y_lacks & x_lacks)
        wins = better | (equals & earlier)
        return select(wins, y, x), select(wins, j, i)

    def identity(dtypes: tuple[DType, ...]) -> Values:
        worst = dtypes[0].lowest if greatest else dtypes[0].highest
        return const(worst, dtypes[0]), const(dtypes[1].highest, dtypes[1])

    return reducer(combine, identity, name)


def _arg(name: str, greatest: bool) -> Callable[..., Any]:
    pair = extreme_pair(name, greatest)

    def apply(value: Any, axis: Any) -> Any:
        (only,) = _axes(axis)
        return pair((expr(value), only), only)

    apply.__name__ = name
    apply.__doc__ = (
        f"{name} along one axis: (the extreme value, its index); of equal values the first wins, "
        "and NaN is the extreme of what has one."
    )
    return apply


argmax = _arg("argmax", greatest=True)
argmin = _arg("argmin", greatest=False)


def lift_reductions(name: str, axes: tuple[Var, ...], extents: Shape, values: Values) -> Values:
    """Make every reduction that stands inside an expression a tensor of its own, over the same
    axes.
    """
    if [v.__class__ for v in values] == [Reduce] * len(values) and _same_reduction(values):
        return values
    if Reduce not in {n.__class__ for n in distinct(values)}:
        return values
    lifted: dict[tuple[int, tuple[Expr, ...]], tuple[Tensor, ...]] = {}

    @recursive
    def lift(again: Any, e: Expr) -> Expr:
        if not isinstance(e, Reduce):
            return e.map_children(again)
        key = (id(e.reducer), e.values)
        if key not in lifted:
            parts = tuple(Reduce(e.reducer, e.axes, e.values, n) for n in range(len(e.values)))
            label = f"{name}_{e.reducer.name}" + (f"_{len(lifted)}" if lifted else "")
            op = Compute(label, axes, extents, parts, ())
            op.outputs = tuple(
                Tensor(label if len(parts) == 1 else f"{label}_{n}", extents, p.dtype, op, n)
                for n, p in enumerate(parts)
            )
            lifted[key] = op.outputs
        return Read(lifted[key][e.index], axes)

    return tuple(lift(v) for v in values)


def _same_reduction(values: Sequence[Any]) -> bool:
    """Are the values the outputs 0, 1, … of one reduction?"""
    first = values[0]
    return [v.index for v in values] == list(range(len(first.values))) and all_same(
        (v.reducer, v.axes, v.values) for v in values
    )


def all_same(items: Any) -> bool:
    """Are all items equal?"""
    kept = list(items)
    return kept.count(kept[0]) == len(kept)


def identity_of(reduction: Reduce) -> Values:
    """The neutral accumulators of a reduction."""
    return reduction.reducer.identity(tuple(v.dtype for v in reduction.values))


__all__ = [
    "Const",
    "Reduce",
    "Reducer",
    "all",
    "any",
    "argmax",
    "argmin",
    "max",
    "min",
    "prod",
    "reducer",
    "sum",
]
