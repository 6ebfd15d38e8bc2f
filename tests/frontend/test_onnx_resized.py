"""Resizing open sizes to whole multiples repeats pixels."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tests.frontend.beside_onnxruntime import same_as_onnxruntime
from tilewright.driver.compile import prepare
from tilewright.driver.source import open_source
from tilewright.frontend.onnx.resized import COORDINATES, PERIODS, repeats
from tilewright.graph import sizes
from tilewright.graph.resample import ROUNDING, Kernel
from tilewright.ir.dtype import f32, f64
from tilewright.ir.expr import Var
from tilewright.target.target import target

WAYS = list(product(COORDINATES, ROUNDING, (2, 3, 4)))


def resize(how: str, rounding: str, times: int, mode: str = "nearest"):
    """A model that resizes the rows of an image."""
    node = helper.make_node(
        "Resize", ["x", "", "s"], ["y"], mode=mode,
        coordinate_transformation_mode=how, nearest_mode=rounding,
    )  # fmt: skip
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 1, "h", 2))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    scales = numpy_helper.from_array(np.array([1, 1, times, 1], np.float32), "s")
    graph = helper.make_graph([node], "rows", [x], [y], [scales])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=8)


@pytest.mark.parametrize(("how", "rounding", "times"), WAYS)
def test_what_repeats_rows(how: str, rounding: str, times: int) -> None:
    h = Var("h")
    found = repeats(h, sizes.size(h * times), how, Kernel("nearest", rounding))
    session: Any = ort.InferenceSession(resize(how, rounding, times).SerializeToString())
    x = np.arange(26, dtype=np.float32).reshape(1, 1, 13, 2)
    same = np.array_equal(session.run(None, {"x": x})[0], np.repeat(x, times, axis=2))
    assert found == (times if same else 0)


def test_other_sizes_are_not_repeated() -> None:
    h, nearest = Var("h"), Kernel("nearest", "floor")
    for new in (h, Var("g"), sizes.size(h * 2 + 1), sizes.size(h * 3 // 2), sizes.size(7)):
        assert repeats(h, new, "asymmetric", nearest) == (1 if new == h else 0)
    assert repeats(h, sizes.size(h * 2), "asymmetric", Kernel("linear")) == 0


def test_the_graph_has_no_gather() -> None:
    graph = open_source(resize("asymmetric", "floor", 2)).graph()
    assert not {n.op for n in graph.nodes} & {"gather", "measure", "arange"}


@pytest.mark.sampled
@pytest.mark.parametrize("times", [2, 3, 4, 8])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("how", COORDINATES)
def test_weights_come_again_with_each_row(how: str, mode: str, times: int) -> None:
    model = resize(how, "floor", times, mode)
    exe, random = tw.compile(model, cache=False), np.random.default_rng(times)
    session: Any = ort.InferenceSession(model.SerializeToString())
    for rows in (1, 2, 13):
        x = random.standard_normal((1, 1, rows, 2), np.float32)
        np.testing.assert_allclose(exe(x)[0], session.run(None, {"x": x})[0], rtol=0, atol=2e-6)


@pytest.mark.parametrize("machine", ["cpu", "cpu -mcpu=x86-64-v3"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_columns_at_open_and_at_fixed_sizes(mode: str, machine: str) -> None:
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode=mode)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, "c", "h", "w"))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    scales = numpy_helper.from_array(np.array([1, 1, 2, 4], np.float32), "s")
    graph = helper.make_graph([node], "columns", [x], [y], [scales])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=8)
    session: Any = ort.InferenceSession(model.SerializeToString())
    exe = tw.compile(model, cache=False, target=machine)
    random = np.random.default_rng(5)
    for shape in [(1, 2, 3, w) for w in (*range(1, 20), 31, 33)]:
        x = random.standard_normal(shape, np.float32)
        wanted = session.run(None, {"x": x})[0]
        np.testing.assert_allclose(exe(x)[0], wanted, rtol=0, atol=2e-6)
        if shape[3] in (5, 16, 33):
            fixed = tw.compile(
                model, cache=False, target=machine, shapes=dict(zip("chw", shape[1:], strict=True))
            )
            np.testing.assert_allclose(fixed(x)[0], wanted, rtol=0, atol=2e-6)


@pytest.mark.parametrize("times", PERIODS)
def test_weights_of_whole_multiples_take_no_arithmetic_of_floats(times: int) -> None:
    graph = open_source(resize("half_pixel", "floor", times, "linear")).graph()
    (group,) = prepare(graph, target("cpu"), 3).groups
    assert not any(v.dtype is f64 for n in group.nodes for v in n.outputs)
    assert all(v.dtype is f32 for v in group.inputs)  # whole numbers are part of the code


def asked_of_the_run(shape: tuple[Any, ...]):
    """A model that keeps the first two sizes of x and takes the others from its input `hw`."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    hw = helper.make_tensor_value_info("hw", TensorProto.INT32, (2,))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [
        helper.make_node("Shape", ["x"], ["front"], start=0, end=2),
        helper.make_node("Cast", ["hw"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Concat", ["front", "whole"], ["sizes"], axis=0),
        helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear"),
    ]
    graph = helper.make_graph(nodes, "asked", [x, hw], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=8)


@pytest.mark.parametrize("shape", [(2, 3, 5, 7), ("n", "c", 5, "w")])
def test_sizes_that_are_known_stay_so_beside_those_of_the_run(shape: tuple[Any, ...]) -> None:
    model = asked_of_the_run(shape)
    graph = open_source(model).graph()
    (x, _), (y,) = graph.inputs, graph.outputs
    assert y.shape[:2] == x.shape[:2]
    gathers = [n for n in graph.nodes if n.op == "gather" and n.output.rank == 4]
    assert {n["axis"] for n in gathers} == {2, 3}
    values = np.random.default_rng(2).standard_normal((2, 3, 5, 7)).astype(np.float32)
    same_as_onnxruntime(model, values, np.array([8, 4], np.int32))


def test_axes_whose_factors_are_one_stay() -> None:
    """As a matting net makes its image smaller by a number that a caller gives."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 3, "h", "w"))
    ratio = helper.make_tensor_value_info("ratio", TensorProto.FLOAT, (1,))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    front = helper.make_tensor("front", TensorProto.FLOAT, (2,), [1.0, 1.0])
    nodes = [
        helper.make_node("Concat", ["front", "ratio", "ratio"], ["scales"], axis=0),
        helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear"),
    ]
    graph = helper.make_graph(nodes, "scaled", [x, ratio], [y], [front])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=8)
    made = open_source(model).graph()
    assert made.outputs[0].shape[:2] == made.inputs[0].shape[:2]
    values = np.random.default_rng(3).standard_normal((2, 3, 8, 12)).astype(np.float32)
    for factor in (0.5, 1.0, 1.75):
        same_as_onnxruntime(model, values, np.array([factor], np.float32))


def test_crops_of_any_number_of_images():
    node = helper.make_node(
        "Resize", ["x", "roi", "s"], ["y"], mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize",
    )  # fmt: skip
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 2, 5, 7))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    roi, scales = [0, 0, 0.1, 0.2, 1, 1, 0.8, 0.9], [1, 1, 1.7, 0.6]
    known = [
        numpy_helper.from_array(np.array(v, np.float32), k)
        for k, v in (("roi", roi), ("s", scales))
    ]
    graph = helper.make_graph([node], "crops", [x], [y], known)
    same_as_onnxruntime(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=8),
        np.random.default_rng(1).standard_normal((3, 2, 5, 7)).astype(np.float32),
    )


@pytest.mark.sampled
@pytest.mark.parametrize("scales", [(1, 1, 2, 2), (1, 1, 1, 3), (1, 1, 1.5, 2.25)])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("version", [7, 9])
def test_the_forebear_at_open_sizes(version: int, mode: str, scales: tuple[float, ...]) -> None:
    """Upsample with known factors, which stood in an attribute before they were an input."""
    given: dict[str, Any] = {"scales": [*map(float, scales)]}
    names, fixed = ["x"], []
    if version == 9:
        names, given = ["x", "s"], {}
        fixed = [numpy_helper.from_array(np.array(scales, np.float32), "s")]
    node = helper.make_node("Upsample", names, ["y"], mode=mode, **given)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 2, "h", "w"))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "upsampled", [x], [y], fixed)
    opset = helper.make_opsetid("", version)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=4)
    exe = tw.compile(model, cache=False)
    session: Any = ort.InferenceSession(model.SerializeToString())
    for shape in ((1, 2, 5, 7), (3, 2, 1, 2), (2, 2, 12, 1), (1, 2, 9, 33)):
        values = np.random.default_rng(shape[2]).standard_normal(shape, np.float32)
        wanted: Any = session.run(None, {"x": values})[0]
        np.testing.assert_allclose(exe(values)[0], wanted, rtol=0, atol=1e-5)
