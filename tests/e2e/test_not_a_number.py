"""NaN and infinities in compiled models: as eager PyTorch has them (from ONNX as NumPy), in vector
bodies and tails, at every level of optimisation."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor, nn
from torch.nn import functional as F

import tilewright as tw


def rows(width: int) -> np.ndarray:
    """Eight rows: of NaN, of -inf, of zeros of both signs, with one or several NaN, …"""
    draw = np.random.default_rng(width)
    x = draw.standard_normal((8, width)).astype(np.float32)
    x[1], x[5], x[7], x[7, width // 2 :] = np.nan, -np.inf, 0.0, -0.0
    x[2, draw.integers(width)] = x[3, 0] = x[3, -1] = np.nan
    x[4, draw.integers(width)], x[4, draw.integers(width)] = np.inf, -np.inf
    x[6] = np.round(x[6])
    x[6, draw.integers(width)] = np.nan
    return x


class Operators(nn.Module):
    def forward(self, x: Tensor) -> list[Tensor]:
        other, few = x.flip(0), min(3, x.shape[1])
        return [
            x.argmax(1), x.argmin(1), x.argmax(0), x.argmin(0), x.argmax(),
            *x.max(1), *x.min(1), x.amax(0), x.amin(0),
            *x.cummax(1), *x.cummin(1), *x.cummax(0), *x.median(1),
            F.threshold(x, 0.1, 20.0), F.hardshrink(x), F.softshrink(x), F.relu(x), F.hardswish(x),
            x.clamp(-1, 1), x.clamp_min(0.0), x.clamp_max(0.0), F.leaky_relu(x), x.sign(),
            torch.maximum(x, other), torch.minimum(x, other), torch.fmax(x, other),
            torch.hypot(x, other),
            F.softmax(x, 1), F.log_softmax(x, 0), x.logsumexp(1),
            *x.sort(dim=1, stable=True), *x.sort(dim=1, descending=True, stable=True),
            x.topk(few, 1).values, x.topk(few, 1, largest=False).values,
            *F.max_pool1d(x[None], few, 1, few // 2, return_indices=True),
            *F.max_pool2d(x[None, None], (2, few), 1, return_indices=True),
            *F.adaptive_max_pool1d(x[None], 1, return_indices=True),
            torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])), x < 0, x >= 0, x != x,
        ]  # fmt: skip


@pytest.mark.parametrize("width, level", [(1, 0), (70, 1), (19, 3)])
def test_torch(width: int, level: int) -> None:
    x = torch.from_numpy(rows(width))
    module = Operators().eval()
    made = tw.compile(module, example_inputs=(x,), opt_level=level, cache=False)(x)
    for number, (got, want) in enumerate(zip(made, module(x), strict=True)):
        np.testing.assert_allclose(
            np.asarray(got), want.numpy(), rtol=2e-5, atol=1e-6, err_msg=f"output {number}"
        )


def _pool(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The greatest of each three neighbours; of several NaN the place of the last."""
    seen = np.lib.stride_tricks.sliding_window_view(x, 3, axis=-1)
    lacks = np.isnan(seen)
    last = 2 - lacks[..., ::-1].argmax(-1)
    place = np.where(lacks.any(-1), last, seen.argmax(-1))
    return seen.max(-1), place + np.arange(x.size).reshape(x.shape)[..., :-2]


@pytest.mark.parametrize("level", [0, 3])
def test_onnx(level: int) -> None:
    x = rows(35)
    x[0, :2] = 3e9, -1e20
    axis = onnx.numpy_helper.from_array(np.array([1]), "axis")
    two = [onnx.numpy_helper.from_array(np.float32(v), k) for k, v in (("low", -1), ("high", 1))]
    types = {"i8": TensorProto.INT8, "u8": TensorProto.UINT8, "i32": TensorProto.INT32}
    nodes = [
        helper.make_node("ArgMax", ["x"], ["first"], axis=1, keepdims=0),
        helper.make_node("ArgMin", ["x"], ["last"], axis=1, keepdims=0, select_last_index=1),
        helper.make_node("ReduceMax", ["x", "axis"], ["most"], keepdims=0),
        helper.make_node("Clip", ["x", "low", "high"], ["clipped"]),
        helper.make_node("Max", ["x", "low"], ["greater"]),
        helper.make_node("MaxPool", ["x3"], ["pooled", "place"], kernel_shape=[3]),
        helper.make_node("Unsqueeze", ["x", "axis"], ["x3"]),
        *(helper.make_node("Cast", ["x"], [name], to=to) for name, to in types.items()),
    ]
    names = ["first", "last", "most", "clipped", "greater", "pooled", "place", *types]
    graph = helper.make_graph(
        nodes, "nan", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_empty_tensor_value_info(name) for name in names], [axis, *two],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    got = tw.compile(model, opt_level=level, cache=False)(x)
    with np.errstate(invalid="ignore"):
        whole = np.nan_to_num(np.trunc(x.astype(np.float64)), posinf=np.inf, neginf=-np.inf)
    ends = [np.iinfo(t) for t in (np.int8, np.uint8, np.int32)]
    pooled, place = _pool(x)
    want = [
        x.argmax(1), 34 - x[:, ::-1].argmin(1), x.max(1), np.clip(x, -1, 1), np.maximum(x, -1),
        pooled[:, None], place[:, None],
        *(np.clip(whole, e.min, e.max).astype(e.dtype) for e in ends),
    ]  # fmt: skip
    for name, a, b in zip(names, got, want, strict=True):
        np.testing.assert_array_equal(np.asarray(a), b, err_msg=name)


@pytest.mark.parametrize("ordered", [True, False])
def test_unique_takes_nan_for_one_value(ordered: bool) -> None:
    x = np.array([1, np.nan, 2, np.nan, 1, -0.0, 0.0, np.inf, -np.inf, np.nan], np.float32)
    node = helper.make_node("Unique", ["x"], ["y", "at", "of", "count"], sorted=int(ordered))
    graph = helper.make_graph(
        [node], "unique", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_empty_tensor_value_info(name) for name in node.output],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    values, at, of, count = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    order = np.arange(len(at)) if ordered else np.argsort(at)
    want = values[order], at[order], np.argsort(order)[of], count[order]
    for got, exact in zip(tw.compile(model, cache=False)(x), want, strict=True):
        np.testing.assert_array_equal(got, exact)


def test_casts_of_constants_are_those_of_the_run() -> None:
    special = [np.nan, np.inf, -np.inf, 3e9, -3e9, 1e20, 300.0, -1.5, 127.9, -0.0, 65536.0]
    x = torch.tensor(special, dtype=torch.float32)
    types = [torch.int8, torch.uint8, torch.int32, torch.int64, torch.bool]

    class Casts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kept", x.clone())

        def forward(self, x: Tensor) -> list[Tensor]:
            return [v.to(t) for v in (self.kept, x) for t in types]

    got = tw.compile(Casts(), example_inputs=(x,), cache=False)(x)
    for folded, ran in zip(got[: len(types)], got[len(types) :], strict=True):
        assert torch.equal(torch.as_tensor(folded), torch.as_tensor(ran))
