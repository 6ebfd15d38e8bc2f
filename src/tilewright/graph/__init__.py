"""Models as graphs of typed tensor operators, and the passes that improve them."""

from tilewright.graph import ops
from tilewright.graph.builder import Builder, Edit
from tilewright.graph.evaluate import evaluate
from tilewright.graph.graph import Constant, Graph, Node, Value
from tilewright.graph.operator import OPERATORS, Fusion, Operator, operator
from tilewright.graph.parse import parse

__all__ = [
    "OPERATORS",
    "Builder",
    "Constant",
    "Edit",
    "Fusion",
    "Graph",
    "Node",
    "Operator",
    "Value",
    "evaluate",
    "operator",
    "ops",
    "parse",
]
