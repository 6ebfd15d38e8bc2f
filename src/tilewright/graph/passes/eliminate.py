"""eliminate_dead, eliminate_common: drop what nobody reads, compute what is equal once."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.builder import Edit, without_dead
from tilewright.graph.graph import Constant, Deferred, Graph, Node, Scaled, Value

MOST = 4  # elements sampled along each axis of a constant


def eliminate_dead(graph: Graph) -> Graph:
    """Drop nodes and constants that no output depends on. Inputs stay."""
    return without_dead(graph)


def eliminate_common(graph: Graph) -> Graph:
    """Merge nodes that apply one operator to the same values, and constants of the same content."""
    edit = Edit(graph)
    first: dict[Any, list[Value]] = {}
    for value, constant in graph.constants.items():
        same = first.setdefault((value.dtype, value.shape, _sample(constant)), [])
        twin = next((v for v in same if _equal(graph.constants[v], constant)), None)
        if twin is None:
            same.append(value)
        else:
            edit.substitute([value], twin)
            del edit.constants[value]
    done: dict[Any, Node] = {}  # the first of an operator on these values,
    others: dict[Any, dict[str, Node]] = {}  # and where there are more all of them, by attributes
    for node in graph.nodes:
        node = edit.current(node)
        applied = node.op, node.inputs
        twin_node = done.setdefault(applied, node)
        if twin_node is not node:
            of_equal_inputs = others.setdefault(applied, {repr(twin_node.attrs): twin_node})
            twin_node = of_equal_inputs.setdefault(repr(node.attrs), node)
        if twin_node is node:
            edit.append(node)
        else:
            edit.substitute(node.outputs, twin_node.outputs)
    return edit.finish_edit() if edit.replaced else graph


def _sample(constant: Constant) -> bytes:
    """Some bytes of a constant's content: constants that differ here are different."""
    if isinstance(constant, Deferred):
        return b"%d" % id(constant)
    if isinstance(constant, Scaled):
        return constant.by.tobytes() + _sample(constant.source)
    try:
        array = constant.array
    except LookupError:
        return constant.digest.encode()
    if not array.size:
        return b""
    samples = tuple(
        [
            slice(0, 1) if not stride else slice(None, None, -(-size // MOST))
            for size, stride in zip(array.shape, array.strides, strict=True)
        ]
    )
    return np.ascontiguousarray(array[samples]).tobytes()


def _equal(a: Constant, b: Constant) -> bool:
    """Have two constants of one type and equal samples the same bytes?"""
    if isinstance(a, Deferred):
        return a is b
    if isinstance(a, Scaled) and isinstance(b, Scaled):
        return a.by.tobytes() == b.by.tobytes() and _equal(a.source, b.source)
    if isinstance(a, Scaled) or isinstance(b, Scaled):
        return False
    try:
        x, y = a.array, b.array
    except LookupError:
        return a == b
    if x.__array_interface__["data"] == y.__array_interface__["data"] and x.strides == y.strides:
        return True
    if not any(x.strides) and not any(y.strides):  # one number each: the sample was all of it
        return True
    bits = f"u{x.dtype.itemsize}"
    return np.array_equal(x.view(bits), y.view(bits))
