"""A condition that is an input of the run keeps what is there, and nothing that is not."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from tilewright.support.errors import InputError


def test_a_condition_of_the_run_keeps_what_is_there():
    """It may be shorter than the axis, and longer where it keeps nothing of what is beyond."""
    graph = helper.make_graph(
        [helper.make_node("Compress", ["x", "kept"], ["y"], axis=0)],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2]),
            helper.make_tensor_value_info("kept", TensorProto.BOOL, ["m"]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opset = helper.make_opsetid("", 17)
    run = tw.compile(helper.make_model(graph, opset_imports=[opset], ir_version=9), cache=False)
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    for kept in ([], [0, 1], [1, 0, 1], [1, 1, 0, 0]):
        found = run(x, np.array(kept, bool))[0]
        np.testing.assert_array_equal(found, x[np.flatnonzero(kept)])
    with pytest.raises(InputError, match="index 3 is not from"):
        run(x, np.array([1, 0, 0, 1], bool))
