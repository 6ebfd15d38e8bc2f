"""f16 and bf16: what takes several steps is computed in f32 and rounded once, as in eager PyTorch;
beside float64."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor, nn
from torch.nn import functional as F

import tilewright as tw


class Operators(nn.Module):
    def forward(self, x: Tensor) -> list[Tensor]:
        channels, row = torch.ones_like(x[0, :, 0, 0]), torch.ones_like(x[0, 0, 0])
        return [
            x.norm(dim=-1), x.norm(3, dim=-1), F.normalize(x, dim=-1), x.std(-1), x.logsumexp(-1),
            F.softmax(x, 1), F.log_softmax(x, -1), x.cumsum(-1), torch.lerp(x, x.flip(0), 0.3),
            F.layer_norm(x, x.shape[-1:], 1.3 * row, row), F.rms_norm(x, x.shape[-1:], 1.3 * row),
            F.group_norm(x, 2, 1.3 * channels, channels), F.instance_norm(x),
            F.batch_norm(x, None, None, 3.3 * channels, channels, training=True),
            F.scaled_dot_product_attention(x, x.flip(1), x.flip(2)), torch.hypot(x, x.flip(0)),
            F.gelu(x), F.silu(x), F.mish(x), F.hardswish(x), F.hardsigmoid(x), F.elu(x),
        ]  # fmt: skip


@pytest.mark.parametrize("kind, scale, level", [("f16", 300.0, 3), ("bf16", 3.0, 0)])
def test_torch(kind: str, scale: float, level: int) -> None:
    drawn = torch.randn(2, 4, 5, 48, generator=torch.Generator().manual_seed(3)) * scale
    x = drawn.to({"f16": torch.float16, "bf16": torch.bfloat16}[kind])
    module = Operators().eval()
    made = tw.compile(module, example_inputs=(x,), opt_level=level, cache=False)(x)
    step = torch.finfo(x.dtype).eps
    compared = zip(made, module(x), module(x.double()), strict=True)
    for number, (got, eager, exact) in enumerate(compared):
        fits = exact.abs() < 0.9 * torch.finfo(x.dtype).max
        least = exact.abs().median() * 0.01 + torch.finfo(x.dtype).smallest_normal
        size = exact.abs().clamp_min(least)
        ours, theirs = (((y.double() - exact).abs() / size)[fits].max() for y in (got, eager))
        assert ours <= max(1.2 * step, 1.7 * theirs), f"output {number}: {ours}, eager {theirs}"


def test_onnx() -> None:
    x = (np.random.default_rng(5).standard_normal((2, 3, 4, 40)) * 100).astype(np.float16)
    axes = [onnx.numpy_helper.from_array(np.array([3]), "axes")]
    reductions = ["ReduceL2", "ReduceLogSumExp", "ReduceSumSquare", "ReduceLogSum"]
    given = dict.fromkeys(reductions, "x") | {"ReduceSumSquare": "few", "ReduceLogSum": "size"}
    norms = ["LpNormalization", "MeanVarianceNormalization"]
    nodes = [
        helper.make_node("Abs", ["x"], ["size"]),
        helper.make_node("Slice", ["x", "from", "to"], ["few"]),
        *(helper.make_node(op, [given[op], "axes"], [op]) for op in reductions),
        *(helper.make_node(op, ["x"], [op]) for op in norms),
    ]
    ends = [onnx.numpy_helper.from_array(np.array(v), n)
            for v, n in (([0, 0, 0, 0], "from"), ([2, 3, 4, 3], "to"))]  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT16, x.shape)],
        [helper.make_empty_tensor_value_info(op) for op in (*reductions, *norms)], [*axes, *ends],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    v = x.astype(np.float64)
    moved = v - v.mean((0, 2, 3), keepdims=True)
    wanted = [
        np.sqrt((v * v).sum(3, keepdims=True)),
        np.log(np.exp(v).sum(3, keepdims=True)),
        (v[..., :3] ** 2).sum(3, keepdims=True),
        np.log(np.abs(v).sum(3, keepdims=True)),
        v / np.sqrt((v * v).sum(3, keepdims=True)),
        moved / np.sqrt((moved * moved).mean((0, 2, 3), keepdims=True)),
    ]
    made = tw.compile(model, cache=False)(x)
    for op, got, want in zip([*reductions, *norms], made, wanted, strict=True):
        fits = want < 6e4
        error = np.abs(got.astype(np.float64) - want)
        assert (error <= 6e-4 * np.abs(want) + 1e-6)[fits].all(), op
