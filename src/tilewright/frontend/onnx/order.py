"""Nodes in the order in which they can be computed, whatever their order in the file.

In: the nodes of a graph. Out: the same nodes, each behind those that make what it reads, otherwise
in the order of the file. The standard wants files to be sorted; onnxruntime takes others, too.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from tilewright.frontend.onnx.checks import label, named, refuse, subgraphs
from tilewright.frontend.onnx.messages import NodeProto


def in_order(nodes: Sequence[NodeProto]) -> Sequence[NodeProto]:
    """The nodes sorted. Raises ImportFault if some need each other's results."""
    makers: dict[str, int] = {}
    for k, node in enumerate(nodes):
        for name in node.output:
            makers.setdefault(name, k)
    makers.pop("", None)
    needs = [{makers[name] for name in names_read(n) if name in makers} for n in nodes]
    if all(max(before, default=-1) < k for k, before in enumerate(needs)):
        return nodes
    readers: list[list[int]] = [[] for _ in nodes]
    for k, before in enumerate(needs):
        for maker in before:
            readers[maker].append(k)
    missing = [len(before) for before in needs]
    ready = [k for k, count in enumerate(missing) if not count]
    made = []
    while ready:
        k = heapq.heappop(ready)
        made.append(k)
        for reader in readers[k]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    if len(made) < len(nodes):
        circle = [label(n) for n, count in zip(nodes, missing, strict=True) if count]
        raise refuse("nodes of it need each other's results", named(circle))
    return [nodes[k] for k in made]


def names_read(node: NodeProto) -> Iterator[str]:
    """The names that a node, or a graph in its attributes, reads of what is around it."""
    yield from node.input
    for attribute in node.attribute:
        for graph in subgraphs(attribute):
            own = {e.name for e in (*graph.input, *graph.initializer)}
            own.update(name for inner in graph.node for name in inner.output)
            read = [name for inner in graph.node for name in names_read(inner)]
            yield from (name for name in read if name not in own)
            yield from (o.name for o in graph.output if o.name not in own)
