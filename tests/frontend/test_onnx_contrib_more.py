"""Tables and weights of few bits, gates, crops and words of com.microsoft, beside onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw

MS = "com.microsoft"
KINDS = {
    "float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "int64": TensorProto.INT64,
    "int32": TensorProto.INT32, "uint32": TensorProto.UINT32,
}  # fmt: skip
LETTERS = {
    "f": TensorProto.FLOAT, "i": TensorProto.INT32, "u": TensorProto.UINT32, "l": TensorProto.INT64,
}  # fmt: skip


def made_of(
    op: str, inputs: dict[str, Any], runs: Sequence[dict[str, np.ndarray]], results: str = "f",
    **attrs: Any,
) -> tuple[Any, bytes]:  # fmt: skip
    """One node, compiled, and its file. inputs: None for one that is left out, a tensor for a
    constant, a shape for what the runs give. results: a letter for the type of each output,
    "_" for one that is left out."""
    fixed = [
        v if isinstance(v, TensorProto) else numpy_helper.from_array(v, k)
        for k, v in inputs.items()
        if isinstance(v, np.ndarray | TensorProto)
    ]
    given = [
        helper.make_tensor_value_info(k, KINDS[runs[0][k].dtype.name], list(v))
        for k, v in inputs.items()
        if isinstance(v, tuple)
    ]
    names = [k if v is not None else "" for k, v in inputs.items()]
    outputs = ["" if c == "_" else f"made{k}" for k, c in enumerate(results)]
    node = helper.make_node(op, names, outputs, domain=MS, **attrs)
    made = [
        helper.make_tensor_value_info(name, LETTERS[c], None)
        for name, c in zip(outputs, results, strict=True)
        if name
    ]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    graph = helper.make_graph([node], "g", given, made, fixed)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return tw.compile(model, cache=False, threads=1), model.SerializeToString()


def check(
    op: str, inputs: dict[str, Any], *runs: dict[str, np.ndarray], tolerance: float = 2e-6,
    results: str = "f", **attrs: Any,
) -> None:  # fmt: skip
    """One node, as `made_of` describes it, beside onnxruntime."""
    exe, file = made_of(op, inputs, runs, results, **attrs)
    session = onnxruntime.InferenceSession(file)
    for feed in runs:
        theirs: list[Any] = list(session.run(None, feed))
        for ours, wanted in zip(exe(**feed), theirs, strict=True):
            np.testing.assert_allclose(ours, wanted, rtol=tolerance, atol=tolerance)


@pytest.fixture
def draw() -> np.random.Generator:
    return np.random.default_rng(11)


def floats(draw: np.random.Generator, *shape: int) -> np.ndarray:
    return draw.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("kind", [0, 1])
def test_products_of_coded_weights(draw: np.random.Generator, kind: int) -> None:
    rows, columns, block = 6, 40, 16
    parts = {
        "x": ("n", columns),
        "b": draw.integers(0, 256, rows * columns // 2).astype(np.uint8),
        "absmax": np.abs(floats(draw, -(-rows * columns // block))),
    }
    attrs: dict[str, Any] = {"N": rows, "K": columns, "block_size": block, "quant_type": kind}
    check("MatMulBnb4", parts, *({"x": floats(draw, n, columns)} for n in (1, 3)), tolerance=1e-5,
          **attrs)  # fmt: skip


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_tables_in_bytes(draw: np.random.Generator, bits: int, zeros: bool) -> None:
    rows, columns, block = 9, 40, 16
    per, blocks = 8 // bits, 3
    table = draw.integers(0, 256, (rows, columns // per)).astype(np.uint8)
    zero = draw.integers(0, 256, (rows, -(-blocks // per))).astype(np.uint8)
    parts = {"table": table, "i": (2, "n"), "s": np.abs(floats(draw, rows, blocks)),
             "z": zero if zeros else None}  # fmt: skip
    runs = [{"i": draw.integers(-rows, rows, (2, n))} for n in (1, 5)]
    runs[1]["i"][0, 2:4] = rows, -rows - 1  # of no row
    check("GatherBlockQuantized", parts, *runs, bits=bits, block_size=block, gather_axis=0,
          quantize_axis=1)  # fmt: skip


@pytest.mark.parametrize("of", ["int4", "uint4"])
@pytest.mark.parametrize(("along", "axis"), [(1, 0), (0, 1), (0, 0)])
def test_tables_of_four_bits(draw: np.random.Generator, of: str, along: int, axis: int) -> None:
    shape = (32, 48)
    scales = tuple(s // 16 if d == along else s for d, s in enumerate(shape))
    low, high = (-8, 8) if of == "int4" else (0, 16)
    kind = TensorProto.INT4 if of == "int4" else TensorProto.UINT4

    def small(name: str, shape: tuple[int, ...]) -> TensorProto:
        content = draw.integers(low, high, shape).astype(getattr(ml_dtypes, of))
        return helper.make_tensor(name, kind, shape, content.astype(int).reshape(-1).tolist())

    parts = {"table": small("table", shape), "i": (3,), "s": np.abs(floats(draw, *scales)),
             "z": small("z", scales)}  # fmt: skip
    runs = ({"i": draw.integers(-shape[axis], shape[axis], 3)} for _ in range(2))
    check("GatherBlockQuantized", parts, *runs, block_size=16, gather_axis=axis,
          quantize_axis=along)  # fmt: skip


def test_gates(draw: np.random.Generator) -> None:
    x, y = floats(draw, 3, 8), floats(draw, 3, 8)
    check("ScaledSiLU", {"x": ("n", 8)}, {"x": x}, alpha=0.7)
    check("ScaledSiLU", {"x": ("n", 8), "s": np.array(1.5, np.float32)}, {"x": x}, alpha=0.7)
    check("GatedAdd", {"x": ("n", 8), "y": ("n", 8), "g": ("n", 1)},
          {"x": x, "y": y, "g": floats(draw, 3, 1)})  # fmt: skip
    for kind in ("silu", "sigmoid"):
        check("GatedRMSNorm", {"x": ("n", 8), "s": floats(draw, 4), "g": ("n", 8)},
              {"x": x, "g": y}, activation=kind, epsilon=1e-3)  # fmt: skip
    scale = floats(draw, 8)
    check("BranchwiseRMSNorm", {"x": ("n", 8), "s": scale}, {"x": x}, num_branches=2)
    check("BranchwiseRMSNorm", {"x": ("n", 2, 4), "s": scale[:4]}, {"x": x.reshape(3, 2, 4)})
    check("BranchwiseRMSNorm", {"x": ("n", 2, 4)}, {"x": x.reshape(3, 2, 4)})


@pytest.mark.parametrize("many", [1, 2, 3])
def test_words_that_would_repeat(draw: np.random.Generator, many: int) -> None:
    runs = [
        {"ids": draw.integers(0, 5, (2, n)), "scores": floats(draw, 2, 5)} for n in (1, 3, 8, 20)
    ]
    check("NGramRepeatBlock", {"ids": (2, "n"), "scores": (2, 5)}, *runs, ngram_size=many)


@pytest.mark.parametrize("of", ["float32", "int32", "uint32", "int64", "float64"])
def test_hashes(draw: np.random.Generator, of: str) -> None:
    ends = np.array([0, 1, 2**31 - 1, 3])
    runs = [{"x": v.astype(of)} for v in (ends, draw.integers(0, 1 << 62, 7) >> draw.integers(63))]
    for positive in (1, 0):
        check("MurmurHash3", {"x": ("n",)}, *runs, results="iu"[positive], positive=positive,
              seed=7 * positive, tolerance=0)  # fmt: skip


def test_windows(draw: np.random.Generator) -> None:
    runs = [{"x": floats(draw, 2, n, 3)} for n in (4, 9)]
    check("UnfoldTensor", {"x": (2, "n", 3)}, *runs, dim=1, size=4, step=2)
    check("UnfoldTensor", {"x": (2, "n", 3)}, *runs, dim=-1, size=2)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("goal", [(3, 4), (1, 1)])
def test_crops(draw: np.random.Generator, mode: str, goal: tuple[int, int]) -> None:
    parts = {"x": (2, 3, "h", "w"), "boxes": ("r", 4), "images": ("r",),
             "goal": np.array(goal, np.int32)}  # fmt: skip
    runs = [
        {"x": floats(draw, 2, 3, h, w), "boxes": draw.uniform(-0.2, 1.2, (r, 4)).astype(np.float32),
         "images": draw.integers(0, 2, r).astype(np.int32)}
        for h, w, r in ((5, 7, 4), (8, 3, 1))
    ]  # fmt: skip
    check("CropAndResize", parts, *runs, mode=mode, extrapolation_value=0.5, tolerance=1e-5)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize(("layout", "sections"), [(0, [2, 1, 1]), (1, [2, 1, 1]), (1, [0, 1, 3])])
def test_three_positions(
    draw: np.random.Generator, interleaved: int, layout: int, sections: list[int]
) -> None:
    parts = {
        "x": (2, "n", 24),
        "at": (3, 2, "n"),
        "cos": floats(draw, 9, 4),
        "sin": floats(draw, 9, 4),
    }
    runs = [{"x": floats(draw, 2, n, 24), "at": draw.integers(0, 9, (3, 2, n))} for n in (1, 5)]
    attrs: dict[str, Any] = {
        "interleaved": interleaved,
        "mrope_layout": layout,
        "mrope_section": sections,
    }
    check("MRotaryEmbedding", parts, *runs, num_heads=3, **attrs)
    parts["x"] = (2, 3, "n", 8)
    runs = [{"x": floats(draw, 2, 3, 5, 8), "at": draw.integers(0, 9, (3, 2, 5))}]
    check("MRotaryEmbedding", parts, *runs, **attrs)


@pytest.mark.parametrize("kind", [0, 1])
def test_products_of_blobs(draw: np.random.Generator, kind: int) -> None:
    """Beside NumPy: onnxruntime has them with AVX-512 alone, where it gives the same. The numbers
    are drawn and packed here, 32 to a block: scale, perhaps zero, k and k + 16 in a byte."""
    depth, columns = 96, 8
    codes = draw.integers(0, 16, (columns, depth // 32, 32)).astype(np.uint8)
    scales = np.abs(floats(draw, columns, depth // 32, 1))
    zeros = draw.integers(0, 16, scales.shape).astype(np.uint8)
    pairs = codes[..., :16] | codes[..., 16:] << 4
    blob = np.concatenate([scales.view(np.uint8), *[zeros] * kind, pairs], -1)
    weights = (codes.astype(float) - (zeros if kind else 8)) * scales
    parts = {"x": ("n", depth), "b": blob.reshape(-1), "shape": np.array([depth, columns])}
    runs = [{"x": floats(draw, n, depth)} for n in (1, 3)]
    exe, _ = made_of("MatMulFpQ4", parts, runs, blk_quant_type=kind)
    for feed in runs:
        wanted = feed["x"] @ weights.reshape(columns, depth).T
        np.testing.assert_allclose(exe(**feed)[0], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "kernel", "strides", "pads"),
    [
        ((2, 3, 7, 6), (2, 3), (1, 2), (0, 1, 1, 1)),
        ((2, 3, 5, 5), (3, 2), (2, 1), (0, 0, 0, 0)),
        ((1, 2, 9), (3,), (1,), (1, 1)),
        ((1, 2, 4, 5, 3), (2, 2, 2), (1, 1, 1), (0, 0, 0, 0, 0, 0)),
    ],
)
def test_pools_that_a_mask_ends(
    draw: np.random.Generator, shape: tuple[int, ...], kernel: tuple[int, ...],
    strides: tuple[int, ...], pads: tuple[int, ...],
) -> None:  # fmt: skip
    runs = []
    for first in (0, 1):
        masks = (draw.random((1, 1, *shape[2:])) < 0.7).astype(np.int32)
        masks.flat[0] = first
        runs.append({"x": floats(draw, *shape), "m": masks})
    parts = {k: v.shape for k, v in runs[0].items()}
    check("MaxpoolWithMask", parts, *runs, kernel_shape=kernel, strides=strides, pads=pads)


def test_echo(draw: np.random.Generator) -> None:
    check("SampleOp", {"x": ("n", 2)}, {"x": floats(draw, 3, 2)})
