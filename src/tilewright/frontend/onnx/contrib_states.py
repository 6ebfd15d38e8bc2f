"""Translators of the `com.microsoft` operators of models that carry a state from word to word:
linear attention with its gates, causal convolutions, streams that are mixed.

Source of their meaning: onnxruntime's docs/ContribOperators.md; the tests compare with onnxruntime.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontend.onnx.contrib import DOMAIN, results
from tilewright.frontend.onnx.data_dependent import I64, op
from tilewright.frontend.onnx.messages import GraphProto, TensorProto
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.graph import sizes
from tilewright.graph.graph import Value
from tilewright.ir.expr import Expr, as_int

# Linear attention ---------------------------------------------------------------------------------


@translates("LinearAttention", domain=DOMAIN)
def linear_attention(n: NodeContext) -> Any:
    """A state [B, H, K, V] of each head that every step decays, adds k ⊗ v to (or what v is more
    than the state gives for k), and reads by q; f32."""
    rule = n.text("update_rule") or "gated_delta"
    heads, few = n.int("q_num_heads"), n.int("kv_num_heads")
    if rule not in ("linear", "gated", "delta", "gated_delta") or not heads or not few:
        raise Refusal(f"it needs q_num_heads, kv_num_heads and a known rule, not {rule!r}")
    if heads % few and few % heads:
        raise Refusal(f"its {heads} heads of queries and {few} of keys do not divide each other")
    if n.int("state_window", 0):
        raise Refusal("several states (state_window) are for GPUs alone in onnxruntime")
    (batch, length, _), groups = n[0].shape, max(heads, few)
    depth, width = sizes.size(n[0].shape[2] // heads), sizes.size(n[2].shape[2] // few)

    def by_step(k: int, count: int, size: Any) -> Value:
        """Input `k` as [T, B, heads of keys, of queries that share one, size]."""
        x = op(n, "reshape", n.wide(n[k]), shape=(batch, length, count, size))
        x = op(n, "transpose", x, perm=(1, 0, 2, 3))
        grouped = (few, count // few) if count >= few else (count, 1)
        return op(n, "reshape", x, shape=(length, batch, *grouped, size))

    inputs = {
        "q": by_step(0, heads, depth),
        "k": by_step(1, few, depth),
        "v": by_step(2, few, width),
    }
    if heads < few:  # several states share a query
        inputs["q"] = repeated(n, inputs["q"], few // heads)
    if "gated" in rule:
        each = 1 if n[4].shape[2] == sizes.size(few) else depth
        g = op(n, "exp", by_step(4, few, each))
        inputs["g"] = op(n, "reshape", g, shape=(length, batch, few, each, 1))
    if "delta" in rule:
        one = n[5].shape[2] == sizes.size(1)
        b = by_step(5, few, 1) if not one else n.wide(n[5])
        if one:
            b = op(n, "transpose", b, perm=(1, 0, 2))
            b = op(n, "reshape", b, shape=(length, batch, 1, 1, 1))
        inputs["b"] = b
    state = n.optional(3)
    shape = (batch, few, depth, width)
    first = op(n, "full", shape=shape, value=0, of="f32") if state is None else n.wide(state)
    last, rows = n.apply(
        "Scan", first, *inputs.values(), body=recurrence(list(inputs)), num_scan_inputs=len(inputs)
    )
    scale = n.float("scale", 0.0)
    by = n.constant(scale, "f32") if scale else root_of(n, depth)
    rows = op(n, "transpose", op(n, "mul", rows, by), perm=(1, 0, 2, 3, 4))
    y = op(n, "reshape", rows, shape=(batch, length, sizes.size(width * groups)))
    kept = n[0].dtype if state is None else state.dtype
    return results(n, n.narrowed(y, n[0].dtype), n.narrowed(last, kept))


def repeated(n: NodeContext, q: Value, times: int) -> Value:
    """Queries [T, B, heads, 1, K], each for several states that follow each other."""
    *lead, heads, one, depth = q.shape
    q = op(n, "expand", q, shape=(*lead, heads, times, depth))
    return op(n, "reshape", q, shape=(*lead, sizes.size(heads * times), one, depth))


def root_of(n: NodeContext, depth: Expr) -> Value:
    """1 / √depth"""
    made = np.empty((), object)
    made[()] = depth
    return op(n, "rsqrt", op(n, "cast", n.build.from_sizes(made, I64), to="f32"))


def recurrence(names: list[str]) -> GraphProto:
    """One step: a state s[B, H, K, V], then q[B, H, G, K], k[B, H, 1, K], v[B, H, 1, V] and perhaps
    g (a factor of the state) and b (of what is added); the new state and o[B, H, G, V]."""
    from onnx import helper

    nodes, state = [], "s"

    def made(kind: str, *inputs: str, **attrs: Any) -> str:
        name = f"{kind}{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [name], **attrs))
        return name

    if "g" in names:
        state = made("Mul", state, "g")
    value = "v"
    if "b" in names:
        value = made("Mul", "b", made("Sub", "v", made("MatMul", "k", state)))
    state = made("Add", state, made("Mul", made("Transpose", "k", perm=[0, 1, 3, 2]), value))
    output = made("MatMul", "q", state)
    given, result = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in which]
        for which in (["s", *names], [state, output])
    )
    return helper.make_graph(nodes, "step", given, result)


@translates("LinearAttentionGate", domain=DOMAIN)
def linear_attention_gate(n: NodeContext) -> Any:
    """decay_scale · softplus(a + dt_bias), and sigmoid(b); f32 inside."""
    a, b = n[0], n.optional(3)
    decay = op(n, "softplus", op(n, "add", n.wide(a), n.wide(n[1])))
    decay = op(n, "mul", n.wide(n[2]), decay)
    beta = None if b is None else n.narrowed(op(n, "sigmoid", n.wide(b)), b.dtype)
    return results(n, n.narrowed(decay, a.dtype), beta)


# Convolutions -------------------------------------------------------------------------------------


def depthwise(n: NodeContext, x: Value, w: Value, bias: Value | None, dilation: int) -> Value:
    """x [B, C, L] and filters [C, 1, K] of each channel; of an open number of them, sums of windows
    times filters."""
    groups = as_int(w.shape[0])
    if groups is not None:
        window = {"strides": (1,), "pads": ((0, 0),), "dilations": (dilation,)}
        parts = [x, w] if bias is None else [x, w, bias]
        return n.build.emit("conv", *parts, **window, groups=groups)
    channels, _, taps = w.shape
    count = sizes.size(x.shape[2] - (taps - 1) * dilation)
    first = op(n, "reshape", op(n, "arange", length=count), shape=(count, 1))
    apart = op(n, "mul", op(n, "arange", length=taps), dilation)
    windows = op(n, "gather", x, op(n, "add", first, apart), axis=2)  # B, C, positions, K
    filters = op(n, "reshape", w, shape=(channels, 1, taps))
    y = op(n, "reduce_sum", op(n, "mul", windows, filters), axes=(3,))
    return y if bias is None else op(n, "add", y, op(n, "reshape", bias, shape=(channels, 1)))


@translates("CausalConvWithState")
@translates("CausalConvWithState", domain=DOMAIN)
def causal_conv(n: NodeContext) -> Any:
    """A depthwise convolution over what a state has and what follows; its end is the next state."""
    x, w, past = n[0], n[1], n.optional(3)
    last, dilation = n.flag("channels_last"), n.int("dilation", 1)
    kind = n.text("activation") or "none"
    special = ("state_window", "state_update_capacity", "state_length", "input_channel_offset")
    if n.int("ndim", 1) != 1 or dilation < 1 or any(n.int(name, 0) for name in special):
        raise Refusal("it needs one axis; windows of states are for GPUs alone in onnxruntime")
    if kind not in ("none", "silu", "swish"):
        raise Refusal(f"its activation {kind!r} is not known")
    outer, lead = x.shape, x.shape[0]
    back = sizes.size((w.shape[2] - 1) * dilation)
    channels = w.shape[0]

    def rows(x: Value) -> Value:
        """[B, C, L]"""
        if not last:
            return x
        x = op(n, "reshape", x, shape=(lead, x.shape[1], channels))
        return op(n, "transpose", x, perm=(0, 2, 1))

    def as_given(y: Value) -> Value:
        if not last:
            return y
        y = op(n, "transpose", y, perm=(0, 2, 1))
        return op(n, "reshape", y, shape=(lead, y.shape[1], *outer[2:]))

    if past is None:
        before = op(n, "full", shape=(lead, channels, back), value=0, of=x.dtype.name)
    else:
        before = rows(past)
    whole = op(n, "concat", before, rows(x), axis=2)
    y = depthwise(n, whole, w, n.optional(2), dilation)
    if kind != "none":
        y = op(n, "silu", y)
    starts = (0, 0, sizes.size(whole.shape[2] - back))
    state = op(n, "slice", whole, starts=starts, shape=(lead, channels, back))
    return results(n, as_given(y), as_given(state))


# Streams ------------------------------------------------------------------------------------------


def streams_of(n: NodeContext) -> Value:
    """Input 0 as [..., C, H]."""
    x, count = n[0], n.int("num_branches", 0)
    if not count:
        return x
    return op(n, "reshape", x, shape=(*x.shape[:-1], count, sizes.size(x.shape[-1] // count)))


def gates_of(n: NodeContext, k: int, like: Value) -> Value:
    """Gates (..., C), (..., C, 1), (..., C, H) or (..., C * H) as [..., C, 1 or H], f32."""
    x, (*lead, count, width) = n.wide(n[k]), like.shape
    if x.rank == like.rank:
        return x
    return op(n, "reshape", x, shape=(*lead, count, 1 if x.shape[-1] == count else width))


@translates("HyperConnectionPreMix", domain=DOMAIN)
def streams_to_one(n: NodeContext) -> Any:
    """The sum of the streams times their gates, scaled."""
    x = streams_of(n)
    y = op(n, "mul", n.wide(x), gates_of(n, 1, x))
    y = op(n, "reduce_sum", y, axes=(x.rank - 2,))
    y = op(n, "mul", y, n.constant(n.float("reduction_scale", 1.0), "f32"))
    return n.narrowed(y, x.dtype)


@translates("HyperConnectionPostMix", domain=DOMAIN)
def one_to_streams(n: NodeContext) -> Any:
    """Streams, perhaps mixed by a matrix, and what a block made times the gate of each."""
    x, block, mix = streams_of(n), n.wide(n[1]), n.optional(3)
    kept = n.wide(x)
    if mix is not None:
        order = (*range(x.rank - 2), x.rank - 1, x.rank - 2)
        kept = op(n, "matmul", op(n, "transpose", n.wide(mix), perm=order), kept)
    block = op(n, "reshape", block, shape=(*x.shape[:-2], 1, x.shape[-1]))
    y = op(n, "add", kept, op(n, "mul", gates_of(n, 2, x), block))
    return n.narrowed(op(n, "reshape", y, shape=n[0].shape), n[0].dtype)


@translates("EngramGate", domain=DOMAIN)
def engram_gate(n: NodeContext) -> Any:
    """Values of all streams times how similar the norms of keys and queries are: the sigmoid of the
    root of their product's size, with its sign."""
    key, query, value = n[0], n[1], n[2]
    (*lead, streams, width), eps = key.shape, n.float("epsilon", 1e-5)

    def normed(x: Value, k: int) -> Value:
        ones = op(n, "full", shape=(width,), value=1, of="f32")
        return op(n, "mul", op(n, "rms_norm", n.wide(x), ones, eps=eps), n.wide(n[k]))

    both = op(n, "mul", normed(key, 3), normed(query, 4))
    dot = op(n, "mul", op(n, "reduce_sum", both, axes=(key.rank - 1,), keepdims=True),
             root_of(n, width))  # fmt: skip
    size = op(n, "sqrt", op(n, "maximum", op(n, "abs", dot), n.constant(1e-6, "f32")))
    gate = op(n, "sigmoid", op(n, "mul", op(n, "sign", dot), size))
    value = op(n, "reshape", n.wide(value), shape=(*lead, 1, width))
    y = op(n, "mul", gate, op(n, "expand", value, shape=(*lead, streams, width)))
    beside = None if n.optional(5) is None else n.narrowed(normed(y, 5), key.dtype)
    return results(n, n.narrowed(y, key.dtype), beside)
