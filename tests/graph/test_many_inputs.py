"""Operators of many inputs: nothing nests as deep as there are inputs."""

import numpy as np
from onnx import TensorProto
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

import tilewright as tw


def test_concat_of_many():
    lengths = np.random.default_rng(3).integers(1, 4, 400)
    names = [f"x{k}" for k in range(len(lengths))]
    graph = make_graph(
        [make_node("Relu", [n], [f"{n}_"]) for n in names]
        + [make_node("Concat", [f"{n}_" for n in names], ["y"], axis=1)],
        "many",
        [
            make_tensor_value_info(n, TensorProto.FLOAT, [2, int(length)])
            for n, length in zip(names, lengths, strict=True)
        ],
        [make_tensor_value_info("y", TensorProto.FLOAT, [2, int(lengths.sum())])],
    )
    exe = tw.compile(make_model(graph, opset_imports=[make_opsetid("", 19)], ir_version=9))
    rng = np.random.default_rng(4)
    arrays = [rng.standard_normal((2, length), np.float32) for length in lengths]
    (y,) = exe(*arrays)
    np.testing.assert_array_equal(y, np.maximum(np.concatenate(arrays, 1), 0))
