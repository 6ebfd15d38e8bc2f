"""Translators of `com.microsoft` operators of language models' newer exports, and of older ones
that cut windows and crops out of tensors.

Source of their meaning: onnxruntime's docs/ContribOperators.md; the tests compare with onnxruntime.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontend.onnx.contrib import DOMAIN
from tilewright.frontend.onnx.data_dependent import I64, op
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.graph import sizes
from tilewright.graph.bounds import from_start
from tilewright.graph.graph import Value

# Gates and norms ----------------------------------------------------------------------------------


@translates("ScaledSiLU", domain=DOMAIN)
def scaled_silu(n: NodeContext) -> Any:
    """z · sigmoid(z) of z = scale · x; each step is rounded."""
    x, scale = n[0], n.optional(1)
    if scale is None:
        scale = n.constant(n.float("alpha", 1.0), x.dtype)
    scale = n.build.emit("reshape", scale, shape=())
    z = n.build.emit("mul", x, n.build.emit("cast", scale, to=x.dtype.name))
    return n.emit("mul", z, n.build.emit("sigmoid", z))


@translates("GatedAdd", domain=DOMAIN)
def gated_add(n: NodeContext) -> Any:
    """x + y · gate, with a gate for each row."""
    if n.optional(3) is not None:
        raise Refusal("its gate is projected, which onnxruntime has for GPUs alone")
    return n.emit("add", n[0], n.build.emit("mul", n[1], n[2]))


def squares_norm(n: NodeContext, x: Value, *shape: Any) -> Value:
    """x, seen under this shape, by the root of the mean of squares along its last axis; f32."""
    x = n.build.emit("reshape", x, shape=shape)
    ones = n.build.emit("full", shape=shape[-1:], value=1, of="f32")
    return n.build.emit("rms_norm", n.wide(x), ones, eps=n.float("epsilon", 1e-5))


@translates("GatedRMSNorm", domain=DOMAIN)
def gated_norm(n: NodeContext) -> Any:
    """The norm of each head by itself, scaled, times its activated gate."""
    x, scale, kind = n[0], n.wide(n[1]), n.text("activation") or "silu"
    if kind not in ("silu", "swish", "sigmoid"):
        raise Refusal(f"its activation {kind!r} is not known")
    width = scale.shape[0]
    groups = sizes.size(x.shape[-1] // width)
    y = n.build.emit("mul", squares_norm(n, x, *x.shape[:-1], groups, width), scale)
    gate = n.wide(n[2])
    factor = n.build.emit("sigmoid", gate)
    factor = factor if kind == "sigmoid" else n.build.emit("mul", gate, factor)
    y = n.build.emit("mul", n.build.emit("reshape", y, shape=x.shape), factor)
    return n.narrowed(y, x.dtype)


@translates("BranchwiseRMSNorm", domain=DOMAIN)
def branches_norm(n: NodeContext) -> Any:
    """The norm of each branch by itself, with one scale for each number, or for all branches."""
    x, count = n[0], n.int("num_branches", 0)
    groups = sizes.size(count) if count else x.shape[-2]
    width = sizes.size(x.shape[-1] // count) if count else x.shape[-1]
    lead = x.shape[: -1 if count else -2]
    y = squares_norm(n, x, *lead, groups, width)
    if n.optional(1) is not None:
        scale = n.wide(n[1])
        if scale.rank == 1 and scale.shape[0] != width:
            scale = n.build.emit("reshape", scale, shape=(groups, width))
        y = n.build.emit("mul", y, scale)
    return n.narrowed(n.build.emit("reshape", y, shape=x.shape), x.dtype)


# Words --------------------------------------------------------------------------------------------


@translates("NGramRepeatBlock", domain=DOMAIN)
def no_repetition(n: NodeContext) -> Any:
    """Scores [B, V] with -inf for each word that would end a sequence of n words which ids [B, S]
    has already: one that follows where the last n - 1 words stand earlier."""
    ids, scores, many = n[0], n[1], n.int("ngram_size")
    if many is None or many < 1:
        raise Refusal("it needs an ngram_size of 1 or more")
    (batch, length), words = ids.shape, scores.shape[1]
    ids = n.build.emit("cast", n.checked(ids, from_start(words)), to="i64")
    padded = op(n, "pad", ids, before=(0, many - 1), after=(0, 0), value=0)  # for short sequences
    at = op(n, "reshape", op(n, "arange", length=length), shape=(1, length))
    found = op(n, "greater_equal", at, many - 1)  # none starts before the first word
    for k in range(many - 1):
        part = op(n, "slice", padded, starts=(0, k), shape=(batch, length))
        last = op(n, "slice", padded, starts=(0, sizes.size(length + k)), shape=(batch, 1))
        found = op(n, "logical_and", found, op(n, "equal", part, last))
    found = op(n, "cast", op(n, "expand", found, shape=(batch, length)), to="i32")
    none = op(n, "full", shape=(batch, words), value=0, of="i32")
    seen = op(n, "scatter_elements", none, ids, found, axis=1, reduction="max")
    lost = n.constant(-np.inf, scores.dtype)
    return n.emit("where", op(n, "greater", op(n, "cast", seen, to="i64"), 0), lost, scores)


@translates("MurmurHash3", domain=DOMAIN)
def hashed(n: NodeContext) -> Any:
    """The 32-bit hash of the bytes of each number. Source: Appleby's MurmurHash3_x86_32."""
    x, seed = n[0], n.int("seed", 0) & 0xFFFFFFFF
    if x.dtype.bits not in (32, 64):
        raise Refusal(f"it hashes numbers of 32 or 64 bits, not {x.dtype}")

    def number(v: int) -> Value:
        return n.constant(np.asarray(v & 0xFFFFFFFF, np.uint32))

    def rotated(v: Value, by: int) -> Value:
        """Its bits rotated left, by `by` positions."""
        low = op(n, "shift_right", v, number(32 - by))
        return op(n, "bit_or", op(n, "shift_left", v, number(by)), low)

    def mixed_bits(v: Value, by: int) -> Value:
        return op(n, "bit_xor", v, op(n, "shift_right", v, number(by)))

    if x.dtype.bits == 32:
        words = [op(n, "bitcast", x, to="u32")]
    else:
        both = op(n, "bitcast", x, to="u64")
        high = op(n, "shift_right", both, n.constant(np.asarray(32, np.uint64)))
        low = op(n, "bit_and", both, n.constant(np.asarray(0xFFFFFFFF, np.uint64)))
        words = [op(n, "cast", w, to="u32") for w in (low, high)]
    y = number(seed)
    for word in words:
        part = op(n, "mul", rotated(op(n, "mul", word, number(0xCC9E2D51)), 15), number(0x1B873593))
        y = rotated(op(n, "bit_xor", y, part), 13)
        y = op(n, "add", op(n, "mul", y, number(5)), number(0xE6546B64))
    y = op(n, "bit_xor", y, number(4 * len(words)))
    for by, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        y = op(n, "mul", mixed_bits(y, by), number(factor))
    y = mixed_bits(y, 16)
    return y if n.int("positive", 1) else n.emit("bitcast", y, to="i32")


