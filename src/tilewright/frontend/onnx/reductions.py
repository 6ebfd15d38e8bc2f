"""Translators of ONNX reductions, normalisations and running sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontend.onnx import data_dependent
from tilewright.frontend.onnx.arithmetic import Floats
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.frontend.onnx.runtime_broadcast import unify_operands
from tilewright.graph import sizes
from tilewright.graph.graph import Value
from tilewright.ir.expr import as_int

_REDUCE = {
    "ReduceSum": "reduce_sum",
    "ReduceMean": "reduce_mean",
    "ReduceMax": "reduce_max",
    "ReduceMin": "reduce_min",
    "ReduceProd": "reduce_prod",
    "ReduceL1": "reduce_sum",
    "ReduceL2": "reduce_sum",
    "ReduceSumSquare": "reduce_sum",
    "ReduceLogSum": "reduce_sum",
    "ReduceLogSumExp": "reduce_sum",
}


def axes_of(n: NodeContext, moved_in: int) -> tuple[int, ...] | None:
    """The axes: an attribute before version `moved_in`, input 1 from then on; None: all; ():
    none."""
    axes = n.ints("axes")
    if n.version >= moved_in and n.optional(1) is not None:
        axes = n.numbers(1) if as_int(n[1].elements) != 0 else ()
    if not axes:
        return () if n.flag("noop_with_empty_axes") else None
    return tuple(axes)


@translates(*_REDUCE)
def reduce(n: NodeContext) -> Any:
    x, op, keep = n[0], n.op, n.flag("keepdims", True)
    moved_in = 13 if op == "ReduceSum" else 18
    if n.version >= moved_in and not data_dependent.is_known(n, 1) and as_int(n[1].elements) != 0:
        if not keep and as_int(n[1].elements) is None and data_dependent.told_rank(n) == 0:
            return reduced(n, x, None, False)  # however many axes: all
        x, shape = data_dependent.as_columns(n, x, keep, n.flag("noop_with_empty_axes"))
        return n.emit("view_as", reduced(n, x, (1,), False), shape=shape)
    return reduced(n, x, axes_of(n, moved_in), keep)


def reduced(n: NodeContext, x: Value, axes: tuple[int, ...] | None, keep: bool) -> Value:
    """x reduced as the operator says."""
    op = n.op
    if x.dtype.is_bool and op in ("ReduceMax", "ReduceMin"):
        return n.emit(
            "reduce_any" if op == "ReduceMax" else "reduce_all", x, axes=axes, keepdims=keep
        )
    if op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"):
        return n.emit(_REDUCE[op], x, axes=axes, keepdims=keep) if axes != () else x
    return n.narrowed(of_terms(n, n.wide(x), axes, keep), x.dtype)


def of_terms(n: NodeContext, x: Value, axes: tuple[int, ...] | None, keep: bool) -> Value:
    """A function of the sum of sizes, squares or exponentials."""
    op = n.op
    if op == "ReduceLogSumExp":
        return log_sum_exp(n, x, axes, keep)
    if op == "ReduceL1":
        x = n.emit("abs", x)
    elif op in ("ReduceL2", "ReduceSumSquare"):
        x = n.emit("mul", x, x)
    y = n.emit("reduce_sum", x, axes=axes, keepdims=keep) if axes != () else x
    if op == "ReduceL2":
        if y.dtype.is_float:
            return n.emit("sqrt", y)
        root = n.emit("sqrt", n.emit("cast", y, to="f64"))
        return n.emit("cast", root, to=y.dtype.name)
    return n.emit("log", y) if op == "ReduceLogSum" else y


def log_sum_exp(n: NodeContext, x: Value, axes: tuple[int, ...] | None, keep: bool) -> Any:
    """top + log(sum(exp(x - top))): no overflow. An infinite top is left out of the shift."""
    if axes == ():
        return x
    top = n.emit("reduce_max", x, axes=axes, keepdims=True)
    top = n.emit("clip", top, low=-3e38, high=3e38)
    e = n.emit("exp", n.emit("sub", x, top))
    total = n.emit("log", n.emit("reduce_sum", e, axes=axes, keepdims=True))
    y = n.emit("add", total, top)
    if keep:
        return y
    drop = range(x.rank) if axes is None else [a % x.rank for a in axes]
    return n.emit("reshape", y, shape=tuple(s for d, s in enumerate(y.shape) if d not in drop))


@translates("ArgMax", "ArgMin")
def index_of_extreme(n: NodeContext) -> Any:
    return n.emit(
        n.op.lower(), n[0], axis=n.int("axis", 0), keepdims=n.flag("keepdims", True),
        last=n.flag("select_last_index"),
    )  # fmt: skip


@translates("Softmax", "LogSoftmax")
def softmax(n: NodeContext) -> Any:
    x, op = n[0], "softmax" if n.op == "Softmax" else "log_softmax"
    if n.version >= 13:
        return n.emit(op, x, axis=n.int("axis", -1))
    axis = n.int("axis", 1)  # before 13: over all axes from `axis` on, as one
    axis = axis + x.rank if axis < 0 else axis
    if axis == x.rank - 1:
        return n.emit(op, x, axis=axis)
    if not 0 <= axis <= x.rank:
        raise Refusal(f"axis {axis} is out of range for rank {x.rank}")
    flat = n.emit(
        "reshape", x, shape=(sizes.product(x.shape[:axis]), sizes.product(x.shape[axis:]))
    )
    return n.emit("reshape", n.emit(op, flat, axis=1), shape=x.shape)


@translates("BatchNormalization")
def batch_norm(n: NodeContext) -> Any:
    if n.flag("training_mode"):
        return trained_norm(n)
    if n.int("spatial", 1) != 1:
        raise Refusal("statistics for each position (spatial=0) are not supported")
    x = n[0]
    parts = [
        p if p.dtype is x.dtype else n.build.emit("cast", p, to=x.dtype.name)
        for p in map(n.__getitem__, range(1, 5))
    ]
    return n.emit("batch_norm", x, *parts, eps=n.float("epsilon", 1e-5))


def trained_norm(n: NodeContext) -> Any:
    """By the batch's own mean and variance; the running ones move towards them."""
    x, scale, bias = n.wide(n[0]), n[1], n[2]
    f, axes = Floats(n, x.dtype.name), tuple(d for d in range(x.rank) if d != 1)
    shape = tuple(x.shape[1] if d == 1 else 1 for d in range(x.rank))
    mean = f("reduce_mean", x, axes=axes, keepdims=True)
    moved = f("sub", x, mean)
    power = f("reduce_mean", f("mul", moved, moved), axes=axes, keepdims=True)
    spread = f("sqrt", f("add", power, n.float("epsilon", 1e-5)))
    by, plus = (n.build.emit("reshape", f.of(v), shape=shape) for v in (scale, bias))
    y = n.narrowed(f("add", f("mul", f("div", moved, spread), by), plus), n[0].dtype)
    keep = n.float("momentum", 0.9)
    running = []
    for old, new in ((n[3], mean), (n[4], power)):
        g = Floats(n, old.dtype.name)
        fresh = g.of(n.build.emit("reshape", new, shape=(x.shape[1],)))
        running.append(g("add", g("mul", old, keep), g("mul", fresh, 1 - keep)))
    return y, *running


