"""fold_constants: compute at compile time what depends on constants alone.

A result is kept if it is small or no larger than what it was made from, and all results together
fit the budget of the model's own constants, so a graph does not grow by folding. Weights are kept
whatever they were made from, within the budget: each run would compute them again, and only
constants are packed for the loops that read them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tilewright.graph.budget import Budget
from tilewright.graph.builder import Edit
from tilewright.graph.folding import fold
from tilewright.graph.graph import Graph, Node
from tilewright.graph.operator import OPERATORS, WEIGHTED, having

LONG = having(WEIGHTED)


def fold_constants(graph: Graph) -> Graph:
    """Replace nodes whose inputs are all constants by their results."""
    rule = partial(fold_node, Budget.of(graph.constants.values()), weights_of(graph))
    return Edit(graph, dict.fromkeys(OPERATORS, (rule,))).run()


def weights_of(graph: Graph) -> set[str]:
    """Nodes, by name, that depend on constants alone and are needed for a weight."""
    made_by = graph.producers()
    stable: set[Node] = set()
    for node in graph.nodes:
        if node.inputs and all(
            v in graph.constants or made_by.get(v) in stable for v in node.inputs
        ):
            stable.add(node)
    wanted: set[Node] = set()
    for node in reversed(graph.nodes):
        if node in wanted or (node.op in LONG and node not in stable):
            wanted.update(made_by[v] for v in node.inputs if made_by.get(v) in stable)
    return {node.name for node in wanted}


def fold_node(budget: Budget, weights: set[str], edit: Edit, node: Node) -> Any:
    """The constant that `node` computes, or None."""
    if not all(v in edit.constants for v in node.inputs):
        return None
    constants = [edit.constants[v] for v in node.inputs]
    is_weight = node.name in weights
    made = fold(node.op, constants, dict(node.attrs), node.outputs, budget, is_weight)
    return None if made is None else edit.constant(made, node.name, node.output.dtype)
