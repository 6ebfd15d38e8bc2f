"""Quantised operators of com.microsoft, as onnxruntime's quantiser writes them: compiled, beside
onnxruntime, on random inputs and options. Signed weights stay within 64: where a machine has no
instructions for dot products, onnxruntime adds two products of eight bits in sixteen, which
saturates from 2 * 255 * 65 on."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ValueInfoProto, helper, numpy_helper

import tilewright as tw
from tests.differential.growth import BOOL, F32, I8, I16, I32, U8, U16, Value
from tests.differential.verdict import run
from tests.frontend.test_onnx_contrib import MS, growth, made, numbers, scale


@pytest.mark.parametrize("of", [U8, I8])
@pytest.mark.parametrize(("axis", "opset"), [(-1, 13), (1, 13), (1, 11)])
def test_softmax(of: Any, axis: int, opset: int) -> None:
    g = growth(1, "N")
    x = made(g, (6, 11, 1), 3, 4, of=of, low=-100, high=220 if of == U8 else 100)
    attrs = {"axis": axis, "opset": opset}
    into = g.constant(1 / 256, F32), g.constant(0 if of == U8 else -128, of)
    g.apply("QLinearSoftmax", x, *scale(g, of), *into, domain=MS, **attrs)
    run(g.finish())


@pytest.mark.parametrize("of", [U8, I8])
def test_where(of: Any) -> None:
    g = growth(2)
    parts = made(g, 3, 4, of=BOOL), *numbers(g, of, 3, 4), *numbers(g, of, 1, 4), *scale(g, of)
    g.apply("QLinearWhere", *parts, domain=MS)
    run(g.finish())


@pytest.mark.parametrize("of", [U8, I8])
def test_images_with_channels_last(of: Any) -> None:
    g = growth(3)
    x = numbers(g, of, 1, 6, 7, 4)
    w = made(g, 5, 4, 3, 3, of=I8, low=-60, high=60, fixed=True)
    w_scale = g.constant(g.rng.uniform(0.002, 0.01, 5), F32)
    into, bias = scale(g, of), made(g, 5, of=I32, low=-90, high=90, fixed=True)
    window = {"pads": [1, 1, 0, 1], "strides": [2, 1], "domain": MS}
    w_zero = g.constant(np.zeros(5), I8)
    g.apply("QLinearConv", *x, w, w_scale, w_zero, *into, bias, channels_last=1, **window)
    g.apply("NhwcMaxPool", x[0], kernel_shape=[3, 2], **window)
    g.apply("QLinearGlobalAveragePool", *x, *into, domain=MS, channels_last=1)
    kernel = {"kernel_shape": [3, 2], "channels_last": 1}
    g.apply("QLinearAveragePool", *x, *into, **kernel, **window)
    run(g.finish())


@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize("transposed", range(4))
@pytest.mark.parametrize("of", [U8, I8])
def test_gemm(of: Any, transposed: int, floats: bool) -> None:
    g, across, down = growth(4), transposed & 1, transposed >> 1
    a = numbers(g, of, *((8, 3) if across else (3, 8)))
    b = made(g, *((5, 8) if down else (8, 5)), of=I8, low=-60, high=60, fixed=True)
    b_scale = g.constant(g.rng.uniform(0.002, 0.01, 5), F32), g.constant(np.zeros(5), I8)
    bias = made(g, 5, of=I32, low=-900, high=900, fixed=True)
    into = () if floats else scale(g, of)
    attrs = {"transA": across, "transB": down, "alpha": 1.5}
    g.apply("QGemm", *a, b, *b_scale, bias, *into, domain=MS, rough=True, **attrs)
    run(g.finish())


def test_sixteen_bits() -> None:
    g = growth(5)
    a, b = (made(g, *s, of=I16, low=-70, high=70) for s in ((3, 6), (6, 4)))
    g.apply("MatMulInteger16", a, b, domain=MS, exact=True)
    x, by, zero = made(g, 3, 5), g.constant(0.001, F32), g.constant(3000, U16)
    (q,) = g.apply("QuantizeLinear", x, by, zero, domain=MS)
    g.apply("DequantizeLinear", q, by, zero, domain=MS)
    run(g.finish())


def test_mean() -> None:
    """onnxruntime has no kernel for it."""
    x = np.random.default_rng(6).integers(0, 256, (3, 4, 5)).astype(np.uint8)
    given = {"s": np.float32(0.05), "z": np.uint8(120), "t": np.float32(0.04), "y0": np.uint8(100)}
    node = helper.make_node("QLinearReduceMean", ["x", *given], ["y"], domain=MS, axes=[-1, 0],
                            keepdims=0)  # fmt: skip
    (y,) = tw.compile(model([node], x, given, "y"), threads=1, cache=False)(x)
    mean = (x.astype(np.float64) - 120).mean((0, 2)) * 0.05
    np.testing.assert_array_equal(y, np.clip(np.rint(mean / 0.04) + 100, 0, 255))


@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("one_way", [0, 1])
def test_attention(past: bool, one_way: int) -> None:
    g = growth(7)
    x = made(g, 2, 4, 8, of=U8, low=0, high=255)
    w = made(g, 8, 24, of=I8, low=-64, high=64, fixed=True)
    parts: list[Value | None] = [
        x, w, made(g, 24), g.constant(0.02, F32), g.constant(0.01, F32),
        made(g, 2, of=I32, low=2, high=4), g.constant(128, U8), g.constant(0, I8),
    ]  # fmt: skip
    outputs = 1
    if past:
        parts[5], outputs = None, 2
        parts.append(made(g, 2, 2, 2, 3, 4))
    attrs = {"num_heads": 2, "unidirectional": one_way}
    g.apply("QAttention", *parts, domain=MS, rough=True, outputs=outputs, **attrs)
    run(g.finish())


@pytest.mark.parametrize("segments", [False, True])
def test_embed_norm(segments: bool) -> None:
    g = growth(8)

    def table(*sizes: int) -> Value:
        return made(g, *sizes, of=U8, low=0, high=255, fixed=True)

    ids = made(g, 2, 5, of=I32, low=0, high=8)
    kinds = made(g, 2, 5, of=I32, low=0, high=1)
    tables: list[Value | None] = [table(9, 8), table(7, 8), table(2, 8), table(8), table(8)]
    scales: list[Value | None] = [g.constant(g.rng.uniform(0.005, 0.02), F32) for _ in range(5)]
    zeros: list[Value | None] = [g.constant(g.rng.integers(90, 160), U8) for _ in range(5)]
    if not segments:
        tables[2] = scales[2] = zeros[2] = None
    mask = made(g, 2, 5, of=I32, low=0, high=1)
    parts = ids, kinds if segments else None, *tables, mask, *scales, *zeros
    g.apply("QEmbedLayerNormalization", *parts, domain=MS, outputs=2, epsilon=1e-5)
    run(g.finish())


# recurrent ----------------------------------------------------------------------------------------


def model(nodes: Any, x: Any, constants: dict[str, Any], *outputs: str, dims: Any = None) -> Any:
    code = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", code, dims or x.shape)],
        [ValueInfoProto(name=o) for o in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.mark.parametrize(
    ("directions", "options", "shapes", "of"),
    [
        (1, "B h c", [(6, 2)], "i8"),  # unrolled
        (2, "", [(6, 3)], "u8 whole"),
        (2, "B h c P", [(150, 2)], "i8"),  # a native loop
        (2, "B l", [(9, 3)], "i8"),
        (1, "h c l P", [(9, 1)], "u8 whole"),
        (2, "B", [(9, 3), (4, 1), (17, 2)], "i8"),  # open
    ],
)
def test_lstm(directions: int, options: str, shapes: list[tuple[int, int]], of: str) -> None:
    """As quantize_dynamic writes it. Both round to eight bits in each step: what differs by a last
    bit there differs by much more behind it, so the sizes are small."""
    rng, d, size, hidden = np.random.default_rng(4), directions, 8, 16
    steps, batch = shapes[0]
    low, high, at = (-64, 64, 0) if of == "i8" else (0, 255, 128)
    dtype, per = (np.int8, (d, 4 * hidden)) if of == "i8" else (np.uint8, (d,))

    def f(*shape: int, by: float = 0.3) -> np.ndarray:
        return (by * rng.standard_normal(shape)).astype(np.float32)

    constants: dict[str, Any] = {
        "W": rng.integers(low, high + 1, (d, size, 4 * hidden)).astype(dtype),
        "R": rng.integers(low, high + 1, (d, hidden, 4 * hidden)).astype(dtype),
        "ws": rng.uniform(0.002, 0.006, per).astype(np.float32),
        "rs": rng.uniform(0.002, 0.006, per).astype(np.float32),
        "zero": np.full(per, at, dtype),
    }
    given = {
        "B": f(d, 8 * hidden),
        "l": rng.integers(1, steps + 1, batch).astype(np.int32),
        "h": f(d, batch, hidden),
        "c": f(d, batch, hidden),
        "P": f(d, 3 * hidden),
    }
    wanted = [name if name in options.split() else "" for name in given]
    constants |= {name: given[name] for name in wanted if name}
    node = helper.make_node(
        "DynamicQuantizeLSTM", ["x", "W", "R", *wanted, "ws", "zero", "rs", "zero"],
        ["y", "yh", "yc"], domain=MS, hidden_size=hidden,
        direction="bidirectional" if d == 2 else "forward",
    )  # fmt: skip
    dims = ["steps", "batch", size] if len(shapes) > 1 else None
    m = model([node], f(steps, batch, size), constants, "y", "yh", "yc", dims=dims)
    threads = onnxruntime.SessionOptions()
    threads.intra_op_num_threads = 1  # of two, each rounds its part of a batch by its own range
    session = onnxruntime.InferenceSession(m.SerializeToString(), threads)
    executable = tw.compile(m, threads=1, cache=False)
    for s, b in shapes:
        x = f(s, b, size, by=1.0)
        for ours, theirs in zip(executable(x), session.run(None, {"x": x}), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=2e-6)
