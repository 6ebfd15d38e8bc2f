"""Translators of the attention operators of `com.microsoft`: products, a softmax, masks and caches.

Heads are an axis: queries [B, N, S, H], keys and values [B, N, T, H], where T counts the past too.
Source of their meaning: onnxruntime's docs/ContribOperators.md; the tests compare with onnxruntime.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontend.onnx import data_dependent
from tilewright.frontend.onnx.contrib import DOMAIN, results, rotated
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.graph import sizes
from tilewright.graph.bounds import from_start
from tilewright.graph.graph import Value
from tilewright.ir.expr import BinaryOp, Expr, as_int, binary


def heads_of(n: NodeContext, x: Value, count: int) -> Value:
    """[B, S, N·H] → [B, N, S, H]"""
    depth = sizes.size(x.shape[2] // count)
    y = n.build.emit("reshape", x, shape=(*x.shape[:2], count, depth))
    return n.build.emit("transpose", y, perm=(0, 2, 1, 3))


def joined(n: NodeContext, x: Value) -> Value:
    """[B, N, S, H] → [B, S, N·H]: the output."""
    batch, heads, length, depth = x.shape
    y = n.build.emit("transpose", x, perm=(0, 2, 1, 3))
    return n.emit("reshape", y, shape=(batch, length, sizes.size(heads * depth)))


def after(n: NodeContext, past: Value | None, x: Value) -> Value:
    """x along the third axis behind what was there before."""
    return x if past is None else n.build.emit("concat", past, x, axis=2)


def attend(
    n: NodeContext, q: Value, k: Value, v: Value, scale: float, masks: list[Value],
    sink: Value | None = None,
) -> Value:  # fmt: skip
    """softmax(q kᵀ · scale + masks) v. Queries [B, M, G, S, H] may share keys [B, M, 1, T, H]. A
    `sink` is one score more, which takes its weight and gives nothing."""
    emit = n.build.emit
    scores = emit("mul", emit("matmul", q, k, transpose_b=True), n.constant(scale, q.dtype))
    cap = n.float("softcap", 0.0)
    if cap:
        bound = n.constant(cap, q.dtype)
        scores = emit("mul", emit("tanh", emit("div", scores, bound)), bound)
    for mask in masks:
        scores = emit("add", scores, mask)
    if sink is None:
        return emit("matmul", emit("softmax", scores), v)
    count = scores.shape[-1]
    beside = emit("expand", sink, shape=(*scores.shape[:-1], 1))
    weights = emit("softmax", emit("concat", scores, beside, axis=scores.rank - 1))
    starts = (0,) * scores.rank
    weights = emit("slice", weights, starts=starts, shape=(*scores.shape[:-1], count))
    return emit("matmul", weights, v)


def scale_of(n: NodeContext, q: Value) -> float:
    given, depth = n.float("scale", 0.0), as_int(q.shape[-1])
    if not given and depth is None:
        raise Refusal("it needs a known size of its heads, or a scale")
    return given or 1 / float(np.sqrt(depth))


def positions(n: NodeContext, length: Expr, shape: tuple[int, ...], start: Any = 0) -> Value:
    """start, start + 1, … along one axis of `shape`, which has -1 there."""
    steps = n.build.emit("arange", length=length)
    if as_int(start) != 0:
        made = np.empty((1,), object)
        made[0] = start
        steps = n.build.emit("add", steps, n.build.from_sizes(made, data_dependent.I64))
    return n.build.emit("reshape", steps, shape=tuple(length if s == -1 else s for s in shape))


def hidden_where(n: NodeContext, shown: Value, like: Value, by: float) -> Value:
    """0 where it is shown, else `by`: a mask to be added."""
    return n.build.emit("where", shown, n.constant(0.0, like.dtype), n.constant(by, like.dtype))


def causal(n: NodeContext, q: Value, length: Expr, total: Expr, window: int = -1) -> Value:
    """Hides what comes later, and what is `window` positions back or more."""
    row = positions(n, length, (-1, 1), sizes.size(total - length))
    column = positions(n, total, (1, -1))
    shown = n.build.emit("less_equal", column, row)
    if window > 0:
        near = n.build.emit("greater", column, data_dependent.op(n, "sub", row, window))
        shown = n.build.emit("logical_and", shown, near)
    return hidden_where(n, shown, q, float(np.finfo(np.float32).min) / 2)


def padding(n: NodeContext, mask: Value, q: Value, total: Expr) -> Value:
    """Hides keys by a mask [B, T] or [B, S, T] of 0 and 1, by lengths [B], or by ends and starts
    [2·B]."""
    emit, batch, by = n.build.emit, q.shape[0], n.float("mask_filter_value", -10000.0)
    if mask.rank == 1:
        ends = emit("cast", mask, to="i64")
        column = positions(n, total, (1, 1, 1, -1))
        parts = [ends]
        if mask.shape[0] != batch:
            if sizes.size(batch * 2) != mask.shape[0]:
                raise Refusal("its mask has neither one nor two numbers for each sequence")
            parts = [emit("slice", ends, starts=(k,), shape=(batch,)) for k in (0, batch)]
        parts = [emit("reshape", p, shape=(batch, 1, 1, 1)) for p in parts]
        shown = emit("less", column, parts[0])
        if len(parts) > 1:
            shown = emit("logical_and", shown, emit("greater_equal", column, parts[1]))
        return hidden_where(n, shown, q, by)
    if mask.rank not in (2, 3):
        raise Refusal(f"a mask of rank {mask.rank} is not supported")
    lead = (mask.shape[0], 1, *((1,) if mask.rank == 2 else ()), *mask.shape[1:])
    shown = data_dependent.op(n, "greater", emit("cast", mask, to="i64"), 0)
    return hidden_where(n, emit("reshape", shown, shape=lead), q, by)


@translates("Attention", domain=DOMAIN)
def attention(n: NodeContext) -> Any:
    """One product makes queries, keys and values; the cache holds keys, then values."""
    y = n.build.emit("matmul", n[0], n[1])
    y = y if n.optional(2) is None else n.build.emit("add", y, n[2])
    return attention_of(n, y, n.optional(3), n.optional(4), n.optional(5))


def attention_of(
    n: NodeContext, y: Value, mask: Value | None, past: Value | None, bias: Value | None
) -> Any:
    """Of queries, keys and values side by side in y[B, S, 3·N·H]."""
    emit, heads = n.build.emit, n.int("num_heads")
    if not heads or n.flag("do_rotary") or n.flag("past_present_share_buffer"):
        raise Refusal("it needs num_heads; rotary positions and shared caches are not supported")
    third = sizes.size(y.shape[2] // 3)
    widths = n.ints("qkv_hidden_sizes") or (third, third, third)
    parts, start = [], sizes.size(0)
    for width in widths:
        part = emit("slice", y, starts=(0, 0, start), shape=(*y.shape[:2], width))
        parts.append(heads_of(n, part, heads))
        start = sizes.size(start + width)
    q, k, v = parts
    if past is not None:
        old = [
            emit(
                "reshape", emit("slice", past, starts=(j, 0, 0, 0, 0), shape=(1, *past.shape[1:])),
                shape=past.shape[1:],
            )
            for j in (0, 1)
        ]  # fmt: skip
        k, v = after(n, old[0], k), after(n, old[1], v)
    made = joined(n, attend(n, q, k, v, scale_of(n, q), masks_of(n, q, k, mask, bias)))
    present = None
    if len(n.node.output) > 1:
        both = [emit("reshape", t, shape=(1, *t.shape)) for t in (k, v)]
        present = emit("concat", *both, axis=0)
    return results(n, made, present)


def masks_of(
    n: NodeContext, q: Value, k: Value, mask: Value | None, bias: Value | None
) -> list[Value]:
    length, total = q.shape[2], k.shape[2]
    masks = [] if bias is None else [bias]
    if mask is not None:
        masks.append(padding(n, mask, q, total))
    if n.flag("unidirectional"):
        masks.append(causal(n, q, length, total))
    return masks


@translates("MultiHeadAttention", domain=DOMAIN)
def multi_head_attention(n: NodeContext) -> Any:
    """Queries, keys and values come as they are, with one bias for the three."""
    heads, q, k, v, bias = n.int("num_heads"), n[0], n.optional(1), n.optional(2), n.optional(3)
    if not heads or k is None or v is None or q.rank != 3:
        raise Refusal("it needs num_heads, and queries, keys and values apart")
    start, made = sizes.size(0), []
    for x in (q, k, v):
        if x.rank == 4:  # heads apart already: of another sequence
            made.append(x)
            continue
        if bias is not None:
            part = n.build.emit("slice", bias, starts=(start,), shape=x.shape[2:])
            start, x = sizes.size(start + x.shape[2]), n.build.emit("add", x, part)
        made.append(heads_of(n, x, heads))
    q, k, v = made[0], after(n, n.optional(6), made[1]), after(n, n.optional(7), made[2])
    masks = masks_of(n, q, k, n.optional(4), n.optional(5))
    return results(n, joined(n, attend(n, q, k, v, scale_of(n, q), masks)), k, v)


@translates("DecoderMaskedMultiHeadAttention", domain=DOMAIN)
def decoder_attention(n: NodeContext) -> Any:
    """One query a sequence: of keys apart [B, N, T, H], or of those in a buffer, where the new one
    goes to the position that `past_sequence_length` tells."""
    heads, q, k, v = n.int("num_heads"), n[0], n.optional(1), n.optional(2)
    if not heads or len(n.node.output) > 3 or n.flag("output_qk"):
        raise Refusal("it needs num_heads; scores as a result are not supported")
    if n.optional(9) is not None:
        raise Refusal("caches of beams (cache_indirection) are not supported")
    bias = n.optional(10)
    if k is not None and v is not None and k.rank == 4:
        if bias is not None:
            q = n.build.emit("add", q, n.build.emit("slice", bias, starts=(0,), shape=q.shape[2:]))
        q = heads_of(n, q, heads)
        masks = masks_of(n, q, k, n.optional(3), n.optional(4))
        return results(n, joined(n, attend(n, q, k, v, scale_of(n, q), masks)))
    if not n.flag("past_present_share_buffer"):
        raise Refusal("its cache has to be a buffer (past_present_share_buffer)")
    q, k, v = apart(n, heads, heads)
    if bias is not None:
        start, parts = sizes.size(0), []
        for x in (q, k, v):
            own = n.build.emit("slice", bias, starts=(start,), shape=x.shape[2:])
            start = sizes.size(start + x.shape[2])
            parts.append(n.build.emit("add", x, own))
        q, k, v = parts
    q, k, v = (heads_of(n, x, heads) for x in (q, k, v))
    room = n[5].shape[2]
    position = n.build.emit("cast", n.build.emit("reshape", n[7], shape=(1, 1)), to="i64")
    position = n.checked(position, from_start(room))
    masked = next((x for x in (n.optional(3), n.optional(4)) if x is not None), None)
    if masked is not None:
        total = masked.shape[-1]
        position = n.checked(position, [(sizes.size(total - 1), sizes.size(total - 1))])
    else:
        count = data_dependent.op(n, "add", n.build.emit("reshape", position, shape=(1,)), 1)
        (total,) = data_dependent.measure(n, count, "how many keys there are")
    is_new = n.build.emit("equal", positions(n, room, (1, 1, -1, 1)),
                          n.build.emit("reshape", position, shape=(1, 1, 1, 1)))  # fmt: skip
    k, v = (n.build.emit("where", is_new, new, old) for old, new in ((n[5], k), (n[6], v)))
    near = [n.build.emit("slice", x, starts=(0,) * 4, shape=(*x.shape[:2], total, x.shape[3]))
            for x in (k, v)]  # fmt: skip
    masks = masks_of(n, q, near[0], n.optional(3), n.optional(4))
    return results(n, joined(n, attend(n, q, *near, scale_of(n, q), masks)), k, v)


@translates("GroupQueryAttention", domain=DOMAIN)
def group_query_attention(n: NodeContext) -> Any:
    """Causal; several heads of queries share one of keys. What comes out as the cache is what went
    in with the new keys behind those of each sequence (it has `seqlens_k` + 1 with the new ones):
    in the buffer, if there is room, else behind it."""
    emit, heads, few = n.build.emit, n.int("num_heads"), n.int("kv_num_heads")
    if not heads or not few or heads % few:
        raise Refusal("it needs num_heads, a multiple of kv_num_heads")
    q, k, v = apart(n, heads, few)
    batch, length = q.shape[:2]
    past, depth = n.optional(3), sizes.size(q.shape[2] // heads)
    counts = emit("reshape", emit("cast", n[5], to="i64"), shape=(batch, 1))
    total = sizes.size(
        n.sizes(6)[0] if data_dependent.is_known(n, 6) else data_dependent.count(n, 6)
    )
    start = first_new(n, counts, length, total)
    if n.flag("do_rotary"):
        at = n.optional(9)
        if at is None:
            at = emit("add", start, positions(n, length, (1, -1)))
        angles = at, n[7], n[8], n.flag("rotary_interleaved")
        q, k = (
            emit(
                "reshape",
                rotated(n, emit("reshape", t, shape=(batch, length, c, depth)), *angles),
                shape=t.shape,
            )
            for t, c in ((q, heads), (k, few))
        )
    q, k, v = heads_of(n, q, heads), heads_of(n, k, few), heads_of(n, v, few)
    if past is not None:
        grows = as_int(batch) == 1 and total == sizes.size(past.shape[2] + length)
        caches = ((past, k), (n[4], v))
        if grows:
            k, v = (after(n, *pair) for pair in caches)
        else:
            room = sizes.size(binary(BinaryOp.max, total, past.shape[2]))
            k, v = (within(n, old, new, start, room) for old, new in caches)
    masks = [seen(n, q, start, k.shape[2], n.int("local_window_size", -1))]
    if n.optional(10) is not None:
        bias = n[10]
        shape = (bias.shape[0], *grouped(bias, heads, few), *bias.shape[2:])
        masks.append(emit("reshape", bias, shape=shape))
    total = k.shape[2]
    by_group = emit("reshape", q, shape=(batch, few, heads // few, length, depth))
    k5, v5 = (emit("reshape", t, shape=(batch, few, 1, total, t.shape[3])) for t in (k, v))
    y = attend(n, by_group, k5, v5, scale_of(n, q), masks, sink_of(n, q, heads, few))
    y = emit("reshape", y, shape=(batch, heads, length, v.shape[3]))
    return results(n, joined(n, y), k, v)


def apart(n: NodeContext, heads: int, few: int) -> tuple[Value, Value, Value]:
    """Queries, keys and values, which one tensor may hold side by side."""
    q, k, v = n[0], n.optional(1), n.optional(2)
    if k is not None and v is not None:
        return q, k, v
    depth, parts, start = sizes.size(q.shape[2] // (heads + 2 * few)), [], sizes.size(0)
    for count in (heads, few, few):
        width = sizes.size(depth * count)
        parts.append(n.build.emit("slice", q, starts=(0, 0, start), shape=(*q.shape[:2], width)))
        start = sizes.size(start + width)
    return parts[0], parts[1], parts[2]


def first_new(n: NodeContext, counts: Value, length: Expr, total: Expr) -> Value:
    """Where the new keys of each sequence go, [B, 1]: behind those that it has, and first if all
    are new."""
    op = data_dependent.op
    if n.optional(3) is None:
        return op(n, "mul", counts, 0)
    old = op(n, "sub", counts, op(n, "sub", length_of(n, length), 1))
    all_new = op(n, "equal", length_of(n, length), length_of(n, total))
    return op(n, "maximum", data_dependent.choose(n, all_new, 0, old), 0)


def within(n: NodeContext, old: Value, new: Value, start: Value, room: Expr) -> Value:
    """A cache [B, N, room, H] that holds the old keys of each sequence, the new ones behind them
    from `start` on, then zeros."""
    op, (batch, _, length, _), have = data_dependent.op, new.shape, old.shape[2]
    none = op(n, "full", shape=(*new.shape[:2], 1, new.shape[3]), value=0, of=new.dtype.name)
    both = op(n, "concat", old, new, none, axis=2)
    position = positions(n, room, (1, -1))
    behind = op(n, "sub", position, start)
    is_new = op(n, "less", behind, length_of(n, length))
    end = length_of(n, sizes.size(have + length))
    at = data_dependent.choose(n, is_new, op(n, "add", behind, length_of(n, have)), end)
    at = data_dependent.choose(n, op(n, "less", position, start), position, at)
    rows = op(n, "expand", positions(n, batch, (-1, 1)), shape=at.shape)
    pairs = [op(n, "reshape", v, shape=(*at.shape, 1)) for v in (rows, at)]
    found = op(n, "gather_nd", op(n, "transpose", both, perm=(0, 2, 1, 3)),
               op(n, "concat", *pairs, axis=2))  # fmt: skip
    return op(n, "transpose", found, perm=(0, 2, 1, 3))


def seen(n: NodeContext, q: Value, start: Value, total: Expr, window: int) -> Value:
    """Hides what comes after a query at its position, and what is `window` positions before it or
    more: [B, 1, 1, S, total]."""
    op, (batch, length) = data_dependent.op, (q.shape[0], q.shape[2])
    row = op(n, "add", start, positions(n, length, (1, -1)))
    row = op(n, "reshape", row, shape=(batch, 1, 1, length, 1))
    column = positions(n, total, (1, 1, 1, 1, -1))
    shown = op(n, "less_equal", column, row)
    if window > 0:
        near = op(n, "greater", column, op(n, "sub", row, window))
        shown = op(n, "logical_and", shown, near)
    return hidden_where(n, shown, q, float(np.finfo(np.float32).min) / 2)


def sink_of(n: NodeContext, q: Value, heads: int, few: int) -> Value | None:
    """The score of nothing: 0, or one for each head."""
    sink = n.optional(11)
    if sink is not None:
        return n.build.emit("reshape", sink, shape=(1, few, heads // few, 1, 1))
    if not n.flag("smooth_softmax"):
        return None
    return n.constant(np.zeros((1, 1, 1, 1, 1)), q.dtype)


def grouped(bias: Value, heads: int, few: int) -> tuple[int, int]:
    """The axis of heads as one of groups and one of their members."""
    return (1, 1) if as_int(bias.shape[1]) == 1 else (few, heads // few)


def length_of(n: NodeContext, size: Expr) -> Value:
    made = np.empty((1,), object)
    made[0] = size
    return n.build.from_sizes(made, data_dependent.I64)


@translates("SparseAttention", domain=DOMAIN)
def sparse_attention(n: NodeContext) -> Any:
    """Causal, over the blocks of keys that a layout shows to each block of queries; heads take the
    layouts in turn, and several heads of queries share one of keys."""
    emit, heads, few = n.build.emit, n.int("num_heads"), n.int("kv_num_heads")
    block = n.int("sparse_block_size", 0)
    if not heads or not few or heads % few or block < 1:
        raise Refusal("it needs num_heads, a multiple of kv_num_heads, and a sparse_block_size")
    q, k, v = apart(n, heads, few)
    batch, length = q.shape[:2]
    depth, room = sizes.size(q.shape[2] // heads), n[3].shape[2]
    counts = emit("reshape", emit("cast", n[8], to="i64"), shape=(batch, 1))
    start = data_dependent.op(n, "sub", counts, length_of(n, length))
    row = emit("add", start, positions(n, length, (1, -1)))
    if n.flag("do_rotary"):
        angles = row, n[9], n[10], n.flag("rotary_interleaved")
        q, k = (
            emit(
                "reshape",
                rotated(n, emit("reshape", t, shape=(batch, length, c, depth)), *angles),
                shape=t.shape,
            )
            for t, c in ((q, heads), (k, few))
        )
    q, k, v = heads_of(n, q, heads), heads_of(n, k, few), heads_of(n, v, few)
    k, v = (within(n, old, new, start, room) for old, new in ((n[3], k), (n[4], v)))
    masks = [seen(n, q, start, room, -1), shown_blocks(n, q, row, room, block, heads, few)]
    by_group = emit("reshape", q, shape=(batch, few, heads // few, length, depth))
    k5, v5 = (emit("reshape", t, shape=(batch, few, 1, room, t.shape[3])) for t in (k, v))
    y = attend(n, by_group, k5, v5, scale_of(n, q), masks)
    y = emit("reshape", y, shape=(batch, heads, length, v.shape[3]))
    return results(n, joined(n, y), k, v)


def shown_blocks(
    n: NodeContext, q: Value, row: Value, room: Expr, block: int, heads: int, few: int
) -> Value:
    """Hides the blocks of keys that a layout does not show to the block of the query at row[B, S]:
    [B, few, heads / few, S, room]. The layouts are compressed rows: ends and columns."""
    ends, columns = n.array(5), n.array(6)
    layouts, blocks = ends.shape[0], ends.shape[1] - 1
    shown = np.zeros((layouts, blocks, blocks), bool)
    for k, r in np.ndindex(layouts, blocks):
        shown[k, r, columns[k, ends[k, r] : ends[k, r + 1]]] = True
    emit, by = n.build.emit, n.constant(np.int64(block))
    inside = n.checked(row, from_start(sizes.size(blocks * block)))
    own = emit("gather", n.constant(shown), data_dependent.floordiv(n, inside, by), axis=1)
    column = data_dependent.floordiv(n, positions(n, room, (-1,)), by)
    own = emit("gather", own, n.checked(column, from_start(blocks)), axis=3)  # [L, B, S, room]
    which = n.constant(np.arange(heads).reshape(few, heads // few) % layouts)
    own = emit("transpose", emit("gather", own, which, axis=0), perm=(2, 0, 1, 3, 4))
    return hidden_where(n, own, q, float(np.finfo(np.float32).min) / 2)
