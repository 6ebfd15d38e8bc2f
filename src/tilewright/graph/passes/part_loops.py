"""part_loops: a loop whose rounds multiply large matrices becomes rounds of the host program.

In: `loop` nodes. Out: for those with many weights in a round a `while_loop` of the same body, whose
products run on all threads with packed weights, where a kernel's rounds are one thread's. Loops
that a condition asks for stay kernels: rounds of the host program would be run all the same.
"""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from tilewright.graph.builder import Edit, Rule
from tilewright.graph.graph import Graph, Node, Value
from tilewright.graph.ops.loop import body_of
from tilewright.graph.ops.while_loop import spoken_of
from tilewright.graph.passes.demand import conditional
from tilewright.ir.expr import as_int

LEAST_WEIGHTS = 1 << 16  # that a round multiplies: a product of so many is worth the threads' while


def part_loops(graph: Graph) -> Graph:
    """Let the host program run the loops whose rounds are large."""
    if not any(node.op == "loop" for node in graph.nodes):
        return graph
    return _Loops(graph, RULES).run()


class _Loops(Edit):
    """An edit that knows which nodes are not always needed."""

    @cached_property
    def conditional(self) -> set[str]:
        return conditional(self.graph)


def by_host(edit: Any, node: Node) -> Any:
    """Rounds of the host program, if the loop's rounds are large."""
    body = body_of(node["body"])
    if node.name in edit.conditional or _weights(edit, node, body) < LEAST_WEIGHTS:
        return None
    turn, going, *read = body.inputs
    inputs = (turn, *read, going)  # in a round the condition holds
    body = body.replace(inputs=inputs, input_names=tuple(v.name for v in inputs))
    count, states = node["states"], node.inputs[2:]
    rounds, *made = edit.emit(
        "while_loop", *node.inputs[:2], *states, edit.constant(np.asarray(True), "going"),
        name=[v.name for v in node.outputs], body=str(body), states=count, symbols=(),
        extents=spoken_of(body), length=node["length"] if node.outputs[1 + count :] else None,
    )  # fmt: skip
    return rounds, *made[:count], *(_zero_after(edit, rounds, v) for v in made[count:])


def _weights(edit: Any, node: Node, body: Graph) -> int:
    """How many constants the products of a round read."""
    captured = dict(
        zip(body.inputs[2 + node["states"] :], node.inputs[2 + node["states"] :], strict=True)
    )
    matrices = {n.inputs[1] for n in body.nodes if n.op == "matmul"}
    return sum(
        prod(as_int(s) or 0 for s in v.shape) for v in matrices if captured.get(v) in edit.constants
    )


def _zero_after(edit: Any, rounds: Value, rows: Value) -> Value:
    """Rows as a `loop` gives them: 0 from where there was no round."""
    length, *row = rows.shape
    ones = (1,) * len(row)
    number = edit.emit("arange", length=length)
    number = edit.emit("reshape", number, shape=(length, *ones))
    there = edit.emit("less", number, edit.emit("reshape", rounds, shape=(1, *ones)))
    zero = edit.constant(np.zeros((), rows.dtype.numpy), "zero")
    return edit.emit("where", there, rows, zero)


RULES: dict[str, list[Rule]] = {"loop": [by_host]}