@translates("LayerNormalization")
def layer_norm(n: NodeContext) -> Any:
    if len(n.node.output) > 1:  # the statistics too: then by ONNX's own definition
        return n.importer.call(n.importer.standard(n), n)
    x, axis = n[0], n.int("axis", -1)
    if not -x.rank <= axis < x.rank:
        raise Refusal(f"axis {axis} is out of range for rank {x.rank}")
    tail = x.shape[axis % x.rank :]
    scale, bias = n[1], n.optional(2)
    eps = n.float("epsilon", 1e-5)
    if scale.shape == tail and (bias is None or bias.shape == tail):
        parts = [scale] if bias is None else [scale, bias]
        return n.emit("layer_norm", x, *parts, axis=axis, eps=eps)
    y = n.emit("mul", n.emit("layer_norm", x, axis=axis, eps=eps), scale)
    return y if bias is None else n.emit("add", y, bias)


@translates("RMSNormalization", "SimplifiedLayerNormalization")
def rms_norm(n: NodeContext) -> Any:
    x, axis, eps = n[0], n.int("axis", -1), n.float("epsilon", 1e-5)
    if not -x.rank <= axis < x.rank:
        raise Refusal(f"axis {axis} is out of range for rank {x.rank}")
    if n[1].shape == x.shape[axis % x.rank :]:
        return n.emit("rms_norm", x, n[1], axis=axis, eps=eps)
    return n.emit("mul", n.emit("rms_norm", x, axis=axis, eps=eps), n[1])


def instance_norm(n: NodeContext, x: Value, scale: Value, bias: Value, eps: float) -> Value:
    """Each channel of each image by itself, of which only the run knows how many there are."""
    rows = n.build.emit("reshape", x, shape=(sizes.size(x.shape[0] * x.shape[1]), 1, *x.shape[2:]))
    one, none = (n.constant(np.full(1, v, x.dtype.numpy)) for v in (1, 0))
    y = n.build.emit("group_norm", rows, one, none, groups=1, eps=eps)
    y = n.build.emit("reshape", y, shape=x.shape)
    line = (x.shape[1], *[1] * (x.rank - 2))
    scale, bias = (data_dependent.view_of(n, v, line) for v in (scale, bias))
    return n.emit("add", n.build.emit("mul", y, scale), bias)


