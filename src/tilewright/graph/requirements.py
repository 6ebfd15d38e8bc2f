"""What operators need of sizes that only the run knows, for no kernel to touch what is not there.

In: nodes, and what is known of their symbols. Out: sizes that no run may find negative, each with
the words for the error. The host program checks them before the kernels that rely on them; those of
a loop's body are checked before the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import reduce

from tilewright.arith.simplify import Facts
from tilewright.graph import sizes
from tilewright.graph.graph import Node
from tilewright.ir.expr import Expr, Var, as_int, const, maximum


def required_by(node: Node, known: Facts) -> Iterator[tuple[Expr, str]]:
    """What an operator needs, as far as sizes do not say so now."""
    rule = _RULES.get(node.op)
    for alternatives in rule(node) if rule else ():
        if not any(known.nonnegative(known.affine(sizes.size(e))) for e in alternatives):
            size = sizes.size(reduce(maximum, alternatives))
            yield size, f"{node.op} '{node.outputs[0].name}' of {node.inputs[0]!r}"


def sizes_of_values(
    nodes: Iterable[Node], data_dependent: Collection[Var], by_data: bool = False
) -> Iterator[tuple[Expr, str]]:
    """The sizes that follow from the inputs' and may come out negative (an image may be smaller
    than the window over it), before memory is laid out by them; and whose they are. by_data: those
    that follow from data-dependent symbols instead."""
    seen: set[Expr] = set()
    zero, data_dependent = sizes.size(0), frozenset(data_dependent)
    for value in (v for n in nodes if n.op != "loop" for v in n.outputs):  # a loop checks its own
        for size in value.shape:
            if size in seen or as_int(size) is not None:
                continue
            seen.add(size)
            if data_dependent.isdisjoint(sizes.symbols([size])) is by_data:
                continue
            if not sizes.is_never_more(zero, size):
                yield size, f"the size {sizes.text(size)} of '{value.name}'"


Alternatives = tuple[Expr, ...]  # one of them has to be at least 0


def _of_pad(node: Node) -> Iterator[Alternatives]:
    """As for a slice: for the result to have sizes, and an axis elements to be extended by."""
    for size in node.output.shape:
        yield (size,)
    if node["mode"] != "constant":
        for size, *pads in zip(node.inputs[0].shape, node["before"], node["after"], strict=True):
            before, after = sizes.shape(pads)
            yield size - 1, const(0) - before - after


def _of_slice(node: Node) -> Iterator[Alternatives]:
    """For a slice to lie inside its operand."""
    axes = zip(node["starts"], node["shape"], node.inputs[0].shape, strict=True)
    for d, (start, count, total) in enumerate(axes):
        start, count, total = sizes.shape((start, count, total))
        step = as_int(node["steps"][d]) if node["steps"] else 1
        if step is None or (count == total and as_int(start) == 0):
            continue
        last = start + (count - 1) * step
        for end in (start, total - 1 - last) if step > 0 else (total - 1 - start, last):
            if as_int(end) is None:
                yield end, const(0) - count  # no elements lie anywhere


def _of_index(node: Node) -> Iterator[Alternatives]:
    """For what is indexed to have elements, if any are asked for: the nearest one stands for what
    is outside."""
    x, *rest = node.inputs
    asked = rest[-1] if node.op.startswith("scatter") else node.output
    axes = [dict(node.attrs)["axis"]] if "axis" in dict(node.attrs) else range(x.rank)
    for axis in axes:
        last = sizes.size(x.shape[axis] - 1)
        if as_int(last) is None:
            yield last, const(0) - asked.elements


def _of_elements(node: Node) -> Iterator[Alternatives]:
    """As `_of_index`; along the other axes element k of the indices is of the operand's k."""
    x, indices = node.inputs[:2]
    for axis, (have, asked) in enumerate(zip(x.shape, indices.shape, strict=True)):
        left = sizes.size(have - asked)
        if axis != node["axis"] and as_int(left) is None:
            yield left, const(0) - indices.elements
    yield from _of_index(node)


def _of_top_k(node: Node) -> Iterator[Alternatives]:
    """For an axis to have as many elements as are asked for."""
    yield (node.inputs[0].shape[node["axis"]] - sizes.size(node["k"]),)


_RULES: Mapping[str, Callable[[Node], Iterator[Alternatives]]] = {
    "slice": _of_slice,
    "pad": _of_pad,
    "top_k": _of_top_k,
    "gather": _of_index,
    "gather_nd": _of_index,
    "scatter_nd": _of_index,
    "stretch": _of_index,
    "gather_elements": _of_elements,
    "scatter_elements": _of_elements,
}
