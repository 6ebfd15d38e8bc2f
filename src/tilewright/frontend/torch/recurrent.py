"""Translators of ATen's recurrent layers: one of our operators for each layer and direction.

The weights of a layer and direction stand side by side: input, state, and the biases of both if
there are any.
"""

from __future__ import annotations

from typing import Any

from tilewright.frontend.torch.convert import Refusal
from tilewright.frontend.torch.registry import EVAL, NodeContext, translates
from tilewright.graph.graph import Value
from tilewright.ir.expr import as_int


@translates("lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input")
def recurrent(
    n: NodeContext,
    x: Value,
    states: Any,
    weights: Any,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    """(results of the last layer, last states of every layer and direction)."""
    if train and dropout and num_layers > 1:
        raise Refusal(
            "it drops activations at random, because the module is in training mode", EVAL
        )
    states = list(states) if isinstance(states, tuple | list) else [states]
    directions = 2 if bidirectional else 1
    each = 4 if has_biases else 2
    if len(weights) != each * directions * num_layers:
        raise Refusal("its states are projected (proj_size)", "use a layer without proj_size")
    if batch_first:
        x = n.transpose(x, (1, 0, 2))
    last: list[list[Value]] = [[] for _ in states]
    for layer in range(num_layers):
        made = []
        for d in range(directions):
            number = layer * directions + d
            begin = [row(n, s, number) for s in states]
            given = weights[number * each : (number + 1) * each]
            y, *ends = direction(n, x, begin, given, reverse=d == 1)
            made.append(y)
            for found, end in zip(last, ends, strict=True):
                found.append(n.reshape(end, (1, *end.shape)))
        x = made[0] if directions == 1 else n.emit("concat", *made, axis=2)
    if batch_first:
        x = n.transpose(x, (1, 0, 2))
    return x, *(v[0] if len(v) == 1 else n.emit("concat", *v, axis=0) for v in last)


def row(n: NodeContext, states: Value, number: int) -> Value:
    """The state of one layer and direction: [batch, hidden]."""
    return n.reshape(n.cut(states, 0, number, 1), states.shape[1:])


def direction(
    n: NodeContext, x: Value, begin: list[Value], weights: Any, reverse: bool
) -> tuple[Value, ...]:
    """One layer in one direction: (results, last states)."""
    w, r, *biases = weights
    hidden = as_int(r.shape[1])
    if hidden is None:
        raise Refusal("its hidden size depends on a symbolic size")
    if n.op == "gru":
        return gru(n, x, begin[0], w, r, biases, hidden, reverse)
    gates = n.emit("matmul", x, w, transpose_b=True)
    if biases:
        gates = n.emit("add", gates, n.emit("add", *biases))
    if n.op == "lstm":
        return n.build.emit("lstm", gates, r, *begin, reverse=reverse, name=n.node.name)
    return n.build.emit(
        "rnn",
        gates,
        r,
        *begin,
        reverse=reverse,
        activation=n.op.removeprefix("rnn_"),
        name=n.node.name,
    )


def gru(
    n: NodeContext, x: Value, h: Value, w: Value, r: Value, biases: Any, hidden: int, reverse: bool
) -> tuple[Value, ...]:
    """PyTorch's gates stand in the order reset, update, new; ours: update, reset, new."""

    def ordered(v: Value) -> Value:
        reset, update, new = (n.cut(v, 0, k * hidden, hidden) for k in range(3))
        return n.emit("concat", update, reset, new, axis=0)

    gates = n.emit("matmul", x, ordered(w), transpose_b=True)
    bias = n.full(0, x.dtype, (hidden,))
    if biases:
        of_input, of_state = map(ordered, biases)
        bias = n.cut(of_state, 0, 2 * hidden, hidden)  # the new gate's is inside the reset product
        zeros = n.full(0, x.dtype, (hidden,))
        outside = n.emit("concat", n.cut(of_state, 0, 0, 2 * hidden), zeros, axis=0)
        gates = n.emit("add", gates, n.emit("add", of_input, outside))
    return n.build.emit("gru", gates, ordered(r), bias, h, reverse=reverse, name=n.node.name)
