"""Sums and means of integers beside onnxruntime and PyTorch: in which dtype each adds up."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import helper

import tilewright as tw
from tests.frontend.torch.agreement import agree


@pytest.mark.parametrize("of", [np.int32, np.int64])
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceL1"])
def test_reductions_of_onnx(op: str, of: type[np.generic]) -> None:
    """Means are rounded towards zero; where a mean fits, its sum need not."""
    x = np.random.default_rng(5).integers(-1000, 1000, (6, 40)).astype(of)
    if op == "ReduceMean":
        x = np.append(x, np.full((1, 40), 2**31 - 7, of), 0)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    attrs: dict[str, Any] = {} if op == "ReduceSum" else {"axes": [1]}
    axes = [helper.make_node("Constant", [], ["axes"], value_ints=[1])] if op == "ReduceSum" else []
    node = helper.make_node(op, ["x", *(["axes"] if axes else [])], ["y"], keepdims=0, **attrs)
    ends = (helper.make_tensor_value_info(n, kind, s) for n, s in (("x", x.shape), ("y", None)))
    x_info, y_info = ends
    graph = helper.make_graph([*axes, node], "sums", [x_info], [y_info])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (expected,) = session.run(None, {"x": x})
    (found,) = tw.compile(model, threads=1, cache=False)(x)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("of", [torch.int8, torch.uint8, torch.int16, torch.int32], ids=str)
def test_reductions_of_pytorch(of: torch.dtype) -> None:
    """Sums are i64, unless a dtype is asked for, in which they wrap."""

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        return [x.sum(), x.sum(1), x.sum(0, dtype=of), x.prod(1), x.cumsum(0), x.amax(1),
                x.cumsum(1, dtype=of), x.sum((0, 1), keepdim=True), x.count_nonzero(0)]  # fmt: skip

    whole, ends = torch.Generator().manual_seed(6), torch.iinfo(of)
    agree(f, torch.randint(ends.min, ends.max, (13, 70), generator=whole, dtype=of))
