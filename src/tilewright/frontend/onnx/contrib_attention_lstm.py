"""Translator of com.microsoft's AttnLSTM: an LSTM that looks at a memory after every step
(Bahdanau, Cho and Bengio 2015); what it saw is an input of the next step beside x.

Source of its meaning: onnxruntime's docs/ContribOperators.md; the tests compare with onnxruntime.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontend.onnx.contrib import DOMAIN
from tilewright.frontend.onnx.data_dependent import op
from tilewright.frontend.onnx.loops import within
from tilewright.frontend.onnx.messages import GraphProto
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.graph.graph import Value
from tilewright.ir.expr import as_int

REVERSES = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@translates("AttnLSTM", domain=DOMAIN)
def attention_lstm(n: NodeContext) -> Any:
    """Each direction by itself; then their results side by side."""
    names = {a.lower() for a in n.texts("activations") or ()}
    is_default = names <= {"sigmoid", "tanh"} and (n.texts("activations") or ())[::3] != ("tanh",)
    if not is_default or n.optional(7) is not None or n.float("clip") or n.flag("input_forget"):
        raise Refusal("it has other activations, peepholes, clipping or coupled gates")
    reverses = REVERSES.get(n.text("direction", "forward"))
    if reverses is None or as_int(n[2].shape[-1]) is None:
        raise Refusal("its direction is not known, or its hidden size")
    ends = [one_direction(n, d, reverse) for d, reverse in enumerate(reverses)]
    axes = (1, 0, 0)
    made = [op(n, "reshape", v, shape=(*v.shape[:a], 1, *v.shape[a:]))
            for end in ends for v, a in zip(end, axes, strict=True)]  # fmt: skip
    if len(ends) == 1:
        return tuple(made)
    return tuple(op(n, "concat", made[k], made[k + 3], axis=a) for k, a in enumerate(axes))


def one_direction(n: NodeContext, d: int, reverse: bool) -> tuple[Value, Value, Value]:
    """All states [T, B, H], the last one and the last cell [B, H]."""
    x, (length, batch, width), hidden = n[0], n[0].shape, n[2].shape[-1]

    def part(k: int) -> Value:
        """Direction d of input k."""
        v = n[k]
        v = op(n, "slice", v, starts=(d, *[0] * (v.rank - 1)), shape=(1, *v.shape[1:]))
        return op(n, "reshape", v, shape=v.shape[1:])

    def columns(v: Value, start: Any, count: Any) -> Value:
        return op(n, "slice", v, starts=(*[0] * (v.rank - 1), start), shape=(*v.shape[:-1], count))

    def rows(v: Value, start: Any, count: Any) -> Value:
        return op(n, "slice", v, starts=(start, 0), shape=(count, v.shape[1]))

    def directed(v: Value) -> Value:
        """Each sequence as the direction has it: reversed or not."""
        if not reverse:
            return v
        ends = n.optional(4)
        if ends is None:
            ends = op(n, "full", shape=(batch,), value=0, of="i64")
            ends = op(n, "add", ends, op(n, "reshape", n.build.size_vector(length), shape=()))
        ends = op(n, "cast", ends, to="i64")
        return n.apply("ReverseSequence", v, ends, batch_axis=1, time_axis=0)

    w, memory = part(1), n[11]
    seen = w.shape[1] - width
    before = op(n, "matmul", directed(x), columns(w, 0, width), transpose_b=True)
    if n.optional(3) is not None:
        bias = part(3)
        both = (columns(bias, 4 * hidden * k, 4 * hidden) for k in (0, 1))
        before = op(n, "add", before, op(n, "add", *both))
    keys = op(n, "matmul", memory, part(9))
    steps = memory.shape[1]
    position = op(n, "reshape", op(n, "arange", length=steps), shape=(1, steps))
    if n.optional(12) is not None:
        have = op(n, "reshape", op(n, "cast", n[12], to="i64"), shape=(batch, 1))
        hidden_positions = op(n, "where", op(n, "less", position, have), n.constant(0.0, "f32"),
                           n.constant(-np.inf, "f32"))  # fmt: skip
    else:
        hidden_positions = op(n, "full", shape=(batch, steps), value=0.0, of="f32")
    zero = op(n, "full", shape=(batch, hidden), value=0.0, of="f32")
    scope: dict[str, Any] = {
        "al.w": op(n, "transpose", columns(w, width, seen), perm=(1, 0)),
        "al.r": op(n, "transpose", part(2), perm=(1, 0)),
        "al.query": part(8), "al.keys": keys, "al.v": part(10), "al.memory": memory,
        "al.hidden": hidden_positions,
    }  # fmt: skip
    layer = n.optional(13) is not None
    if layer:
        both = part(13)
        scope["al.cell"] = rows(both, 0, hidden)
        scope["al.context"] = rows(both, hidden, both.shape[0] - hidden)
    lengths = n.optional(4)
    many = op(n, "arange", length=length)
    if lengths is not None:
        ends = op(n, "reshape", op(n, "cast", lengths, to="i64"), shape=(1, batch))
        there = op(n, "less", op(n, "reshape", many, shape=(length, 1)), ends)
    else:
        there = op(n, "full", shape=(length, batch), value=1, of="bool")
    there = op(n, "reshape", there, shape=(length, batch, 1))
    starts = [part(k) if n.optional(k) is not None else zero for k in (5, 6)]
    first = op(n, "full", shape=(batch, seen), value=0.0, of="f32")
    with within(n, scope):
        h, c, _, y = n.apply("Scan", *starts, first, before, there, body=step(layer),
                             num_scan_inputs=2)  # fmt: skip
    return directed(y), h, c


def step(layer: bool) -> GraphProto:
    """States h, c [B, H] and what was seen [B, S]; the gates' part of x [B, 4 H] in the order i, o,
    f, c, and which sequences go on [B, 1]."""
    from onnx import TensorProto, helper

    nodes: list[Any] = []

    def made(kind: str, *inputs: str, outputs: Any = 1, **attrs: Any) -> Any:
        names = [f"{kind}{len(nodes)}_{k}" for k in range(outputs)]
        nodes.append(helper.make_node(kind, inputs, names, **attrs))
        return names if outputs > 1 else names[0]

    gates = made("Add", made("Add", "g", made("MatMul", "s", "al.w")), made("MatMul", "h", "al.r"))
    i, o, f, new = made("Split", gates, outputs=4, axis=1, num_outputs=4)
    i, o, f, new = (*(made("Sigmoid", v) for v in (i, o, f)), made("Tanh", new))
    cell = made("Add", made("Mul", f, "c"), made("Mul", i, new))
    state = made("Mul", o, made("Tanh", cell))
    one, last = (made("Constant", value_ints=[k]) for k in (1, -1))
    query = made("Unsqueeze", made("MatMul", state, "al.query"), one)
    score = made("Mul", made("Tanh", made("Add", "al.keys", query)), "al.v")
    score = made("Add", made("ReduceSum", score, last, keepdims=0), "al.hidden")
    weights = made("Unsqueeze", made("Softmax", score, axis=-1), one)
    saw = made("Squeeze", made("MatMul", weights, "al.memory"), one)
    if layer:
        saw = made("Add", made("MatMul", state, "al.cell"), made("MatMul", saw, "al.context"))
    zero = made("Constant", value_float=0.0)
    kept = [made("Where", "on", a, b) for a, b in ((state, "h"), (cell, "c"), (saw, "s"))]
    row = made("Where", "on", state, zero)
    kinds = {"on": TensorProto.BOOL}
    given, results = (
        [helper.make_tensor_value_info(k, kinds.get(k, TensorProto.FLOAT), None) for k in names]
        for names in (["h", "c", "s", "g", "on"], [*kept, row])
    )
    return helper.make_graph(nodes, "step", given, results)
