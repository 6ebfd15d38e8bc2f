"""Indices out of bounds in the bodies of loops: the run ends with an error after the loop."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from tilewright.support.errors import InputError

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
info, node = helper.make_tensor_value_info, helper.make_node


def compiled(nodes, inputs, outputs, constants=(), **named):
    initializers = [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in constants]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    return tw.compile(model, cache=False, **named)


def body(nodes, name="body", state=True):
    """A loop's body: state s [], row r []."""
    inputs = [info("k", INT64, []), info("go", BOOL, []), info("s", FLOAT, [])]
    outputs = [info("on", BOOL, []), info("t", FLOAT, []), info("r", FLOAT, [])]
    nodes = [node("Identity", ["go"], ["on"]), *nodes, node("Add", ["s", "r"], ["t"])]
    return helper.make_graph(nodes, name, inputs, outputs)


def looped(nodes, inputs, **named):
    """x [n] summed over rounds whose number the run gives."""
    loop = node("Loop", ["count", "", "zero"], ["total", "rows"], body=body(nodes))
    given = [info("count", INT64, []), info("x", FLOAT, ["n"]), *inputs]
    outputs = [info("total", FLOAT, []), info("rows", FLOAT, None)]
    return compiled([loop], given, outputs, [("zero", np.float32(0))], **named)


def refused(model, *arrays) -> str:
    with pytest.raises(InputError) as caught:
        model(*arrays)
    return caught.value.why


@pytest.mark.parametrize("opt_level", [0, 3])
def test_the_body_of_a_loop(opt_level: int):
    nodes = [node("Gather", ["i", "k"], ["at"]), node("Gather", ["x", "at"], ["r"], name="pick")]
    model = looped(nodes, [info("i", INT64, ["m"])], opt_level=opt_level)
    x, i = np.arange(1, 6, dtype=np.float32), np.array([4, -5, 0, 7])
    total, rows = model(np.array(3), x, i)
    assert total == 7 and rows.tolist() == [5, 1, 1]
    assert refused(model, np.array(4), x, i) == "Gather 'pick': index 7 is not from -5 to 4"
    i[1] = -6
    assert refused(model, np.array(2), x, i) == "Gather 'pick': index -6 is not from -5 to 4"
    assert model(np.array(1), x, i)[0] == 5
    assert model(np.array(0), x, i)[0] == 0
    assert "Gather 'at': index 4 is not from -4 to 3" in refused(model, np.array(5), x, i % 5)


def test_a_branch_in_a_body():
    def side(name, nodes):
        return helper.make_graph(nodes, name, [], [info(name, FLOAT, [])])

    nodes = [
        node("Less", ["k", "few"], ["small"]),
        node("If", ["small"], ["r"],
             then_branch=side("a", [node("Gather", ["x", "k"], ["a"])]),
             else_branch=side("b", [node("Identity", ["s"], ["b"])])),
    ]  # fmt: skip
    model = looped(nodes, [info("few", INT64, [])])
    x = np.array([1, 2, 4], np.float32)
    assert model(np.array(5), x, np.array(3))[0] == 28  # 1 + 2 + 4, doubled twice
    assert "index 3 is not from -3 to 2" in refused(model, np.array(5), x, np.array(4))


def test_what_is_loop_invariant_is_not_checked_in_none():
    nodes = [node("Gather", ["x", "j"], ["r"])]
    model = looped(nodes, [info("j", INT64, [])])
    x = np.array([1, 2, 4], np.float32)
    assert model(np.array(2), x, np.array(2))[0] == 8
    assert model(np.array(0), x, np.array(3))[0] == 0
    assert "index 3 is not from -3 to 2" in refused(model, np.array(1), x, np.array(3))


def test_a_loop_in_a_branch_and_in_a_loop():
    inner = node(
        "Loop",
        ["times", "", "s"],
        ["u", "parts"],
        body=body(
            [node("Add", ["k", "base"], ["at"]), node("Gather", ["x", "at"], ["r"])], "inner"
        ),
    )
    inner.attribute[0].g.input[0].name = "k2"
    for n in inner.attribute[0].g.node:
        n.input[:] = ["k2" if v == "k" else v for v in n.input]
    nodes = [node("Add", ["k", "start"], ["base"]), inner,
             node("Sub", ["u", "s"], ["r"])]  # fmt: skip
    loop = node("Loop", ["count", "", "zero"], ["y"], body=helper.make_graph(
        [node("Identity", ["go"], ["on"]), *nodes, node("Add", ["s", "r"], ["t"])], "outer",
        [info("k", INT64, []), info("go", BOOL, []), info("s", FLOAT, [])],
        [info("on", BOOL, []), info("t", FLOAT, [])]))  # fmt: skip
    then = helper.make_graph([loop], "then", [], [info("y", FLOAT, [])])
    other = helper.make_graph([node("Identity", ["zero"], ["z"])], "other", [],
                              [info("z", FLOAT, [])])  # fmt: skip
    given = [info("c", BOOL, []), info("count", INT64, []),
             info("start", INT64, []), info("x", FLOAT, ["n"])]  # fmt: skip
    model = compiled(
        [node("If", ["c"], ["w"], then_branch=then, else_branch=other)],
        given,
        [info("w", FLOAT, [])],
        [("zero", np.float32(0)), ("times", np.int64(3))],
    )
    x = np.array([1, 2, 4, 8], np.float32)
    numbers = [np.array(n) for n in (2, 0)]
    assert model(np.array(True), *numbers, x)[0] == 7 + 14
    numbers[1] = np.array(1)
    assert "index 4 is not from -4 to 3" in refused(model, np.array(True), *numbers, x)
    assert model(np.array(False), *numbers, x)[0] == 0


