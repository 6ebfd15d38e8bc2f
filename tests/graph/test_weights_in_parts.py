"""Packed weights that are made part by part are those that are made whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.graph import Builder, Graph
from tilewright.graph.graph import Constant, Deferred, Scaled
from tilewright.graph.passes.choose_layouts import choose_layouts
from tilewright.graph.passes.eliminate import eliminate_common
from tilewright.graph.passes.fold_batch_norm import fold_batch_norm
from tilewright.strategy.cpu.layouts import Layouts

draw = np.random.default_rng(7).standard_normal


def conv(co: int, ci: int, groups: int = 1, size: int = 14) -> Graph:
    build = Builder()
    x = build.input("x", "f32", (1, ci * groups, size, size))
    w = build.constant(draw((co, ci, 3, 3), np.float32))
    pads = ((1, 1), (1, 1))
    made = build.emit("conv", x, w, strides=(1, 1), pads=pads, dilations=(1, 1), groups=groups)
    return build.finish([made])


def scaled(graph: Graph) -> Graph:
    """The same, times a number for each channel."""
    build = Builder()
    (given,) = graph.inputs
    x = build.input("x", given.dtype, given.shape)
    (node,) = graph.nodes
    w = build.constant(graph.array(node.inputs[1]))
    gain = build.constant(draw((1, len(graph.array(node.inputs[1])), 1, 1), np.float32))
    made = build.emit("conv", x, w, **dict(node.attrs))
    return build.finish([build.emit("mul", made, gain)])


def product(transposed: bool) -> Graph:
    build = Builder()
    x = build.input("x", "f32", (64, 96))
    w = build.constant(draw((700, 96) if transposed else (96, 700), np.float32))
    return build.finish([build.emit("matmul", x, w, transpose_b=transposed)])


@pytest.mark.parametrize(
    ("graph", "op"),
    [
        (product(False), "dense_packed"),
        (product(True), "dense_packed"),
        (conv(100, 40), "conv_packed"),  # the last block of results is not full
        (conv(128, 128, size=56), "winograd_packed"),
        (fold_batch_norm(scaled(conv(100, 40))), "conv_packed"),
        (conv(100, 10, groups=4), "conv_packed"),  # each group has blocks of its own
    ],
)
def test_parts_are_the_whole(graph: Graph, op: str) -> None:
    made = choose_layouts(graph, Layouts(64), winograd=op.startswith("winograd"))
    (node,) = [n for n in made.nodes if n.op == op]
    constant = made.constants[node.inputs[1]]
    assert isinstance(constant, Deferred)
    whole = constant.array
    for nbytes in (1, whole.nbytes // 3, 2 * whole.nbytes):
        parts = [make() for make in constant.parts(nbytes)]
        assert all(len(p) == 1 or p.nbytes <= nbytes for p in parts) or len(parts) == 1
        np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("shape", [(), (0, 3), (1, 5), (7, 5)])
def test_parts_of_what_a_model_brings(shape: Any) -> None:
    array = draw(shape, np.float32)
    parts = [make() for make in Constant(array).parts(40)]
    joined = b"".join(np.asarray(p).tobytes() for p in parts)
    assert joined == np.asarray(array).tobytes()
    assert all(np.asarray(p).nbytes <= 40 for p in parts)


def scaled_twice() -> Graph:
    """Two convolutions by the same weights, each scaled by the same numbers."""
    build = Builder()
    x = build.input("x", "f32", (1, 40, 14, 14))
    w = build.constant(draw((100, 40, 1, 1), np.float32))
    gain = build.constant(draw((1, 100, 1, 1), np.float32))
    window = {"strides": (1, 1), "pads": ((0, 0),) * 2, "dilations": (1, 1), "groups": 1}
    made = [build.emit("conv", v, w, **window) for v in (x, build.emit("relu", x))]
    return build.finish([build.emit("mul", v, gain) for v in made])


def test_scaled_weights_are_made_when_they_are_written() -> None:
    graph = scaled_twice()
    w, gain = (c.array for c in graph.constants.values())
    folded = fold_batch_norm(graph)
    first, second = (folded.constants[n.inputs[1]] for n in folded.nodes if n.op == "conv")
    assert isinstance(first, Scaled) and (first.shape, first.dtype) == (w.shape, w.dtype)
    whole = w * gain.reshape(100, 1, 1, 1)
    np.testing.assert_array_equal(first.array, whole)
    np.testing.assert_array_equal(np.concatenate([p() for p in second.parts(999)]), whole)
    assert first.digest == Constant(whole).digest
    (one,) = {n.inputs[1] for n in eliminate_common(folded).nodes if n.op == "conv"}
    assert one in folded.constants
