"""Sums of products are rounded in the same way wherever a schedule puts them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.driver.compile import compile_observed

F = TensorProto.FLOAT
random = np.random.default_rng(3)


@pytest.mark.parametrize(("depth", "columns"), [(2, 129), (3, 1377)])
def test_one_lane_of_a_vector(depth: int, columns: int) -> None:
    """The last column is one lane of a register tile, which LLVM computes alone where it lies in
    one block with its sum: in code for one thread, but not for two."""
    arrays = {"w": random.normal(0, 1, (depth, columns)), "b": random.normal(0, 1, columns)}
    known = [numpy_helper.from_array(a.astype(np.float32), k) for k, a in arrays.items()]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]),
             helper.make_node("Add", ["m", "b"], ["y"])]  # fmt: skip
    given = [helper.make_tensor_value_info("x", F, [2, 1, depth])]
    made = [helper.make_tensor_value_info("y", F, [2, 1, columns])]
    proto = helper.make_model(helper.make_graph(nodes, "g", given, made, known), ir_version=9)
    one, two = (compile_observed(proto, cache=False, threads=n) for n in (1, 2))
    for _ in range(16):
        x = random.normal(0, 1, (2, 1, depth)).astype(np.float32)
        np.testing.assert_array_equal(one(x)[0], two(x)[0])


def test_products_under_a_condition() -> None:
    """Pixels of a transposed convolution that no tap meets: whether a loop is cut there depends on
    threads."""
    w = numpy_helper.from_array(random.normal(0, 1, (16, 9, 3, 3)).astype(np.float32), "w")
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])
    given, made = (helper.make_tensor_value_info(k, F, s)
                   for k, s in (("x", [1, 16, 38, 17]), ("y", [1, 9, 77, 35])))  # fmt: skip
    proto = helper.make_model(helper.make_graph([node], "g", [given], [made], [w]), ir_version=9)
    one, two = (compile_observed(proto, cache=False, threads=n) for n in (1, 2))
    x = random.normal(0, 1, (1, 16, 38, 17)).astype(np.float32)
    np.testing.assert_array_equal(one(x)[0], two(x)[0])
