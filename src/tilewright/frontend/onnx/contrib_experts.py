"""Translators of the mixtures of experts of `com.microsoft`: each token goes through the few
experts that its router's scores choose.

Many tokens pass all experts as two products, hidden numbers times a gate that is 0 where an expert
was not chosen; where fewer experts are chosen than there are, their weights alone are read.

Source of their meaning: onnxruntime's docs/ContribOperators.md; the tests compare with onnxruntime.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.frontend.onnx.contrib import DOMAIN, results, split_bits
from tilewright.frontend.onnx.data_dependent import op
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.graph import sizes
from tilewright.graph.graph import Value
from tilewright.ir.expr import as_int
from tilewright.support.record import record


@record
class Layer:
    """Weights [experts, out, in] and perhaps a bias [experts, out]."""

    weights: Value
    bias: Value | None

    def of(self, n: NodeContext, chosen: Value) -> Layer:
        """Of the experts at these indices [count] alone."""
        bias = None if self.bias is None else op(n, "gather", self.bias, chosen, axis=0)
        return Layer(op(n, "gather", self.weights, chosen, axis=0), bias)


@translates("MoE", domain=DOMAIN)
def experts(n: NodeContext) -> Any:
    """Layers of experts with constant or computed weights."""
    layers = [None if n.optional(k) is None else Layer(n[k], n.optional(k + 1)) for k in (2, 4, 6)]
    return mixture(n, layers, None)


@translates("QMoE", domain=DOMAIN)
def experts_of_few_bits(n: NodeContext) -> Any:
    """The same; weights of 4 or 8 bits are unpacked when compiling."""
    layers = [
        None if n.optional(k) is None else Layer(unpacked(n, k, name), n.optional(k + 2))
        for k, name in ((2, "fc1"), (5, "fc2"), (8, "fc3"))
    ]
    return mixture(n, layers, n.optional(14))


def unpacked(n: NodeContext, k: int, name: str) -> Value:
    """The weights at input `k` as numbers of the input's dtype: (q - zero) · scale of its block."""
    if (n.text("quant_type") or "int") != "int":
        raise Refusal("its weights are small floats, which onnxruntime has for GPUs alone")
    bits = n.int(f"{name}_expert_weight_bits", n.int("expert_weight_bits", 4))
    if bits not in (2, 4, 8):
        raise Refusal(f"it needs weights of 2, 4 or 8 bits, not {bits}")
    q = split_bits(n.array(k), bits).astype(np.float32)
    scales = n.array(k + 1).astype(np.float32)
    scales = scales.reshape(*q.shape[:2], -1)
    blocks, position = scales.shape[2], {"fc1": 11, "fc2": 12, "fc3": 13}[name]
    zeros: Any = np.float32(1 << (bits - 1))
    if n.optional(position) is not None:
        given = split_bits(n.array(position), bits)
        given = given[..., :blocks] if given.ndim == 3 else given[:, : q.shape[1], None]
        zeros = spread(given.astype(np.float32), q.shape[2])
    return n.constant(((q - zeros) * spread(scales, q.shape[2])).astype(n[0].dtype.numpy))


