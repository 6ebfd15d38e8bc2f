"""Pools whose padding only the run knows: SAME and ceil_mode over open sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.driver.source import open_source

SPACE = [(7, 9), (6, 5), (1, 12)]
CASES = {
    "mean": ("AveragePool", {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
    "mean, low": ("AveragePool", {"auto_pad": "SAME_LOWER", "strides": [3, 2]}),
    "mean with pads": (
        "AveragePool", {"auto_pad": "SAME_UPPER", "strides": [2, 2], "count_include_pad": 1},
    ),
    "powers": ("LpPool", {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    "powers, ceil": ("LpPool", {"ceil_mode": 1, "strides": [2, 2], "pads": [1, 0, 1, 1]}),
}  # fmt: skip


def pool(op: str, h: str | int = "h", w: str | int = "w", **attrs: Any) -> onnx.ModelProto:
    node = helper.make_node(op, ["x"], ["y"], kernel_shape=[3, 3], **attrs)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2, h, w])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [given], [made])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


@pytest.mark.parametrize("name", CASES)
def test_as_onnxruntime(name: str) -> None:
    op, attrs = CASES[name]
    proto = pool(op, **attrs)
    run = compile_observed(proto, cache=False, pool=KernelPool(1))
    session = ort.InferenceSession(proto.SerializeToString())
    for space in SPACE:
        x = np.random.default_rng(5).standard_normal((2, 2, *space)).astype(np.float32)
        (wanted,) = map(np.asarray, session.run(None, {"x": x}))
        (found,) = run(x)
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_taps_that_lie_apart() -> None:
    """As at fixed sizes (onnxruntime pads as if taps were neighbours)."""
    attrs = {"auto_pad": "SAME_UPPER", "strides": [2, 3], "dilations": [3, 2]}
    run = compile_observed(pool("AveragePool", **attrs), cache=False, pool=KernelPool(1))
    for h, w in ((7, 9), (1, 4)):
        fixed = pool("AveragePool", h, w, **attrs)
        x = np.random.default_rng(5).standard_normal((1, 2, h, w)).astype(np.float32)
        (wanted,) = compile_observed(fixed, cache=False, pool=KernelPool(1))(x)
        np.testing.assert_allclose(run(x)[0], wanted, rtol=1e-5, atol=1e-6)


def test_counts_of_taps_are_no_pool() -> None:
    graph = open_source(pool("AveragePool", auto_pad="SAME_UPPER", strides=[2, 2])).graph()
    assert [node.op for node in graph.nodes].count("avg_pool") == 1
