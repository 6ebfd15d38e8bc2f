"""Fused and older operators of com.microsoft: compiled, beside onnxruntime, on random inputs; those
that onnxruntime has for GPUs alone beside NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from scipy.special import erf

import tilewright as tw
from tests.differential.growth import F32, F64, I32, Growth, Value
from tests.differential.verdict import run

MS = "com.microsoft"


def growth(seed: int, *symbols: str) -> Growth:
    g = Growth(np.random.default_rng(seed), 18, symbols)
    g.count = 3 if symbols else 1
    return g


def made(g: Growth, *sizes: Any, of: Any = F32, low: float = -2, high: float = 2) -> Value:
    dims = tuple(s if isinstance(s, tuple) else g.same(s) for s in sizes)
    return g.fresh(of, dims, low, high, fixed=False)


@pytest.mark.parametrize(
    ("activation", "given"),
    [("Relu", None), ("Tanh", None), ("Sigmoid", None), ("LeakyRelu", [0.3]),
     ("Clip", [-0.5, 1.5]), ("HardSigmoid", [0.3, 0.4])],
)  # fmt: skip
def test_fused_convolution(activation: str, given: Any) -> None:
    g = growth(1)
    x, w, b = made(g, 1, 3, 6, 7), made(g, 4, 3, 3, 3), made(g, 4)
    attrs = {"activation": activation, "activation_params": given, "pads": [1, 1, 0, 0]}
    g.apply("FusedConv", x, w, b, domain=MS, rough=True, **attrs)
    g.apply("FusedConv", x, w, None, made(g, 1, 4, 5, 6), domain=MS, rough=True, **attrs)
    run(g.finish())


@pytest.mark.parametrize(
    ("activation", "given"), [("Relu", {}), ("LeakyRelu", {"activation_alpha": 0.3}), ("Tanh", {})]
)
def test_fused_gemm(activation: str, given: dict[str, float]) -> None:
    g = growth(2)
    attrs = {"activation": activation, "transB": 1, "alpha": 0.5, "beta": 2.0, **given}
    parts = made(g, 3, 5), made(g, 4, 5), made(g, 4)
    g.apply("FusedGemm", *parts, domain=MS, rough=True, **attrs)
    run(g.finish())


@pytest.mark.parametrize("op", ["FusedMatMul", "TransposeMatMul"])
@pytest.mark.parametrize("batches", range(4))
def test_product_of_exchanged_axes(op: str, batches: int) -> None:
    across, down = batches & 1, batches >> 1
    if op == "TransposeMatMul":
        a, b, attrs = made(g := growth(3), 2, 5, 3), made(g, 2, 5, 4), {"transA": 1}
    else:
        g = growth(4)
        a = made(g, *((3, 2, 4, 5) if across else (2, 4, 3, 5)))
        b = made(g, *((5, 2, 4, 6) if down else (2, 4, 5, 6)))
        attrs = {"transBatchA": across, "transBatchB": down}
    g.apply(op, a, b, domain=MS, rough=True, alpha=0.5, **attrs)
    run(g.finish())


def test_older_forms_of_standard_operators() -> None:
    g, one = growth(5), np.int64(1)
    x = made(g, 2, 3, 4)
    g.apply("Trilu", x, g.constant(one), domain=MS, exact=True, upper=0)
    g.apply("ExpandDims", x, g.constant(1, I32), domain=MS, exact=True)
    pads = g.constant([0, 1, 0, 0, 0, 2])
    g.apply("Pad", x, pads, g.constant(0.5, F32), domain=MS, exact=True, mode="constant")
    positions = g.constant([[0, 2], [1, 0]])
    g.apply("GatherND", x, positions, domain=MS, exact=True)
    g.apply("Range", *(g.constant(v, F32) for v in (1.0, 9.0, 2.5)), domain=MS, exact=True)
    image, grid = made(g, 1, 2, 5, 4), made(g, 1, 3, 3, 2, low=-1, high=1)
    g.apply("GridSample", image, grid, domain=MS, rough=True, mode="bilinear", align_corners=1)
    pads = g.constant([1, 0, 0, 1])
    g.apply("ConvTransposeWithDynamicPads", image, made(g, 2, 3, 2, 2), pads, domain=MS,
            rough=True, strides=[2, 2])  # fmt: skip
    run(g.finish())


def test_unique() -> None:
    g = growth(6)
    x = g.told([np.array([2, 1, 1, 3, 2, 5], np.float32)], np.float32)
    g.apply("Unique", x, domain=MS, exact=True, outputs=3)
    run(g.finish())


def test_inverse() -> None:
    g = growth(7)
    g.apply("Inverse", made(g, 3, 4, 4), domain=MS, rough=True)
    g.apply("Inverse", made(g, 5, 5, of=F64), domain=MS, rough=True)
    run(g.finish())


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances(metric: str) -> None:
    g = growth(8)
    a, b = made(g, 5, 7), made(g, 4, 7)
    g.apply("CDist", a, b, domain=MS, rough=True, metric=metric)
    run(g.finish())


# beside NumPy -------------------------------------------------------------------------------------


def compiled(op: str, *arrays: np.ndarray, outputs: int = 1, **attrs: Any) -> list[np.ndarray]:
    """A node's outputs; the first array is its input, the others are initializers."""
    names = [f"x{k}" for k in range(len(arrays))]
    results = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(op, names, results, domain=MS, **attrs)
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, arrays[0].shape)],
        [helper.make_tensor_value_info(r, TensorProto.FLOAT, None) for r in results],
        [numpy_helper.from_array(a, n) for a, n in zip(arrays[1:], names[1:], strict=True)],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(MS, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    return tw.compile(model, threads=1, cache=False)(arrays[0])


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def normed(x: np.ndarray, groups: int, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Images [batch, height, width, channels], in groups of channels."""
    parts = x.reshape(*x.shape[:3], groups, -1).astype(np.float64)
    mean, var = parts.mean((1, 2, 4), keepdims=True), parts.var((1, 2, 4), keepdims=True)
    return ((parts - mean) / np.sqrt(var + 1e-5)).reshape(x.shape) * scale + bias


@pytest.mark.parametrize("last", [0, 1])
def test_group_norm(last: int) -> None:
    x, scale, bias, skip = drawn(2, 4, 3, 6), drawn(6), drawn(6) + 1, drawn(2, 6)
    order = (0, 1, 2, 3) if last else (0, 3, 1, 2)
    given = {"groups": 3, "channels_last": last}
    (y,) = compiled("GroupNorm", x.transpose(order), scale, bias, activation=1, **given)
    expected = normed(x, 3, scale, bias)
    expected = (expected / (1 + np.exp(-expected))).transpose(order)
    np.testing.assert_allclose(y, expected, atol=1e-5)
    parts = x.transpose(order), scale, bias, skip, bias
    y, total = compiled("SkipGroupNorm", *parts, outputs=2, activation=0, **given)
    added = x + skip[:, None, None] + bias
    np.testing.assert_allclose(total, added.transpose(order), atol=1e-6)
    np.testing.assert_allclose(y, normed(added, 3, scale, bias).transpose(order), atol=1e-5)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("inner", [0, 1])
def test_bias_softmax(inner: int) -> None:
    x, bias = drawn(2, 3, 4, 5), drawn(2, 1, 1, 5) if inner else drawn(4, 5)
    (y,) = compiled("BiasSoftmax", x, bias, axis=3, is_inner_broadcast=inner)
    np.testing.assert_allclose(y, softmax(x + bias), atol=1e-6)


def test_sums_before_activations() -> None:
    def gelu(x: np.ndarray) -> np.ndarray:
        return 0.5 * x * (1 + erf(x / np.sqrt(2)))

    x, bias, skip = drawn(2, 3, 8), drawn(8), drawn(2, 3, 8) * 2
    (y,) = compiled("BiasAdd", x, bias, skip)
    np.testing.assert_allclose(y, x + bias + skip, atol=1e-6)
    (y,) = compiled("BiasSplitGelu", x, bias)
    a, b = np.split((x + bias).astype(np.float64), 2, axis=-1)
    np.testing.assert_allclose(y, a * gelu(b), atol=1e-6)
    weights = drawn(8, 5)
    (y,) = compiled("GemmFastGelu", x, weights, drawn(5))
    z = (x @ weights + drawn(5)).astype(np.float64)
    expected = 0.5 * z * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))
    np.testing.assert_allclose(y, expected, atol=1e-5)


def test_convolution_of_channels_that_stand_last() -> None:
    x, w, b, z = drawn(1, 6, 5, 3), drawn(4, 3, 3, 2), drawn(4), drawn(1, 4, 4, 4)
    attrs = {"activation": "Relu", "strides": [1, 1]}
    (y,) = compiled("NhwcFusedConv", x, w, b, z, **attrs)
    taps = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 2), (1, 2))
    total = np.einsum("nyxcij,ocij->nyxo", taps, w) + b
    np.testing.assert_allclose(y, np.maximum(total + z, 0), atol=1e-5)
    (y,) = compiled("NhwcConv", x, w, b)
    np.testing.assert_allclose(y, total, atol=1e-5)
