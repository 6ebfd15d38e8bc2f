"""Operands whose sizes meet when the model runs: counts of what is not zero, beside others, and
what is left of an axis."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.frontend.onnx import import_onnx
from tilewright.support.errors import ImportFault, InputError


@pytest.fixture(scope="module")
def run():
    """Indices of x's nonzero elements [count, 1] + c[3, 2]; the greatest of them, z and that."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["found"]),
        helper.make_node("Transpose", ["found"], ["column"]),
        helper.make_node("Cast", ["column"], ["positions"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["positions", "c"], ["y"]),
        helper.make_node("Max", ["positions", "z", "y"], ["w"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [5]),
        helper.make_tensor_value_info("z", TensorProto.FLOAT, ["N", 1]),
    ]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "yw"]
    c = helper.make_tensor("c", TensorProto.FLOAT, [3, 2], [1, 2, 3, 4, 5, 6])
    graph = helper.make_graph(nodes, "g", inputs, outputs, [c])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return compile_observed(model, cache=False, pool=KernelPool(1))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("rows", [1, 3])
def test_one_or_the_same(run, count, rows):
    x = np.zeros(5, np.float32)
    x[:count] = 2
    z = np.random.default_rng(count).uniform(0, 6, (rows, 1)).astype(np.float32)
    positions = np.argwhere(x).astype(np.float32)
    y = positions + np.arange(1, 7, dtype=np.float32).reshape(3, 2)
    found = run(x, z)
    np.testing.assert_array_equal(found[0], y)
    np.testing.assert_array_equal(found[1], np.maximum(np.maximum(positions, z), y))


@pytest.mark.parametrize("count, rows, node", [(2, 1, "Add 'y'"), (1, 2, "Max 'w'")])
def test_others_are_refused(run, count, rows, node):
    x = np.zeros(5, np.float32)
    x[:count] = 1
    with pytest.raises(InputError, match=f"the shape of the operands of {node}"):
        run(x, np.ones((rows, 1), np.float32))


