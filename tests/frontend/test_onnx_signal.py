"""Fourier transforms beside NumPy's: short, long and prime lengths, padded and cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.frontend.onnx import import_onnx
from tilewright.graph import evaluate
from tilewright.support.errors import InputError


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


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 6, 7, 9, 10, 14, 15])
def test_short_inverse_transforms_have_the_bits_of_numpy(length):
    """Both round where the same sums and products are made, in f32. (Not at 8: NumPy has
    butterflies of eight, we have them of four.)"""
    x = np.random.default_rng(length).standard_normal((2, length, 5, 2), np.float32)
    y = transformed(x, length, compiled=length in (5, 10), inverse=1)
    narrow = (x[..., 0] + 1j * x[..., 1]).astype(np.complex64)
    wanted = np.fft.ifft(narrow, axis=1)
    np.testing.assert_array_equal(y[..., 0] + 1j * y[..., 1], wanted)


@pytest.mark.parametrize("axis, inverse", [(0, 0), (-2, 0), (1, 1), (-3, 1)])
def test_an_axis_of_the_run(axis, inverse, along):
    x = np.random.default_rng(7).standard_normal((5, 33, 2), np.float32)
    wide = x[..., 0] + 1j * x[..., 1].astype(np.float64)
    wanted = (np.fft.ifft if inverse else np.fft.fft)(wide, axis=axis % 3)
    y = along[inverse](x, np.array(axis))[0]
    np.testing.assert_allclose(y[..., 0] + 1j * y[..., 1], wanted, rtol=0, atol=3e-5)


@pytest.mark.parametrize("axis", [2, -1, 3, -4])
def test_an_axis_that_is_none_stops_the_run(axis, along):
    with pytest.raises(InputError, match=r"the axis of DFT|DFT .y.: index"):
        along[0](np.ones((5, 33, 2), np.float32), np.array(axis))


@pytest.fixture(scope="module")
def along():
    """Transforms forward and back along an axis that is an input."""

    def compiled(inverse: int) -> Any:
        node = helper.make_node("DFT", ["x", "", "axis"], ["y"], inverse=inverse)
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 33, 2])
        axis = helper.make_tensor_value_info("axis", TensorProto.INT64, [])
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        graph = helper.make_graph([node], "g", [x, axis], [y])
        whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        return compile_observed(whole, cache=False, pool=KernelPool(1))

    return [compiled(0), compiled(1)]


@pytest.mark.parametrize("shape", [(1, 0, 4, 1), (0, 4, 1, 2)])
def test_no_elements(shape):
    assert transformed(np.zeros(shape, np.float32), shape[1]).shape == (*shape[:3], 2)


@pytest.mark.parametrize("length", [10, 81, 200])
def test_half_a_spectrum_and_back(length):
    x = np.random.default_rng(length).standard_normal((3, length, 2, 1), np.float32)
    y = transformed(x, length, onesided=1)
    wanted = np.fft.rfft(x[..., 0], axis=1)
    np.testing.assert_allclose(y[..., 0] + 1j * y[..., 1], wanted, rtol=0, atol=1e-6 * length)
    back = transformed(y, length, onesided=1, inverse=1)
    np.testing.assert_allclose(back, x, rtol=0, atol=1e-5)
