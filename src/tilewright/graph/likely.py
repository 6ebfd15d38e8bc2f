"""What whole numbers a model's inputs are likely to hold.

In: a graph. Out: for inputs of integers and truth values, the least and the most that makes
sense. A random input is only worth measuring if it takes the way that real ones take: indices lie
in the table that they are looked up in, a number that is compared with constants is one of them,
and a mask leaves everything in.
"""

from __future__ import annotations

from tilewright.graph.graph import Graph, Node, Value
from tilewright.graph.operator import MOVES, having
from tilewright.ir.expr import Expr, as_int

CARRIES = having(MOVES) | {"pad"}
TABLES = {"gather": 1, "one_hot": 0}  # operator → which input is looked up
MOST = 1 << 31
Span = tuple[int, int]


def likely_values(graph: Graph) -> dict[str, Span]:
    """By the user's name of an input: the least and the most of its numbers. Inputs of which
    nothing is known are left out."""
    users = graph.users()
    found: dict[str, Span] = {}
    for name, value in zip(graph.input_names, graph.inputs, strict=True):
        if value.dtype.is_int or value.dtype.is_bool:
            span = _span(graph, users, value)
            if span is None and "mask" in name.lower():
                span = (1, 1)
            if span is not None:
                found[name] = span
    return found


def _span(graph: Graph, users: dict[Value, list[Node]], value: Value) -> Span | None:
    """From the tables that the numbers in `value` are looked up in, else from what they are
    compared with."""
    rows: list[int] = []
    named: list[int] = []
    reached, seen = [value], {value}
    while reached:
        v = reached.pop()
        for node in users[v]:
            if node.op in TABLES and node.inputs[TABLES[node.op]] is v:
                number = as_int(node["depth"] if node.op == "one_hot" else _along(node))
                rows += [number] if number else []
            elif node.op in CARRIES:
                fresh = [o for o in node.outputs if o not in seen]
                reached += fresh
                seen.update(fresh)
            elif node.op == "equal":
                named += [n for other in node.inputs for n in _numbers(graph, other)]
    if rows:
        return 0, min(rows) - 1
    return (max(named), max(named)) if named else None


def _along(node: Node) -> Expr:
    """The size of the axis that a gather looks up."""
    table = node.inputs[0]
    return table.shape[node["axis"] % table.rank]


def _numbers(graph: Graph, value: Value) -> list[int]:
    """The number that a constant holds, if it is one whole number."""
    if value not in graph.constants or as_int(value.elements) != 1:
        return []
    number = graph.array(value).ravel()[0]
    return [int(number)] if -MOST < number < MOST and number == int(number) else []
