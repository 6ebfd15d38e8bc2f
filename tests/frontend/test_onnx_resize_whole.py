"""Whole numbers resized by factors that the run gives, beside onnxruntime."""

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

import tilewright as tw


def test_whole_numbers_are_weighted() -> None:
    graph = helper.make_graph(
        [helper.make_node("Resize", ["x", "", "s"], ["y"], mode="linear")],
        "whole",
        [
            helper.make_tensor_value_info("x", TensorProto.INT8, [1, 1, "h", "w"]),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, [4]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.INT8, None)],
    )
    opset = helper.make_opsetid("", 19)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=9)
    given = {
        "x": np.array([[[[-3, 5], [4, 1]]]], np.int8),
        "s": np.array([1, 1, 2, 1], np.float32),
    }
    found = tw.compile(model, cache=False)(**given)[0]
    expected = ort.InferenceSession(model.SerializeToString()).run(None, given)[0]
    np.testing.assert_array_equal(found, np.asarray(expected))
