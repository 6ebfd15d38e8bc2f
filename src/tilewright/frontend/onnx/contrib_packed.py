"""Translators of the `com.microsoft` operators over requests of any length that are packed end to
end: token t belongs to request b where lengths[b] ≤ t < lengths[b + 1].

The one idea: what a token reads before it is an index into the packed tokens or, before the first
one of its request, into what the request brought along; both are gathered, and one is chosen.

Source of their meaning: onnxruntime's docs/ContribOperators.md; the tests compare with onnxruntime.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from tilewright.frontend.onnx.contrib import DOMAIN, results
from tilewright.frontend.onnx.measured import counted, op
from tilewright.frontend.onnx.registry import Refusal, Site, translates
from tilewright.graph import sizes
from tilewright.graph.bounds import from_start
from tilewright.graph.graph import Value
from tilewright.ir.expr import as_int


class Packed:
    """How `tokens` are parted by the lengths added up so far, i32 [B + 1]."""

    def __init__(self, n: Site, lengths: Value, tokens: Any) -> None:
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
        place = op(n, "add", op(n, "sub", self.local, distance), counted(n, old))
        place = op(n, "minimum", op(n, "maximum", place, 0), op(n, "sub", counted(n, old), 1))
        pair = [op(n, "reshape", v, shape=(self.tokens, 1)) for v in (self.request, place)]
        brought = op(n, "gather_nd", kept, op(n, "concat", *pair, axis=1))
        is_own = op(n, "greater_equal", self.local, distance)
        is_own = op(n, "reshape", is_own, shape=(self.tokens, *(1,) * (x.rank - 1)))
        return op(n, "where", is_own, own, brought)

    def last(self, x: Value, kept: Value) -> Value:
        """The last K of what was kept [B, K, …] and then read by each request: [B, K, …]."""
        n, old = self.n, kept.shape[1]
        step = op(n, "reshape", op(n, "arange", length=old), shape=(1, old))
        place = op(n, "add", op(n, "reshape", self.length, shape=(self.batch, 1)), step)
        return self.joined(x, kept, place)

    def joined(self, x: Value, kept: Value, place: Value) -> Value:
        """Of each request what stands at these places [B, P] of `kept` and its tokens, joined."""
        n, old, shape = self.n, kept.shape[1], place.shape
        local = op(n, "sub", place, counted(n, old))
        first = op(n, "reshape", self.first, shape=(self.batch, 1))
        at = op(n, "maximum", op(n, "add", local, first), 0)
        at = op(n, "minimum", at, op(n, "sub", counted(n, self.tokens), 1))
        own = op(n, "gather", x, at, axis=0)
        request = op(n, "reshape", op(n, "arange", length=self.batch), shape=(self.batch, 1, 1))
        place = op(n, "minimum", place, op(n, "sub", counted(n, old), 1))
        pair = [op(n, "expand", request, shape=(*shape, 1)),
                op(n, "reshape", place, shape=(*shape, 1))]  # fmt: skip
        brought = op(n, "gather_nd", kept, op(n, "concat", *pair, axis=2))
        is_own = op(n, "reshape", op(n, "greater_equal", local, 0),
                    shape=(*shape, *(1,) * (x.rank - 1)))  # fmt: skip
        return op(n, "where", is_own, own, brought)


@translates("VarlenCausalConvWithState", domain=DOMAIN)
def packed_conv(n: Site) -> Any:
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


def captured(n: Site, packed: Packed, x: Value, room: int) -> Value:
    """The first tokens of each request, as many as input 5 says, then zeros: [B, room, C]."""
    slot = op(n, "reshape", op(n, "arange", length=room), shape=(1, room))
    many = op(n, "minimum", op(n, "cast", n[5], to="i64"), packed.length)
    is_used = op(n, "less", slot, op(n, "reshape", many, shape=(packed.batch, 1)))
    at = op(n, "add", slot, op(n, "reshape", packed.first, shape=(packed.batch, 1)))
    at = op(n, "minimum", at, op(n, "sub", counted(n, packed.tokens), 1))
    is_used = op(n, "reshape", is_used, shape=(packed.batch, room, 1))
    return op(n, "where", is_used, op(n, "gather", x, at, axis=0), n.constant(0, x.dtype))
