"""Weights whose sizes only the run knows: kernels, hidden sizes, matrices, depths of indices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.frontend.test_onnx_loops import F, I, agree, f, node
from tests.frontend.test_onnx_open_parameters import i, one
from tests.frontend.test_onnx_while_loops import typed
from tilewright.driver.compile import compile_observed
from tilewright.support.errors import InputError

U8, I32 = TensorProto.UINT8, TensorProto.INT32
X4, X3 = {"x": (F, 4), "w": (F, 4)}, {"x": (F, 3), "w": (F, 3), "r": (F, 3)}
SAME = {"auto_pad": "SAME_UPPER", "strides": [2, 2]}


def u(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).integers(0, 256, shape).astype(np.uint8)


def known(op: str, shapes: Mapping[str, tuple[Any, ...]], rank: int, **attrs: Any) -> Any:
    """A model of one node with some sizes known."""
    given = [typed(k, F, *shape) for k, shape in shapes.items()]
    outputs = [typed("y", F, *(f"y{d}" for d in range(rank)))]
    graph = helper.make_graph([node(op, " ".join(shapes), "y", **attrs)], "g", given, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


CASES = {
    "Conv": (one("Conv", X4, 4, pads=[1, 0, 1, 2]),
             [(f(1, 3, 9, 8), f(4, 3, 3, 3)), (f(2, 5, 6, 8), f(1, 5, 2, 1))]),
    "Conv, SAME": (one("Conv", X4, 4, **SAME),
                   [(f(1, 3, 9, 8), f(4, 3, 3, 2)), (f(1, 3, 8, 7), f(4, 3, 1, 5))]),
    "Conv, stated": (one("Conv", X4, 4, kernel_shape=[3, 3]), [(f(1, 3, 9, 8), f(4, 3, 3, 3))]),
    "depthwise": (known("Conv", {"x": (1, 3, "h", "w"), "w": (6, 1, "p", "q")}, 4, group=3),
                  [(f(1, 3, 9, 8), f(6, 1, 3, 2)), (f(1, 3, 5, 5), f(6, 1, 1, 5))]),
    "ConvTranspose": (
        known("ConvTranspose", {"x": (1, 4, "h", "w"), "w": (4, 3, "p", "q"), "b": (6,)}, 4,
              strides=[2, 3], pads=[1, 0, 0, 1], group=2, output_padding=[1, 1]),
        [(f(1, 4, 5, 6), f(4, 3, 3, 2), f(6)), (f(1, 4, 5, 6), f(4, 3, 5, 1), f(6))]),
    "ConvTranspose, SAME": (
        known("ConvTranspose", {"x": (1, 4, "h", 6), "w": (4, 3, "p", 3), "b": (3,)}, 4, **SAME),
        [(f(1, 4, 5, 6), f(4, 3, 3, 3), f(3)), (f(1, 4, 4, 6), f(4, 3, 4, 3), f(3))]),
    "GRU": (one("GRU", X3, 4, hidden_size=5),
            [(f(3, 2, 4), f(1, 15, 4), f(1, 15, 5)), (f(1, 1, 2), f(1, 15, 2), f(1, 15, 5))]),
    "LSTM": (one("LSTM", X3 | {"b": (F, 2)}, 4, hidden_size=3, direction="bidirectional"),
             [(f(3, 2, 4), f(2, 12, 4), f(2, 12, 3), f(2, 24))]),
    "MatMulInteger": (
        one("MatMulInteger", {"a": (U8, 2), "b": (U8, 2), "za": (U8, 1), "zb": (U8, 1)}, 2, I32),
        [(u(3, 4), u(4, 5), u(1), u(1)), (u(3, 4), u(4, 5), u(1), u(5))]),
    "Det": (one("Det", {"x": (F, 3)}, 1), [(f(3, 4, 4),), (f(2, 1, 1),), (f(1, 7, 7),)]),
    "DFT": (known("DFT", {"x": ("b", "n", "c")}, 3), [(f(2, 8, 1),), (f(1, 7, 2),)]),
    "GatherND": (one("GatherND", {"x": (F, 3), "at": (I, 2)}, 2),
                 [(f(3, 4, 2), i(0, 1, 2, -1).reshape(2, 2))]),
    "ScatterND": (one("ScatterND", {"x": (F, 2), "at": (I, 2), "y0": (F, 1)}, 2),
                  [(f(3, 4), i(0, 1, 2, 3).reshape(2, 2), f(2))]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_sizes_that_the_run_finds(name: str) -> None:
    proto, runs = CASES[name]
    agree(proto, *runs)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("Conv", (f(1, 3, 3, 3), f(4, 3, 7, 7))),
        ("Conv, stated", (f(1, 3, 9, 8), f(4, 3, 3, 2))),
        ("GRU", (f(3, 2, 4), f(1, 18, 4), f(1, 18, 6))),
        ("Det", (f(3, 4, 5),)),
        ("DFT", (f(2, 8, 3),)),
        ("GatherND", (f(3, 4, 2), i(0, 1).reshape(2, 1))),
    ],
)
def test_others_end_the_run(name: str, given: tuple[np.ndarray, ...]) -> None:
    exe = compile_observed(CASES[name][0], cache=False)
    with pytest.raises(InputError, match="cannot run"):
        exe(*given)
