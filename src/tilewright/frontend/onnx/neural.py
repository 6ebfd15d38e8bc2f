"""Translators of ONNX matrix products, convolutions and pooling."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.frontend.onnx import data_dependent
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.frontend.onnx.runtime_broadcast import broadcast_operands
from tilewright.graph import sizes
from tilewright.graph.graph import Value
from tilewright.graph.ops.linear import kernel_of
from tilewright.graph.ops.pooling import pooled, whole_pads
from tilewright.ir.expr import Expr, as_int, maximum


@translates("MatMul")
def matmul(n: NodeContext) -> Any:
    a, b = n[0], n[1]
    if not a.rank or not b.rank:
        raise Refusal("an operand is a scalar")
    if a.rank > 1 and b.rank > 1:
        return n.emit("matmul", a, b)
    if a.rank == b.rank == 1:
        return n.emit("reduce_sum", n.build.emit("mul", a, b), axes=(0,))
    left = n.emit("reshape", a, shape=(1, *a.shape)) if a.rank == 1 else a
    right = n.emit("reshape", b, shape=(*b.shape, 1)) if b.rank == 1 else b
    y = n.emit("matmul", left, right)
    shape = (
        y.shape[:-2]
        + (() if a.rank == 1 else y.shape[-2:-1])
        + (() if b.rank == 1 else y.shape[-1:])
    )
    return n.emit("reshape", y, shape=shape)


@translates("Gemm")
def gemm(n: NodeContext) -> Any:
    alpha, beta = n.float("alpha", 1.0), n.float("beta", 1.0)
    if n[0].rank != 2 or n[1].rank != 2:
        raise Refusal("its operands must be matrices")
    bias = n.optional(2) if beta != 0 else None
    plain = alpha == 1.0 and bias is None
    attrs: dict[str, Any] = {"transpose_a": n.flag("transA"), "transpose_b": n.flag("transB")}
    y = (n if plain else n.build).emit("matmul", n[0], n[1], **attrs)
    if alpha != 1.0:
        y = (n if bias is None else n.build).emit("mul", y, n.constant(alpha, y.dtype))
    if bias is None:
        return y
    if beta != 1.0:
        bias = n.build.emit("mul", bias, n.constant(beta, bias.dtype))
    return n.emit("add", *broadcast_operands(n, (y, bias)))


def window(n: NodeContext, x: Value, kernel: tuple[Any, ...], pool: bool = False) -> dict[str, Any]:
    """strides, pads and dilations as our window operators want them."""
    rank = len(kernel)
    strides = n.ints("strides") or (1,) * rank
    dilations = n.ints("dilations") or (1,) * rank
    given = n.ints("pads") or (0,) * (2 * rank)
    for what, values, count in (
        ("strides", strides, rank),
        ("dilations", dilations, rank),
        ("pads", given, 2 * rank),
    ):
        if len(values) != count:
            raise Refusal(f"it has {len(values)} {what}, {count} are needed")
        if any(v < (0 if what == "pads" else 1) for v in values):
            raise Refusal(f"its {what} {values} are too small")
    if x.rank != rank + 2:
        raise Refusal(f"its kernel has rank {rank}, its input rank {x.rank}; expected {rank + 2}")
    auto = n.text("auto_pad", "NOTSET")
    if auto == "NOTSET":
        pads = tuple(zip(given[:rank], given[rank:], strict=True))
    elif auto == "VALID":
        pads = ((0, 0),) * rank
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        made = []
        for s, k, stride, d in zip(x.shape[2:], kernel, strides, dilations, strict=True):
            reach, size = d * (k - 1) + 1, as_int(s)
            if (size is None and stride != 1) or not isinstance(reach, int):
                raise Refusal(f"auto_pad {auto} with stride {stride} needs known sizes")
            total = (
                reach - 1
                if size is None
                else max(0, (-(-size // stride) - 1) * stride + reach - size)
            )
            small, large = total // 2, total - total // 2
            made.append((small, large) if auto == "SAME_UPPER" else (large, small))
        pads = tuple(made)
    else:
        raise Refusal(f"auto_pad {auto!r} is not known")
    return {"strides": strides, "pads": pads, "dilations": dilations}


def padded_window(
    n: NodeContext, x: Value, kernel: tuple[Any, ...], fill: float
) -> tuple[Value, dict[str, Any]]:
    """x and its window. Where auto_pad needs sizes that only the run knows, x comes padded."""
    rank = len(kernel)
    auto, strides = n.text("auto_pad", "NOTSET"), n.ints("strides") or (1,) * rank
    dilations = n.ints("dilations") or (1,) * rank
    known = sizes.static(x.shape[2:]) is not None or max(strides, default=1) == 1
    known = known and all(isinstance(k, int) for k in kernel)
    fits = x.rank == rank + 2 and len(strides) == len(dilations) == rank and min(strides) > 0
    if known or not fits or auto not in ("SAME_UPPER", "SAME_LOWER"):
        return x, window(n, x, kernel)
    before, after = [sizes.size(0)] * 2, [sizes.size(0)] * 2
    for axis in zip(x.shape[2:], kernel, strides, dilations, strict=True):
        low, high = same_pads(*axis, auto)
        before.append(low)
        after.append(high)
    y = n.build.emit("pad", x, before=tuple(before), after=tuple(after), value=fill)
    return y, {"strides": strides, "pads": ((0, 0),) * rank, "dilations": dilations}


def same_pads(size: Expr, kernel: Any, stride: int, dilation: int, auto: str) -> tuple[Expr, Expr]:
    """What SAME_UPPER or SAME_LOWER puts before and after an axis where a size is open."""
    count = (size + (stride - 1)) // stride
    reach = dilation * (kernel - 1) + 1
    total = sizes.size((count - 1) * stride + reach - size)
    steps = as_int(reach)
    if may_step_over := steps is None or steps < stride:  # else there is never less to pad than 0
        total = sizes.size(maximum(total, sizes.size(0)))
    # by a remainder, of which bounds are known: no more than that is asked of few elements
    beyond = (reach - 1) - (size + (stride - 1)) % stride
    if may_step_over:
        beyond = maximum(beyond, sizes.size(0))
    small = sizes.size(beyond // 2)
    large = sizes.size(total - small)
    return (small, large) if auto == "SAME_UPPER" else (large, small)


def weights_of(n: NodeContext, k: int = 1) -> Value:
    """Input `k`, weights […, …, *kernel]: of the kernel that the node states, if it states one,
    which the run checks if the weights' sizes do not show it."""
    w, stated = n[k], n.ints("kernel_shape")
    if w.rank < 3:
        raise Refusal(f"its weights have rank {w.rank}; they need space axes")
    if stated is None:
        return w
    kernel = sizes.static(w.shape[2:])
    if len(stated) != w.rank - 2 or (kernel is not None and stated != kernel):
        have = ", ".join(map(sizes.text, w.shape[2:]))
        raise Refusal(f"kernel_shape is {stated}, its weights have ({have})")
    return w if kernel is not None else data_dependent.view_of(n, w, (*w.shape[:2], *stated))


