"""Sizes of several inputs that a file gives one name though its operators need them to differ."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.frontend.onnx.importer import import_onnx
from tilewright.support.errors import ImportFault, SizeWarning

node: Any = helper.make_node
POOLED = node("AveragePool", ["x"], ["pooled"], kernel_shape=[2, 2], strides=[2, 2])
IMAGES = {"x": [1, 3, "h", "w"], "state": [1, 3, "h", "w"]}


def model(nodes, inputs, weights=()) -> Any:
    """inputs: the shape of each f32 input; the last node's output is the model's."""
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    made = [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)]
    held = [numpy_helper.from_array(array, name) for name, array in weights]
    graph = helper.make_graph(nodes, "g", given, made, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def check(proto, *runs) -> None:
    """Each run (the inputs' shapes) as onnxruntime has it."""
    with pytest.warns(SizeWarning, match="gives them one name"):
        run = compile_observed(proto, cache=False, pool=KernelPool(1))
    session = ort.InferenceSession(proto.SerializeToString())
    names = [entry.name for entry in proto.graph.input]
    for k, shapes in enumerate(runs):
        draw = np.random.default_rng(k).standard_normal
        arrays = [draw(s).astype(np.float32) for s in shapes]
        wanted: Any = session.run(None, dict(zip(names, arrays, strict=True)))[0]
        np.testing.assert_allclose(run(*arrays)[0], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", ["Add", "Concat"])
def test_a_state_of_half_the_size(op):
    attrs = {"axis": 1} if op == "Concat" else {}
    proto = model([POOLED, node(op, ["pooled", "state"], ["y"], **attrs)], IMAGES)
    check(proto, [(1, 3, 12, 8), (1, 3, 6, 4)], [(1, 3, 7, 23), (1, 3, 3, 11)])
    with pytest.warns(SizeWarning, match="h and h // 2 would have to be the same in"):
        found = [v.type_text for v in import_onnx(proto).inputs]
    assert found == ["f32[1, 3, h, w]", "f32[1, 3, state_h, state_w]"]


def test_states_of_one_pixel_that_grow():
    """As those of matting nets, whose channels too have one name."""
    weights = [(f"w{c}", np.full((c, 3, 1, 1), 0.1 * c, np.float32)) for c in (4, 5)]
    nodes, states = [POOLED], {}
    for c in (4, 5):
        states[f"s{c}"] = ["b", "c", "h", "w"]
        nodes += [
            node("Conv", ["pooled", f"w{c}"], [f"x{c}"]),
            node("Shape", [f"x{c}"], [f"shape{c}"]),
            node("Expand", [f"s{c}", f"shape{c}"], [f"e{c}"]),
            node("Mul", [f"x{c}", f"e{c}"], [f"m{c}"]),
        ]
    nodes.append(node("Concat", ["m4", "m5"], ["y"], axis=1))
    proto = model(nodes, {"x": ["b", 3, "h", "w"], **states}, weights)
    one = (1, 1, 1, 1)
    check(proto, [(1, 3, 12, 8), one, one], [(1, 3, 10, 9), (1, 4, 5, 4), (1, 5, 5, 4)])


def test_numbers_that_a_name_cannot_both_be():
    weights = [(f"w{n}", np.full((n, 6), 0.1 * n, np.float32)) for n in (4, 5)]
    nodes = [
        node("MatMul", ["a", "w4"], ["x"]),
        node("MatMul", ["b", "w5"], ["z"]),
        node("Add", ["x", "z"], ["y"]),
    ]
    proto = model(nodes, {"a": ["rows", "n"], "b": ["rows", "n"]}, weights)
    check(proto, [(3, 4), (3, 5)])


def test_names_that_hold_are_kept():
    nodes = [node("Sub", ["a", "b"], ["c"]), node("Concat", ["c", "b"], ["y"], axis=0)]
    proto = model(nodes, {"a": ["n", 3], "b": ["n", 3]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [str(v.type_text) for v in import_onnx(proto).inputs] == ["f32[n, 3]"] * 2


def test_a_fault_that_no_names_mend_is_told_as_it_was():
    proto = model([node("Reshape", ["a", "b"], ["y"])], {"a": ["n", 3], "b": ["n"]})
    with warnings.catch_warnings(), pytest.raises(ImportFault, match="cannot import node"):
        warnings.simplefilter("error")
        import_onnx(proto)
