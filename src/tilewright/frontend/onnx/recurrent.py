"""Translators of ONNX recurrent layers: one matrix product for all steps' inputs, then the
recurrence."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontend.onnx import data_dependent
from tilewright.frontend.onnx.quantised import dequantised
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.frontend.onnx.runtime_broadcast import unify_operands
from tilewright.frontend.onnx.tensors import cut
from tilewright.graph import sizes
from tilewright.graph.graph import Value
from tilewright.graph.ops.activations import ACTIVATIONS
from tilewright.graph.quantise import rounded
from tilewright.ir.expr import as_int

GATES = {"LSTM": (0, 2, 3, 1), "GRU": (0, 1, 2), "RNN": (0,)}  # ONNX's blocks in our order
FORGET = 2  # ONNX's block of an LSTM's forget gate
DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}


@translates("LSTM", "GRU", "RNN")
def recurrent(n: NodeContext) -> Any:
    """Each direction by itself; then their results side by side."""
    return layer(n)


@translates("DynamicQuantizeLSTM", domain="com.microsoft")
def quantised_lstm(n: NodeContext) -> Any:
    """An LSTM of quantised weights [directions, input, 4·hidden]. Before each product the input, up
    to the end of the longest sequence, and the state are rounded to eight bits by their range."""

    def weights(k: int, scale: int) -> Value:
        shape = (n[k].shape[0], 1, n[scale].shape[1] if n[scale].rank == 2 else 1)
        parts = [n.build.emit("reshape", n[s], shape=shape) for s in (scale, scale + 1)]
        y = dequantised(n, n[k], *parts)
        return n.build.emit("transpose", y, perm=(0, 2, 1))

    if n[1].rank != 3 or n[2].rank != 3:
        raise Refusal("its weights must have rank 3")
    x, lengths = n[0], n.optional(4)
    if lengths is not None:
        longest = n.build.emit("reduce_max", n.build.emit("cast", lengths, to="i64"), axes=(0,))
        step = n.build.emit("arange", length=x.shape[0])
        there = n.build.emit("less", step, longest)
        there = n.build.emit("reshape", there, shape=(x.shape[0], 1, 1))
        x = n.build.emit("where", there, x, n.constant(0.0, x.dtype))
    x = rounded(n.build, x)
    rest = [n.optional(k) for k in range(3, 8)]
    return layer(n.standing_for("LSTM", [x, weights(1, 8), weights(2, 10), *rest]), rounds=True)


def layer(n: NodeContext, rounds: bool = False) -> tuple[Value, ...]:
    """The outputs of a layer; with `rounds`, its state is rounded before each product."""
    if n[0].rank != 3 or n[1].rank != 3 or n[2].rank != 3:
        raise Refusal("its input and weights must have rank 3")
    hidden = as_int(n[2].shape[-1]) or n.int("hidden_size", 0)
    if hidden < 1:
        raise Refusal("its weights must have a known hidden size, or it an attribute hidden_size")
    names = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    direction = n.text("direction", "forward")
    if direction not in names:
        raise Refusal(f"direction {direction!r} is not known")
    reverses = names[direction]
    show_hidden(n, len(reverses), hidden)
    if as_int(n[1].shape[0]) != len(reverses) or as_int(n[2].shape[0]) != len(reverses):
        raise Refusal(f"direction {direction!r} needs weights for {len(reverses)} directions")
    batch_first = n.flag("layout")
    for k in (5, 6):  # the batch of a state may have a name of its own
        state, positions = n.optional(k), 0 if batch_first else 1
        if (
            state is not None
            and state.rank == 3
            and state.shape[positions] != n[0].shape[positions]
        ):
            unify_operands(n, n[0].shape[positions], state.shape[positions])
    x = n[0]
    if batch_first:
        x = n.build.emit("transpose", x, perm=(1, 0, 2))
    ends = [one_direction(n, x, d, reverse, rounds) for d, reverse in enumerate(reverses)]
    steps, batch = x.shape[0], x.shape[1]
    y = join(n, [n.build.emit("reshape", e[0], shape=(steps, 1, batch, hidden)) for e in ends], 1)
    last = [
        join(n, [n.build.emit("reshape", e[k], shape=(1, batch, hidden)) for e in ends], 0)
        for k in range(1, len(ends[0]))
    ]
    if batch_first:
        y = n.build.emit("transpose", y, perm=(2, 0, 1, 3))
        last = [n.build.emit("transpose", v, perm=(1, 0, 2)) for v in last]
    return (y, *last)


def show_hidden(n: NodeContext, directions: int, hidden: int) -> None:
    """Give weights, biases and states whose sizes are open the stated hidden size, which the run
    checks."""
    rows, batch_first = len(GATES[n.op]) * hidden, n.flag("layout")
    ends = {1: (rows, None), 2: (rows, hidden), 3: (2 * rows,), 5: (None, hidden)}
    ends |= {6: (None, hidden), 7: (3 * hidden,)} if n.op == "LSTM" else {}
    for k, end in ends.items():
        value, wanted = n.optional(k), (directions, *end)
        if value is None or value.rank != len(wanted):
            continue
        if k in (5, 6) and batch_first:
            wanted = (None, directions, hidden)
        pairs = zip(value.shape, wanted, strict=True)
        goal = [have if as_int(have) or stated is None else stated for have, stated in pairs]
        if tuple(map(sizes.size, goal)) != value.shape:
            n.inputs[k] = data_dependent.view_of(n, value, goal)


def join(n: NodeContext, parts: list[Value], axis: int) -> Value:
    return parts[0] if len(parts) == 1 else n.build.emit("concat", *parts, axis=axis)


def activations(n: NodeContext, d: int) -> tuple[str, ...]:
    """The activations of direction d, in our texts. alpha and beta each list the numbers of those
    activations that have one, over all directions."""
    count = len(DEFAULTS[n.op])
    chosen = n.texts("activations") or DEFAULTS[n.op] * (d + 1)
    names = [a.lower() for a in chosen]
    if len(names) < count * (d + 1) or any(a not in ACTIVATIONS for a in names):
        raise Refusal(
            f"activations {chosen} are not supported", f"those that are: {', '.join(ACTIVATIONS)}"
        )
    given = [list(n.floats(f"activation_{k}") or ()) for k in ("alpha", "beta")]
    made = []
    for name in names:
        default = ACTIVATIONS[name][0]
        numbers = [rest.pop(0) if rest else k for k, rest in zip(default, given, strict=False)]
        made.append(":".join((name, *(repr(float(x)) for x in numbers))))
    return tuple(made[d * count : (d + 1) * count])


def one_direction(
    n: NodeContext, x: Value, d: int, reverse: bool, rounds: bool = False
) -> tuple[Value, ...]:
    build, hidden, gates = n.build, as_int(n[2].shape[-1]), GATES[n.op]
    assert hidden is not None
    wide = len(gates) * hidden
    if as_int(n[1].shape[1]) != wide or as_int(n[2].shape[1]) != wide:
        raise Refusal(f"its weights must have {wide} rows for hidden size {hidden}")

    def part(k: int, shape: tuple[Any, ...]) -> Value:
        """Direction d of input k."""
        value = n[k]
        if as_int(value.shape[0]) != as_int(n[1].shape[0]):
            raise Refusal(f"input {k} has another number of directions than the weights")
        return build.emit("reshape", cut(n, value, 0, d, 1), shape=shape)

    names = activations(n, d)
    coupled = n.op == "LSTM" and n.flag("input_forget")
    if coupled and names[0] != "sigmoid":
        raise Refusal(f"coupled input and forget gates of activation {names[0]} are not supported")

    def ordered(v: Value, order: tuple[int, ...]) -> Value:
        """Blocks of `hidden` rows in another order. A forget gate that is coupled to the input gate
        is 1 - sigmoid(i) = sigmoid(-i): its rows are the input gate's, negated."""
        if order == tuple(range(len(order))):
            return v
        blocks = [
            build.emit("neg", cut(n, v, 0, 0, hidden))
            if coupled and g == FORGET
            else cut(n, v, 0, g * hidden, hidden)
            for g in order
        ]
        return build.emit("concat", *blocks, axis=0)

    w = ordered(part(1, (wide, n[1].shape[2])), gates)
    r = ordered(part(2, (wide, hidden)), gates)
    batch = x.shape[1]
    inputs = build.emit("matmul", x, w, transpose_b=True)
    linear_after = n.op == "GRU" and n.flag("linear_before_reset")
    state_bias = build.constant(np.zeros(hidden, x.dtype.numpy))
    if n.optional(3) is not None:
        both = part(3, (2 * wide,))
        bw, br = (ordered(cut(n, both, 0, k * wide, wide), gates) for k in (0, 1))
        if linear_after:  # the state's bias of the new gate is inside the reset product
            state_bias = cut(n, br, 0, 2 * hidden, hidden)
            zeros = build.constant(np.zeros(hidden, x.dtype.numpy))
            br = build.emit("concat", cut(n, br, 0, 0, 2 * hidden), zeros, axis=0)
        inputs = build.emit("add", inputs, build.emit("add", bw, br))

    def state(k: int) -> Value:
        if n.optional(k) is None:
            return build.emit("full", shape=(batch, hidden), value=0.0, of=x.dtype.name)
        return part(k, (batch, hidden))

    lengths = n.optional(4)
    attrs: dict[str, Any] = {"reverse": reverse, "clip": n.float("clip")}
    if n.op == "LSTM":
        holes = []
        if n.optional(7) is not None:
            holes = [ordered(part(7, (3 * hidden,)), (0, 2, 1))]
        elif lengths is not None:
            holes = [build.constant(np.zeros(3 * hidden, x.dtype.numpy))]
        rest = [] if lengths is None else [lengths]
        return build.emit(
            "lstm",
            inputs,
            r,
            state(5),
            state(6),
            *holes,
            *rest,
            **attrs,
            activations=names,
            rounds=rounds,
            name=n.node.output[:1],
        )
    tail = [] if lengths is None else [lengths]
    if n.op == "GRU":
        return build.emit(
            "gru", inputs, r, state_bias, state(5), *tail, **attrs, reset_after=linear_after,
            activations=names, name=n.node.output[:1],
        )  # fmt: skip
    return build.emit(
        "rnn", inputs, r, state(5), *tail, **attrs, activation=names[0], name=n.node.output[:1]
    )
