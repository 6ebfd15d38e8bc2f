"""Translators of `com.microsoft` operators that exports of transformers contain: decompositions.

Source of their meaning: onnxruntime's docs/ContribOperators.md; the tests compare with onnxruntime.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.graph import sizes
from tilewright.graph.bounds import from_start
from tilewright.graph.graph import Value
from tilewright.ir.expr import as_int

DOMAIN = "com.microsoft"


def channels_first(n: NodeContext, x: Value) -> Value:
    """[batch, …, channels] → [batch, channels, …]"""
    return n.build.emit("transpose", x, perm=(0, x.rank - 1, *range(1, x.rank - 1)))


def channels_last(n: NodeContext, x: Value) -> Value:
    """[batch, channels, …] → [batch, …, channels]: the output."""
    return n.emit("transpose", x, perm=(0, *range(2, x.rank), 1))


# Activations --------------------------------------------------------------------------------------


@translates("Gelu", "BiasGelu", "FastGelu", domain=DOMAIN)
def gelu(n: NodeContext) -> Any:
    """By erf; FastGelu by tanh. A bias is added first."""
    x, bias = n[0], n.optional(1)
    x = x if bias is None else n.build.emit("add", x, bias)
    return n.emit("gelu", x, tanh=n.op == "FastGelu")


@translates("QuickGelu", domain=DOMAIN)
def quick_gelu(n: NodeContext) -> Any:
    """x · sigmoid(alpha x)"""
    x = n[0]
    scaled = n.build.emit("mul", x, n.constant(n.float("alpha", 1.702), x.dtype))
    return n.emit("mul", x, n.build.emit("sigmoid", scaled))


# Normalisations -----------------------------------------------------------------------------------


@translates("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=DOMAIN)
def skip_norm(n: NodeContext) -> Any:
    """The norm of input + skip (+ bias), and that sum."""
    simple = n.op == "SkipSimplifiedLayerNormalization"
    x, scale, beta = n[0], n[2], None if simple else n.optional(3)
    bias = n.optional(3 if simple else 4)
    total = n.build.emit("add", x, n[1])
    total = total if bias is None else n.build.emit("add", total, bias)
    y = normalised(n, total, scale, beta, simple)
    return results(n, y, None, None, total)


def normalised(
    n: NodeContext, x: Value, scale: Value, beta: Value | None, simple: bool = False
) -> Value:
    """Over the last axis."""
    eps = n.float("epsilon", 1e-12)
    if simple:
        return n.emit("rms_norm", x, scale, eps=eps)
    return n.emit("layer_norm", x, *([scale] if beta is None else [scale, beta]), eps=eps)


def results(n: NodeContext, *made: Value | None) -> Any:
    """As many outputs as the node has. Raises Refusal where one is wanted that is not made."""
    names = list(n.node.output)
    for k, name in enumerate(names):
        if name and (k >= len(made) or made[k] is None):
            raise Refusal(f"its output {k} ('{name}') is for training")
    found = tuple(made[: len(names)])
    return found[0] if len(found) == 1 else found


@translates("EmbedLayerNormalization", domain=DOMAIN)
def embed_norm(n: NodeContext) -> Any:
    """The norm of word, position and segment embeddings; how many words count; their sum."""
    total, counted = embedded(n, n[2], n[3], n.optional(4), n.optional(7), n.optional(8))
    return results(n, normalised(n, total, n[5], n[6]), counted, total)


def embedded(
    n: NodeContext,
    words: Value,
    positions: Value,
    kinds: Value | None,
    mask: Value | None,
    at: Value | None,
) -> tuple[Value, Value]:
    """The sum of the embeddings of words (input 0), of where they stand (0, 1, … or `at`) and of
    their segments (input 1); and how many words of each row the mask counts, i32."""
    ids, segments = n.checked(n[0], from_start(words.shape[0])), n.optional(1)
    batch, length = ids.shape
    total = n.build.emit("gather", words, ids, axis=0)
    if at is None:
        table = n.build.emit("slice", positions, starts=(0, 0), shape=(length, positions.shape[1]))
    else:
        at = n.checked(at, from_start(positions.shape[0]))
        table = n.build.emit("gather", positions, at, axis=0)
    total = n.build.emit("add", total, table)
    if segments is not None and kinds is not None:
        segments = n.checked(segments, from_start(kinds.shape[0]))
        total = n.build.emit("add", total, n.build.emit("gather", kinds, segments, axis=0))
    if mask is None:
        return total, n.build.emit("full", shape=(batch,), value=0, of="i32")
    return total, n.build.emit("reduce_sum", n.build.emit("cast", mask, to="i32"), axes=(1,))


# Rotary positions ---------------------------------------------------------------------------------


@translates("RotaryEmbedding", "MRotaryEmbedding", domain=DOMAIN)
def rotary(n: NodeContext) -> Any:
    """Pairs of numbers of each head rotated by the angle of their position; or (MRotary) by that of
    one of three positions, of which each pair has its own."""
    x, positions = n[0], n[1]
    half = as_int(n[2].shape[1])
    if half is None or x.rank not in (3, 4):
        raise Refusal("it needs an input of rank 3 or 4 and a table of known width")
    if x.rank == 4:
        batch, heads, length, depth = x.shape
        y = n.build.emit("transpose", x, perm=(0, 2, 1, 3))
    else:
        batch, length, hidden = x.shape
        count = n.int("num_heads", 0)
        depth = sizes.size(hidden // count if n.int("rotary_embedding_dim", 0) else 2 * half)
        heads = sizes.size(hidden // depth)
        y = n.build.emit("reshape", x, shape=(batch, length, heads, depth))
    if as_int(positions.elements) == 1 and positions.rank == 1:  # where the first word stands
        steps = n.build.emit("arange", length=length)
        positions = n.build.emit("add", steps, n.build.emit("cast", positions, to="i64"))
        positions = n.build.emit("reshape", positions, shape=(1, length))
    positions = n.checked(positions, from_start(n[2].shape[0]))
    if n.op == "MRotaryEmbedding":
        angle = [of_three(n, t, positions, half) for t in (n[2], n[3])]
    else:
        angle = [n.build.emit("gather", t, positions, axis=0) for t in (n[2], n[3])]
    y = rotated_by(n, y, angle, n.flag("interleaved"))
    if x.rank == 4:
        return n.emit("transpose", y, perm=(0, 2, 1, 3))
    return n.emit("reshape", y, shape=x.shape)


def of_three(n: NodeContext, table: Value, positions: Value, half: int) -> Value:
    """[B, S, half] of a table [most, half]: each column at one of the positions [3, B, S], in three
    sections, or in turn with what is left of the first behind them."""
    sections = n.ints("mrope_section", ())
    if len(sections) != 3 or sum(sections) != half or n.flag("is_packed_batching"):
        raise Refusal(f"it needs three sections that make up {half}, and batches not packed")
    which = np.repeat(np.arange(3), sections)
    if n.int("mrope_layout", 0) == 1:
        which = np.zeros(half, int)
        for k in (1, 2):
            which[k : sections[k] * 3 : 3] = k
    found = n.build.emit("gather", table, positions, axis=0)
    lead = found.shape[1:]
    parts = [
        n.build.emit(
            "reshape",
            n.build.emit("slice", found, starts=(k, 0, 0, 0), shape=(1, *lead)),
            shape=lead,
        )
        for k in range(3)
    ]
    y = n.build.emit("where", n.constant(which == 1), parts[1], parts[0])
    return n.build.emit("where", n.constant(which == 2), parts[2], y)


def rotated(
    n: NodeContext, x: Value, positions: Value, cos: Value, sin: Value, interleaved: bool
) -> Value:
    """x[B, S, N, D], its first 2·width(cos) numbers rotated by the angles at positions[B, S]."""
    return rotated_by(
        n, x, [n.build.emit("gather", t, positions, axis=0) for t in (cos, sin)], interleaved
    )


def rotated_by(n: NodeContext, x: Value, angle: list[Value], interleaved: bool) -> Value:
    """x[B, S, N, D], its first 2 H numbers rotated by angles: their cosines and sines [B, S, H]."""
    *lead, half = angle[0].shape
    angle, build = [n.build.emit("reshape", t, shape=(*lead, 1, half)) for t in angle], n.build
    width = sizes.size(half * 2)
    lead = x.shape[:3]

    def part(start: Any, count: Any, step: int = 1) -> Value:
        return build.emit(
            "slice", x, starts=(0, 0, 0, start), shape=(*lead, count), steps=(1, 1, 1, step)
        )

    a, b = (
        (part(0, half, 2), part(1, half, 2)) if interleaved else (part(0, half), part(half, half))
    )
    first = build.emit("sub", build.emit("mul", a, angle[0]), build.emit("mul", b, angle[1]))
    second = build.emit("add", build.emit("mul", b, angle[0]), build.emit("mul", a, angle[1]))
    if interleaved:
        pairs = [build.emit("reshape", v, shape=(*v.shape, 1)) for v in (first, second)]
        made = build.emit("concat", *pairs, axis=4)
        made = build.emit("reshape", made, shape=(*lead, width))
    else:
        made = build.emit("concat", first, second, axis=3)
    if width == x.shape[3]:
        return made
    return build.emit("concat", made, part(width, sizes.size(x.shape[3] - width)), axis=3)


# Weights of few bits ------------------------------------------------------------------------------


@translates("MatMulNBits", domain=DOMAIN)
def matmul_few_bits(n: NodeContext) -> Any:
    """x · Wᵀ; W, of 2, 4 or 8 bits in blocks along its rows, is unpacked when compiling."""
    x, bias = n[0], n.optional(5)
    weights = n.constant(unpacked(n).astype(x.dtype.numpy))
    y = n.emit("matmul", x, weights, transpose_b=True)
    return y if bias is None else n.emit("add", y, bias)


def unpacked(n: NodeContext) -> np.ndarray:
    """The weights [N, K] as f32."""
    rows, columns, block, bits = n.int("N"), n.int("K"), n.int("block_size"), n.int("bits", 4)
    if None in (rows, columns, block) or bits not in (2, 4, 8) or block < 1:
        raise Refusal(f"it needs N, K and block_size, and 2, 4 or 8 bits, not {bits}")
    blocks = -(-columns // block)
    q = split_bits(n.array(1).reshape(rows, blocks, -1), bits)[:, :, :block].astype(np.float32)
    scales = n.array(2).astype(np.float32).reshape(rows, blocks, 1)
    zeros: Any = float(1 << (bits - 1))
    if n.optional(3) is not None:
        given = n.array(3)
        if given.dtype == np.uint8:
            given = split_bits(given.reshape(rows, -1), bits)[:, :blocks]
        zeros = given.astype(np.float32).reshape(rows, blocks, 1)
    if n.optional(4) is not None:
        group = n.array(4)[:columns]
        flat = q.reshape(rows, -1)[:, :columns]
        if np.ndim(zeros):
            zeros = zeros[:, group, 0]
        return (flat - zeros) * scales[:, group, 0]
    return ((q - zeros) * scales).reshape(rows, -1)[:, :columns]


def split_bits(packed: np.ndarray, bits: int) -> np.ndarray:
    """Numbers of `bits` bits from bytes, the low ones first, along the last axis."""
    parts = [(packed >> s) & ((1 << bits) - 1) for s in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(*packed.shape[:-1], -1)