def spread(of: np.ndarray, count: int) -> np.ndarray:
    """One for each block along the last axis, as one for each number."""
    return np.repeat(of, -(-count // of.shape[2]), axis=2)[:, :, :count]


def mixture(n: NodeContext, layers: list[Layer | None], mixing: Value | None) -> Any:
    """What the chosen experts make of tokens [T, H] or [B, S, H], added by their routing weights,
    for which `mixing` [T, experts] has numbers of its own."""
    first, second, third = layers
    if first is None or second is None or n.flag("use_sparse_mixer"):
        raise Refusal("it needs two layers, and a router that is no sparse mixer")
    x, k = n[0], n.int("k", 1)
    tokens = sizes.product(x.shape[:-1])
    flat = op(n, "reshape", x, shape=(tokens, x.shape[-1]))
    routing, chosen = routed(n, op(n, "reshape", n[1], shape=(tokens, n[1].shape[-1])), k, mixing)
    count = as_int(n[1].shape[-1])
    few = as_int(tokens)
    activate = activation(n, third is not None)
    used = [first, second, *([] if third is None else [third])]
    if few is not None and count is not None and few * k < count:
        y = of_the_chosen(n, flat, used, routing, chosen, activate)
    else:
        y = of_all(n, flat, used, routing, chosen, activate)
    return n.emit("reshape", y, shape=x.shape)


def routed(n: NodeContext, scores: Value, k: int, mixing: Value | None) -> tuple[Value, Value]:
    """The routing weights of the k experts of greatest scores, f32 [T, k], and which they are."""
    scores = n.wide(scores)
    best, chosen = n.build.emit("top_k", scores, k=k)
    alone = n.flag("normalize_routing_weights")
    if mixing is not None:
        routing = op(n, "gather_elements", n.wide(mixing), chosen, axis=1)
        total = op(n, "reduce_sum", routing, axes=(1,), keepdims=True)
        return (op(n, "div", routing, total) if alone else routing), chosen
    if alone:
        return op(n, "softmax", best), chosen
    return op(n, "gather_elements", op(n, "softmax", scores), chosen, axis=1), chosen


Activation = Callable[[Value, Value | None], Value]


def activation(n: NodeContext, gated: bool) -> Activation:
    """Of hidden numbers [..., I] and of those of a third layer, which they gate."""
    kind, fusion = n.text("activation_type") or "relu", n.int("swiglu_fusion", 0)
    if kind not in ("relu", "gelu", "silu", "identity", "swiglu"):
        raise Refusal(f"its activation {kind!r} is not known")
    if kind == "swiglu" and gated == (fusion in (1, 2)):
        raise Refusal("swiglu needs a third layer, or both parts in the first (swiglu_fusion)")
    if n.flag("swiglu_limit_after_activation"):
        raise Refusal("its limit behind the activation is for GPUs alone in onnxruntime")

    def plain(hidden: Value, linear: Value | None) -> Value:
        y = n.wide(hidden)
        if kind != "identity":
            attrs: dict[str, Any] = {"tanh": True} if kind == "gelu" else {}
            y = op(n, kind, y, **attrs)
        y = y if linear is None else op(n, "mul", y, n.wide(linear))
        return n.narrowed(y, hidden.dtype)

    def swiglu(hidden: Value, linear: Value | None) -> Value:
        gate, straight = (
            parted(n, hidden, fusion) if linear is None else (n.wide(hidden), n.wide(linear))
        )
        limit = n.float("swiglu_limit", float("inf"))
        if np.isfinite(limit):
            gate = op(n, "minimum", gate, n.constant(limit, "f32"))
            straight = op(n, "clip", straight, low=-limit, high=limit)
        slope = op(n, "mul", gate, n.constant(n.float("activation_alpha", 1.0), "f32"))
        straight = op(n, "add", straight, n.constant(n.float("activation_beta", 0.0), "f32"))
        y = op(n, "mul", op(n, "mul", gate, op(n, "sigmoid", slope)), straight)
        return n.narrowed(y, hidden.dtype)

    return swiglu if kind == "swiglu" else plain


def parted(n: NodeContext, hidden: Value, fusion: int) -> list[Value]:
    """The gate and what it gates, f32: in turn (fusion 1) or one behind the other."""
    lead, half = hidden.shape[:-1], sizes.size(hidden.shape[-1] // 2)
    zeros, ones = (0,) * len(lead), (1,) * len(lead)
    starts, step = ((0, 1), 2) if fusion == 1 else ((0, half), 1)
    return [
        n.wide(op(n, "slice", hidden, starts=(*zeros, s), shape=(*lead, half), steps=(*ones, step)))
        for s in starts
    ]


def of_all(
    n: NodeContext,
    x: Value,
    layers: list[Layer],
    routing: Value,
    chosen: Value,
    activate: Activation,
) -> Value:
    """All experts side by side in two products, those that are not chosen times 0."""
    second, tokens = layers[1], x.shape[0]
    count, out, deep = second.weights.shape

    def through(layer: Layer) -> Value:
        rows = sizes.size(count * layer.weights.shape[1])
        weights = op(n, "reshape", layer.weights, shape=(rows, x.shape[1]))
        y = op(n, "matmul", x, weights, transpose_b=True)
        if layer.bias is not None:
            y = op(n, "add", y, op(n, "reshape", layer.bias, shape=(rows,)))
        return op(n, "reshape", y, shape=(tokens, count, layer.weights.shape[1]))

    none = op(n, "full", shape=(tokens, count), value=0, of="f32")
    gate = op(n, "scatter_elements", none, chosen, routing, axis=1)
    gate = n.narrowed(gate, x.dtype)
    hidden = activate(through(layers[0]), through(layers[2]) if len(layers) > 2 else None)
    hidden = op(n, "mul", hidden, op(n, "reshape", gate, shape=(tokens, count, 1)))
    wide = sizes.size(count * deep)
    weights = op(n, "transpose", second.weights, perm=(1, 0, 2))
    weights = op(n, "reshape", weights, shape=(out, wide))
    hidden = op(n, "reshape", hidden, shape=(tokens, wide))
    y = op(n, "matmul", hidden, weights, transpose_b=True)
    return y if second.bias is None else op(n, "add", y, op(n, "matmul", gate, second.bias))


def of_the_chosen(
    n: NodeContext,
    x: Value,
    layers: list[Layer],
    routing: Value,
    chosen: Value,
    activate: Activation,
) -> Value:
    """Each pair of a token and an expert by itself: the weights of the others are not read."""
    (tokens, width), k = x.shape, chosen.shape[1]
    pairs = sizes.size(tokens * k)
    chosen = op(n, "reshape", chosen, shape=(pairs,))
    rows = op(n, "reshape", x, shape=(tokens, 1, width))
    rows = op(n, "expand", rows, shape=(tokens, k, width))
    rows = op(n, "reshape", rows, shape=(pairs, 1, width))

    def through(layer: Layer, y: Value) -> Value:
        own = layer.of(n, chosen)
        y = op(n, "matmul", y, own.weights, transpose_b=True)
        if own.bias is None:
            return y
        return op(n, "add", y, op(n, "reshape", own.bias, shape=(pairs, 1, own.bias.shape[1])))

    beside = through(layers[2], rows) if len(layers) > 2 else None
    y = n.wide(through(layers[1], activate(through(layers[0], rows), beside)))
    y = op(n, "mul", y, op(n, "reshape", routing, shape=(pairs, 1, 1)))
    y = op(n, "reduce_sum", op(n, "reshape", y, shape=(tokens, k, y.shape[2])), axes=(1,))
    return n.narrowed(y, x.dtype)


@translates("MoEGroupRouter", domain=DOMAIN)
def routed_by_groups(n: NodeContext) -> Any:
    """log(sigmoid) of the k experts of greatest biased scores in the groups whose greatest few have
    the greatest sums, a sentinel for the others; or all scores with and without bias."""
    x, bias, weights = n.wide(n[0]), n[1], n.optional(2)
    if weights is not None:
        x = op(n, "matmul", x, n.wide(weights), transpose_b=True)
    count = x.shape[-1]
    tokens = sizes.product(x.shape[:-1])
    scores = op(n, "sigmoid", op(n, "reshape", x, shape=(tokens, count)))
    biased = op(n, "add", scores, bias)
    groups, many = n.int("n_group", 1), as_int(count)
    if many is None or groups < 1 or many % groups:
        raise Refusal(f"it needs a known number of experts in {groups} groups of one size")
    each, k = many // groups, n.int("top_k", 0)
    parted = op(n, "reshape", biased, shape=(tokens, groups, each))
    best, _ = n.build.emit("top_k", parted, k=min(n.int("group_topk", 2), each))
    of_group = op(n, "reduce_sum", best, axes=(2,))
    is_open = among_best(n, of_group, min(n.int("topk_group", 1), groups))
    is_open = op(n, "reshape", is_open, shape=(tokens, groups, 1))
    within = op(n, "where", is_open, parted, n.constant(-np.inf, "f32"))
    chosen = among_best(n, op(n, "reshape", within, shape=(tokens, count)), k)
    logs = op(n, "log", op(n, "maximum", scores, n.constant(1e-20, "f32")))
    y = op(n, "where", chosen, logs, n.constant(n.float("router_sentinel", -10000.0), "f32"))
    return results(n, n.narrowed(y, n[0].dtype), biased, scores)


def among_best(n: NodeContext, scores: Value, k: int) -> Value:
    """Which scores [T, N] are among the k greatest of their row."""
    _, chosen = n.build.emit("top_k", scores, k=k)
    at = op(n, "reshape", op(n, "arange", length=scores.shape[1]), shape=(1, scores.shape[1], 1))
    chosen = op(n, "reshape", chosen, shape=(scores.shape[0], 1, k))
    return op(n, "reduce_any", op(n, "equal", chosen, at), axes=(2,))
