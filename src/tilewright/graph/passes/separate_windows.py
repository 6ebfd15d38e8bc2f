"""separate_windows: large pooling windows are taken along one axis after the other.

The greatest number of a window is the greatest of what is greatest in each of its columns, and its
mean the mean of their means: 13 × 13 numbers a result become 13 + 13. What the columns give is
stored and read again, so that small windows stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import prod
from typing import Any

from tilewright.graph.builder import Edit
from tilewright.graph.graph import Graph, Node
from tilewright.graph.operator import POOL, having
from tilewright.graph.passes.canonicalise import RULES
from tilewright.ir.dtype import f32, f64
from tilewright.ir.expr import as_int

GAIN = 2  # so many times fewer numbers are read, at least
_POOLS = having(POOL)


def separate_windows(graph: Graph) -> Graph:
    """Rewrite such pools, if there are any."""
    if any(_order(node) for node in graph.nodes):
        rules = {**RULES, **{op: [*RULES[op], _one_by_one] for op in _POOLS}}
        return Edit(graph, rules).run()
    return graph


def _one_by_one(edit: Edit, node: Node) -> Any:
    order = _order(node)
    if not order:
        return None
    made, attrs = node.inputs[0], dict(node.attrs)
    *_, last = order
    neutral = {"kernel": 1, "strides": 1, "dilations": 1, "pads": (0, 0)}
    for axis in order:
        own = {
            name: tuple(each if d == axis else neutral[name] for d, each in enumerate(value))
            if value and name in neutral
            else value
            for name, value in attrs.items()
        }
        made = edit.emit(node.op, made, **own, name=node.name if axis == last else "")
    return made


def _order(node: Node) -> Sequence[int]:
    """The order in which the axes are best taken; () if all at once is as good."""
    if node.op not in _POOLS or (node.op == "avg_pool" and node.output.dtype not in (f32, f64)):
        return ()
    kernel = node["kernel"]
    steps = node["strides"] or (1,) * len(kernel)
    own = [d for d, pair in enumerate(zip(kernel, steps, strict=True)) if pair != (1, 1)]
    sizes = zip(node.inputs[0].shape[2:], node.output.shape[2:], strict=True)
    denser = [
        a / b if (a := as_int(before)) and (b := as_int(after)) else float(steps[d])
        for d, (before, after) in enumerate(sizes)
    ]

    def reads(order: Sequence[int]) -> float:
        """Numbers read for each of the results."""
        return sum(
            kernel[axis] * prod(denser[d] for d in order[n + 1 :]) for n, axis in enumerate(order)
        )

    best = min(permutations(own), key=reads)
    return best if reads(best) * GAIN <= prod(kernel) else ()
