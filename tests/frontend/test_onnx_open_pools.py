"""Pools whose padding only the run knows: SAME and ceil_mode over open sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.parameters.guard import Guarded
from tilewright.driver.compile import compile_observed, prepare
from tilewright.driver.kernels import KernelPool
from tilewright.driver.source import open_source
from tilewright.target.target import target

WIDE = target("cpu -mcpu=x86-64-v4")
SPACE = [(7, 9), (6, 5), (1, 12)]
CASES = {
    "mean": ("AveragePool", {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
    "mean, low": ("AveragePool", {"auto_pad": "SAME_LOWER", "strides": [3, 2]}),
    "mean with pads": (
        "AveragePool", {"auto_pad": "SAME_UPPER", "strides": [2, 2], "count_include_pad": 1},
    ),
    "powers": ("LpPool", {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    "powers, ceil": ("LpPool", {"ceil_mode": 1, "strides": [2, 2], "pads": [1, 0, 1, 1]}),
}  # fmt: skip


MANY = [(1, 1), (2, 3), (3, 2), (5, 7), (7, 7), (4, 8), (9, 9), (14, 14), (3, 15), (6, 16), (5, 17)]
MANY += [
    (28, 28),
    (3, 31),
    (4, 32),
    (33, 33),
    (5, 35),
    (2, 48),
    (56, 56),
    (3, 63),
    (6, 65),
    (61, 83),
]
WINDOWS = {
    "max 3 / 2": ("MaxPool", {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "max 3 / 2, SAME": ("MaxPool", {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    "max 2 / 2": ("MaxPool", {"strides": [2, 2], "kernel_shape": [2, 2]}),
    "max 5 / 3, apart": (
        "MaxPool",
        {"strides": [1, 3], "kernel_shape": [2, 5], "dilations": [2, 2], "pads": [1, 3, 1, 3]},
    ),
    "mean 3 / 2": ("AveragePool", {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "mean 3 / 2, SAME": ("AveragePool", {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    "mean 3 / 2, SAME low": ("AveragePool", {"strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    "mean 4 / 3": (
        "AveragePool",
        {"strides": [3, 3], "kernel_shape": [4, 4], "pads": [1, 2, 2, 1], "count_include_pad": 1},
    ),
}


def reference(x: np.ndarray, op: str, attrs: dict[str, Any]) -> np.ndarray:
    """A pool of f64, window by window."""
    kernel, strides = attrs.get("kernel_shape", [3, 3]), attrs["strides"]
    apart = attrs.get("dilations", [1, 1])
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, apart, strict=True)]
    pads = list(attrs.get("pads", [0] * 4))
    if "auto_pad" in attrs:
        for d in range(2):
            size = x.shape[2 + d]
            whole = max(0, (-(-size // strides[d]) - 1) * strides[d] + spans[d] - size)
            less, more = whole // 2, whole - whole // 2
            first, last = (more, less) if attrs["auto_pad"] == "SAME_LOWER" else (less, more)
            pads[d], pads[2 + d] = first, last
    wide = [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])]
    padded = np.pad(x.astype(np.float64), wide, constant_values=np.nan)
    counts = [(padded.shape[2 + d] - spans[d]) // strides[d] + 1 for d in range(2)]
    if min(counts) < 1:
        return np.zeros((*x.shape[:2], *(max(0, c) for c in counts)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=(2, 3))
    taps = windows[:, :, :: strides[0], :: strides[1], :: apart[0], :: apart[1]]
    if op == "MaxPool":
        return np.nanmax(taps, axis=(4, 5))
    if attrs.get("count_include_pad"):
        return np.nansum(taps, axis=(4, 5)) / np.prod(kernel)
    return np.nanmean(taps, axis=(4, 5))


@pytest.mark.sampled
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", WINDOWS)
def test_many_sizes_of_one_compilation(name: str, threads: int) -> None:
    """Images of any size are read within their memory, which ends or begins with a page of nobody;
    results do not depend on where that is."""
    op, attrs = WINDOWS[name]
    run = compile_observed(pool(op, **attrs), cache=False, threads=threads, pool=KernelPool(1))
    held, random = Guarded(), np.random.default_rng()
    for h, w in MANY:
        x = random.standard_normal((1, 2, h, w)).astype(np.float32)
        wanted = reference(x, op, attrs)
        if wanted.size == 0:
            continue
        found = [np.array(run(held.hold(x, at_end))[0]) for at_end in (True, False)]
        np.testing.assert_allclose(found[0], wanted, rtol=1e-5, atol=1e-6, err_msg=f"{h}x{w}")
        np.testing.assert_array_equal(found[1], found[0])


def test_one_and_two_threads_agree(turn: Callable[..., Any]) -> None:
    """In every bit."""
    for op, attrs in turn(list(WINDOWS.values()), 0):
        made = pool(op, **attrs)
        one, two = (
            compile_observed(made, cache=False, threads=t, pool=KernelPool(1)) for t in (1, 2)
        )
        for h, w in ((14, 14), (7, 33), (28, 28), (61, 83), (120, 121)):
            x = np.random.default_rng().standard_normal((1, 2, h, w)).astype(np.float32)
            np.testing.assert_array_equal(one(x)[0], two(x)[0])


def pool(op: str, h: str | int = "h", w: str | int = "w", **attrs: Any) -> onnx.ModelProto:
    attrs = {"kernel_shape": [3, 3], **attrs}
    node = helper.make_node(op, ["x"], ["y"], **attrs)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2, h, w])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [given], [made])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


@pytest.mark.parametrize("name", CASES)
def test_as_onnxruntime(name: str) -> None:
    op, attrs = CASES[name]
    proto = pool(op, **attrs)
    run = compile_observed(proto, cache=False, pool=KernelPool(1))
    session = ort.InferenceSession(proto.SerializeToString())
    for space in SPACE:
        x = np.random.default_rng(5).standard_normal((2, 2, *space)).astype(np.float32)
        (wanted,) = map(np.asarray, session.run(None, {"x": x}))
        (found,) = run(x)
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_taps_that_lie_apart() -> None:
    """As at fixed sizes (onnxruntime pads as if taps were neighbours)."""
    attrs = {"auto_pad": "SAME_UPPER", "strides": [2, 3], "dilations": [3, 2]}
    run = compile_observed(pool("AveragePool", **attrs), cache=False, pool=KernelPool(1))
    for h, w in ((7, 9), (1, 4)):
        fixed = pool("AveragePool", h, w, **attrs)
        x = np.random.default_rng(5).standard_normal((1, 2, h, w)).astype(np.float32)
        (wanted,) = compile_observed(fixed, cache=False, pool=KernelPool(1))(x)
        np.testing.assert_allclose(run(x)[0], wanted, rtol=1e-5, atol=1e-6)


def test_means_of_padded_images_are_one_kernel() -> None:
    """The pool itself knows which of its taps lie in the image."""
    fused = prepare(
        open_source(pool("AveragePool", auto_pad="SAME_UPPER", strides=[2, 2])).graph(), WIDE, 3
    )
    assert [[node.op for node in group.nodes] for group in fused.groups] == [["pad", "avg_pool"]]


@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER"])
def test_means_between_packed_convolutions(auto: str) -> None:
    """Images of a run's padding lie packed, too, and sequences and volumes are padded so."""
    random = np.random.default_rng()
    for rank in (1, 2, 3):
        axes = ["d", "h", "w"][-rank:]
        w = random.standard_normal((32, 4, *[1] * rank)).astype(np.float32)
        nodes = [
            helper.make_node("Conv", ["x", "w"], ["a"]),
            helper.make_node(
                "AveragePool", ["a"], ["z"],
                kernel_shape=[3] * rank, strides=[2] * rank, auto_pad=auto,
            ),
            helper.make_node("Relu", ["z"], ["y"]),
        ]  # fmt: skip
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, *axes])
        made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        graph = helper.make_graph(nodes, "g", [given], [made], [numpy_helper.from_array(w, "w")])
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
        run = compile_observed(proto, cache=False, pool=KernelPool(1))
        session = ort.InferenceSession(proto.SerializeToString())
        for _ in range(3):
            x = random.standard_normal((1, 4, *random.integers(3, 20, rank))).astype(np.float32)
            (wanted,) = map(np.asarray, session.run(None, {"x": x}))
            np.testing.assert_allclose(run(x)[0], wanted, rtol=1e-5, atol=1e-6)
