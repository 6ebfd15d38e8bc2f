"""Emitting bounds checks, where they can fail.

In: indices, and the bounds that an operator's definition sets them. Out: the indices behind a
`check_bounds`, or as they are where they surely lie within. Constants are checked now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tilewright.arith.simplify import Facts
from tilewright.graph import sizes
from tilewright.graph.builder import Builder, Edit
from tilewright.graph.folding import Folding
from tilewright.graph.graph import Graph, Node, Value
from tilewright.graph.operator import MOVES, having
from tilewright.graph.ops.checks import outside
from tilewright.ir.expr import Expr, Var, as_int, maximum, minimum

MOST_FOLLOWED = 16  # operators that a range is followed through
Range = tuple[Expr, Expr]  # least and most, both included
ANYTHING: Range = Var("<lowest>"), Var("<highest>")  # of which nothing is known
Bounds = Sequence[tuple[Expr, Expr]]  # for each column of indices, or one for all


class OutOfBounds(ValueError):
    """A constant index is outside; the text says which."""


def into(*axes: sizes.SizeLike) -> Bounds:
    """The bounds of indices into axes of these sizes; negative ones count from the end."""
    return [(sizes.size(0 - sizes.size(n)), sizes.size(sizes.size(n) - 1)) for n in axes]


def from_start(*axes: sizes.SizeLike) -> Bounds:
    """As `into`, where none counts from the end."""
    return [(sizes.size(0), high) for _, high in into(*axes)]


def checked(
    build: Folding, numbers: Value, bounds: Bounds, what: str, only: Value | None = None,
    of: Value | None = None,
) -> Value:  # fmt: skip
    """`of`, or the numbers themselves; the run ends where one of them is not within its bounds (and
    `only` holds, if given). Raises OutOfBounds for a constant that never is."""
    of = numbers if of is None else of
    taken = build.constants.get(only) if only is not None else None
    if taken is not None:
        if not taken.array.all():
            return of
        only = None
    if are_within(build, numbers, bounds, what if only is None else None):
        return of
    ends = build.constants.get(numbers)
    if ends is not None and only is None and build.is_whole:
        if build.from_inputs(b for pair in bounds for b in pair):
            for size in _gaps(ends.array, bounds):
                told = f"{what}, where {sizes.text(size)} may not be negative"
                build.required.setdefault(size, told)
            return of
    given = (of, numbers) if only is None else (of, numbers, only)
    least, most = zip(*bounds, strict=True)
    return build.emit("check_bounds", *given, least=least, most=most, what=what)


def are_within(
    build: Builder, numbers: Value, bounds: Bounds, what: str | None = None,
    some_of: Expr | None = None,
) -> bool:  # fmt: skip
    """Do the numbers surely lie within? Raises OutOfBounds, where `what` is given, for a constant
    that surely does not. some_of: a size that is at least 1 where any number is read."""
    known = _facts(build, bounds)
    known = known if some_of is None else known.under(some_of >= 1)
    constant = build.constants.get(numbers)
    if constant is None:
        found = range_of(build, numbers)
        return found is not None and all(_is_inside(found, pair, known) for pair in bounds)
    array = constant.array
    for k, pair in enumerate(bounds):
        column = array if len(bounds) == 1 else array[..., k]
        if not column.size:
            continue
        ends = int(column.min()), int(column.max())
        low, high = (as_int(b) for b in pair)
        if low is not None and high is not None:
            wrong = ends[0] if ends[0] < low else ends[1] if ends[1] > high else None
            if wrong is not None and what is not None:
                raise OutOfBounds(outside(what, wrong, low, high))
        if not _is_inside((sizes.size(ends[0]), sizes.size(ends[1])), pair, known):
            return False
    return True


def _gaps(array: np.ndarray, bounds: Bounds) -> list[Expr]:
    """How far constant indices are from their bounds, where that is not a number."""
    found: list[Expr] = []
    for k, (least, most) in enumerate(bounds):
        column = array if len(bounds) == 1 else array[..., k]
        if column.size:
            low, high = int(column.min()), int(column.max())
            found += [sizes.size(low - least), sizes.size(most - high)]
    return [gap for gap in found if as_int(gap) is None]


def without_checks(graph: Graph) -> Graph:
    """The graph without its bounds checks: what is outside is clamped."""
    rule = {"check_bounds": (lambda edit, node: node.inputs[0],)}
    return Edit(graph, rule).run()


def _facts(build: Builder, bounds: Bounds) -> Facts:
    """What is known of the bounds' symbols: any may be 0."""
    asked = sizes.symbols([b for pair in bounds for b in pair])
    return Facts({symbol: build.ranges.get(symbol.name, (0, None)) for symbol in asked})


def _is_inside(found: Range, pair: tuple[Expr, Expr], known: Facts) -> bool:
    gaps = (found[0] - pair[0], pair[1] - found[1])
    return all(known.nonnegative(known.affine(sizes.size(gap))) for gap in gaps)


