"""hoist_products: pointwise convolutions of enlarged images see the images before they grow.

conv(resize(y), w)          → resize(conv(y, w))                 fewer pixels, the same sums
conv(concat(x, y, …), w)    → conv(x, w0) + conv(y, w1) + …      where some of them are enlarged
conv(x · a + b, w)          → conv(x, w a) + w b                 a a matrix: two products are one

A pointwise convolution mixes channels, a resize pixels, and both are linear: they commute.
A resize is known by what it is made of (gathers, weights and sums, or repeats along the
spatial axes), not by its name. Two products in a row become one where that is fewer multiply-adds.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from tilewright.arith.estimate import estimate_by_symbols
from tilewright.graph.builder import Edit, Rule
from tilewright.graph.graph import Constant, Graph, Node, Value
from tilewright.graph.operator import SHAPED, having
from tilewright.graph.ops.linear import is_of_one_type
from tilewright.graph.passes.canonicalise import operand
from tilewright.ir.dtype import f32, f64
from tilewright.ir.expr import as_int

MOVED = 64  # multiply-adds in the time that writing or reading a number of an image takes
MOST_STEPS = 64  # operators of a resize
_VIEWS = having(SHAPED)  # of all pixels of a channel, or more of them


def hoist_products(graph: Graph) -> Graph:
    """Rewrite such convolutions, if there are any."""
    return Edit(graph, _RULES).run()


class _Resize(NamedTuple):
    """What makes a large image of a small one: `steps`, in order, from `source`."""

    source: Value
    steps: list[Node]
    whole: bool  # nobody else reads the source


def _hoist(edit: Edit, node: Node) -> Any:
    weights = _pointwise(edit, node)
    channels = as_int(node.output.shape[1])
    if weights is None or channels is None:
        return None
    x, _, *bias = node.inputs
    joined = edit.producer(x, "concat")
    if joined is None or joined["axis"] != 1 or not edit.only(x):
        parts: tuple[Value, ...] = (x,)
    else:
        parts = joined.inputs
    resized = {n: found for n, p in enumerate(parts) if (found := _resize(edit, p)) is not None}
    resized = {n: r for n, r in resized.items() if _pays(r, parts[n], channels, len(parts))}
    if not resized:
        return None
    counts = [as_int(p.shape[1]) or 0 for p in parts]
    matrix = weights.array.reshape(weights.shape[:2])
    columns = np.split(matrix, np.cumsum(counts[:-1]), 1)
    total: Value | None = None
    for n, resize in resized.items():
        made = _again(edit, resize, _product(edit, resize, columns[n]), channels)
        total = made if total is None else edit.emit("add", total, made)
    assert total is not None
    plain = [n for n in range(len(parts)) if n not in resized]
    if plain:
        kept = [parts[n] for n in plain]
        rest = edit.emit("concat", *kept, axis=1) if len(kept) > 1 else kept[0]
        matrix = np.concatenate([columns[n] for n in plain], 1)
        alone = _Resize(rest, [], edit.only(rest))
        other = _product(edit, alone, matrix, edit.content(bias[0]) if bias else None)
        return edit.emit("add", other, total, name=node.name)
    if bias:
        one_each = (1, channels, *(1 for _ in node.output.shape[2:]))
        total = edit.emit("add", total, edit.emit("reshape", bias[0], shape=one_each))
    return total


def _pointwise(edit: Edit, node: Node) -> Constant | None:
    """The weights [Co, Ci, 1, …] of a convolution of single pixels that reads all of them, once
    each."""
    if node.op != "conv" or node.output.dtype not in (f32, f64) or not is_of_one_type(node):
        return None
    w = edit.known(node.inputs[1])
    if w is None or w.shape[1] != as_int(node.inputs[0].shape[1]) or prod(w.shape[2:]) != 1:
        return None  # other numbers of channels are groups
    if any(s != 1 for s in node["strides"]) or np.any(node["pads"]):
        return None
    if len(node.inputs) > 2 and edit.content(node.inputs[2]) is None:
        return None
    return w


def _resize(edit: Edit, large: Value) -> _Resize | None:
    """How `large` is made of an image of fewer pixels: of the one with the fewest."""
    if not _mixes(edit, edit.producer(large)):
        return None
    order = {v: n for n, v in enumerate(edit.made_by)}
    front, reads = {large}, {large: 1}  # values still to be made, and how often steps read each
    steps: list[Node] = []
    best: _Resize | None = None
    while len(steps) < MOST_STEPS:
        last = max(front, key=lambda v: order.get(v, -1))
        node = edit.producer(last)
        if not _mixes(edit, node) or edit.uses.get(last, 0) > reads[last]:
            break
        assert node is not None
        steps.append(node)
        front.remove(last)
        for value in node.inputs:
            if value not in edit.constants:
                front.add(value)
                reads[value] = reads.get(value, 0) + 1
        if len(front) > 1:
            continue
        (source,) = front
        fewest = _pixels(large) - 1 if best is None else _pixels(best.source)
        if source.rank == large.rank and _pixels(source) <= fewest:
            whole = edit.uses.get(source, 0) <= reads[source]
            best = _Resize(source, steps[::-1], whole)
    return best


def _mixes(edit: Edit, node: Node | None) -> bool:
    """Does the node make linear combinations of pixels, the same in each channel?"""
    if node is None or node.output.rank < 3:
        return False
    x = node.inputs[0]
    if node.op == "gather":
        return node["axis"] >= 2 and node.inputs[1] in edit.constants and x not in edit.constants
    if node.op in _VIEWS:
        return x.rank >= 3 and x.shape[:2] == node.output.shape[:2]
    if node.op == "add":
        return all(v.shape == node.output.shape and v not in edit.constants for v in node.inputs)
    if node.op == "mul":
        found = operand(edit, node)
        if found is None or found[0].shape != node.output.shape:
            return False
        shape = (1,) * (node.output.rank - found[1].ndim) + found[1].shape
        return shape[:2] == (1, 1)
    return False


def _pixels(value: Value) -> int:
    """How many; of an image of open size, how many are likely."""
    return prod(map(estimate_by_symbols, value.shape[2:]))


def _image(value: Value) -> tuple[int, ...] | None:
    """The sizes of an image; None where some are open."""
    sizes = tuple(n for d in value.shape[2:] if (n := as_int(d)) is not None)
    return sizes if len(sizes) == value.rank - 2 else None


def _pays(resize: _Resize, large: Value, channels: int, parts: int) -> bool:
    """Is a product before the resize, and a resize of its result, less work?"""
    many, few = _pixels(large), _pixels(resize.source)
    before = as_int(large.shape[1]) or 0
    saved = (many - few) * before * channels
    stored = 2 * many * before  # the resize's result, and a copy of it where parts are joined
    moved = 2 * few * channels + many * channels * (2 if parts > 1 else 1)
    return saved + MOVED * (stored - moved) > 0


def _again(edit: Edit, resize: _Resize, source: Value, channels: int) -> Value:
    """The same steps from another source, of so many channels."""
    sources = _sources(edit, resize) if any(n.op == "reshape" for n in resize.steps) else None
    if sources is not None:  # repeats, without views: layouts and sums see images all the way
        for axis, at in enumerate(sources, 2):
            if len(at) != as_int(source.shape[axis]) or (at != np.arange(len(at))).any():
                source = edit.emit("gather", source, edit.constant(at), axis=axis)
        return source
    made = {resize.source: source}
    for node in resize.steps:
        attrs = dict(node.attrs)
        if node.op in _VIEWS:
            shape = node.output.shape
            attrs["shape"] = (shape[0], channels, *shape[2:])
        inputs = [made.get(v, v) for v in node.inputs]
        made[node.output] = edit.emit(node.op, *inputs, **attrs)
    return made[resize.steps[-1].output]


def _sources(edit: Edit, resize: _Resize) -> list[np.ndarray] | None:
    """Which row, column, … of the source each one of the result is, where a resize picks pixels;
    None where it computes them."""
    small = _image(resize.source)
    if small is None:
        return None
    image = np.arange(prod(small)).reshape(small)
    for node in resize.steps:
        shape = _image(node.output)
        if shape is None:
            return None
        if node.op == "gather":
            indices, axis = edit.content(node.inputs[1]), int(node["axis"]) - 2
            if indices is None:
                return None
            size = image.shape[axis]
            image = image.take(
                np.clip(np.where(indices < 0, indices + size, indices), 0, size - 1), axis
            )
        elif node.op == "reshape":
            image = image.reshape(shape)
        elif node.op == "expand":
            image = np.broadcast_to(image, shape)
        else:
            return None
    if image.ndim != len(small):
        return None
    found: list[np.ndarray] = []
    for axis, at in enumerate(np.unravel_index(image, small)):
        line = at[tuple(slice(None) if d == axis else 0 for d in range(at.ndim))]
        if (at != line.reshape([-1 if d == axis else 1 for d in range(at.ndim)])).any():
            return None
        found.append(line.astype(np.int64))
    return found


# products in a row
# --------------------------------------------------------------------------------------------------


class _Linear(NamedTuple):
    """An image [N, C, *S] that is a product: matrix [C, K] times an image [N, K, *S], plus
    `shift` [C]."""

    image: Value
    matrix: np.ndarray
    shift: np.ndarray | None


def _product(
    edit: Edit, resize: _Resize, matrix: np.ndarray, shift: np.ndarray | None = None
) -> Value:
    """The matrix [Co, Ci] times the channels of the source of `resize`, plus `shift` [Co]."""
    x, of = resize.source, matrix.dtype
    before = _linear(edit, x) if resize.whole else None
    if before is not None:
        co, middle = matrix.shape
        if before.matrix.shape[1] * co < middle * (before.matrix.shape[1] + co):
            wide = matrix.astype(np.float64)
            if before.shift is not None:
                more = wide @ before.shift.astype(np.float64)
                shift = (more if shift is None else more + shift).astype(of)
            x, matrix = before.image, (wide @ before.matrix.astype(np.float64)).astype(of)
    w = edit.constant(matrix.reshape(*matrix.shape, *(1 for _ in x.shape[2:])), "w")
    bias = [] if shift is None else [edit.constant(shift, "bias")]
    rank = x.rank - 2
    once = {"strides": (1,) * rank, "dilations": (1,) * rank, "pads": ((0, 0),) * rank}
    return edit.emit("conv", x, w, *bias, **once)


def _linear(edit: Edit, image: Value) -> _Linear | None:
    """What an image is a product of: a pointwise convolution, or a matrix product whose columns
    are its channels."""
    node = edit.producer(image)
    weights = None if node is None else _pointwise(edit, node)
    if node is not None and weights is not None:
        x, _, *bias = node.inputs
        matrix = weights.array.reshape(weights.shape[:2])
        return _Linear(x, matrix, edit.content(bias[0]) if bias else None)
    if node is None or node.op != "reshape":
        return None
    transposed = edit.producer(node.inputs[0], "transpose")  # [N, C, S] of [N, S, C]
    if (
        transposed is None
        or transposed["perm"] != (0, 2, 1)
        or transposed.output.shape[:2] != image.shape[:2]
    ):
        return None
    if not edit.only(transposed.output):
        return None
    value, shift = transposed.inputs[0], None
    added = edit.producer(value, "add")
    found = operand(edit, added) if added is not None else None
    if found is not None and edit.only(value):
        value, array, _ = found
        width = as_int(value.shape[-1]) or 0
        if array.size not in (1, width) or (array.size > 1 and array.shape[-1] != width):
            return None
        shift = np.broadcast_to(array.ravel(), width)
    product = edit.producer(value, "matmul")
    if product is None or not edit.only(value) or not is_of_one_type(product):
        return None
    x, b = product.inputs
    matrix = edit.content(b)
    if x.rank != 3 or matrix is None or matrix.ndim != 2:
        return None
    matrix = matrix if product["transpose_b"] else matrix.T
    x = x if product["transpose_a"] else edit.emit("transpose", x, perm=(0, 2, 1))  # [N, K, S]
    inner = edit.emit("reshape", x, shape=(*x.shape[:2], *image.shape[2:]))
    return _Linear(inner, matrix, shift)


_RULES: dict[str, list[Rule]] = {"conv": [_hoist]}