@translates("InstanceNormalization", "GroupNormalization")
def group_norm(n: NodeContext) -> Any:
    x, scale, bias, eps = n[0], n[1], n[2], n.float("epsilon", 1e-5)
    if n.op == "InstanceNormalization":
        if x.rank < 2:
            raise Refusal("it needs a channel axis")
        if as_int(x.shape[1]) is None and as_int(scale.shape[0]) is not None:
            unify_operands(n, x.shape[1], scale.shape[0])
            x = n[0]
        channels = as_int(x.shape[1])
        if channels is None:
            return instance_norm(n, x, scale, bias, eps)
        return n.emit("group_norm", x, scale, bias, groups=channels, eps=eps)
    groups = n.int("num_groups")
    if groups is None or x.rank < 2:
        raise Refusal("it needs num_groups and a channel axis")
    if n.version < 21 and scale.shape != (x.shape[1],):  # one weight for each group
        each = sizes.size(x.shape[1] // groups)
        scale, bias = (
            n.build.emit(
                "reshape",
                n.build.emit(
                    "expand",
                    n.build.emit("reshape", p, shape=(*p.shape, 1)),
                    shape=(*p.shape, each),
                ),
                shape=(x.shape[1],),
            )
            for p in (scale, bias)
        )
    return n.emit("group_norm", x, scale, bias, groups=groups, eps=eps)


@translates("LpNormalization")
def lp_norm(n: NodeContext) -> Any:
    x, axis, p = n.wide(n[0]), n.int("axis", -1), n.int("p", 2)
    powers = n.emit("abs", x) if p == 1 else n.emit("mul", x, x)
    total = n.emit("reduce_sum", powers, axes=(axis,), keepdims=True)
    norm = total if p == 1 else n.emit("sqrt", total)
    zero, one = n.constant(0, x.dtype), n.constant(1, x.dtype)
    norm = n.emit("where", n.emit("equal", norm, zero), one, norm)
    return n.narrowed(n.emit("div", x, norm), n[0].dtype)


@translates("MeanVarianceNormalization")
def mean_variance_norm(n: NodeContext) -> Any:
    x, axes = n.wide(n[0]), n.ints("axes", (0, 2, 3))
    moved = n.emit("sub", x, n.emit("reduce_mean", x, axes=axes, keepdims=True))
    power = n.emit("reduce_mean", n.emit("mul", moved, moved), axes=axes, keepdims=True)
    spread = n.emit("add", n.emit("sqrt", power), n.constant(1e-9, x.dtype))
    return n.narrowed(n.emit("div", moved, spread), n[0].dtype)


@translates("CumSum", "CumProd")
def running(n: NodeContext) -> Any:
    if not data_dependent.is_known(n, 1):
        x = data_dependent.around(n, n[0], data_dependent.vector(n, 1))
        sums = n.emit(
            n.op.lower(), x, axis=1, exclusive=n.flag("exclusive"), reverse=n.flag("reverse")
        )
        return n.emit("view_as", sums, shape=n[0].shape)
    return n.emit(
        n.op.lower(),
        n[0],
        axis=int(n.scalar(1)),
        exclusive=n.flag("exclusive"),
        reverse=n.flag("reverse"),
    )


def squared(n: NodeContext, x: Value) -> Value:
    """A stack of square matrices as such: the run finds them so if their sizes do not show it."""
    if x.rank > 1:
        rows, columns = x.shape[-2:]
        if rows == columns:
            return x
        if sizes.static((rows, columns)) is None:
            return data_dependent.view_of(n, x, (*x.shape[:-1], rows))
    raise Refusal(f"it needs square matrices, not {x.type_text}")


@translates("Det")
def determinant(n: NodeContext) -> Any:
    """The product of the pivots of the last two axes, with the sign of their exchanges."""
    x, build = squared(n, n[0]), n.build
    size, count = x.shape[-1], sizes.product(x.shape[:-2])
    stack = build.emit("reshape", x, shape=(count, size, size))
    upper, pivots, _ = build.emit("lu", stack)
    positions = build.emit("cast", build.emit("arange", length=size), to="i32")
    column = build.emit("reshape", positions, shape=(size, 1))
    zero = n.constant(0, x.dtype)
    diagonal = build.emit("where", build.emit("equal", positions, column), upper, zero)
    diagonal = build.emit("reduce_sum", diagonal, axes=(1,))
    kept = build.emit("equal", pivots, build.emit("add", positions, n.constant(1, "i32")))
    sign = build.emit("where", kept, n.constant(1, x.dtype), n.constant(-1, x.dtype))
    signed = build.emit("mul", diagonal, sign)
    return n.emit("reshape", build.emit("reduce_prod", signed, axes=(1,)), shape=x.shape[:-2])
