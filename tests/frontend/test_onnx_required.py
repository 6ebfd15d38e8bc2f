"""Sizes of inputs that fit only in some runs: those runs give what onnxruntime gives, the others do
not start."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.frontend.onnx.importer import import_onnx
from tilewright.graph import sizes
from tilewright.graph.evaluate import evaluate
from tilewright.graph.parse import parse
from tilewright.graph.passes.pipeline import optimise
from tilewright.graph.specialise import specialise
from tilewright.ir.expr import Var
from tilewright.support.errors import CompileError, InputError


def model(nodes, inputs, **constants):
    """inputs: the shape of each f32 input; the last node's output is the model's."""
    fixed = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    made = [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", given, made, fixed)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def pyramid(levels, channels=4):
    """Images at half of the size again and again, added up on the way back; then all of them, as
    large as the first, side by side."""
    draw = np.random.default_rng(levels).standard_normal
    nodes, constants, maps = [], {}, ["x"]
    for k in range(levels):
        depth = 3 if k == 0 else channels
        constants[f"w{k}"] = (draw((channels, depth, 3, 3)) / 5).astype(np.float32)
        attrs: Any = {"strides": [2, 2], "pads": [1, 1, 1, 1]}
        nodes.append(helper.make_node("Conv", [maps[-1], f"w{k}"], [f"c{k}"], **attrs))
        maps.append(f"c{k}")
    constants |= {f"by{f}": np.array([1, 1, f, f], np.float32) for f in (2, 4, 8, 16)}

    def larger(source, factor, made):
        attrs = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        nodes.append(helper.make_node("Resize", [source, "", f"by{factor}"], [made], **attrs))
        return made

    sums = [maps[-1]]
    for k in range(levels - 2, -1, -1):
        nodes.append(helper.make_node("Add", [larger(sums[-1], 2, f"u{k}"), f"c{k}"], [f"s{k}"]))
        sums.append(f"s{k}")
    whole = [larger(s, 2 ** (levels - 1 - k), f"v{k}") for k, s in enumerate(sums[:-1])]
    nodes.append(helper.make_node("Concat", [*whole, sums[-1]], ["y"], axis=1))
    return model(nodes, {"x": ["batch", 3, "height", "width"]}, **constants)


def peer(proto) -> Any:
    return ort.InferenceSession(proto.SerializeToString())


def compiled(proto):
    return compile_observed(proto, cache=False, pool=KernelPool(1))


def test_a_pyramid_of_open_height_and_width():
    """Six pairs of sizes meet in its last node."""
    proto = pyramid(4)
    run, session = compiled(proto), peer(proto)
    for shape in ((1, 3, 48, 96), (2, 3, 32, 80)):
        x = np.random.default_rng(shape[2]).standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(run(x)[0], session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match=r"of Add 's2', where .* has to be .*\(height = 50"):
        run(np.ones((1, 3, 50, 96), np.float32))
    with pytest.raises(CompileError, match="the shape of the operands of Add"):
        specialise(import_onnx(proto), {"height": 50})


def test_what_is_required_grows_with_the_levels():
    graphs = {levels: import_onnx(pyramid(levels)) for levels in (2, 3, 4, 5)}
    for levels, graph in graphs.items():
        assert graph.data_dependent == () and len(graph.required) <= 6 * (levels - 1)
        assert max(len(sizes.text(size)) for size, _ in graph.required) < 150
        assert parse(str(graph), {c.digest: c.array for c in graph.constants.values()}) == graph


@pytest.mark.parametrize(
    "given, goal, fits, not_",
    [
        (["n", 6], (-1, 4), [(2, 6), (6, 6)], (3, 6)),
        ([1, 3, "h", "w"], (1, 3, 16, -1), [(1, 3, 8, 6), (1, 3, 3, 16)], (1, 3, 5, 5)),
        (["n", "m"], (2, 0, -1), [(4, 5), (6, 2)], None),
    ],
)
def test_elements_that_fit_at_some_sizes(given, goal, fits, not_):
    nodes = [helper.make_node("Reshape", ["x", "goal"], ["z"]), helper.make_node("Exp", "z", "y")]
    proto = model(nodes, {"x": given}, goal=np.array(goal, np.int64))
    run, session = compiled(proto), peer(proto)
    for shape in fits:
        x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
        wanted = session.run(None, {"x": x})[0]
        np.testing.assert_allclose(run(x)[0], wanted, rtol=1e-6)
        np.testing.assert_allclose(evaluate(import_onnx(proto), [x])[0], wanted, rtol=1e-6)
    if not_ is not None:
        for asked in (run, lambda x: evaluate(import_onnx(proto), [x])):
            with pytest.raises(InputError, match="the shape of Reshape 'z'"):
                asked(np.ones(not_, np.float32))


@pytest.mark.parametrize(
    "node, fits, wrong, told",
    [
        (helper.make_node("TopK", ["x", "three"], ["y", "at"]), [3, 8], [0, 2], "top_k 'y' of x"),
        (
            helper.make_node("Split", ["x", "parts"], ["q", "y"], axis=1),
            [5],
            [4, 6],
            "of Split 'q'",
        ),
    ],
)
def test_elements_that_an_axis_must_have(node, fits, wrong, told):
    proto = model([node], {"x": [2, "n"]}, three=np.array([3]), parts=np.array([2, 3]))
    proto.graph.output[0].name = "y"
    run, session = compiled(proto), peer(proto)
    for n in fits:
        x = np.random.default_rng(n).standard_normal((2, n)).astype(np.float32)
        np.testing.assert_array_equal(run(x)[0], session.run(["y"], {"x": x})[0])
    for n in wrong:
        with pytest.raises(InputError, match=told):
            run(np.ones((2, n), np.float32))


def test_windows_of_open_images():
    """Seven by seven positions each, in and out again."""
    nodes = [helper.make_node("Shape", ["x"], ["shape"])]
    nodes += [helper.make_node("Slice", ["shape", a, b], [s]) for s, a, b in ("hab", "wbc")]
    nodes += [helper.make_node("Div", [s, "seven"], [s * 2]) for s in "hw"]
    nodes += [
        helper.make_node("Concat", ["hh", "seven", "ww", "seven", "rest"], ["goal"], axis=0),
        helper.make_node("Reshape", ["x", "goal"], ["cut"]),
        helper.make_node("Transpose", ["cut"], ["transposed"], perm=[0, 2, 1, 3, 4]),
        helper.make_node("Softmax", ["transposed"], ["soft"], axis=3),
        helper.make_node("Transpose", ["soft"], ["back"], perm=[0, 2, 1, 3, 4]),
        helper.make_node("Reshape", ["back", "shape"], ["y"]),
    ]
    ends = {n: np.array([k], np.int64) for k, n in enumerate("abc")}
    sizes = {"seven": np.array([7], np.int64), "rest": np.array([3], np.int64)}
    proto = model(nodes, {"x": ["height", "width", 3]}, **ends, **sizes)
    run, session = compiled(proto), peer(proto)
    for shape in ((14, 7, 3), (7, 28, 3)):
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(run(x)[0], session.run(None, {"x": x})[0], rtol=1e-5)
    with pytest.raises(InputError, match="the shape of Reshape"):
        run(np.ones((15, 7, 3), np.float32))


def test_resizing_to_the_size_of_another_leaves_batch_and_channels():
    nodes = [
        helper.make_node("Shape", ["x"], ["own"], end=2),
        helper.make_node("Shape", ["z"], ["other"], start=2),
        helper.make_node("Concat", ["own", "other"], ["goal"], axis=0),
        helper.make_node("Resize", ["x", "", "", "goal"], ["y"], mode="linear"),
    ]
    given = {"x": ["n", "c", "h", "w"], "z": [1, 1, "height", "width"]}
    proto = model(nodes, given)
    read = [node for node in import_onnx(proto).nodes if node.op == "gather"]
    assert {node["axis"] for node in read if node.inputs[0].rank == 4} == {2, 3}
    run, session = compiled(proto), peer(proto)
    for shape, goal in (((2, 3, 5, 7), (11, 9)), ((1, 2, 6, 6), (6, 13))):
        x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
        z = np.zeros((1, 1, *goal), np.float32)
        (wanted,) = session.run(None, {"x": x, "z": z})
        np.testing.assert_allclose(run(x, z)[0], wanted, rtol=1e-4, atol=1e-5)


def test_rows_that_a_batch_divides():
    """t rows of b sequences: b is no other name for t, whatever b · ⌊t / b⌋ is where they are
    one."""
    nodes = [
        helper.make_node("Shape", ["h"], ["batch"], end=1),
        helper.make_node("Concat", ["batch", "rest"], ["goal"], axis=0),
        helper.make_node("Reshape", ["x", "goal"], ["y"]),
    ]
    inputs = {"x": ["t", 3], "h": ["b", 2]}
    proto = model(nodes, inputs, rest=np.array([-1, 3]))
    run = compile_observed(proto, cache=False, pool=KernelPool(1))
    for t, b in ((6, 2), (4, 4), (5, 1)):
        x = np.arange(3 * t, dtype=np.float32).reshape(t, 3)
        np.testing.assert_array_equal(run(x, np.zeros((b, 2), np.float32))[0], x.reshape(b, -1, 3))
    with pytest.raises(InputError):
        run(np.zeros((5, 3), np.float32), np.zeros((2, 2), np.float32))


def test_rows_of_a_table_as_many_as_there_are_words():
    """The table's slice would end at its last row; a sum with n words needs n of them."""
    nodes = [
        helper.make_node("Shape", ["x"], ["n"], end=1),
        helper.make_node("Slice", ["table", "none", "n", "none"], ["rows"]),
        helper.make_node("Add", ["x", "rows"], ["y"]),
    ]
    table = np.random.default_rng(5).standard_normal((6, 3)).astype(np.float32)
    proto = model(nodes, {"x": ["n", 3]}, table=table, none=np.array([0]))
    (cut,) = [n for n in optimise(import_onnx(proto)).nodes if n.op == "slice"]
    assert cut.output.shape == sizes.shape((Var("n"), 3))
    run, session = compiled(proto), peer(proto)
    for n in (0, 1, 4, 6):
        x = np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32)
        np.testing.assert_array_equal(run(x)[0], session.run(None, {"x": x})[0])
    with pytest.raises(InputError, match="operands of Add"):
        run(np.ones((7, 3), np.float32))
