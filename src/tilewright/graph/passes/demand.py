"""demand: the conditions under which the values of a graph are needed.

In: a graph. Out: for each node what must hold for anybody to read its results: truth values of
booleans of the graph. What one condition chooses of two values needs one of them, and so does all
that was computed for it alone: the host program takes the branch or does not. What a loop's rounds
read is needed where there is one. Only conditions that some real work depends on count: a test
costs as much as computing a few numbers.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.graph.graph import Graph, Node, Value
from tilewright.graph.operator import HOST, OPERATORS, having
from tilewright.ir.expr import as_int

Literal = tuple[Value, bool]  # a boolean of one element, and what it must be
Demand = tuple[Literal, ...]  # all of these; the outer ones first
_OF_HOST = having(HOST)
CHOICES = ("where", "chosen")  # condition, what it chooses, the other
MUCH = 1024  # elements: worth a test


def demand(graph: Graph) -> dict[Node, Demand]:
    """What must hold for each node to be needed."""
    found = _Demands(graph)
    known = (*graph.inputs, *(value for node in graph.nodes for value in node.outputs))
    order = {value: n for n, value in enumerate(known)}
    worth = {x for node, asked in found.of_node.items() if asked and _is_work(node) for x in asked}
    return {
        node: tuple(sorted((x for x in asked & worth if x[0] in order), key=lambda x: order[x[0]]))
        for node, asked in found.of_node.items()
    }


def are_apart(a: Demand, b: Demand) -> bool:
    """Is what has these demands never needed both?"""
    return any((value, not holds) in b for value, holds in a)


def _is_work(node: Node) -> bool:
    """Does it touch so much that a test pays?"""
    if OPERATORS[node.op].view:
        return False
    counts = [as_int(v.elements) for v in (*node.inputs, *node.outputs)]
    return any(count is None or count >= MUCH for count in counts)


class _Demands:
    """From the outputs backwards: what several nodes read is needed where one of them is."""

    def __init__(self, graph: Graph) -> None:
        self.made_by = graph.producers()
        self.of_value: dict[Value, frozenset[Literal]] = dict.fromkeys(graph.outputs, frozenset())
        self.of_node: dict[Node, frozenset[Literal]] = {}
        for node in reversed(graph.nodes):
            asked = [self.of_value[v] for v in node.outputs if v in self.of_value]
            here = frozenset[Literal]().union(*asked[:1]).intersection(*asked)
            if node.op in _OF_HOST:
                here = frozenset()
            self.of_node[node] = here
            self.read(node, here)

    def read(self, node: Node, here: frozenset[Literal]) -> None:
        first, *rest = node.inputs or (None,)
        if node.op in CHOICES and first is not None and as_int(first.elements) == 1:
            self.need([first], here)
            for value, holds in zip(rest, (True, False), strict=True):
                self.need([value], here | self.literals(first, holds))
        elif node.op == "loop":
            limit, go, *values = node.inputs
            self.need([limit, go, *values[: node["states"]]], here)
            self.need(values[node["states"] :], here | self.literals(go, True))
        elif node.op == "check_bounds" and first is not None:
            self.need([first], self.of_value.get(node.output, here))
            numbers, *only = rest
            self.need(
                [numbers], frozenset[Literal]().union(*(self.literals(v, True) for v in only))
            )
            self.need(only, frozenset())
        else:
            self.need(node.inputs, here)

    def need(self, values: Iterable[Value], where: frozenset[Literal]) -> None:
        for value in values:
            self.of_value[value] = self.of_value.get(value, where) & where

    def literals(self, value: Value, holds: bool) -> frozenset[Literal]:
        """What follows from a boolean's being true, or false."""
        node = self.made_by.get(value)
        if node is not None and node.op in ("reshape", "copy"):
            return self.literals(node.inputs[0], holds)
        if node is not None and node.op == "logical_not":
            return self.literals(node.inputs[0], not holds)
        if node is not None and node.op == ("logical_and" if holds else "logical_or"):
            parts = [self.literals(v, holds) for v in node.inputs if as_int(v.elements) == 1]
            return frozenset[Literal]().union(*parts)
        return frozenset({(value, holds)})


def conditional(graph: Graph) -> set[str]:
    """The names of nodes that are not always needed."""
    return {node.name for node, asked in demand(graph).items() if asked}
