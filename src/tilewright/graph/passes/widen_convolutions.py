"""widen_convolutions: convolutions of small floats are computed in f32.

In: a graph. Out: the same model, where a convolution of f16 or bf16 with constant weights is one of
f32 between two casts. The sum is in f32 anyway and rounded once, as before; what it is fed with is
no longer converted for every multiply-add, and f32 has packed layouts and Winograd's algorithm.
Weights become f32: twice the memory, which products, whose weights are read but once, do not get.
Convolutions that name the dtypes of their sums or results stay as they are.
"""

from __future__ import annotations

from typing import Any

from tilewright.graph.builder import Edit, Rule
from tilewright.graph.graph import Graph, Node, Value
from tilewright.graph.ops.linear import is_of_one_type
from tilewright.ir.dtype import bf16, f16, f32

SMALL = (f16, bf16)


def widen_convolutions(graph: Graph) -> Graph:
    """Widen them, if there are any."""
    if any(node.op in _RULES and node.inputs[0].dtype in SMALL for node in graph.nodes):
        return Edit(graph, _RULES).run()
    return graph


def _in_f32(edit: Edit, node: Node) -> Any:
    x, w, *_ = node.inputs
    if edit.content(w) is None or x.dtype not in SMALL or not is_of_one_type(node):
        return None
    made = edit.emit(node.op, *(_wide(edit, v) for v in node.inputs), **dict(node.attrs))
    return edit.emit("cast", made, to=node.output.dtype.name)


def _wide(edit: Edit, value: Value) -> Value:
    content = edit.content(value)
    if content is None:
        return edit.emit("cast", value, to="f32")
    return edit.constant(content.astype(f32.numpy), "w")


_RULES: dict[str, list[Rule]] = {"conv": [_in_f32], "conv_transpose": [_in_f32]}
