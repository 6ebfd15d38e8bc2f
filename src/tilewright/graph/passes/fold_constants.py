"""fold_constants: compute at compile time what depends on constants alone.

A result is kept if it is small or no larger than what it was made from, and all results together
fit the budget of the model's own constants, so a graph does not grow by folding.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tilewright.graph.budget import Budget
from tilewright.graph.builder import Edit
from tilewright.graph.folding import fold
from tilewright.graph.graph import Graph, Node
from tilewright.graph.operator import OPERATORS


def fold_constants(graph: Graph) -> Graph:
    """Replace nodes whose inputs are all constants by their results."""
    rule = partial(fold_node, Budget.of(graph.constants.values()))
    return Edit(graph, dict.fromkeys(OPERATORS, (rule,))).run()


def fold_node(budget: Budget, edit: Edit, node: Node) -> Any:
    """The constant that `node` computes, or None."""
    if not all(v in edit.constants for v in node.inputs):
        return None
    constants = [edit.constants[v] for v in node.inputs]
    made = fold(node.op, constants, dict(node.attrs), node.outputs, budget)
    return None if made is None else edit.constant(made, node.name, node.output.dtype)
