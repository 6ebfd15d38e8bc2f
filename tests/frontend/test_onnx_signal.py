"""Fourier transforms beside NumPy's: short, long and prime lengths, padded and cut."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.frontend.onnx import import_onnx
from tilewright.graph import evaluate


def model(shape: list[int], length: int, **attrs: int) -> onnx.ModelProto:
    node = helper.make_node("DFT", ["x", "length", "axis"], ["y"], **attrs)
    fixed = [
        helper.make_tensor("length", TensorProto.INT64, [], [length]),
        helper.make_tensor("axis", TensorProto.INT64, [], [1]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [x], [y], fixed)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def transformed(x: np.ndarray, length: int, compiled: bool = False, **attrs: int) -> np.ndarray:
    graph = import_onnx(model([*x.shape], length, **attrs))
    if compiled:
        return compile_observed(graph, cache=False, pool=KernelPool(1))(x)[0]
    return evaluate(graph, [x])[0]


@pytest.mark.parametrize("have, length", [(12, 12), (150, 150), (97, 97), (70, 96), (130, 100)])
@pytest.mark.parametrize("inner", [1, 3])
def test_complex_both_ways(have, length, inner):
    x = np.random.default_rng(length).standard_normal((2, have, inner, 2), np.float32)
    wide = x[..., 0] + 1j * x[..., 1].astype(np.float64)
    for inverse in (0, 1):
        wanted = (np.fft.ifft if inverse else np.fft.fft)(wide, length, axis=1)
        y = transformed(x, length, compiled=inner == 3 and length == 150, inverse=inverse)
        np.testing.assert_allclose(y[..., 0] + 1j * y[..., 1], wanted, rtol=0, atol=2e-6 * length)


@pytest.mark.parametrize("length", [10, 81, 200])
def test_half_a_spectrum_and_back(length):
    x = np.random.default_rng(length).standard_normal((3, length, 2, 1), np.float32)
    y = transformed(x, length, onesided=1)
    wanted = np.fft.rfft(x[..., 0], axis=1)
    np.testing.assert_allclose(y[..., 0] + 1j * y[..., 1], wanted, rtol=0, atol=1e-6 * length)
    back = transformed(y, length, onesided=1, inverse=1)
    np.testing.assert_allclose(back, x, rtol=0, atol=1e-5)