def range_of(build: Builder, value: Value, depth: int = 0) -> Range | None:
    """Between which numbers the elements of an integer value lie, as far as what makes them
    tells."""
    constant = build.constants.get(value)
    if constant is not None:
        array = constant.array
        if not array.size or array.dtype.kind not in "iub":
            return None
        return sizes.size(int(array.min())), sizes.size(int(array.max()))
    if value.dtype.is_bool:
        return sizes.size(0), sizes.size(1)
    node = build.made_by.get(value)
    rule = _RULES.get(node.op) if node is not None else None
    if node is None or rule is None or depth == MOST_FOLLOWED or not value.dtype.is_int:
        return None
    return rule(node, value, lambda k: range_of(build, node.inputs[k], depth + 1))


Of = Callable[[int], Range | None]  # the range of an input
Rule = Callable[[Node, Value, Of], Range | None]


def _same(node: Node, value: Value, of: Of) -> Range | None:
    return of(0)


def _arange(node: Node, value: Value, of: Of) -> Range | None:
    start, step = as_int(node["start"]), as_int(node["step"])
    if start is None or step is None:
        return None
    last = sizes.size(start + (sizes.size(node["length"]) - 1) * step)
    return (sizes.size(start), last) if step >= 0 else (last, sizes.size(start))


def _positions(node: Node, value: Value, of: Of) -> Range | None:
    """Of an operator that gives indices along an axis of its input."""
    if value is node.outputs[0] and len(node.outputs) > 1:  # the values of top_k
        return of(0)
    x = node.inputs[0]
    return sizes.size(0), sizes.size(x.shape[node["axis"] % x.rank] - 1)


def _cast(node: Node, value: Value, of: Of) -> Range | None:
    if not (node.inputs[0].dtype.is_int or node.inputs[0].dtype.is_bool):
        return None
    found = of(0)
    if found is None or value.dtype.bits >= node.inputs[0].dtype.bits:
        return found if found is None or value.dtype.name[0] == "i" else None
    low, high = (as_int(e) for e in found)
    if low is None or high is None:
        return None
    return found if value.dtype.lowest <= low <= high <= value.dtype.highest else None


def _union(*ranges: Range | None) -> Range | None:
    low, high = None, None
    for found in ranges:
        if found is None:
            return None
        low = found[0] if low is None else _least(low, found[0])
        high = found[1] if high is None else _most(high, found[1])
        if low is None or high is None:
            return None
    return None if low is None or high is None else (low, high)


def _least(a: Expr, b: Expr) -> Expr | None:
    gap = as_int(sizes.size(a - b))
    return None if gap is None else a if gap <= 0 else b


def _most(a: Expr, b: Expr) -> Expr | None:
    gap = as_int(sizes.size(a - b))
    return None if gap is None else a if gap >= 0 else b


def _concat(node: Node, value: Value, of: Of) -> Range | None:
    return _union(*(of(k) for k in range(len(node.inputs))))


def _where(node: Node, value: Value, of: Of) -> Range | None:
    return _union(of(1), of(2))


def _floormod(node: Node, value: Value, of: Of) -> Range | None:
    by = of(1)
    known = by is not None and (as_int(by[0]) or 0) > 0
    return (sizes.size(0), sizes.size(by[1] - 1)) if by and known else None


def _extreme(node: Node, value: Value, of: Of) -> Range | None:
    """Of the lesser or greater of two, or of a number and 0."""
    choose = minimum if node.op == "minimum" else maximum
    first = of(0) or ANYTHING
    second = (of(1) or ANYTHING) if len(node.inputs) > 1 else (sizes.size(0), sizes.size(0))

    def end(k: int) -> Expr:
        for a, b in ((first, second), (second, first)):
            if a[k] in ANYTHING:  # the other says all that is known, or nothing
                return b[k] if (a[k] == ANYTHING[1]) is (choose is minimum) else a[k]
        return sizes.size(choose(first[k], second[k]))

    return end(0), end(1)


def _size_values(node: Node, value: Value, of: Of) -> Range | None:
    (one,) = node["values"] if len(node["values"]) == 1 else (None,)
    return None if one is None else (sizes.size(one), sizes.size(one))


def _clip(node: Node, value: Value, of: Of) -> Range | None:
    low, high = as_int(node["low"]), as_int(node["high"])
    return None if low is None or high is None else (sizes.size(low), sizes.size(high))


def _check_bounds(node: Node, value: Value, of: Of) -> Range | None:
    """What was checked lies within its bounds."""
    if len(node.inputs) == 2 and node.inputs[0] is node.inputs[1] and len(node["least"]) == 1:
        return sizes.size(node["least"][0]), sizes.size(node["most"][0])
    return of(0)


_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(having(MOVES), _same),
    "check_bounds": _check_bounds,
    "arange": _arange,
    "argmax": _positions,
    "argmin": _positions,
    "top_k": _positions,
    "cast": _cast,
    "concat": _concat,
    "where": _where,
    "floormod": _floormod,
    "clip": _clip,
    "minimum": _extreme,
    "maximum": _extreme,
    "relu": _extreme,
    "size_values": _size_values,
}
