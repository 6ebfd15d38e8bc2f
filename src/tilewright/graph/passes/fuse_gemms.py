"""fuse_gemms: horizontal fusion of GEMMs. Products of few rows with one matrix become one product
of all their rows.

In: a graph. Out: the same model with fewer products. A product of one row reads the whole matrix
for it, so the steps of an unrolled recurrence, or towers that share a layer, read it as often as
there are of them; together they read it once. What is fused must not depend on each other; the
nodes are put in an order in which all operands are there first. An open number of rows may be a
batch of one: it counts for that where many rows lose nothing either.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.estimate import estimate_by_symbols
from tilewright.graph import sizes
from tilewright.graph.builder import Edit
from tilewright.graph.graph import Graph, Node, Value

MOST_ROWS = 16  # of one product: with more the matrix is no longer what takes the time
MOST_FUSED = 16  # of a group: more gain nothing, and their results would wait in memory for long
WIDE = 128  # rows and columns of a matrix: to move its operands and results takes little beside it


def fuse_gemms(graph: Graph) -> Graph:
    """Fuse products that share a constant matrix and do not depend on each other."""
    groups = [g for g in _groups(graph) if len(g) > 1]
    if not groups:
        return graph
    group_of = {node: group for group in groups for node in group}
    edit = Edit(graph)
    done: set[int] = set()
    for node in _ordered(graph, group_of):
        group = group_of.get(node)
        if group is None:
            edit.append(edit.current(node))
        elif id(group) not in done:
            done.add(id(group))
            _fuse(edit, group)
    return edit.finish_edit()


def _groups(graph: Graph) -> list[list[Node]]:
    """Products of few rows by one matrix; none in a group follows from another of it."""
    if graph.data_dependent:
        return []  # nodes that speak of data-dependent sizes must stay behind what measures them
    made_by = graph.producers()
    candidates = {node: n for n, node in enumerate(graph.nodes) if _is_candidate(graph, node)}
    before: dict[Node, int] = {}  # as bits: the candidates that a node follows from
    found: dict[tuple[Any, ...], list[tuple[list[Node], int]]] = {}
    for node in graph.nodes:
        above = 0
        for value in node.inputs:
            source = made_by.get(value)
            if source is not None:
                above |= before[source]
        before[node] = above
        if node not in candidates:
            continue
        bit = 1 << candidates[node]
        before[node] |= bit
        same = found.setdefault((node.inputs[1], node.inputs[0].dtype, node.attrs), [])
        rows = _rows(node)
        for n, (group, bits) in enumerate(same):
            if not bits & above and sum(map(_rows, group)) + rows <= MOST_FUSED:
                group.append(node)
                same[n] = group, bits | bit
                break
        else:
            same.append(([node], bit))
    return [group for same in found.values() for group, _ in same]


def _rows(node: Node) -> int:
    """How many rows a product has for each 1 that open sizes are, which may be a batch."""
    rows = sizes.product(node.inputs[0].shape[:-1])
    return sizes.at(rows, dict.fromkeys(sizes.symbols([rows]), 1))


def _is_candidate(graph: Graph, node: Node) -> bool:
    if node.op != "matmul" or node["transpose_a"]:
        return False
    x, w = node.inputs
    if w not in graph.constants or w.rank != 2 or not 0 < _rows(node) <= MOST_ROWS:
        return False
    return x.static_shape is not None or min(map(estimate_by_symbols, w.shape)) >= WIDE


def _ordered(graph: Graph, group_of: dict[Node, list[Node]]) -> list[Node]:
    """The nodes, in their order but for those that a fused product has to wait for."""
    made_by = graph.producers()
    order: list[Node] = []
    placed: set[Node] = set()
    for root in graph.nodes:
        stack: list[tuple[Node, bool]] = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if node in placed:
                continue
            members = group_of.get(node, [node])
            if ready:
                order += members
                placed.update(members)
                continue
            stack.append((node, True))
            for value in (v for member in reversed(members) for v in member.inputs):
                source = made_by.get(value)
                if source is not None and source not in placed:
                    stack.append((source, False))
    return order


def _fuse(edit: Edit, group: list[Node]) -> None:
    """One product in place of those of `group`."""
    rows: list[Value] = []
    for node in group:
        x = edit.replaced.get(node.inputs[0], node.inputs[0])
        rows.append(edit.emit("reshape", x, shape=(sizes.product(x.shape[:-1]), x.shape[-1])))
    first = group[0]
    whole = edit.emit("concat", *rows, axis=0)
    made = edit.emit("matmul", whole, first.inputs[1], **dict(first.attrs))
    start = sizes.size(0)
    for node, part in zip(group, rows, strict=True):
        count, width = part.shape[0], made.shape[1]
        own = edit.emit("slice", made, starts=(start, 0), shape=(count, width))
        edit.substitute(node.outputs, edit.emit("reshape", own, shape=node.output.shape))
        start = sizes.total([start, count])
