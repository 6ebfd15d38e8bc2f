"""Weights that a model writes as sparse tensors are tensors, beside onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.frontend.beside_onnxruntime import f, info, model, node, same_as_onnxruntime
from tilewright.frontend.onnx import import_onnx
from tilewright.support.errors import ImportFault


def sparse(name, values, at, shape):
    held = numpy_helper.from_array(np.asarray(values, np.float32), name)
    positions = numpy_helper.from_array(np.asarray(at, np.int64), "at")
    return helper.make_sparse_tensor(held, positions, shape)


def product(weight):
    made = model([node("MatMul", "x w", "y")], [info("x", "n", 3)], [info("y", "n", 4)])
    made.graph.sparse_initializer.append(weight)
    return made


@pytest.mark.parametrize("at", [[1, 4, 11], [[0, 1], [1, 0], [2, 3]]])
def test_positions_in_the_flat_tensor_or_one_for_each_axis(at):
    same_as_onnxruntime(product(sparse("w", [2, -3, 5], at, [3, 4])), f(2, 3))


def test_a_constant_in_a_branch():
    weight = sparse("", [1.5], [2], [3])
    sides = [
        helper.make_graph(nodes, "side", [], [info("side", "n", 3)])
        for nodes in (
            [
                helper.make_node("Constant", [], ["c"], sparse_value=weight),
                node("Add", "x c", "side"),
            ],
            [node("Neg", "x", "side")],
        )
    ]
    branch = helper.make_node("If", ["go"], ["y"], then_branch=sides[0], else_branch=sides[1])
    given = [info("go", of=TensorProto.BOOL), info("x", "n", 3)]
    for go in (True, False):
        same_as_onnxruntime(model([branch], given, [info("y", "n", 3)]), np.array(go), f(2, 3))


@pytest.mark.parametrize(
    ("at", "shape", "why"),
    [
        ([0, 12], [3, 4], "outside"),
        ([-1, 2], [3, 4], "outside"),
        ([[0, 1]], [3, 4], "2 values have indices"),
        ([0, 1], [1 << 40, 1 << 40], "with its zeros it takes"),
    ],
)
def test_what_is_no_sparse_tensor_is_refused(at, shape, why):
    with pytest.raises(ImportFault, match=why):
        import_onnx(product(sparse("w", [1, 2], at, shape)))
