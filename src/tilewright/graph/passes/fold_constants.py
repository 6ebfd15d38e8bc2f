"""fold_constants: compute at compile time what depends on constants alone.

A result is kept if it is small or no larger than what it was made from, so a graph cannot grow by
folding.
"""

from __future__ import annotations

from typing import Any

from tilewright.graph.builder import Edit
from tilewright.graph.folding import fold
from tilewright.graph.graph import Graph, Node
from tilewright.graph.operator import OPERATORS


def fold_constants(graph: Graph) -> Graph:
    """Replace nodes whose inputs are all constants by their results."""
    return Edit(graph, dict.fromkeys(OPERATORS, (fold_node,))).run()


def fold_node(edit: Edit, node: Node) -> Any:
    """The constant that `node` computes, or None."""
    if not all(v in edit.constants for v in node.inputs):
        return None
    array = fold(
        node.op, [edit.constants[v].array for v in node.inputs], dict(node.attrs), node.outputs
    )
    return None if array is None else edit.constant(array, node.name, node.output.dtype)
