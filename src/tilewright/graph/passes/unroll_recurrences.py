"""unroll_recurrences: a recurrent layer of known length becomes its steps, where these are large.

In: `lstm`, `gru` and `rnn` nodes. Out: for each step a matrix product and the element-wise rest. So
the products run on all threads with packed weights, which are packed once; the steps share their
kernels, because a step reads its row of the input through an index that is data. Long or
early-ending sequences stay as they are, and so do steps that are too small to be shared: in one
kernel nothing waits between them, and both directions of a layer run at once.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tilewright.graph.builder import Edit, Rule
from tilewright.graph.graph import Graph, Node, Value
from tilewright.graph.quantise import rounded
from tilewright.ir.expr import as_int

LONGEST = 128  # steps
# a step worth the threads' while has as many weights, or multiplies as often
LEAST_WEIGHTS, LEAST_PRODUCTS = 1 << 17, 1 << 20

PLAIN = ("tanh", "sigmoid", "relu")  # of an RNN: operators of the same name
DEFAULTS = {"lstm": ("sigmoid", "tanh", "tanh"), "gru": ("sigmoid", "tanh")}


def unroll_recurrences(graph: Graph) -> Graph:
    """Unroll the layers of this graph that are short enough."""
    return Edit(graph, RULES).run()


class _Steps:
    """The steps of one layer, in the order in which they run."""

    def __init__(self, edit: Edit, node: Node, count: int) -> None:
        self.edit, self.node = edit, node
        self.order = range(count)[::-1] if node["reverse"] else range(count)
        self.results: dict[int, Value] = {}

    def row(self, t: int) -> Value:
        """The projections of step t."""
        index = self.edit.constant(np.asarray(t, np.int64), "step")
        return self.edit.emit("gather", self.node.inputs[0], index, axis=0)

    def stacked(self) -> Value:
        """The results of all steps, one after the other."""
        rows = [
            self.edit.emit("reshape", self.results[t], shape=(1, *self.results[t].shape))
            for t in range(len(self.order))
        ]
        return self.edit.emit("concat", *rows, axis=0, name=self.node.name)


def steps_of(edit: Edit, node: Node, inputs: int) -> _Steps | None:
    """The steps, if the layer is one that can be unrolled: no lengths, no clipping, usual
    activations; and if they are large."""
    count, batch = (as_int(s) for s in node.inputs[0].shape[:2])
    weights = prod(as_int(s) or 1 for s in node.inputs[1].shape)
    if weights < LEAST_WEIGHTS and weights * (batch or 1) < LEAST_PRODUCTS:
        return None
    if count is None or not 0 < count <= LONGEST or len(node.inputs) > inputs:
        return None
    if node["clip"] is not None:
        return None
    if node.op in DEFAULTS and node["activations"] not in ((), DEFAULTS[node.op]):
        return None
    if node.op == "rnn" and node["activation"] not in PLAIN:
        return None
    return _Steps(edit, node, count)


def lstm(edit: Edit, node: Node) -> Any:
    steps = steps_of(edit, node, 4)
    if steps is None:
        return None
    _, weights, h, c = node.inputs
    for t in steps.order:
        state = rounded(edit, h) if node["rounds"] else h
        sums = edit.emit("matmul", state, weights, transpose_b=True)
        h, c = edit.emit("lstm_cell", edit.emit("add", sums, steps.row(t)), c)
        steps.results[t] = h
    return steps.stacked(), h, c


def gru(edit: Edit, node: Node) -> Any:
    steps = steps_of(edit, node, 4)
    if steps is None:
        return None
    _, weights, bias, h = node.inputs
    hidden = as_int(h.shape[1])
    if hidden is None:
        return None
    one = edit.constant(np.asarray(1, h.dtype.numpy), "one")

    def part(x: Value, first: int, count: int, axis: int) -> Value:
        starts = [0] * x.rank
        shape = list(x.shape)
        starts[axis], shape[axis] = first * hidden, count * hidden  # type: ignore[call-overload]
        return edit.emit("slice", x, starts=tuple(starts), shape=tuple(shape))

    gates, new = part(weights, 0, 2, 0), part(weights, 2, 1, 0)
    for t in steps.order:
        x = steps.row(t)
        both = edit.emit("add", edit.emit("matmul", h, gates, transpose_b=True), part(x, 0, 2, 1))
        both = edit.emit("sigmoid", both)
        z, r = part(both, 0, 1, 1), part(both, 1, 1, 1)
        if node["reset_after"]:
            inner = edit.emit("add", edit.emit("matmul", h, new, transpose_b=True), bias)
            inner = edit.emit("mul", r, inner)
        else:
            inner = edit.emit("matmul", edit.emit("mul", r, h), new, transpose_b=True)
            inner = edit.emit("add", inner, bias)
        candidate = edit.emit("tanh", edit.emit("add", part(x, 2, 1, 1), inner))
        fresh = edit.emit("mul", edit.emit("sub", one, z), candidate)
        h = edit.emit("add", fresh, edit.emit("mul", z, h))
        steps.results[t] = h
    return steps.stacked(), h


def rnn(edit: Edit, node: Node) -> Any:
    steps = steps_of(edit, node, 3)
    if steps is None:
        return None
    _, weights, h = node.inputs
    for t in steps.order:
        sums = edit.emit("matmul", h, weights, transpose_b=True)
        h = edit.emit(node["activation"], edit.emit("add", sums, steps.row(t)))
        steps.results[t] = h
    return steps.stacked(), h


RULES: dict[str, list[Rule]] = {"lstm": [lstm], "gru": [gru], "rnn": [rnn]}