@translates("Conv")
def conv(n: NodeContext) -> Any:
    x, w, bias = n[0], weights_of(n), n.optional(2)
    x, attrs = padded_window(n, x, kernel_of(w), 0.0)
    parts = (x, w) if bias is None else (x, w, bias)
    return n.emit("conv", *parts, **attrs, groups=n.int("group", 1))


@translates("ConvTranspose")
def conv_transpose(n: NodeContext) -> Any:
    x, w, bias = n[0], weights_of(n), n.optional(2)
    kernel = kernel_of(w)
    rank = len(kernel)
    auto = n.text("auto_pad", "NOTSET")
    strides, dilations = n.ints("strides") or (1,) * rank, n.ints("dilations") or (1,) * rank
    extra = n.ints("output_padding") or (0,) * rank
    goal, groups = n.ints("output_shape"), n.int("group", 1)
    attrs: dict[str, Any] = {"strides": strides, "dilations": dilations}
    for what, values in (*attrs.items(), ("output_padding", extra)):
        if len(values) != rank or any(v < (what != "output_padding") for v in values):
            raise Refusal(f"its {what} {values} do not fit {rank} space axes")
    if goal is None and auto in ("NOTSET", "VALID"):
        given = n.ints("pads") or (0,) * (2 * rank)
        if len(given) != 2 * rank:
            raise Refusal(f"it has {len(given)} pads, {2 * rank} are needed")
        pads = (
            tuple(zip(given[:rank], given[rank:], strict=True))
            if auto == "NOTSET"
            else ((0, 0),) * rank
        )
    else:
        if goal is not None and len(goal) < rank:
            raise Refusal(f"output_shape {goal} has fewer than {rank} sizes")
        spans = [dilations[d] * (kernel[d] - 1) + 1 + extra[d] for d in range(rank)]
        whole = [(x.shape[2 + d] - 1) * strides[d] + spans[d] for d in range(rank)]
        wanted = goal[len(goal) - rank :] if goal else map(operator.mul, x.shape[2:], strides)
        wanted = sizes.shape(wanted)
        over = [sizes.size(have - want) for have, want in zip(whole, wanted, strict=True)]
        totals = sizes.static(over)
        upper = auto == "SAME_UPPER"
        if totals is None:
            y: Value = n.build.emit("conv_transpose", x, w, **attrs, extra=extra, groups=groups)
            return biased(n, cut_to(n, y, wanted, over, upper), bias)
        extra = tuple(e + max(0, -t) for e, t in zip(extra, totals, strict=True))
        halves = [(t // 2, t - t // 2) for t in (max(0, t) for t in totals)]
        pads = tuple(half if upper else half[::-1] for half in halves)
    parts = (x, w) if bias is None else (x, w, bias)
    return n.emit("conv_transpose", *parts, **attrs, pads=pads, extra=extra, groups=groups)


def cut_to(
    n: NodeContext, y: Value, wanted: Sequence[Expr], over: Sequence[Expr], upper: bool
) -> Value:
    """A transposed convolution's whole result [batch, channels, *space] cut, or filled up with
    zeros, to sizes that only the run knows. over: what it has too much along each axis, of which
    the smaller half lies in front if `upper`, else behind."""
    nothing = sizes.size(0)
    lead = (nothing, nothing)
    missing = [sizes.size(maximum(sizes.size(0 - o), nothing)) for o in over]
    spare = [sizes.size(maximum(o, nothing)) for o in over]
    starts = [s // 2 if upper else s - s // 2 for s in spare]
    y = n.build.emit("pad", y, before=(0,) * y.rank, after=(*lead, *missing), value=0.0)
    goal = (*y.shape[:2], *wanted)
    return n.build.emit("slice", y, starts=(*lead, *map(sizes.size, starts)), shape=goal)


def biased(n: NodeContext, y: Value, bias: Value | None) -> Value:
    """y [batch, channels, *space] and one number for each channel."""
    if bias is None:
        return y
    column = n.build.emit("reshape", bias, shape=(*bias.shape, *(1,) * (y.rank - 2)))
    return n.emit("add", y, column)


@translates("GlobalAveragePool", "GlobalMaxPool")
def global_pool(n: NodeContext) -> Any:
    op = "reduce_mean" if n.op == "GlobalAveragePool" else "reduce_max"
    return n.emit(op, n[0], axes=tuple(range(2, n[0].rank)), keepdims=True)


@translates("LRN")
def lrn(n: NodeContext) -> Any:
    return n.emit(
        "lrn", n[0], size=n.int("size", 1), alpha=n.float("alpha", 1e-4),
        beta=n.float("beta", 0.75),
        bias=n.float("bias", 1.0),
    )  # fmt: skip


@translates("LpPool", "GlobalLpPool")
def lp_pool(n: NodeContext) -> Any:
    """(Σ |x|^p)^(1/p) over windows: the sum is a convolution of each channel with ones."""
    x, p = n[0], n.int("p", 2)
    powers = n.build.emit("abs", x)
    powers = powers if p == 1 else n.build.emit("pow", powers, n.constant(float(p), x.dtype))
    if n.op == "GlobalLpPool":
        total = n.build.emit("reduce_sum", powers, axes=tuple(range(2, x.rank)), keepdims=True)
    else:
        kernel, channels = n.ints("kernel_shape"), as_int(x.shape[1])
        if not kernel or any(k < 1 for k in kernel):
            raise Refusal("it needs a positive kernel")
        powers, attrs = padded_window(n, powers, kernel, 0.0)
        if n.flag("ceil_mode"):
            powers, attrs = wholly_padded(n, powers, kernel, attrs)
        lead = x.shape[:2]
        if channels is None:  # each is an image of its own
            flat = (sizes.product(lead), 1, *powers.shape[2:])
            powers, channels = n.build.emit("reshape", powers, shape=flat), 1
        ones = n.constant(np.ones((channels, 1, *kernel)), x.dtype)
        total = n.build.emit("conv", powers, ones, **attrs, groups=channels)
        total = n.build.emit("reshape", total, shape=(*lead, *total.shape[2:]))
    return total if p == 1 else n.emit("pow", total, n.constant(1 / p, x.dtype))


def wholly_padded(
    n: NodeContext, x: Value, kernel: tuple[int, ...], attrs: dict[str, Any]
) -> tuple[Value, dict[str, Any]]:
    """x and its window, with the zeros at the ends that make each last, partial window whole."""
    strides, pads, dilations = attrs["strides"], attrs["pads"], attrs["dilations"]
    space = sizes.static(x.shape[2:])
    if space is not None:
        return x, {**attrs, "pads": whole_pads(space, kernel, strides, pads, dilations, True)}
    after = [sizes.size(0)] * 2
    for s, k, stride, pad, d in zip(x.shape[2:], kernel, strides, pads, dilations, strict=True):
        last = (pooled(s, k, stride, pad, d, True) - 1) * stride + d * (k - 1) + 1
        after.append(sizes.size(maximum(sizes.size(last - s - pad[0]), sizes.size(pad[1]))))
    before = (0, 0, *(pad[0] for pad in pads))
    x = n.build.emit("pad", x, before=before, after=tuple(after), value=0.0)
    return x, {**attrs, "pads": ((0, 0),) * len(kernel)}
