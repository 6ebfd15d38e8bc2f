"""Unique beside onnxruntime, and what it takes."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx
import pytest

from tests.frontend.beside_onnxruntime import info, model, node, random, same_as_onnxruntime
from tilewright.frontend.onnx import import_onnx

TYPES = {
    np.float32: onnx.TensorProto.FLOAT,
    np.int64: onnx.TensorProto.INT64,
    np.int8: onnx.TensorProto.INT8,
}
RESULTS = ("y", "first", "of", "count")


def unique(x: np.ndarray, axis: int | None, ordered: bool) -> onnx.ModelProto:
    named = {} if axis is None else {"axis": axis}
    kind = TYPES[x.dtype.type]
    outputs = [info("y", *[None] * (1 if axis is None else x.ndim), of=kind)]
    outputs += [info(name, None, of=onnx.TensorProto.INT64) for name in RESULTS[1:]]
    made = node("Unique", "x", " ".join(RESULTS), sorted=int(ordered), **named)
    return model([made], [info("x", *x.shape, of=kind)], outputs)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("of", list(TYPES))
def test_what_onnxruntime_finds(of: type, axis: int | None, ordered: bool) -> None:
    """Of slices that differ early, late or not at all, and of one."""
    for shape in ((37, 2, 3), (1, 4), (5, 16)):
        x = random.integers(-1, 2, shape).astype(of)
        same_as_onnxruntime(unique(x, axis, ordered), x)


@pytest.mark.parametrize("axis", [None, 0])
def test_slices_are_sorted(axis: int | None) -> None:
    """Not compared each with each: an image of 320 x 320 labels would be 10^10 comparisons."""
    x = np.zeros((40, 13), np.int64)
    graph = import_onnx(unique(x, axis, True))
    bounds = [prod(v.static_shape) for n in graph.nodes for v in n.outputs if v.static_shape]
    assert bounds and max(bounds) <= x.size + 1
