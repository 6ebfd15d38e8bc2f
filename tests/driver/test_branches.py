"""Branches that a condition of the run chooses: what only the other one needs is not computed."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.graph import Builder, evaluate
from tilewright.graph.graph import Graph
from tilewright.graph.passes.fuse import fuse
from tilewright.runtime.profile import Roofline

BOOL, FLOAT, INT64 = (getattr(onnx.TensorProto, t) for t in ("BOOL", "FLOAT", "INT64"))


def two_layers(shared: bool = False) -> Graph:
    """x w where the mean of c is above 0, else tanh(x v) u (and x w, `shared`, is a result too)."""
    build, random = Builder("g"), np.random.default_rng(0)
    x, c = build.input("x", "f32", (build.symbol("n"), 64)), build.input("c", "f32", (5,))

    def product(value, wide):
        weights = random.standard_normal((64, wide)).astype(np.float32) / 8
        return build.emit("matmul", value, build.constant(weights))

    mean = build.emit("reduce_mean", c, axes=(0,))
    condition = build.emit("greater", mean, build.constant(0.0))
    then = product(x, 40)
    other = product(build.emit("tanh", product(x, 64)), 40)
    y = build.emit("relu", build.emit("where", condition, then, other))
    return build.finish({"y": y, **({"z": build.emit("copy", then)} if shared else {})})


def launched(exe, *arrays) -> set[str]:
    """Operators of the kernels that ran."""
    profile = exe.profile(*arrays, seconds=0.0, machine=Roofline(1, 1))
    return {op for kernel in profile if kernel.launches for op in kernel.ops}


@pytest.mark.parametrize("threads", [1, 2])
def test_only_the_taken_branch_runs(threads):
    exe = compile_observed(two_layers(), threads=threads, cache=False)
    x, c = np.ones((7, 64), np.float32), np.ones(5, np.float32)
    assert "tanh" in launched(exe, x, -c) and "tanh" not in launched(exe, x, c)
    count = [sum(k.launches for k in exe.profile(x, s * c, seconds=0.0, machine=Roofline(1, 1)))
             for s in (1, -1)]  # fmt: skip
    assert count[0] < count[1]


@pytest.mark.parametrize("shared", [False, True])
def test_values_agree_with_either_branch(shared):
    graph, random = two_layers(shared), np.random.default_rng(1)
    exe = compile_observed(graph, threads=2, cache=False)
    for n in (1, 19, 4, 19):
        for sign in (1, -1):
            x = random.standard_normal((n, 64)).astype(np.float32)
            c = sign * np.abs(random.standard_normal(5)).astype(np.float32)
            for got, wanted in zip(exe(x, c), evaluate(graph, [x, c]), strict=True):
                np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_what_others_read_too_is_always_needed():
    demands = {g.nodes[0].op: g.demand for g in fuse(two_layers(shared=True)).groups}
    assert not demands["reduce_mean"] and demands["matmul"]  # the last product is the other's
    products = [g for g in fuse(two_layers(shared=True)).groups if "matmul" in g.ops]
    assert [bool(g.demand) for g in products] == [False, True, True]


def test_a_few_numbers_are_not_worth_a_branch():
    build = Builder("g")
    x, c = build.input("x", "f32", (3,)), build.input("c", "bool", ())
    y = build.emit("where", c, build.emit("exp", x), build.emit("sin", x))
    assert not any(group.demand for group in fuse(build.finish({"y": y})).groups)


def drawn(random: np.random.Generator) -> Graph:
    """Products, sums and choices of what came before, by inputs, by data, by formulas of both."""
    build = Builder("g")
    n = build.symbol("n")
    values = [build.input(name, "f32", (n, 32)) for name in "xy"]
    conditions = [build.input(f"c{k}", "bool", ()) for k in range(3)]

    def value():
        return values[random.integers(max(0, len(values) - 6), len(values))]

    def condition():
        return conditions[random.integers(len(conditions))]

    for _ in range(random.integers(8, 22)):
        kind = random.integers(0, 8)
        if kind == 0:
            weights = random.standard_normal((32, 32)).astype(np.float32) / 6
            values.append(build.emit("matmul", value(), build.constant(weights)))
        elif kind == 1:
            values.append(build.emit("add", build.emit("tanh", value()), value()))
        elif kind < 5:
            values.append(build.emit("where", condition(), value(), value()))
        elif kind == 5:
            conditions.append(build.emit("logical_not", condition()))
        elif kind == 6:
            op = ("logical_and", "logical_or")[random.integers(2)]
            conditions.append(build.emit(op, condition(), condition()))
        else:
            mean = build.emit("reduce_mean", build.emit("softmax", value(), axis=-1), axes=(0, 1))
            conditions.append(build.emit("greater", mean, build.constant(0.031)))
    results = {"a": build.emit("relu", values[-1]), "b": build.emit("neg", values[-2])}
    return build.finish({**results, "c": build.emit("logical_not", conditions[-1])})


@pytest.mark.parametrize("seed", range(8))
def test_drawn_choices(seed):
    random = np.random.default_rng(seed)
    graph = drawn(random)
    exe = compile_observed(graph, threads=1 + seed % 2, cache=False, pool=KernelPool(1))
    for bits in range(8):
        arrays = [random.standard_normal((5 + 9 * bits, 32)).astype(np.float32) for _ in range(2)]
        arrays += [np.array(bool(bits >> k & 1)) for k in range(3)]
        for got, wanted in zip(exe(*arrays), evaluate(graph, arrays), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)


def test_choices_inside_of_choices():
    build = Builder("g")
    x = build.input("x", "f32", (build.symbol("n"), 32))
    a, b = build.input("a", "bool", ()), build.input("b", "bool", ())
    weights = [
        build.constant(np.random.default_rng(k).standard_normal((32, 32)).astype(np.float32))
        for k in range(3)
    ]
    both = build.emit("logical_and", a, b)
    one, two, three = (build.emit("matmul", x, w) for w in weights)
    inner = build.emit("where", build.emit("logical_not", b), two, three)
    y = build.emit("where", both, one, build.emit("where", a, inner, x))
    graph = build.finish({"y": y})
    exe = compile_observed(graph, threads=1, cache=False)
    array = np.random.default_rng(9).standard_normal((6, 32)).astype(np.float32)
    for p in (False, True):
        for q in (False, True):
            arrays = [array, np.array(p), np.array(q)]
            (got,), (wanted,) = exe(*arrays), evaluate(graph, arrays)
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
            profile = exe.profile(*arrays, seconds=0.0, machine=Roofline(1, 1))
            assert sum(k.launches for k in profile if "dense_packed" in k.ops) == p


def if_of_onnx(rounds: int) -> onnx.ModelProto:
    """relu(|x| w), or so many rounds of tanh(x w), as `If` of ONNX."""

    def graph(name, nodes, result, constants=(), inputs=(), more=()):
        infos = [*more, helper.make_tensor_value_info(result, FLOAT, None)]
        return helper.make_graph(nodes, name, inputs, infos, constants)

    def value(name, kind, shape):
        return helper.make_tensor_value_info(name, kind, shape)

    node = helper.make_node
    then = graph("then", [node("Abs", ["x"], ["a"]), node("MatMul", ["a", "w"], ["b"]),
                          node("Relu", ["b"], ["y0"])], "y0")  # fmt: skip
    body = graph(
        "body",
        [node("MatMul", ["s", "w"], ["q"]), node("Tanh", ["q"], ["s1"]),
         node("Identity", ["go"], ["on"])],
        "s1",
        inputs=[value("i", INT64, ()), value("go", BOOL, ()), value("s", FLOAT, ("n", 64))],
        more=[value("on", BOOL, ())],
    )  # fmt: skip
    count = numpy_helper.from_array(np.array(rounds), "count")
    loop = node("Loop", ["count", "", "x"], ["y1"], body=body)
    other = graph("other", [loop], "y1", [count])
    weights = np.random.default_rng(2).standard_normal((64, 64)).astype(np.float32) / 8
    branch = node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    inputs = [value("x", FLOAT, ("n", 64)), value("c", BOOL, ())]
    whole = graph("g", [branch], "y", [numpy_helper.from_array(weights, "w")], inputs)
    return helper.make_model(whole, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize("rounds", [3, 300])  # written one behind the other, and one kernel
def test_an_if_of_onnx_launches_the_kernels_of_one_side(rounds):
    model = if_of_onnx(rounds)
    exe = compile_observed(model, threads=1, cache=False)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    x = np.random.default_rng().standard_normal((7, 64)).astype(np.float32)
    counts = {}
    for c in (True, False):
        wanted = session.run(None, {"x": x, "c": np.array(c)})
        np.testing.assert_allclose(exe(x, np.array(c))[0], wanted[0], rtol=1e-4, atol=1e-4)
        profile = exe.profile(x, np.array(c), seconds=0.0, machine=Roofline(1, 1))
        counts[c] = {k.name for k in profile if k.launches and k.ops != ("where",)}
    assert counts[True] and counts[False] and not counts[True] & counts[False]
