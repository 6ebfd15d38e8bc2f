"""Parameters whose length the model leaves open: what the operator, or the rank that the model
tells of its result, says that they have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.frontend.test_onnx_loops import F, I, agree, f, node
from tests.frontend.test_onnx_while_loops import typed
from tilewright.driver.compile import compile_observed
from tilewright.support.errors import InputError


def one(
    op: str, inputs: Mapping[str, tuple[int, int]], rank: int, of: int = F, **attrs: Any
) -> Any:
    """A model of one node: inputs by name, with their type and rank, every size of them open."""
    given = [typed(k, t, *(f"{k}{d}" for d in range(r))) for k, (t, r) in inputs.items()]
    outputs = [typed("y", of, *(f"y{d}" for d in range(rank)))]
    graph = helper.make_graph([node(op, " ".join(inputs), "y", **attrs)], "g", given, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def i(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


X = {"x": (F, 2)}
CASES = {
    "Reshape": (one("Reshape", X | {"to": (I, 1)}, 3),
                [(f(2, 6), i(3, 2, 2)), (f(1, 4), i(-1, 1, 2)), (f(0, 3), i(0, 1, 2))]),
    "Expand": (one("Expand", X | {"to": (I, 1)}, 3),
               [(f(1, 6), i(3, 2, 6)), (f(3, 1), i(1, 3, 1))]),
    "ConstantOfShape": (one("ConstantOfShape", {"to": (I, 1)}, 2), [(i(3, 2),), (i(0, 1),)]),
    "Tile": (one("Tile", X | {"by": (I, 1)}, 2), [(f(2, 3), i(2, 1)), (f(1, 2), i(0, 3))]),
    "Pad": (one("Pad", X | {"by": (I, 1)}, 2),
            [(f(2, 3), i(1, 0, 2, 3)), (f(1, 1), i(0, 0, 1, 0))]),
    "Unsqueeze": (one("Unsqueeze", X | {"at": (I, 1)}, 4),
                  [(f(2, 3), i(0, 3)), (f(1, 2), i(1, 2))]),
    "Squeeze": (one("Squeeze", X | {"at": (I, 1)}, 1), [(f(1, 3), i(0)), (f(4, 1), i(-1))]),
    "OneHot": (one("OneHot", {"x": (I, 1), "depth": (I, 0), "values": (F, 1)}, 2),
               [(i(0, 2, 1), np.array(3), f(2)), (i(1), np.array(4), f(2))]),
    "InstanceNormalization": (
        one("InstanceNormalization", {"x": (F, 4), "s": (F, 1), "b": (F, 1)}, 4),
        [(f(2, 3, 4, 5), f(3), f(3)), (f(1, 1, 2, 2), f(1), f(1))]),
    "ReduceSum": (one("ReduceSum", X | {"at": (I, 1)}, 2),
                  [(f(2, 3), i(1)), (f(2, 3), i(-2, 1)), (f(2, 3), i())]),
    "ReduceMax, kept if none": (one("ReduceMax", X | {"at": (I, 1)}, 2, noop_with_empty_axes=1),
                                [(f(2, 3), i(0)), (f(2, 3), i())]),
    "ReduceL2": (one("ReduceL2", X | {"at": (I, 1)}, 1, keepdims=0),
                 [(f(2, 3), i(1)), (f(2, 3), i(0))]),
    "Slice": (one("Slice", X | {"from": (I, 1), "to": (I, 1)}, 2),
              [(f(4, 5), i(1), i(3)), (f(4, 5), i(1, -3), i(9, -1)), (f(2, 3), i(), i())]),
    "Slice, of axes": (one("Slice", X | dict.fromkeys(("from", "to", "at", "by"), (I, 1)), 2),
                       [(f(4, 5), i(-1), i(0), i(1), i(-2)),
                        (f(4, 5), i(1, 0), i(3, 4), i(-1, 0), i(1, 2))]),
    "Pad, of axes": (one("Pad", {"x": (F, 3), "by": (I, 1), "v": (F, 0), "at": (I, 1)}, 3),
                     [(f(2, 3, 1), i(1, 2), f(), i(1)), (f(2, 1, 3), i(1, 0, 0, 3), f(), i(2, 0))]),
    "Col2Im": (one("Col2Im", {"x": (F, 3), "image": (I, 1), "block": (I, 1)}, 4),
               [(f(1, 5, 5), i(5, 5), i(1, 5)), (f(2, 4, 6), i(3, 4), i(2, 2))]),
    "MaxUnpool": (
        one("MaxUnpool", {"x": (F, 4), "at": (I, 4), "to": (I, 1)}, 4, kernel_shape=[2, 2],
            strides=[2, 2]),
        [(f(1, 1, 1, 2), i(5, 2).reshape(1, 1, 1, 2), i(1, 1, 2, 4))]),
    "NonMaxSuppression": (
        one("NonMaxSuppression", {"b": (F, 3), "s": (F, 3), "most": (I, 1)}, 2, I),
        [(np.abs(f(1, 5, 4)), f(1, 1, 5), i(2)), (np.abs(f(1, 1, 4)), f(1, 2, 1), i(9))]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_length_that_it_has_to_have(name: str) -> None:
    proto, runs = CASES[name]
    agree(proto, *runs)


def test_other_lengths_are_refused() -> None:
    run = compile_observed(CASES["Reshape"][0], cache=False)
    with pytest.raises(InputError, match="dimension 0 is 1, expected 3"):
        run(f(2, 6), i(12))
