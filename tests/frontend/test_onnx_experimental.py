"""Operators that were experimental until version 10 give what onnxruntime gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

import tilewright as tw
from tests.frontend.beside_onnxruntime import I, f, info, model, node
from tilewright.support.errors import TilewrightError

CASES: dict[str, dict[str, Any]] = {
    "Affine": {"alpha": 2.5, "beta": -1.0},
    "ScaledTanh": {"alpha": 2.0, "beta": 0.5},
    "ParametricSoftplus": {"alpha": 2.0, "beta": 0.5},
    "ImageScaler": {"scale": 0.5, "bias": [1.0, -2.0, 3.0]},
    "Crop": {"border": [1, 2, 3, 0]},
    "Crop to a size": {"border": [1, 2, 3, 0], "scale": [2, 3]},
}


@pytest.mark.parametrize("size", [9, "h"])
@pytest.mark.parametrize("case", CASES)
def test_as_in_onnxruntime(case: str, size: int | str) -> None:
    the = node(case.split()[0], "x", "y", **CASES[case])
    m, x = model([the], [info("x", 2, 3, size, 7)], [info("y", *"abcd")], opset=9), f(2, 3, 9, 7)
    (wanted,) = onnxruntime.InferenceSession(m.SerializeToString()).run(None, {"x": x})
    (found,) = tw.compile(m, cache=False)(x)
    np.testing.assert_allclose(found, np.asarray(wanted), rtol=1e-6, atol=1e-6)


def test_a_dynamic_slice() -> None:
    inputs = [info("x", 5, 6), info("s", 2, of=I), info("e", 2, of=I)]
    m = model([node("DynamicSlice", "x s e", "y")], inputs, [info("y", "a", "b")], opset=9)
    x, start, end = f(5, 6), np.array([1, -4]), np.array([4, 100])
    feeds = {"x": x, "s": start, "e": end}
    (wanted,) = onnxruntime.InferenceSession(m.SerializeToString()).run(None, feeds)
    np.testing.assert_array_equal(tw.compile(m, cache=False)(x, start, end)[0], wanted)


def test_a_border_of_three_is_refused() -> None:
    m = model([node("Crop", "x", "y", border=[1, 2, 3])], [info("x", 1, 1, 9, 9)], [info("y")])
    with pytest.raises(TilewrightError, match="a border of four"):
        tw.compile(m, cache=False)
