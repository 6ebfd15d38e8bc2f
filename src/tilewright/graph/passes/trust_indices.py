"""trust_indices: gathers whose indices surely lie inside clamp them no more.

Indices do where a check has ended the run otherwise, where they are constants, or where what makes
them says so; those that all count from the start are taken as they are. A check that only holds
under a condition says nothing: in a branch that is not taken indices may be anything.
"""

from __future__ import annotations

from typing import Any

from tilewright.graph.bounds import are_within, from_start, into
from tilewright.graph.builder import Edit
from tilewright.graph.graph import Graph, Node


def trust_indices(graph: Graph) -> Graph:
    """Mark such gathers."""
    if any(node.op in _RULES for node in graph.nodes):
        return Edit(graph, _RULES).run()
    return graph


def _trusted(edit: Edit, node: Node) -> Any:
    x, indices = node.inputs
    size = x.shape[node["axis"] % x.rank]
    if node["trusted"] or not are_within(edit, indices, into(size), some_of=size):
        return None
    plain = are_within(edit, indices, from_start(size), some_of=size)
    return edit.emit(
        node.op, x, indices, axis=node["axis"], trusted=True, from_start=plain, name=node.name
    )


_RULES = {"gather": (_trusted,), "gather_elements": (_trusted,)}
