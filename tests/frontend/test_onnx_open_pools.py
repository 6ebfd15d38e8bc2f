"""Pools whose padding only the run knows: SAME and ceil_mode over open sizes."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool

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


@pytest.mark.parametrize("name", CASES)
def test_as_onnxruntime(name: str) -> None:
    op, attrs = CASES[name]
    node = helper.make_node(op, ["x"], ["y"], kernel_shape=[3, 3], **attrs)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2, "h", "w"])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [given], [made])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    run = compile_observed(proto, cache=False, pool=KernelPool(1))
    session = ort.InferenceSession(proto.SerializeToString())
    for space in SPACE:
        x = np.random.default_rng(5).standard_normal((2, 2, *space)).astype(np.float32)
        (wanted,), (found,) = session.run(None, {"x": x}), run(x)
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
