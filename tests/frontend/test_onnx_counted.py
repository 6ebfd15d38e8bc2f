"""Loops that count by themselves, without a trip count: against onnxruntime and plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.frontend.onnx import import_onnx

POOL = KernelPool(1)  # kernels are compiled in this process: they are few and small
F, I, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
random = np.random.default_rng(31)


def info(name, of, *shape):
    return helper.make_tensor_value_info(name, of, list(shape))


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def number(name, value):
    return numpy_helper.from_array(np.asarray(value, np.int64), name)


def model(step, condition, start, most=None, limit="limit"):
    """h ← tanh(h w + row w) while a counter k moves by `step` to the number of rows in `rows`; what
    was read of them is stacked. `condition`: nodes that make `on` of k, k_new and the limit."""
    body = helper.make_graph(
        [
            node("Add", "k step", "k_new"),
            node("Gather", "rows i", "row", axis=0),
            node("MatMul", "h w", "p"),
            node("MatMul", "row w", "r"),
            node("Add", "p r", "q"),
            node("Tanh", "q", "h_new"),
            node("Identity", "fixed", "fixed_new"),
            node("Identity", "row", "read"),
            *condition,
        ],
        "body",
        [info("i", I), info("c", B), info("k", I), info("fixed", I), info("h", F, 3)],
        [info("on", B), info("k_new", I), info("fixed_new", I), info("h_new", F, 3),
         info("read", F, 3)],
        [number("step", step), number("one", 1)],
    )  # fmt: skip
    loop = helper.make_node(
        "Loop", ["most" if most else "", "yes", "start", limit, "h0"],
        ["k_last", "fixed_last", "h_last", "all_rows"], body=body,
    )  # fmt: skip
    nodes = [node("Shape", "rows", "shape"), node("Gather", "shape none", "limit"), loop]
    known = [number("start", start), number("none", 0), number("far", 10**6)]
    known.append(numpy_helper.from_array(np.asarray(True), "yes"))
    known += [number("most", most)] if most else []
    graph = helper.make_graph(
        nodes, "g", [info("rows", F, "n", 3), info("w", F, 3, 3), info("h0", F, 3)],
        [info("k_last", I), info("h_last", F, 3), info("all_rows", F, None, 3)], known,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def cast(name):
    return node("Cast", name, f"{name}_wide", to=F)


ASCENDING = {
    "after": [node("Less", "k_new fixed", "on")],
    "before": [node("Add", "k one", "unused"), node("Less", "k fixed", "on")],
    "equal": [node("LessOrEqual", "k_new fixed", "on")],
    "swapped": [node("Greater", "fixed k_new", "on")],
    "swapped, equal": [node("GreaterOrEqual", "fixed k_new", "on")],
    "as floats": [cast("k_new"), cast("fixed"), node("Less", "k_new_wide fixed_wide", "on")],
    "and": [
        node("ReduceSum", "h_new", "total", keepdims=0),
        node("Constant", "", "much", value_float=1e9),
        node("Less", "total much", "tame"),
        node("Less", "k_new fixed", "short"),
        node("And", "tame short", "both"),
        node("Identity", "both", "on"),
    ],
    "outer": [node("Less", "k_new limit", "on")],
}


def agree(proto, sizes):
    """One compilation serves all numbers of rows."""
    run = compile_observed(import_onnx(proto), cache=False, pool=POOL)
    peer: Any = onnxruntime.InferenceSession(proto.SerializeToString())
    for n in sizes:
        rows, w, h = (random.uniform(-1, 1, s).astype(np.float32) for s in ((n, 3), (3, 3), 3))
        expected = peer.run(None, {"rows": rows, "w": w, "h0": h})
        for a, b in zip(run(rows, w, h), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "condition, step", [*((c, 1) for c in ASCENDING), ("after", 3), ("equal", 3)]
)
def test_rounds_up_to_a_size(condition, step):
    # what reads beyond its rows is left out: onnxruntime refuses it as we do
    start = {"before": step, "equal": step, "swapped, equal": step}.get(condition, 0)
    agree(model(step, ASCENDING[condition], start), (1, 2, 7))


def test_rounds_down_to_zero():
    condition = [node("Sub", "one one", "zero"), node("Greater", "k_new zero", "on")]
    agree(model(-1, condition, 5), (5, 9))


def test_a_trip_count_beyond_every_size_is_none():
    agree(model(1, ASCENDING["after"], 0, most=2**63 - 1), (1, 6))


@pytest.mark.parametrize(
    "condition",
    [
        [node("Less", "fixed k_new", "on")],  # away from the limit
        [node("Mul", "k_new k_new", "square"), node("Less", "square fixed", "on")],
    ],
)
def test_what_does_not_count_is_run_to_its_end_for_the_number_of_rounds(condition):
    agree(model(1, condition, 0), (1, 2, 7))


def test_layers_one_after_the_other():
    """What one loop's rounds gave is what the next loop counts by: its first row is squeezed, and
    its rows are as many as the first loop ran."""
    first = model(1, ASCENDING["after"], 0)
    graph, loop = first.graph, first.graph.node[-1]
    again = onnx.NodeProto()
    again.CopyFrom(loop)
    for node_ in again.attribute[0].g.node:
        for k, name in enumerate(node_.input):
            node_.input[k] = {"rows": "all_rows", "row": "row_2"}.get(name, name)
        for k, name in enumerate(node_.output):
            node_.output[k] = {"row": "row_2"}.get(name, name)
    again.input[3:] = ["count", "h_2"]
    again.output[:] = ["k_2", "fixed_2", "h_last_2", "all_rows_2"]
    zero = numpy_helper.from_array(np.array([0], np.int64), "zeros")
    graph.initializer.extend([zero, numpy_helper.from_array(np.array([1], np.int64), "ones")])
    graph.node.extend([
        node("Shape", "all_rows", "shape_2"), node("Gather", "shape_2 none", "count"),
        node("Slice", "all_rows zeros ones zeros", "top"), node("Squeeze", "top zeros", "top_row"),
        node("Add", "top_row h0", "h_2"), again,
    ])  # fmt: skip
    del graph.output[:]
    graph.output.extend([info("h_last_2", F, 3), info("all_rows_2", F, None, 3)])
    agree(first, (1, 5))
