"""Translators of the `com.microsoft` operators over requests of any length that are packed end to
end: token t belongs to request b where lengths[b] ≤ t < lengths[b + 1].

What a token reads before it is an index into the packed tokens or, before the first one of its
request, into what the request brought along; both are gathered, and one is chosen. A recurrence has
the requests side by side, as many steps as the longest one takes.

Source of their meaning: onnxruntime's docs/ContribOperators.md; the tests compare with onnxruntime.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from tilewright.frontend.onnx.contrib import DOMAIN, results
from tilewright.frontend.onnx.contrib_states import recurrence, root_of
from tilewright.frontend.onnx.data_dependent import counted, measure, op
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.graph import sizes
from tilewright.graph.bounds import from_start
from tilewright.graph.graph import Value
from tilewright.ir.expr import as_int


class Packed:
    """How `tokens` are parted by the lengths added up so far, i32 [B + 1]."""

    def __init__(self, n: NodeContext, lengths: Value, tokens: Any) -> None:
        self.n, self.tokens = n, sizes.size(tokens)
        self.batch = sizes.size(lengths.shape[0] - 1)
        lengths = op(n, "cast", lengths, to="i64")
        self.lengths = n.checked(lengths, from_start(sizes.size(self.tokens + 1)))
        self.first = op(n, "slice", self.lengths, starts=(0,), shape=(self.batch,))
        self.end = op(n, "slice", self.lengths, starts=(1,), shape=(self.batch,))
        self.length = op(n, "sub", self.end, self.first)

    @cached_property
    def token(self) -> Value:
        return op(self.n, "arange", length=self.tokens)

    @cached_property
    def request(self) -> Value:
        """Whose each token is."""
        n = self.n
        at = op(n, "reshape", self.token, shape=(self.tokens, 1))
        ends = op(n, "reshape", self.end, shape=(1, self.batch))
        past = op(n, "cast", op(n, "less_equal", ends, at), to="i64")
        last = op(n, "sub", counted(n, self.batch), 1)
        return op(n, "minimum", op(n, "reduce_sum", past, axes=(1,)), last)

    @cached_property
    def local(self) -> Value:
        """Where each token stands in its request."""
        return op(self.n, "sub", self.token, op(self.n, "gather", self.first, self.request, axis=0))

    def before(self, x: Value, kept: Value, distance: int) -> Value:
        """x [T, …] so many tokens earlier: what was `kept` [B, K, …] before the first one."""
        n, old = self.n, kept.shape[1]
        at = op(n, "maximum", op(n, "sub", self.token, distance), 0)
        own = op(n, "gather", x, at, axis=0)
        position = op(n, "add", op(n, "sub", self.local, distance), counted(n, old))
        position = op(n, "minimum", op(n, "maximum", position, 0), op(n, "sub", counted(n, old), 1))
        pair = [op(n, "reshape", v, shape=(self.tokens, 1)) for v in (self.request, position)]
        brought = op(n, "gather_nd", kept, op(n, "concat", *pair, axis=1))
        is_own = op(n, "greater_equal", self.local, distance)
        is_own = op(n, "reshape", is_own, shape=(self.tokens, *(1,) * (x.rank - 1)))
        return op(n, "where", is_own, own, brought)

    def last(self, x: Value, kept: Value) -> Value:
        """The last K of what was kept [B, K, …] and then read by each request: [B, K, …]."""
        n, old = self.n, kept.shape[1]
        step = op(n, "reshape", op(n, "arange", length=old), shape=(1, old))
        position = op(n, "add", op(n, "reshape", self.length, shape=(self.batch, 1)), step)
        return self.joined(x, kept, position)

    def joined(self, x: Value, kept: Value, position: Value) -> Value:
        """Of each request what stands at these positions [B, P] of `kept` and its tokens,
        joined."""
        n, old, shape = self.n, kept.shape[1], position.shape
        local = op(n, "sub", position, counted(n, old))
        first = op(n, "reshape", self.first, shape=(self.batch, 1))
        at = op(n, "maximum", op(n, "add", local, first), 0)
        at = op(n, "minimum", at, op(n, "sub", counted(n, self.tokens), 1))
        own = op(n, "gather", x, at, axis=0)
        request = op(n, "reshape", op(n, "arange", length=self.batch), shape=(self.batch, 1, 1))
        position = op(n, "minimum", position, op(n, "sub", counted(n, old), 1))
        pair = [op(n, "expand", request, shape=(*shape, 1)),
                op(n, "reshape", position, shape=(*shape, 1))]  # fmt: skip
        brought = op(n, "gather_nd", kept, op(n, "concat", *pair, axis=2))
        is_own = op(n, "reshape", op(n, "greater_equal", local, 0),
                    shape=(*shape, *(1,) * (x.rank - 1)))  # fmt: skip
        return op(n, "where", is_own, own, brought)


@translates("VarlenCausalConvWithState", domain=DOMAIN)
def packed_conv(n: NodeContext) -> Any:
    """A depthwise convolution over what each request kept and its tokens; sums in f32."""
    x, w, lengths, bias, state = n[0], n.wide(n[1]), n[2], n.optional(3), n[4]
    dilation, room = n.int("dilation", 1), n.int("state_update_capacity", 0)
    kind, taps = n.text("activation") or "none", as_int(w.shape[2])
    if n.optional(6) is not None or n.optional(7) is not None:
        raise Refusal("weights of each token are for CUDA alone in onnxruntime")
    if kind.lower() not in ("none", "silu", "swish") or dilation < 1 or not taps:
        raise Refusal(f"it needs a known number of taps and activation, not {kind!r}")
    packed, channels = Packed(n, lengths, x.shape[0]), x.shape[1]
    kept = op(n, "transpose", state, perm=(0, 2, 1))  # [B, K, C]
    total: Value | None = None
    for j in range(taps):
        distance = (taps - 1 - j) * dilation
        read = packed.before(x, kept, distance) if distance else x
        own = op(n, "slice", w, starts=(0, 0, j), shape=(channels, 1, 1))
        part = op(n, "mul", n.wide(read), op(n, "reshape", own, shape=(1, channels)))
        total = part if total is None else op(n, "add", total, part)
    assert total is not None
    total = total if bias is None else op(n, "add", total, n.wide(bias))
    y = total if kind == "none" else op(n, "silu", total)
    last = state
    if taps > 1:
        last = op(n, "transpose", packed.last(x, kept), perm=(0, 2, 1))
    update = captured(n, packed, x, room) if room else None
    return results(n, n.narrowed(y, x.dtype), last, update)


def captured(n: NodeContext, packed: Packed, x: Value, room: int) -> Value:
    """The first tokens of each request, as many as input 5 says, then zeros: [B, room, C]."""
    slot = op(n, "reshape", op(n, "arange", length=room), shape=(1, room))
    many = op(n, "minimum", op(n, "cast", n[5], to="i64"), packed.length)
    is_used = op(n, "less", slot, op(n, "reshape", many, shape=(packed.batch, 1)))
    at = op(n, "add", slot, op(n, "reshape", packed.first, shape=(packed.batch, 1)))
    at = op(n, "minimum", at, op(n, "sub", counted(n, packed.tokens), 1))
    is_used = op(n, "reshape", is_used, shape=(packed.batch, room, 1))
    return op(n, "where", is_used, op(n, "gather", x, at, axis=0), n.constant(0, x.dtype))


# Recurrences --------------------------------------------------------------------------------------


class Steps:
    """Tokens of all requests side by side, one step after the other: [L, B, …], where L is the
    length of the longest request. lengths: as for `Packed`; None: all have one length."""

    def __init__(self, n: NodeContext, lengths: Value | None, tokens: Any, batch: Any) -> None:
        self.n, self.batch, self.tokens = n, sizes.size(batch), sizes.size(tokens)
        self.packed = None if lengths is None else Packed(n, lengths, tokens)
        self.length = sizes.size(self.tokens // self.batch)
        if self.packed is None:
            return
        self.batch = self.packed.batch
        longest = op(n, "reduce_max", self.packed.length, axes=(0,), keepdims=True)
        (self.length,) = measure(n, longest, "the longest request")
        step = op(n, "reshape", op(n, "arange", length=self.length), shape=(self.length, 1))
        self.live = op(n, "less", step, self.packed.length)
        at = op(n, "add", step, self.packed.first)
        self.at = op(n, "minimum", at, op(n, "sub", counted(n, self.tokens), 1))

    def of(self, x: Value) -> Value:
        """x [T, …] as [L, B, …]."""
        n = self.n
        if self.packed is not None:
            return op(n, "gather", x, self.at, axis=0)
        parted = op(n, "reshape", x, shape=(self.batch, self.length, *x.shape[1:]))
        return op(n, "transpose", parted, perm=(1, 0, *range(2, x.rank + 1)))

    def held(self, x: Value, rest: float) -> Value:
        """x [L, B, …], `rest` behind the last token of each request."""
        if self.packed is None:
            return x
        live = op(self.n, "reshape", self.live, shape=(*x.shape[:2], *(1,) * (x.rank - 2)))
        return op(self.n, "where", live, x, self.n.constant(rest, x.dtype))

    def back(self, y: Value) -> Value:
        """y [L, B, …] as [T, …]."""
        n = self.n
        if self.packed is None:
            y = op(n, "transpose", y, perm=(1, 0, *range(2, y.rank)))
            return op(n, "reshape", y, shape=(self.tokens, *y.shape[2:]))
        pair = [op(n, "reshape", v, shape=(self.tokens, 1))
                for v in (self.packed.local, self.packed.request)]  # fmt: skip
        return op(n, "gather_nd", y, op(n, "concat", *pair, axis=1))


@translates("GatedDeltaNet", domain=DOMAIN)
def gated_delta_net(n: NodeContext) -> Any:
    """A state [B, H, V, K] that every token decays and adds k ⊗ v to (or b times what v is more
    than the state gives for k), and reads by q; f32."""
    rule, first, state = n.text("update_rule") or "gated_delta", n[0], n.optional(6)
    if rule not in ("linear", "gated", "delta", "gated_delta") or n.int("state_update_capacity", 0):
        raise Refusal(f"it needs a known rule, not {rule!r}, and to capture no updates")
    q, k, v, lead = side_by_side(n, state)
    tokens, heads, width = v.shape
    few, depth = q.shape[1:]
    many, groups = as_int(heads), as_int(few)
    if many is None or groups is None or many % groups:
        raise Refusal("it needs known numbers of heads, of values a multiple of those of keys")
    lengths = n.optional(3)
    batch = state.shape[0] if state is not None else n[3].shape[0] - 1
    steps = Steps(n, lengths, tokens, batch)
    if n.flag("qk_l2_norm"):
        q, k = (normed(n, x) for x in (q, k))

    def by_head(x: Value) -> Value:
        """[T, heads of keys, K] as [L, B, H, 1, K]."""
        x = op(n, "reshape", x, shape=(tokens, groups, 1, depth))
        x = op(n, "expand", x, shape=(tokens, groups, many // groups, depth))
        return steps.of(op(n, "reshape", x, shape=(tokens, many, 1, depth)))

    inputs = {"q": by_head(q), "k": steps.held(by_head(k), 0.0),
              "v": steps.of(op(n, "reshape", v, shape=(tokens, many, 1, width)))}  # fmt: skip
    if "gated" in rule:
        decay = n.wide(n[4])
        each = 1 if decay.elements == sizes.size(tokens * many) else depth
        g = op(n, "exp", gate(n, op(n, "reshape", decay, shape=(tokens, many, each))))
        inputs["g"] = steps.held(steps.of(op(n, "reshape", g, shape=(*g.shape, 1))), 1.0)
    if "delta" in rule:
        b = op(n, "reshape", n.wide(n[5]), shape=(tokens, many, 1, 1))
        b = op(n, "sigmoid", b) if n.text("beta_activation") == "sigmoid" else b
        inputs["b"] = steps.of(b)
    if state is None:
        before = op(n, "full", shape=(steps.batch, many, depth, width), value=0, of="f32")
    else:
        before = op(n, "transpose", state, perm=(0, 1, 3, 2))
    last, rows = n.apply(
        "Scan", before, *inputs.values(), body=recurrence(list(inputs)), num_scan_inputs=len(inputs)
    )
    scale = n.float("scale", 0.0)
    rows = op(n, "mul", rows, n.constant(scale, "f32") if scale else root_of(n, depth))
    y = op(n, "reshape", steps.back(rows), shape=(*lead, many, width))
    return results(n, n.narrowed(y, first.dtype), op(n, "transpose", last, perm=(0, 1, 3, 2)))


def side_by_side(n: NodeContext, state: Value | None) -> tuple[Value, Value, Value, sizes.Shape]:
    """Queries, keys [T, heads, K] and values [T, H, V], f32, and the shape of their tokens."""
    x = n.wide(n[0])
    if n.optional(1) is not None:
        lead = x.shape[:-2]
        tokens = sizes.product(lead)
        parts = [n.wide(n[j]) for j in range(3)]
        q, k, v = (op(n, "reshape", p, shape=(tokens, *p.shape[-2:])) for p in parts)
        return q, k, v, lead
    if state is None:
        raise Refusal("queries, keys and values in one tensor need an initial state")
    _, heads, width, depth = state.shape
    lead = x.shape[:-1]
    tokens = sizes.product(lead)
    x = op(n, "reshape", x, shape=(tokens, x.shape[-1]))
    few = sizes.size((x.shape[1] - heads * width) // (2 * depth))
    made, start = [], sizes.size(0)
    for count, size in ((few, depth), (few, depth), (heads, width)):
        part = op(n, "slice", x, starts=(0, start), shape=(tokens, sizes.size(count * size)))
        start = sizes.size(start + count * size)
        made.append(op(n, "reshape", part, shape=(tokens, count, size)))
    return made[0], made[1], made[2], lead


def normed(n: NodeContext, x: Value) -> Value:
    """x with rows of length 1."""
    total = op(n, "reduce_sum", op(n, "mul", x, x), axes=(x.rank - 1,), keepdims=True)
    return op(n, "mul", x, op(n, "rsqrt", op(n, "add", total, n.constant(1e-12, "f32"))))


def gate(n: NodeContext, decay: Value) -> Value:
    """The logarithm of what the state decays by, from decay [T, H, 1 or K]."""
    kind, (_, heads, each) = n.text("gate_activation") or "none", decay.shape
    if kind == "none":
        return decay
    bias = n[8]
    wide = each if bias.elements == sizes.size(heads * each) else 1
    decay = op(n, "add", decay, op(n, "reshape", bias, shape=(1, heads, wide)))
    rate = op(n, "exp", op(n, "reshape", n[7], shape=(1, heads, 1)))
    if kind in ("softplus", "qwen"):
        return op(n, "neg", op(n, "mul", rate, op(n, "softplus", decay)))
    if kind not in ("sigmoid", "kda"):
        raise Refusal(f"its gate_activation {kind!r} is not known")
    least = n.constant(n.float("gate_lower_bound", -5.0), "f32")
    return op(n, "mul", least, op(n, "sigmoid", op(n, "mul", rate, decay)))