def test_a_scan_of_unknown_length():
    step = helper.make_graph(
        [node("Gather", ["x", "i"], ["v"]), node("Add", ["s", "v"], ["t"]),
         node("Identity", ["t"], ["row"])], "step",
        [info("s", FLOAT, []), info("i", INT64, [])],
        [info("t", FLOAT, []), info("row", FLOAT, [])])  # fmt: skip
    scan = node("Scan", ["zero", "all"], ["y", "rows"], num_scan_inputs=1, body=step)
    model = compiled([scan], [info("x", FLOAT, [3]), info("all", INT64, ["n"])],
                     [info("y", FLOAT, []), info("rows", FLOAT, None)],
                     [("zero", np.float32(0))])  # fmt: skip
    x = np.array([1, 2, 4], np.float32)
    y, rows = model(x, np.array([0, 2, -1, 1]))
    assert y == 11 and rows.tolist() == [1, 5, 9, 11]
    assert "index 3 is not from -3 to 2" in refused(model, x, np.array([0, 3, 1]))


def test_an_axis_that_a_round_measures():
    """What a round finds is as long as the state that it becomes, and indices go that far."""
    nodes = [
        node("GreaterOrEqual", ["s", "least"], ["kept"]),
        node("Cast", ["kept"], ["each"], to=INT64),
        node("ReduceSum", ["each"], ["many"], keepdims=1),
        node("Slice", ["s", "first", "many"], ["t"]),
        node("Gather", ["t", "k"], ["r"], name="pick"),
        node("Identity", ["go"], ["on"]),
    ]
    inputs = [info("k", INT64, []), info("go", BOOL, []), info("s", FLOAT, ["n"])]
    outputs = [info("on", BOOL, []), info("t", FLOAT, ["m"]), info("r", FLOAT, [])]
    step = helper.make_graph(nodes, "body", inputs, outputs)
    loop = node("Loop", ["count", "", "x"], ["y", "rows"], body=step)
    model = compiled([loop], [info("count", INT64, []), info("x", FLOAT, ["n"])],
                     [info("y", FLOAT, None), info("rows", FLOAT, None)],
                     [("least", np.float32(-1)), ("first", np.array([0]))])  # fmt: skip
    x = np.array([1, 2, 4], np.float32)
    assert model(np.array(3), x)[1].tolist() == [1, 2, 4]
    assert "'pick': index 3 is not from -3 to 2" in refused(model, np.array(4), x)


def sized(nodes):
    """Sums of r, which the nodes make of v [1, 1, n] in `count` rounds, v being x plus the last."""
    made = [node("Add", ["x", "s"], ["v"]), *nodes, node("ReduceSum", ["r"], ["t"], keepdims=0),
            node("Identity", ["go"], ["on"])]  # fmt: skip
    inputs = [info("k", INT64, []), info("go", BOOL, []), info("s", FLOAT, [])]
    step = helper.make_graph(made, "body", inputs, [info("on", BOOL, []), info("t", FLOAT, [])])
    constants = [("zero", np.float32(0)), ("filter", np.ones((1, 1, 4), np.float32)),
                 ("pads", np.array([0, 0, -3, 0, 0, 0])), ("parts", np.array([2, 3])),
                 ("shape", np.array([2, 3])), ("axis", np.array([2])),
                 ("five", np.ones(5, np.float32)),
                 ("wide", np.array([0, 0, 1, 0, 0, 1]))]  # fmt: skip
    loop = node("Loop", ["count", "", "zero"], ["y"], body=step)
    inputs = [info("count", INT64, []), info("x", FLOAT, [1, 1, "n"])]
    initializers = [onnx.numpy_helper.from_array(a, name) for name, a in constants]
    graph = helper.make_graph([loop], "g", inputs, [info("y", FLOAT, [])], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize(
    ("nodes", "fits", "wrong"),
    [
        ([node("Reshape", ["v", "shape"], ["r"])], [6], [5, 9]),
        ([node("Pad", ["v", "pads"], ["r"])], [3, 5], [0, 2]),
        ([node("Pad", ["v", "wide"], ["r"], mode="reflect")], [2, 7], [0]),
        ([node("Conv", ["v", "filter"], ["r"])], [4, 9], [0, 2]),
        ([node("MaxPool", ["v"], ["r"], kernel_shape=[3])], [3, 6], [0, 1]),
        ([node("Squeeze", ["v", "axis"], ["r"])], [1], [0, 2]),
        ([node("Split", ["v", "parts"], ["q", "r"], axis=2)], [5], [4, 6]),
        ([node("Add", ["v", "five"], ["r"])], [1, 5], [0, 4]),
    ],
)
def test_sizes_that_a_body_needs(nodes, fits, wrong):
    """As onnxruntime has them; others end the run before the loop."""
    proto = sized(nodes)
    model = tw.compile(proto, cache=False)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    for n in fits:
        x = np.random.default_rng(n).uniform(0, 1, (1, 1, n)).astype(np.float32)
        (wanted,) = session.run(None, {"count": np.array(3), "x": x})
        np.testing.assert_allclose(model(np.array(3), x)[0], wanted, rtol=1e-5)
    for n in wrong:
        assert "in Loop 'y'" in refused(model, np.array(3), np.ones((1, 1, n), np.float32))