def test_the_last_beside_all():
    """Of an axis of open size, which might be none, the last is one."""
    ends = [
        helper.make_tensor(n, TensorProto.INT64, [1], [v])
        for n, v in (("from", -1), ("to", 1 << 40), ("axis", 2))
    ]
    nodes = [
        helper.make_node("MaxPool", ["x"], ["pooled"], kernel_shape=[2], strides=[2]),
        helper.make_node("Slice", ["pooled", "from", "to", "axis"], ["last"]),
        helper.make_node("Div", ["pooled", "last"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "N"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], ends)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    divided = compile_observed(model, cache=False, pool=KernelPool(1))
    for size in (11, 4, 2):
        array = np.random.default_rng(size).uniform(1, 2, (1, 3, size)).astype(np.float32)
        pooled = array[..., : size // 2 * 2].reshape(1, 3, -1, 2).max(-1)
        np.testing.assert_allclose(divided(array)[0], pooled / pooled[..., -1:], rtol=1e-6)


def model(nodes, inputs, outputs, **numbers):
    """Compiled. inputs: the shape of each f32 input; numbers: constant i64 vectors."""
    fixed = [helper.make_tensor(n, TensorProto.INT64, [len(v)], v) for n, v in numbers.items()]
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    made = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    graph = helper.make_graph(nodes, "g", given, made, fixed)
    whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return compile_observed(whole, cache=False, pool=KernelPool(1))


def test_inner_sizes():
    """x[10::-1] has as many rows as x where x has no more than eleven."""
    nodes = [
        helper.make_node("Slice", ["x", "first", "last", "axis", "step"], ["back"]),
        helper.make_node("Transpose", ["back"], ["transposed"]),
        helper.make_node("MatMul", ["transposed", "x"], ["y"]),
    ]
    ends = {"first": [10], "last": [-(1 << 40)], "axis": [0], "step": [-1]}
    product = model(nodes, {"x": ["N", 3]}, "y", **ends)
    for rows in (1, 4, 11):
        x = np.random.default_rng(rows).uniform(-1, 1, (rows, 3)).astype(np.float32)
        np.testing.assert_allclose(product(x)[0], x[10::-1].T @ x, rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError, match="the common size of the operands of MatMul 'y'"):
        product(np.ones((12, 3), np.float32))


def test_columns_of_found_positions():
    """What NonZero finds, times a matrix and under another one's rows."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["found"]),
        helper.make_node("Cast", ["found"], ["positions"], to=TensorProto.FLOAT),
        helper.make_node("Gemm", ["positions", "w", "b"], ["y"]),
        helper.make_node("Concat", ["positions", "v"], ["z"], axis=0),
    ]
    run = model(nodes, {"x": [5], "w": [3, 4], "b": [4], "v": [2, 3]}, "yz")
    draw = np.random.default_rng(3).uniform
    w, b, v = (draw(-1, 1, s).astype(np.float32) for s in ((3, 4), 4, (2, 3)))
    x = np.array([1, 0, 2, 3, 0], np.float32)
    positions = np.array(np.nonzero(x), np.float32)
    y, z = run(x, w, b, v)
    np.testing.assert_allclose(y, positions @ w + b, rtol=1e-5)
    np.testing.assert_array_equal(z, np.concatenate([positions, v]))
    with pytest.raises(InputError, match="Gemm 'y'"):
        run(np.ones(5, np.float32), w, b, v)


def test_sizes_that_never_meet_are_refused_when_compiling():
    with pytest.raises(ImportFault, match="the inner sizes are 3 and 4"):
        model([helper.make_node("MatMul", ["a", "b"], ["y"])], {"a": [2, 3], "b": [4, 5]}, "y")


def test_what_is_left_beside_all():
    """x[11::-1] - x, for an x of no more than twelve rows."""
    nodes = [
        helper.make_node("Slice", ["x", "first", "last", "axis", "step"], ["back"]),
        helper.make_node("Sub", ["back", "x"], ["y"]),
    ]
    ends = {"first": [11], "last": [-(1 << 40)], "axis": [0], "step": [-1]}
    difference = model(nodes, {"x": ["N", 2]}, "y", **ends)
    for rows in (1, 5, 12):
        x = np.random.default_rng(rows).uniform(-1, 1, (rows, 2)).astype(np.float32)
        np.testing.assert_array_equal(difference(x)[0], x[11::-1] - x)
    with pytest.raises(InputError, match="the shape of the operands of Sub 'y'"):
        difference(np.ones((13, 2), np.float32))


def test_expanding_what_the_run_measures():
    nodes = [
        helper.make_node("NonZero", ["x"], ["found"]),
        helper.make_node("Expand", ["found", "shape"], ["y"]),
    ]
    expanded = model(nodes, {"x": [5]}, "y", shape=[2, 1, 3])
    for x in ([0, 0, 4, 0, 0], [0, 2, 3, 0, 1]):
        found = np.array(np.nonzero(x))
        wanted = np.broadcast_to(found, (2, 1, 3))
        np.testing.assert_array_equal(expanded(np.array(x, np.float32))[0], wanted)
    with pytest.raises(InputError, match="the shape of Expand 'y'"):
        expanded(np.array([0, 0, 1, 0, 1], np.float32))


def test_batches_of_products_and_inputs_of_a_recurrence():
    """Numbers of matrices, and the width of a recurrence's input, that the run measures."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["found"]),
        helper.make_node("Cast", ["found"], ["positions"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["positions"], ["column"]),
        helper.make_node("Unsqueeze", ["column", "last"], ["stack"]),
        helper.make_node("MatMul", ["stack", "w"], ["y"]),
        helper.make_node("Unsqueeze", ["positions", "first"], ["steps"]),
        helper.make_node("RNN", ["steps", "a", "r"], ["", "z"], hidden_size=1),
    ]
    shapes = {"x": [5], "w": [3, 1, 4], "a": [1, 1, 3], "r": [1, 1, 1]}
    run = model(nodes, shapes, "yz", last=[2], first=[0])
    draw = np.random.default_rng(4).uniform
    w, a, r = (draw(-1, 1, s).astype(np.float32) for s in list(shapes.values())[1:])
    x = np.array([0, 2, 0, 3, 1], np.float32)
    positions = np.argwhere(x).astype(np.float32)
    y, z = run(x, w, a, r)
    np.testing.assert_allclose(y, positions[:, :, None] @ w, rtol=1e-5)
    np.testing.assert_allclose(z, np.tanh(a @ positions)[0].reshape(1, 1, 1), rtol=1e-5)
    with pytest.raises(InputError, match="cannot run"):
        run(np.ones(5, np.float32), w, a, r)
    one = np.array(
        [0, 0, 4, 0, 0], np.float32
    )  # one matrix is taken three times, three numbers not
    with pytest.raises(InputError, match="RNN"):
        run(one, w, a, r)


def gated():
    """A gate of an image that the run resizes, and a state of its size or of one pixel."""
    node, one = helper.make_node, helper.make_tensor("one", TensorProto.FLOAT, [2], [1, 1])
    nodes = [
        node("Concat", ["one", "ratio", "ratio"], ["scales"], axis=0),
        node("Resize", ["x", "", "scales"], ["small"], mode="nearest"),
        node("AveragePool", ["small"], ["half"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        node("Shape", ["half"], ["shape"]),
        node("Expand", ["state", "shape"], ["wide"]),
        node("Concat", ["half", "wide"], ["both"], axis=1),
        node("Concat", ["small", "mask"], ["masked"], axis=1),
        node("Mul", ["small", "mask"], ["kept"]),
        node("Mul", ["half", "wide"], ["gate"]),
        node("Add", ["gate", "half"], ["sum"]),
    ]
    shapes = {"x": [1, 2, "h", "w"], "state": [1, "c", "p", "q"], "mask": [1, 2, "m", "k"]}
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    given.append(helper.make_tensor_value_info("ratio", TensorProto.FLOAT, [1]))
    names = ["both", "masked", "kept", "sum"]
    made = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names]
    graph = helper.make_graph(nodes, "g", given, made, [one])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_sizes_that_were_found_to_be_one_are_one():
    whole = gated()
    graph = import_onnx(whole)
    asked = [node["what"] for node in graph.nodes if node.op == "measure"]
    assert [what.rpartition(" of ")[2] for what in asked] == [
        "Resize 'small'",
        *["Concat 'masked'"] * 2,
    ]
    run = compile_observed(whole, cache=False, pool=KernelPool(1))
    session = onnxruntime.InferenceSession(whole.SerializeToString())
    draw = np.random.default_rng(5)
    for state in ((1, 1, 1, 1), (1, 2, 3, 4)):
        shapes = {"x": (1, 2, 12, 16), "state": state, "mask": (1, 2, 6, 8)}
        feed = {k: draw.uniform(-1, 1, s).astype(np.float32) for k, s in shapes.items()}
        feed["ratio"] = np.array([0.5], np.float32)
        for found, wanted in zip(run(*feed.values()), session.run(None, feed), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    wrong = {"state": (1, 2, 3, 5), "mask": (1, 2, 6, 7)}
    told = {"state": "the shape of Expand 'wide'", "mask": "the operands of Concat 'masked'"}
    for name, shape in wrong.items():
        with pytest.raises(InputError, match=told[name]):
            run(*{**feed, name: np.zeros(shape, np.float32)}.values())