# Windows and crops --------------------------------------------------------------------------------


@translates("UnfoldTensor", domain=DOMAIN)
def unfold(n: NodeContext) -> Any:
    """All slices of `size` elements along an axis, `step` apart; a last axis has their elements."""
    x, size, step = n[0], n.int("size"), n.int("step", 1)
    axis = n.int("dim", -1) % x.rank
    if size is None or size < 1 or step is None or step < 1:
        raise Refusal("it needs a size and a step of 1 or more")
    count = sizes.size((x.shape[axis] - size) // step + 1)
    first = op(n, "reshape", op(n, "arange", length=count, step=step), shape=(count, 1))
    positions = op(n, "add", first, n.constant(np.arange(size)))
    y = n.build.emit("gather", x, positions, axis=axis)
    order = [d for d in range(y.rank) if d != axis + 1]
    return n.emit("transpose", y, perm=(*order, axis + 1))


@translates("SampleOp", domain=DOMAIN)
def echo(n: NodeContext) -> Any:
    return n.emit("copy", n[0])


@translates("MaxpoolWithMask", domain=DOMAIN)
def masked_pool(n: NodeContext) -> Any:
    """The greatest in each window, where a row of the window ends with the first pixel whose mask
    is 0 (over several axes, the image's first pixel ends none)."""
    x, mask, kernel = n[0], n[1], n.ints("kernel_shape")
    rank, shape = x.rank - 2, (1, 1, *x.shape[2:])
    if not kernel or len(kernel) != rank or n.text("auto_pad", "NOTSET") != "NOTSET":
        raise Refusal(f"it needs a kernel of {rank} axes and pads of its own")
    if mask.shape[:2] != sizes.shape((1, 1)):
        raise Refusal("several masks, which onnxruntime reads where they do not lie")
    steps, pads = n.ints("strides") or (1,) * rank, n.ints("pads") or (0,) * 2 * rank
    before, after = (0, 0, *pads[:rank]), (0, 0, *pads[rank:])
    lowest = float(np.finfo(np.float32).min)
    passes = op(n, "not_equal", mask, n.constant(0, mask.dtype))
    if rank > 1:
        position = op(n, "arange", length=sizes.product(shape))
        first = op(n, "reshape", op(n, "equal", position, 0), shape=shape)
        passes = op(n, "logical_or", passes, first)
    image = n.build.emit("pad", x, before=before, after=after, value=lowest)
    passes = n.build.emit("pad", passes, before=before, after=after, value=1)
    count = [sizes.size((have - wide) // step + 1) for have, wide, step in
             zip(image.shape[2:], kernel, steps, strict=True)]  # fmt: skip
    greatest: Value | None = None
    for tap in np.ndindex(*kernel):
        if tap[-1] == 0:
            on: Value | None = None
        cut = {"starts": (0, 0, *map(int, tap)), "steps": (1, 1, *steps)}
        own = op(n, "slice", passes, shape=(1, 1, *count), **cut)
        on = own if on is None else op(n, "logical_and", on, own)
        read = op(
            n,
            "where",
            on,
            op(n, "slice", image, shape=(*x.shape[:2], *count), **cut),
            n.constant(lowest, "f32"),
        )
        greatest = read if greatest is None else op(n, "maximum", greatest, read)
    assert greatest is not None
    return greatest


@translates("CropAndResize", domain=DOMAIN)
def crop_and_resize(n: NodeContext) -> Any:
    """Boxes [R, (y1, x1, y2, x2)] of images [N, C, H, W], whose corners are 0 and 1, sampled at
    h × w points that include their corners; what lies outside is `extrapolation_value`."""
    x, boxes, mode = n[0], n[1], n.text("mode") or "bilinear"
    if mode not in ("bilinear", "nearest"):
        raise Refusal(f"its mode {mode!r} is not known")
    images, count = n.checked(n[2], from_start(x.shape[0])), boxes.shape[0]
    goal = [int(v) for v in n.numbers(3)]
    rows = n.build.emit("transpose", x, perm=(0, 2, 3, 1))
    axes, within = [], None
    for d, points in enumerate(goal):
        low, high = (op(n, "slice", boxes, starts=(0, d + k), shape=(count, 1)) for k in (0, 2))
        last = n.build.from_sizes(np.array(sizes.size(x.shape[2 + d] - 1), object), I64)
        last = op(n, "cast", last, to=boxes.dtype.name)
        part = np.arange(points) / (points - 1) if points > 1 else np.array([0.5])
        part = n.constant(part.astype(boxes.dtype.numpy).reshape(1, points))
        at = op(n, "mul", op(n, "sub", high, low), part)
        at = op(n, "mul", op(n, "add", low, at), last)
        lies = op(n, "logical_and", op(n, "greater_equal", at, n.constant(0, at.dtype)),
                  op(n, "less_equal", at, last))  # fmt: skip
        shape = (count, points, 1) if d == 0 else (count, 1, points)
        axes.append(op(n, "reshape", at, shape=shape))
        lies = op(n, "reshape", lies, shape=shape)
        within = lies if within is None else op(n, "logical_and", within, lies)
    assert within is not None
    where = (count, *goal)
    image = op(n, "cast", op(n, "reshape", images, shape=(count, 1, 1)), to="i64")

    def picked(ends: tuple[str, str]) -> Value:
        """The pixels at the points, rounded as said along each axis: [R, h, w, C]."""
        whole = [op(n, "cast", op(n, "expand", rounded(n, at, how), shape=where), to="i64")
                 for at, how in zip(axes, ends, strict=True)]  # fmt: skip
        parts = [op(n, "expand", image, shape=where), *whole]
        column = [op(n, "reshape", p, shape=(*where, 1)) for p in parts]
        return op(n, "gather_nd", rows, op(n, "concat", *column, axis=3))

    if mode == "nearest":
        y = picked(("round", "round"))
    else:
        weights = [op(n, "reshape", op(n, "sub", at, op(n, "floor", at)), shape=(*at.shape, 1))
                 for at in axes]  # fmt: skip
        lines = [mixed(n, picked((end, "floor")), picked((end, "ceil")), weights[1])
                 for end in ("floor", "ceil")]  # fmt: skip
        y = mixed(n, lines[0], lines[1], weights[0])
    outside = n.constant(n.float("extrapolation_value", 0.0), x.dtype)
    y = op(n, "where", op(n, "reshape", within, shape=(*where, 1)), y, outside)
    return n.emit("transpose", y, perm=(0, 3, 1, 2))


def mixed(n: NodeContext, a: Value, b: Value, weight: Value) -> Value:
    """Linear interpolation: a where the weight is 0, b where it is 1."""
    return op(n, "add", a, op(n, "mul", op(n, "sub", b, a), weight))


def rounded(n: NodeContext, at: Value, how: str) -> Value:
    """Halves go up, where `round` is asked for: positions are not negative."""
    if how != "round":
        return op(n, how, at)
    return op(n, "floor", op(n, "add", at, n.constant(0.5, at.dtype)))
