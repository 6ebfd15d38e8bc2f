"""Loops whose rounds the run counts, compiled once: against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.frontend.onnx import import_onnx
from tilewright.graph import evaluate, parse
from tilewright.support.errors import ImportFault

POOL = KernelPool(1)  # kernels are compiled in this process: they are few and small
F, I, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
random = np.random.default_rng(29)


def info(name, of, *shape):
    return helper.make_tensor_value_info(name, of, list(shape))


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def number(name, value):
    return node("Constant", "", name, value_int=value)


def looped(body, states, rows, outer=(), inputs="n go"):
    """A model of one loop. body: its nodes; states, rows: {inside: (outside, shape)}."""
    entries = [info("i", I), info("c", B), *(info(k, F, *s) for k, (_, s) in states.items())]
    results = [info("on", B), *(info(f"{k}_new", F, *s) for k, (_, s) in states.items())]
    results += [info(k, F, *s) for k, (_, s) in rows.items()]
    inner = helper.make_graph(body, "body", entries, results)
    starts = " ".join(k for k, _ in states.values())
    finals = [f"{k}_last" for k, _ in states.values()]
    made = [f"all_{k}" for k in rows]
    loop = node("Loop", f"{inputs} {starts}", " ".join([*finals, *made]), body=inner)
    given = [info("n", I), info("go", B), *(info(k, F, *s) for k, s in states.values()), *outer]
    outputs = [helper.make_tensor_value_info(k, F, None) for k in (*finals, *made)]
    graph = helper.make_graph([loop], "g", given, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def agree(model, *runs):
    """One compilation serves all runs."""
    graph = import_onnx(model)
    assert parse(str(graph)) == graph
    run = compile_observed(graph, cache=False, pool=POOL)
    peer: Any = onnxruntime.InferenceSession(model.SerializeToString())
    names = [e.name for e in model.graph.input]
    for arrays in runs:
        expected = peer.run(None, dict(zip(names, arrays, strict=True)))
        for made in (run(*arrays), evaluate(graph, arrays)):
            for a, b in zip(made, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def f(*shape):
    return random.uniform(-1, 1, shape).astype(np.float32)


YES, NO = np.array(True), np.array(False)
KEEP = node("Identity", "c", "on")


def test_a_recurrence_with_values_from_around_it():
    body = [
        node("MatMul", "h w", "p"),
        node("Tanh", "p", "h_new"),
        node("ReduceSum", "h_new", "total", keepdims=0),
        node("Identity", "h_new", "row"),
        KEEP,
    ]
    shape = (2, 3)
    model = looped(
        body, {"h": ("h0", shape)}, {"row": ("", shape), "total": ("", ())}, [info("w", F, 3, 3)]
    )
    runs = [(np.array(n), YES, f(2, 3), f(3, 3)) for n in (1, 4, 9)]
    agree(model, *runs)
    made = compile_observed(model, cache=False, pool=POOL)
    for n, go in ((0, YES), (5, NO)):  # no round: the states as they were, no rows
        h = f(2, 3)
        last, rows, totals = made(np.array(n), go, h, f(3, 3))
        np.testing.assert_array_equal(last, h)
        assert rows.shape == (0, 2, 3) and totals.shape == (0,)


def test_a_loop_that_stops_by_itself():
    body = [
        node("Constant", "", "two", value_float=2.0),
        node("Mul", "x two", "x_new"),
        node("Constant", "", "most", value_float=40.0),
        node("ReduceMax", "x_new", "top", keepdims=0),
        node("Less", "top most", "on"),
        node("Identity", "top", "row"),
    ]
    model = looped(body, {"x": ("x0", (3,))}, {"row": ("", ())})
    start = np.array([0.5, 1.0, 3.0], np.float32)
    agree(model, *[(np.array(n), YES, start) for n in (1, 2, 4, 100)])


def test_the_round_and_a_branch_in_the_body():
    then, other = (
        helper.make_graph([node(op, "x step", "out")], op, [], [info("out", F, 2)])
        for op in ("Add", "Mul")
    )
    body = [
        number("two", 2),
        number("none", 0),
        node("Mod", "i two", "rest"),
        node("Equal", "rest none", "even"),
        node("Cast", "i", "step", to=F),
        helper.make_node("If", ["even"], ["x_new"], then_branch=then, else_branch=other),
        KEEP,
    ]
    model = looped(body, {"x": ("x0", (2,))}, {})
    agree(model, *[(np.array(n), YES, f(2)) for n in (1, 3, 6)])


def test_many_known_rounds_are_not_unrolled():
    body = [
        node("Constant", "", "part", value_float=0.99),
        node("Mul", "x part", "x_new"),
        node("Identity", "c", "on"),
    ]
    model = looped(body, {"x": ("x0", (4,))}, {}, inputs="many go")
    model.graph.node.insert(0, number("many", 1000))
    graph = import_onnx(model)
    assert [n.op for n in graph.nodes].count("loop") == 1 and len(graph.nodes) < 12
    agree(model, (np.array(0), YES, f(4)))


def test_loops_that_nothing_ends_and_outputs_that_nothing_makes_are_named():
    silent = looped([node("Neg", "x", "x_new"), KEEP], {"x": ("x0", (3,))}, {})
    silent.graph.node[0].attribute[0].g.output[1].name = ""
    with pytest.raises(ImportFault, match="leaves an output out"):
        import_onnx(silent)
    endless = looped([node("Neg", "x", "x_new"), node("Identity", "c", "on")], {"x": ("x0", (3,))},
                     {}, inputs=" go")  # fmt: skip
    endless.graph.node[0].input.insert(0, "")
    with pytest.raises(ImportFault, match="nothing ends it"):
        import_onnx(endless)
