"""Translators of ONNX operators whose positions depend on data."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontend.onnx import data_dependent
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.frontend.onnx.tensors import axis
from tilewright.graph import sizes
from tilewright.graph.bounds import into
from tilewright.graph.graph import Value
from tilewright.ir.expr import as_int


@translates("GatherND")
def gather_nd(n: NodeContext) -> Any:
    batch, told = n.int("batch_dims", 0), data_dependent.told_rank(n)
    many = None if told is None else n[0].rank + n[1].rank - 1 - batch - told
    indices = of_depth(n, many)
    return n.emit("gather_nd", n[0], slices(n, indices, n[0].shape[batch:]), batch_dims=batch)


def of_depth(n: NodeContext, many: int | None) -> Value:
    """Input 1, whose rows hold so many indices each, which the run checks where only it knows."""
    indices = n[1]
    if not indices.rank or many is None or many < 1 or as_int(indices.shape[-1]) is not None:
        return indices
    n.inputs[1] = data_dependent.view_of(n, indices, (*indices.shape[:-1], many))
    return n[1]


def slices(n: NodeContext, indices: Any, axes: Any) -> Any:
    """Input 1, whose rows are positions along the first of some axes."""
    depth = (as_int(indices.shape[-1]) or 0) if indices.rank else 0
    return n.indices(1, *axes[:depth]) if 0 < depth <= len(axes) else indices


@translates("ScatterElements", "Scatter")
def scatter_elements(n: NodeContext) -> Any:
    d = axis(n, n.int("axis", 0), n[0].rank)
    indices, kind = n.indices(1, n[0].shape[d]), n.text("reduction", "none")
    return n.emit("scatter_elements", n[0], indices, n[2], axis=d, reduction=kind)


@translates("ScatterND")
def scatter_nd(n: NodeContext) -> Any:
    indices = of_depth(n, n[0].rank + n[1].rank - 1 - n[2].rank)
    indices = slices(n, indices, n[0].shape)
    return n.emit("scatter_nd", n[0], indices, n[2], reduction=n.text("reduction", "none"))


def number(n: NodeContext, k: int, *most: Any) -> Any:
    """Input `k`, a count: a size expression if it is one, else one that depends on data."""
    return n.sizes(k)[0] if data_dependent.is_known(n, k) else data_dependent.count(n, k, *most)


@translates("OneHot")
def one_hot(n: NodeContext) -> Any:
    depth = int(n.scalar(1)) if data_dependent.is_constant(n, 1) else number(n, 1)
    values = n[2] if as_int(n[2].shape[0]) is not None else data_dependent.view_of(n, n[2], (2,))
    return n.emit("one_hot", n[0], values, depth=depth, axis=n.int("axis", -1))


@translates("TopK")
def top_k(n: NodeContext) -> Any:
    if n.version >= 10 and not data_dependent.is_constant(n, 1):
        k = number(n, 1, n[0].shape[axis(n, n.int("axis", -1), n[0].rank)])
    else:
        k = n.int("k") if n.version < 10 else int(n.scalar(1))
    return n.emit("top_k", n[0], k=k, axis=n.int("axis", -1), largest=n.flag("largest", True))


@translates("EyeLike")
def eye_like(n: NodeContext) -> Any:
    x = n[0]
    if x.rank != 2:
        raise Refusal("it needs a matrix")
    of, k = n.dtype("dtype", x.dtype), n.int("k", 0)
    row, column = (n.build.emit("arange", length=s) for s in x.shape)
    row = n.build.emit("reshape", row, shape=(x.shape[0], 1))
    same = data_dependent.op(n, "equal", data_dependent.op(n, "add", row, k), column)
    return n.emit("cast", same, to=of.name)


@translates("Hardmax")
def hardmax(n: NodeContext) -> Any:
    """1 at the first greatest position along an axis, else 0."""
    x = n[0]
    at = axis(n, n.int("axis", -1 if n.version >= 13 else 1), x.rank)
    if n.version < 13 and at != x.rank - 1:
        flat = n.build.emit(
            "reshape", x, shape=(sizes.product(x.shape[:at]), sizes.product(x.shape[at:]))
        )
        return n.emit("reshape", _first_greatest(n, flat, 1), shape=x.shape)
    return _first_greatest(n, x, at)


def _first_greatest(n: NodeContext, x: Any, at: int) -> Any:
    depth = x.shape[at]
    values = n.build.constant(np.array([0, 1], x.dtype.numpy))
    return n.emit("one_hot", n.build.emit("argmax", x, axis=at), values, depth=depth, axis=at)


@translates("Compress")
def compress(n: NodeContext) -> Any:
    """A gather of the positions where the condition holds."""
    x = n[0]
    at = n.int("axis")
    if at is None:
        x, at = n.build.emit("reshape", x, shape=(x.elements,)), 0
    if not data_dependent.is_known(n, 1):
        return data_dependent.compress(n, x, axis(n, at, x.rank))
    d = axis(n, at, x.rank)
    positions = n.constant(np.flatnonzero(n.array(1)))
    return n.emit("gather", x, n.checked(positions, into(x.shape[d])), axis=d)


@translates("NonZero")
def nonzero(n: NodeContext) -> Any:
    if not data_dependent.is_constant(n, 0):
        return data_dependent.nonzero(n)
    return n.constant(np.array(np.nonzero(n.array(0)), np.int64))


@translates("ReverseSequence")
def reverse_sequence(n: NodeContext) -> Any:
    """Position t of sequence b comes from position length(b) - 1 - t, where t is inside the
    sequence."""
    x, batch, time = n[0], n.int("batch_axis", 1), n.int("time_axis", 0)
    batch, time = axis(n, batch, x.rank), axis(n, time, x.rank)
    if batch == time:
        raise Refusal("batch and time are the same axis")

    def along(v: Any, d: int) -> Any:
        return n.build.emit(
            "reshape", v, shape=tuple(v.shape[0] if k == d else 1 for k in range(x.rank))
        )

    t = along(n.build.emit("arange", length=x.shape[time]), time)
    lengths = n.checked(n[1], [(sizes.size(0), x.shape[time])])
    length = along(n.build.emit("cast", lengths, to="i64"), batch)
    mirrored = n.build.emit("sub", n.build.emit("sub", length, n.constant(1, "i64")), t)
    position = n.build.emit("where", n.build.emit("less", t, length), mirrored, t)
    return n.emit("gather_elements", x, n.build.emit("expand", position, shape=x.shape), axis=time)
