"""Images of open size that shrink to one pixel for each so many, beside onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright.driver.source import open_source
from tilewright.graph.builder import without_dead

SPACE = [(8, 12), (9, 21), (40, 35), (17, 64), (4, 4)]
HOW = {
    "linear": {"mode": "linear"},
    "linear, asymmetric": {"mode": "linear", "coordinate_transformation_mode": "asymmetric"},
    "linear, pytorch": {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
    "cubic": {"mode": "cubic", "cubic_coeff_a": -0.5},
    "cubic, asymmetric": {"mode": "cubic", "coordinate_transformation_mode": "asymmetric"},
    "nearest": {"mode": "nearest"},
    "nearest, up": {"mode": "nearest", "nearest_mode": "ceil"},
    "nearest, floor": {
        "mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric",
    },
    "nearest, symmetric": {
        "mode": "nearest", "coordinate_transformation_mode": "half_pixel_symmetric",
    },
}  # fmt: skip


def shrunk(scales: tuple[float, float], **attrs: Any) -> onnx.ModelProto:
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], **attrs)
    graph = helper.make_graph(
        [node],
        "shrunk",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2, "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array([1, 1, *scales], np.float32), "s")],
    )
    opset = helper.make_opsetid("", 19)
    return helper.make_model(graph, opset_imports=[opset], ir_version=9)


@pytest.mark.sampled
@pytest.mark.parametrize("name", HOW)
@pytest.mark.parametrize("scales", [(0.5, 0.5), (0.25, 0.5), (1.0, 0.25), (2.0, 0.5)])
def test_as_onnxruntime(name: str, scales: tuple[float, float]) -> None:
    model = shrunk(scales, **HOW[name])
    run = tw.compile(model, cache=False)
    session = ort.InferenceSession(model.SerializeToString())
    for h, w in SPACE:
        x = np.random.default_rng().standard_normal((1, 2, h, w)).astype(np.float32)
        (wanted,) = map(np.asarray, session.run(None, {"x": x}))
        np.testing.assert_allclose(run(x)[0], wanted, rtol=1e-5, atol=1e-5, err_msg=f"{h}x{w}")


@pytest.mark.parametrize("name", ["linear", "nearest"])
def test_no_place_is_worked_out(name: str) -> None:
    """Rows are read every so many elements."""
    graph = open_source(shrunk((0.5, 0.25), **HOW[name])).graph()
    assert {node.op for node in without_dead(graph).nodes} <= {"slice", "mul", "add"}
