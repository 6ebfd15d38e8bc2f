"""`onnx.backend`: arrays by name, sequences and optional tensors by structure, single nodes."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from tilewright.driver.onnx_backend import prepare, run_node, supports_device


def sequences_added() -> onnx.ModelProto:
    """The second tensor of a sequence, and the sequence with x at its end."""
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    many = helper.make_sequence_type_proto(tensor)
    y, more = helper.make_value_info("y", tensor), helper.make_value_info("more", many)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    nodes = [
        helper.make_node("Constant", [], ["one"], value_int=1),
        helper.make_node("SequenceAt", ["s", "one"], ["second"]),
        helper.make_node("Neg", ["second"], ["y"]),
        helper.make_node("SequenceInsert", ["s", "x"], ["more"]),
    ]
    graph = helper.make_graph(nodes, "g", [helper.make_value_info("s", many), x], [y, more])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_sequences_are_lists():
    model = prepare(sequences_added())
    x = np.ones(3, np.float32)
    for shapes in (((2,), (3, 1)), ((1,), (2,), (4,))):
        given = [np.full(s, k, np.float32) for k, s in enumerate(shapes)]
        y, more = model.run([given, x])
        np.testing.assert_array_equal(y, -given[1])
        assert [m.shape for m in more] == [*shapes, (3,)]
        np.testing.assert_array_equal(more[-1], x)


def test_run_node_and_names():
    node = helper.make_node("Sub", ["a", "b"], ["c"])
    a, b = np.float32([3, 4]), np.float32([1, 2])
    (c,) = run_node(node, [a, b])
    np.testing.assert_array_equal(c, a - b)
    assert supports_device("CPU") and not supports_device("CUDA")
