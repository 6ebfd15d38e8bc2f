"""Resized axes that are too long for tables of what each position reads: the run computes that."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.frontend.onnx import images, import_onnx
from tilewright.graph import evaluate

X = np.random.default_rng(0).standard_normal((1, 2, 5, 9), np.float32)


def graph(op, constants, inputs, **attrs):
    opset = 9 if op == "Upsample" else 19
    value = helper.make_tensor_value_info
    made = helper.make_graph(
        [helper.make_node(op, inputs, ["y"], **attrs)], "g",
        [value("x", TensorProto.FLOAT, X.shape)], [value("y", TensorProto.FLOAT, [None] * 4)],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )  # fmt: skip
    return import_onnx(
        helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    )


SCALES, GOAL = np.float32([1, 1, 2.3, 0.7]), np.array([1, 2, 7, 20])
CASES = [
    ("Upsample", {"s": np.float32([1, 1, 2, 3])}, ["x", "s"], {"mode": mode})
    for mode in ("nearest", "linear")
]
CASES += [
    ("Resize", {"s": SCALES}, ["x", "", "s"], {"mode": mode, **options})
    for mode in ("nearest", "linear", "cubic")
    for options in ({}, {"coordinate_transformation_mode": "align_corners"})
]
CASES += [
    ("Resize", {"s": SCALES}, ["x", "", "s"], {"mode": mode, "antialias": 1})
    for mode in ("linear", "cubic")
]
CASES += [
    ("Resize", {"g": GOAL}, ["x", "", "", "g"], {"mode": "linear"}),
    ("Resize", {"g": GOAL[2:]}, ["x", "", "", "g"], {"mode": "nearest", "axes": [2, 3],
                                                     "keep_aspect_ratio_policy": "not_larger"}),
    ("Resize", {"r": np.float32([0, 0, 0.1, 0, 1, 1, 0.8, 1.2]), "g": GOAL}, ["x", "r", "", "g"],
     {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize",
      "extrapolation_value": 3.0}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_with_and_without_tables(case, monkeypatch):
    op, constants, inputs, attrs = case
    (expected,) = evaluate(graph(op, constants, inputs, **attrs), [X])
    monkeypatch.setattr(images, "LONGEST_TABLE", 4)
    (found,) = evaluate(graph(op, constants, inputs, **attrs), [X])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
