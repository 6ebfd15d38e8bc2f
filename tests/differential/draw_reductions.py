"""Draws of reductions, normalisations, scans and sorts."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.differential.draw_linear import image
from tests.differential.growth import (
    F32,
    F64,
    FLOATS,
    I32,
    I64,
    Growth,
    Value,
    within,
)
from tests.differential.reference import Unsound
from tests.differential.table import draws


def apply_with_axes(g: Growth, op: str, x: Value, since: int, **more: Any) -> None:
    """A reduction whose axes are an attribute before version `since` and an input from there."""
    axes = None
    if x.rank and g.chance(0.85):
        axes = sorted(g.rng.choice(x.rank, g.int(1, x.rank), replace=False).tolist())
        full = min(map(min, x.dims)) > 0  # of what is empty onnxruntime knows no negative axes
        if g.version >= 11 and full and g.chance(0.3):
            axes = [a - x.rank for a in axes]
    if g.chance(0.7):
        more["keepdims"] = g.int(0, 1)
    if g.version < since:
        g.apply(op, x, axes=axes, **more)
    else:
        told = bool(axes) and g.chance(0.1)
        way = g.told([axes] * g.count) if told else g.constant(axes or [])
        made = g.apply(op, x, *([] if axes is None else [way]), **more)
        if told:
            g.forget(made)


@draws(
    *"ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare"
    " ReduceLogSum ReduceLogSumExp".split(),
    weight=5,
)
def reduction(g: Growth, op: str) -> None:
    types = (*FLOATS, I32, I64) if op in ("ReduceSum", "ReduceMax", "ReduceMin") else (F32, F64)
    low, high = {"ReduceLogSum": (0.1, 100), "ReduceProd": (-3, 3)}.get(op, (-1e4, 1e4))
    if g.chance(0.7):
        types = (F32, F64)
    x = g.value(types, where=lambda a: within(a, low, high), low=max(low, -3))
    exact = op in ("ReduceMax", "ReduceMin") or x.dtype.kind == "i"
    apply_with_axes(g, op, x, 13 if op == "ReduceSum" else 18, exact=exact)


@draws("ArgMax", "ArgMin", weight=1)
def arg(g: Growth, op: str) -> None:
    x = g.value((F32, F64, I32), range(1, 5), fits=lambda v: min(map(min, v.dims)) > 0)
    low = -x.rank if g.version >= 11 else 0
    last = g.int(0, 1) if g.version >= 12 and g.chance(0.4) else None
    g.apply(
        op, x, axis=g.int(low, x.rank - 1), keepdims=g.int(0, 1), select_last_index=last,
        exact=True,
    )  # fmt: skip


@draws("CumSum", weight=0.9, since=11, empties=True)
def cumsum(g: Growth, op: str) -> None:
    x = g.value((F32, F64, I32, I64), range(1, 5))
    axis = g.constant(g.int(-x.rank, x.rank - 1), g.among([I64, I32]))
    attrs = {"exclusive": g.among([None, 1]), "reverse": g.among([None, 1])}
    g.apply(op, x, axis, exact=x.dtype.kind == "i", **attrs)


@draws("TopK", weight=0.9, since=10)
def top_k(g: Growth, op: str) -> None:
    x = g.value((F32, F64, I64) if g.version >= 11 else (F32,), range(1, 5))
    axis = g.int(0, x.rank - 1)
    k = g.constant([g.int(0 if g.chance(0.1) else 1, max(1, min(x.dims[axis])))])
    largest = g.int(0, 1) if g.version >= 11 else None
    g.apply(op, x, k, axis=axis, largest=largest, outputs=2, exact=True)


@draws("ReduceSum", "ReduceL1", "ReduceSumSquare", weight=0.3, empties=True)
def reduction_of_nothing(g: Growth, op: str) -> None:
    x = g.value((F32, F64), where=lambda a: within(a, -1e3, 1e3))
    apply_with_axes(g, op, x, 13 if op == "ReduceSum" else 18)


@draws("Softmax", "LogSoftmax", "Hardmax", weight=2.4)
def softmax(g: Growth, op: str) -> None:
    if op == "Hardmax" and g.chance(0.7):
        op = "Softmax"
    x = g.value((F32,) if op == "Hardmax" else FLOATS, range(1, 5),
                where=lambda a: within(a, -60, 60))  # fmt: skip
    axis = g.int(-x.rank if g.version >= 11 else 0, x.rank - 1)
    g.apply(
        op,
        x,
        axis=g.among([axis, None if x.rank > 1 else axis]),
        exact=op == "Hardmax",
        rough=op == "LogSoftmax",
    )


def several(x: Value, axis: int) -> None:
    """What is normalised has more than one element: of one, only rounding is left."""
    if any(np.prod(w.shape[axis:]) < 2 for w in x.worlds):
        raise Unsound("one element")


@draws("LayerNormalization", weight=1.2, since=17)
def layer_norm(g: Growth, op: str) -> None:
    x = g.value((F32, F64), range(1, 5), fits=lambda v: min(map(min, v.dims)) > 0)
    axis = g.int(0, x.rank - 1)
    dims = x.dims[axis:]
    several(x, axis)
    scale = g.fresh(x.dtype, dims)
    bias = [g.fresh(x.dtype, dims)] if g.chance(0.6) else []
    eps = g.among([None, 1e-3])
    g.apply(op, x, scale, *bias, axis=axis - g.among([0, x.rank]), epsilon=eps)


@draws("RMSNormalization", weight=0.5, since=23)
def rms_norm(g: Growth, op: str) -> None:
    x = g.value((F32,), range(1, 5), fits=lambda v: min(map(min, v.dims)) > 0)
    axis = g.int(0, x.rank - 1)
    g.apply(op, x, g.fresh(x.dtype, x.dims[axis:]), axis=axis)


@draws("BatchNormalization", "InstanceNormalization", weight=1.6)
def channel_norm(g: Growth, op: str) -> None:
    x = image(g, g.among([1, 2, 2, 3]))
    several(x, 2)
    channels = (x.dims[1],)
    parts = [g.fresh(F32, channels, -2, 2), g.fresh(F32, channels)]
    if op == "BatchNormalization":
        parts += [g.fresh(F32, channels, -1, 1), g.fresh(F32, channels, 0.2, 2)]
    g.apply(op, x, *parts, epsilon=g.among([None, 1e-3]))


@draws("GroupNormalization", weight=0.4, since=21)
def group_norm(g: Growth, op: str) -> None:
    x = image(g, g.among([1, 2]), group=2)
    several(x, 2)
    channels = (x.dims[1],)
    g.apply(op, x, g.fresh(F32, channels), g.fresh(F32, channels), num_groups=2)


@draws("LRN", weight=0.4)
def lrn(g: Growth, op: str) -> None:
    g.apply(op, image(g, 2), size=g.among([1, 3, 5]), alpha=g.number(0.001, 0.5))


@draws("LpNormalization", "MeanVarianceNormalization", weight=0.5)
def whole_norm(g: Growth, op: str) -> None:
    x = g.value((F32,), (2, 3, 4), fits=lambda v: min(map(min, v.dims)) > 0)
    if op == "LpNormalization":
        if not x.all(lambda a: bool((np.abs(a) > 0.01).all())):
            raise Unsound("a norm of zero")
        g.apply(op, x, axis=g.int(-1, x.rank - 1), p=g.int(1, 2))
    else:
        g.apply(op, x, axes=sorted(g.rng.choice(x.rank, 2, replace=False).tolist()))
