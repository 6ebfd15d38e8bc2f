"""Operators that read parts of images, compiled, against ONNX's reference evaluator."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool

random = np.random.default_rng(11)
POOL = KernelPool(1)  # kernels are compiled in this process: they are few and small


def f(*shape, low=-1.0, high=1.0):
    return random.uniform(low, high, shape).astype(np.float32)


def agree(op, arrays, outputs=1, opset=22, **attributes):
    """The compiled operator gives what the reference evaluator gives; None: an input left out."""
    names = [f"x{k}" if a is not None else "" for k, a in enumerate(arrays)]
    made = [f"y{k}" for k in range(outputs)]
    given = {n: a for n, a in zip(names, arrays, strict=True) if a is not None}
    types = {n: helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in given.items()}
    inputs = [helper.make_tensor_value_info(n, types[n], a.shape) for n, a in given.items()]
    results = [helper.make_tensor_value_info(n, 7 if k else 1, None) for k, n in enumerate(made)]
    graph = helper.make_graph(
        [helper.make_node(op, names, made, **attributes)], "g", inputs, results
    )
    imports = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    expected = ReferenceEvaluator(model).run(None, given)
    got = compile_observed(model, cache=False, pool=POOL)(*given.values())
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    return got


@pytest.mark.sampled
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("transform", ["half_pixel", "output_half_pixel"])
def test_roi_align(mode, ratio, transform):
    corners = f(4, 2, low=-2, high=6)
    regions = np.concatenate([corners, corners + f(4, 2, low=0.1, high=9)], 1)
    agree(
        "RoiAlign", [f(2, 3, 7, 9), regions, np.array([0, 1, 1, 0])], mode=mode,
        sampling_ratio=ratio, coordinate_transformation_mode=transform, output_height=3,
        output_width=2, spatial_scale=0.75,
    )  # fmt: skip


@pytest.mark.parametrize("groups,moved", [(1, 1), (2, 1), (1, 2), (2, 4)])
def test_deform_conv(groups, moved):
    x, w = f(2, 4, 6, 7), f(6, 4 // groups, 3, 2)
    offset, mask = f(2, moved * 12, 3, 7, low=-2, high=2), f(2, moved * 6, 3, 7)
    attributes = {"group": groups, "offset_group": moved, "strides": [2, 1]}
    agree("DeformConv", [x, w, offset, f(6), mask], pads=[1, 1, 0, 0], **attributes)


@pytest.mark.parametrize("order", [0, 1])
def test_positions_of_pooled_values(order):
    x = f(2, 3, 5, 7)
    y, positions = agree(
        "MaxPool", [x], 2, kernel_shape=[2, 3], strides=[2, 2], pads=[0, 1, 1, 0],
        storage_order=order,
    )  # fmt: skip
    if not order:
        np.testing.assert_array_equal(x.ravel()[positions], y)


def test_unpooled_values_return_to_their_positions():
    x = f(1, 2, 6, 4)
    y, positions = agree("MaxPool", [x], 2, kernel_shape=[2, 2], strides=[2, 2])
    (back,) = agree("MaxUnpool", [y, positions], kernel_shape=[2, 2], strides=[2, 2])
    np.testing.assert_array_equal(back, np.where(np.isin(x, y), x, 0))


def test_columns_become_an_image():
    for block, attributes in (
        ((2, 3), {}),
        ((2, 2), {"strides": [2, 3], "pads": [0, 1, 1, 0]}),
        ((3, 2), {"dilations": [2, 2]}),
    ):
        rank, image = 2, (8, 9)
        strides, pads = attributes.get("strides", [1, 1]), attributes.get("pads", [0] * 4)
        dilations = attributes.get("dilations", [1, 1])
        reach = [d * (k - 1) + 1 for d, k in zip(dilations, block, strict=True)]
        counts = [
            (image[d] + pads[d] + pads[rank + d] - reach[d]) // strides[d] + 1 for d in range(rank)
        ]
        columns = f(2, 3 * block[0] * block[1], counts[0] * counts[1])
        agree("Col2Im", [columns, np.array(image), np.array(block)], **attributes)


def test_max_roi_pool():
    """Against onnxruntime: the reference evaluator has no MaxRoiPool."""
    corners = random.integers(0, 6, (5, 2))
    far = corners + random.integers(-1, 5, (5, 2))
    regions = np.concatenate([[[0], [1], [0], [1], [1]], corners, far], 1).astype(np.float32)
    x = f(2, 3, 7, 9)
    node = helper.make_node("MaxRoiPool", ["x", "r"], ["y"], pooled_shape=[3, 2], spatial_scale=0.8)
    arrays = {"x": x, "r": regions}
    inputs = [helper.make_tensor_value_info(k, 1, a.shape) for k, a in arrays.items()]
    result = helper.make_tensor_value_info("y", 1, None)
    graph = helper.make_graph([node], "g", inputs, [result])
    imports = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, arrays)
    (got,) = compile_observed(model, cache=False, pool=POOL)(x, regions)
    np.testing.assert_array_equal(got, expected)
