"""fold_batch_norm: batch norms, and other scales and shifts, go into the weights before them.

batch_norm(x)            → x · a + b                     with constants for each channel, or
                           (x - mean) · gain + bias      with what the run computes
(x · a) · b, (x + a) · b → x · (a b), x · b + (a b)      constants combined
conv(x, w, c) · a        → conv(x, w a, c a)             conv_transpose and matmul too
conv(x, w, c) + b        → conv(x, w, c + b)
conv(x · s, w)           → conv(x, w s)                  s one number
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.builder import Edit, Rule
from tilewright.graph.graph import Constant, Graph, Node, Scaled, Value
from tilewright.graph.ops.elementwise import sum_type
from tilewright.graph.ops.linear import is_of_one_type
from tilewright.graph.passes.canonicalise import neutral, number, operand
from tilewright.ir.expr import as_int

CONVOLUTIONS = ("conv", "conv_transpose")


def fold_batch_norm(graph: Graph) -> Graph:
    """Apply the rules of this file to every node."""
    return Edit(graph, RULES).run()


def batch_norm(edit: Edit, node: Node) -> Any:
    x = node.inputs[0]
    parts = [edit.content(v) for v in node.inputs[1:]]
    if any(p is None for p in parts):
        return _batch_norm_of_the_run(edit, node)
    scale, bias, mean, variance = (np.asarray(p, np.float64) for p in parts)  # type: ignore[arg-type]
    gain = scale / np.sqrt(variance + node["eps"])
    shift = bias - mean * gain
    shape = (-1,) + (1,) * (x.rank - 2)
    of = x.dtype.numpy
    scaled = edit.emit("mul", x, edit.constant(gain.reshape(shape).astype(of), "scale"))
    return edit.emit(
        "add", scaled, edit.constant(shift.reshape(shape).astype(of), "shift"), name=node.name
    )


def _batch_norm_of_the_run(edit: Edit, node: Node) -> Any:
    """Element-wise work, which any layout holds, on statistics as [channels, 1, …]."""
    x, (channels,) = node.inputs[0], node.inputs[1].shape
    wide = sum_type(x.dtype)

    def cast(v: Value) -> Value:
        return v if v.dtype.name == wide else edit.emit("cast", v, to=wide)

    shape = (channels, *(1,) * (x.rank - 2))
    scale, bias, mean, variance = (
        edit.emit("reshape", cast(v), shape=shape) for v in node.inputs[1:]
    )
    eps = edit.constant(np.asarray(node["eps"], variance.dtype.numpy), "eps")
    gain = edit.emit("div", scale, edit.emit("sqrt", edit.emit("add", variance, eps)))
    scaled = edit.emit("mul", edit.emit("sub", cast(x), mean), gain)
    made = edit.emit("add", scaled, bias, name=node.name)
    return made if made.dtype is x.dtype else edit.emit("cast", made, to=x.dtype.name)


def combine(edit: Edit, node: Node) -> Any:
    """Constants of neighbouring products and sums are combined."""
    found = operand(edit, node)
    if found is None:
        return None
    x, array, c = found
    before = edit.producer(x)
    if (
        before is None
        or before.op not in ("mul", "add")
        or not edit.only(x)
        or not x.dtype.is_float
    ):
        return None
    inner = operand(edit, before)
    if inner is None:
        return None
    y, other, c2 = inner
    of = array.dtype
    if array.size * other.size and max(np.broadcast(array, other).size, 0) > max(
        array.size, other.size
    ):
        return None
    if node.op == before.op:
        both = (array * other if node.op == "mul" else array + other).astype(of)
        return edit.emit(node.op, y, edit.constant(both, c2.name), name=node.name)
    if node.op == "mul":  # (y + other) · array
        scaled = edit.emit("mul", y, c)
        return edit.emit(
            "add", scaled, edit.constant((array * other).astype(of), c2.name), name=node.name
        )
    return None


def into_convolution(edit: Edit, node: Node) -> Any:
    """A scale or shift for each output channel goes into the convolution that made x."""
    found = operand(edit, node)
    if found is None:
        return None
    x, array, _ = found
    before = edit.producer(x)
    if before is None or before.op not in CONVOLUTIONS or not edit.only(x):
        return None
    channels = as_int(x.shape[1])
    image, w, *biases = before.inputs
    weights = edit.known(w)
    if channels is None or weights is None:
        return None
    per_channel = each_channel(array, x.rank, channels)
    if per_channel is None:
        return None
    bias = edit.content(biases[0]) if biases else np.zeros(channels, array.dtype)
    if bias is None:
        return None
    if node.op == "mul":
        if not is_of_one_type(before):
            return None  # the weights do not hold what the result does
        w = edit.constant(scaled_weights(before, weights, per_channel), w.name)
        bias = bias * per_channel
    else:
        bias = bias + per_channel
    made = [image, w, edit.constant(bias.astype(array.dtype), "bias")]
    return edit.emit(before.op, *made, **dict(before.attrs), name=node.name)


def each_channel(array: np.ndarray, rank: int, channels: int) -> np.ndarray | None:
    """One number for each channel, if `array` broadcasts like that against [n, channels, …]."""
    if array.size == 1:
        return np.broadcast_to(array.reshape(1), (channels,))
    shape = (1,) * (rank - array.ndim) + array.shape
    if (
        len(shape) != rank
        or shape[1] != channels
        or any(s != 1 for d, s in enumerate(shape) if d != 1)
    ):
        return None
    return array.reshape(-1)


def scaled_weights(conv: Node, constant: Constant, by: np.ndarray) -> Constant:
    """The weights with each output channel scaled."""
    by = by.astype(constant.dtype)
    if conv.op == "conv":
        return Scaled(constant, by)
    weights = constant.array
    space = (1,) * (weights.ndim - 2)
    groups = conv[
        "groups"
    ]  # [channels, out / groups, …]: the output channel is (group, second axis)
    grouped = weights.reshape(groups, -1, *weights.shape[1:])
    return Constant((grouped * by.reshape(groups, 1, -1, *space)).reshape(weights.shape))


def into_matmul(edit: Edit, node: Node) -> Any:
    """A scale for each output column goes into the constant matrix that made x."""
    found = operand(edit, node)
    if found is None:
        return None
    x, array, _ = found
    before = edit.producer(x, "matmul")
    if before is None or not edit.only(x) or not is_of_one_type(before):
        return None
    w = edit.content(before.inputs[1])
    if w is None or w.ndim != 2 or array.size not in (1, as_int(x.shape[-1])):
        return None
    if array.size > 1 and array.shape[-1] != array.size:
        return None
    columns = array.reshape(1, -1).astype(w.dtype)
    scaled = w * (columns.T if before["transpose_b"] else columns)
    weight = edit.constant(scaled, before.inputs[1].name)
    return edit.emit("matmul", before.inputs[0], weight, **dict(before.attrs), name=node.name)


def scale_before(edit: Edit, node: Node) -> Any:
    """conv(x · s, w) → conv(x, w s): one number s; padding zeros stay zeros."""
    before = edit.producer(node.inputs[0], "mul")
    if before is None or not edit.only(before.output) or not is_of_one_type(node):
        return None  # what is multiplied first is rounded, or wraps, first
    found, weights = operand(edit, before), edit.content(node.inputs[1])
    if found is None or weights is None or (by := number(edit, found[2])) is None:
        return None
    w = edit.constant((weights * weights.dtype.type(by)).astype(weights.dtype), node.inputs[1].name)
    return edit.emit(node.op, found[0], w, *node.inputs[2:], **dict(node.attrs), name=node.name)


RULES: dict[str, list[Rule]] = {
    "batch_norm": [batch_norm],
    "mul": [neutral, combine, into_convolution, into_matmul],
    "add": [neutral, combine, into_convolution],
    "conv": [scale_before],
    "conv_transpose": [scale_before],
}
