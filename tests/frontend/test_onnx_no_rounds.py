"""Loops and scans that run no round: what a round would need of sizes, and what it reads, is not
asked for then. onnxruntime gives rows there under sizes of 0 where it knows none; here they have
those that the rounds would have given."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.support.errors import InputError

F, I, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node, info = helper.make_node, helper.make_tensor_value_info
KEEP = node("Identity", ["c"], ["on"])


def draw(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def body(nodes, state, row=None):
    """Rounds of (number, c, s) → (on, t, r); state, row: the shapes of s and r."""
    given = [info("number", I, []), info("c", B, []), info("s", F, state)]
    made = [info("on", B, []), info("t", F, state)]
    made += [info("r", F, row)] if row is not None else []
    return helper.make_graph([KEEP, *nodes], "body", given, made)


def model(nodes, inputs, outputs, **constants):
    graph = helper.make_graph(
        nodes,
        "g",
        [info(n, of, shape) for n, (of, shape) in inputs.items()],
        [info(n, F, None) for n in outputs],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def compiled(proto):
    return compile_observed(proto, cache=False, pool=KernelPool(1))


def check(proto, *runs, run=None):
    """As onnxruntime, but for sizes of results without elements behind the first."""
    run = run or compiled(proto)
    session = ort.InferenceSession(proto.SerializeToString())
    names = [i.name for i in proto.graph.input]
    for arrays in runs:
        wanted = session.run(None, dict(zip(names, arrays, strict=True)))
        for found, right in zip(run(*arrays), wanted, strict=True):
            assert found.dtype == right.dtype and found.ndim == right.ndim
            if right.size or found.size:
                np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)
            assert found.shape[:1] == right.shape[:1]
    return run


@pytest.mark.parametrize("stops", [False, True], ids=["trips", "condition"])
@pytest.mark.parametrize(
    "nodes, row, given, fits, wrong",
    [
        (
            [node("Gather", ["x", "five"], ["g"]), node("Add", ["s", "g"], ["t"]),
             node("Slice", ["x", "two", "six"], ["r"])],
            [None, 3], ["n", 3], (7, 3), (0, 3),
        ),
        (
            [node("ReduceSum", ["r"], ["g"], keepdims=0), node("Add", ["s", "g"], ["t"]),
             node("Conv", ["x", "w"], ["r"])],
            [1, 4, None], [1, 3, "n"], (1, 3, 9), (1, 3, 2),
        ),
        (
            [node("ReduceMax", ["s", "zero"], ["f"]), node("Mul", ["x", "f"], ["v"]),
             node("Conv", ["v", "w"], ["r"]),
             node("ReduceSum", ["r"], ["g"], keepdims=0), node("Add", ["s", "g"], ["t"])],
            [1, 4, None], [1, 3, "n"], (1, 3, 9), (1, 3, 2),
        ),
    ],
    ids=["gather", "once", "conv"],
)  # fmt: skip
def test_what_no_round_reads_may_have_any_size(nodes, row, given, fits, wrong, stops):
    """A row that is not there, a window wider than its image; hoisted out of the rounds or not."""
    order = nodes if nodes[-1].output[0] != "r" else [nodes[-1], *nodes[:-1]]
    loop = node("Loop", ["trips", "go", "x0"], ["y", "rows"], body=body(order, [3], row))
    inputs = {"trips": (I, []), "go": (B, []), "x0": (F, [3]), "x": (F, given)}
    numbers = {"five": np.array(5), "two": np.array([2]), "six": np.array([6])}
    proto = model([loop], inputs, ("y", "rows"), w=draw(4, 3, 5), zero=np.array([0]), **numbers)
    none = (np.array(4), np.array(False)) if stops else (np.array(0), np.array(True))
    x0, some = draw(3), (np.array(2), np.array(True))
    runs = [(*how, x0, draw(*size)) for how, size in ((some, fits), (none, fits), (none, wrong))]
    run = check(proto, *runs, runs[0])
    with pytest.raises(InputError):
        run(*some, x0, draw(*wrong))


def test_a_state_that_a_round_would_resize():
    """s [a, b] · x [n, m] is a state where the run finds n = m = b, unless there is no round."""
    step = [node("MatMul", ["s", "x"], ["t"])]
    loop = node("Loop", ["trips", "", "x0"], ["y"], body=body(step, [None, None]))
    inputs = {"trips": (I, []), "x0": (F, ["a", "b"]), "x": (F, ["n", "m"])}
    proto = model([loop], inputs, ("y",))
    right, wrong = (draw(2, 4), draw(4, 4)), (draw(2, 3), draw(5, 4))
    run = check(proto, (np.array(3), *right), (np.array(0), *right), (np.array(0), *wrong))
    with pytest.raises(InputError):
        run(np.array(1), *wrong)


def test_trips_that_are_known_to_be_none():
    rows = [node("Neg", ["x"], ["r"]), node("Add", ["s", "x"], ["t"])]
    for trips, go in ((0, True), (-3, True), (5, False)):
        loop = node("Loop", ["trips", "go", "x0"], ["y", "rows"], body=body(rows, [3], [3]))
        proto = model(
            [loop], {"x0": (F, [3]), "x": (F, [3])}, ("y", "rows"), trips=np.array(trips), go=go
        )
        check(proto, (draw(3), draw(3)))


@pytest.mark.parametrize("steps", [0, "steps"])
def test_a_scan_of_no_steps(steps):
    """onnxruntime refuses some of these: the state stays, and there are no rows."""
    given = [info("a", F, [3]), info("b", F, [None])]
    made = [info("u", F, [3]), info("r", F, [3])]
    nodes = [node("MatMul", ["b", "k"], ["v"]), node("Add", ["a", "v"], ["u"]),
             node("Tanh", ["u"], ["r"])]  # fmt: skip
    scanned = helper.make_graph(nodes, "body", given, made)
    scan = node("Scan", ["x0", "x"], ["y", "rows"], num_scan_inputs=1, body=scanned,
                scan_output_axes=[1], scan_input_directions=[1])  # fmt: skip
    inputs = {"x0": (F, [3]), "x": (F, [steps, "m"])}
    run = compiled(model([scan], inputs, ("y", "rows"), k=draw(4, 3)))
    x0 = draw(3)
    for width in (4, 6):
        y, rows = run(x0, draw(0, width))
        assert (y == x0).all() and rows.shape == (3, 0)
    if steps:
        check(model([scan], inputs, ("y", "rows"), k=draw(4, 3)), (x0, draw(5, 4)), run=run)
        with pytest.raises(InputError):
            run(x0, draw(1, 6))


def test_a_sequence_that_no_round_extends():
    step = [node("Gather", ["x", "five"], ["g"]), node("SequenceInsert", ["s", "g"], ["t"])]
    inside = body(step, None)
    given = helper.make_tensor_sequence_value_info
    inside.input[2].CopyFrom(given("s", F, None))
    inside.output[1].CopyFrom(given("t", F, None))
    nodes = [
        node("SequenceConstruct", ["x0", "x0"], ["start"]),
        node("Loop", ["trips", "", "start"], ["all"], body=inside),
        node("ConcatFromSequence", ["all"], ["y"], axis=0, new_axis=1),
    ]
    inputs = {"trips": (I, []), "x0": (F, [3]), "x": (F, ["n", 3])}
    proto = model(nodes, inputs, ("y",), five=np.array(5))
    x0 = draw(3)
    check(proto, (np.array(2), x0, draw(7, 3)), (np.array(0), x0, draw(0, 3)))


def test_a_loop_in_a_branch_that_is_not_taken():
    step = [node("Gather", ["x", "five"], ["g"]), node("Add", ["g", "k"], ["h"]),
            node("Add", ["s", "h"], ["t"])]  # fmt: skip
    loop = node("Loop", ["trips", "", "x0"], ["y1"], body=body(step, [None]))
    other = node("Neg", ["x0"], ["y2"])
    sides = {
        "then_branch": helper.make_graph([loop], "then", [], [info("y1", F, None)]),
        "else_branch": helper.make_graph([other], "other", [], [info("y2", F, None)]),
    }
    inputs = {"if": (B, []), "trips": (I, []), "x0": (F, [3]), "x": (F, ["n", "m"])}
    proto = model([node("If", ["if"], ["y"], **sides)], inputs, ("y",), five=np.array(5), k=draw(3))
    yes, no, two, x0 = np.array(True), np.array(False), np.array(2), draw(3)
    run = check(
        proto,
        (yes, two, x0, draw(7, 3)),
        (no, two, x0, draw(7, 3)),
        (no, two, x0, draw(2, 5)),
        (yes, np.array(0), x0, draw(2, 5)),
    )
    with pytest.raises(InputError):
        run(yes, two, x0, draw(7, 5))
    with pytest.raises(InputError):
        run(yes, two, x0, draw(2, 3))
