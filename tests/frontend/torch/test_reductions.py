"""ATen reductions and normalisations against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tilewright as tw
from tests.frontend.torch.agreement import agree, drawn


def test_reductions() -> None:
    def f(x: Tensor) -> list[Tensor]:
        return [x.sum(), x.sum(1), x.sum((0, 2), keepdim=True), x.mean(), x.mean(-1), x.prod(), x.prod(1), x.amax(1),
                x.amin((0, 1)), x.max(), x.min(), *x.max(1), *x.min(-1, keepdim=True), x.argmax(), x.argmax(1),
                x.argmin(-1, keepdim=True), (x > 0).any(), (x > 0).all(1), x.any(0), x.norm(), x.norm(1, dim=1),
                torch.linalg.vector_norm(x, float("inf"), 1), torch.logsumexp(x, 1), x.logsumexp((0, 1), True)]  # fmt: skip

    agree(f, drawn(3, 4, 5))


def test_reductions_of_whole_numbers() -> None:
    x = drawn(3, 4, of=torch.int32)
    agree(
        lambda x: (
            x.sum(),
            x.sum(1),
            x.amax(0),
            (x > 0).sum(),
            x.cumsum(1),
            x.float().mean(),
            x.prod(),
        ),
        x,
    )


def test_variances() -> None:
    def f(x: Tensor) -> list[Tensor]:
        return [x.var(), x.var(1), x.var((0, 1), unbiased=False), x.std(), x.std(-1, correction=0),
                *torch.var_mean(x, 1, keepdim=True), *torch.std_mean(x, (0, 2))]  # fmt: skip

    agree(f, drawn(3, 4, 5))


def test_softmaxes() -> None:
    agree(
        lambda x: (F.softmax(x, -1), F.softmax(x, 0), F.log_softmax(x, 1), F.softmin(x, 1)),
        drawn(3, 4),
    )


def test_scalars_are_reduced_to_themselves() -> None:
    agree(lambda x: (x.sum(), x.amax(), x.argmax(), F.softmax(x, 0), x.cumsum(0)), drawn())


def test_layer_norms() -> None:
    x = drawn(3, 4, 8)
    agree(lambda x, w, b: (F.layer_norm(x, (8,), w, b), F.layer_norm(x, (8,)), F.layer_norm(x, (8,), None, b),
                           F.layer_norm(x, (4, 8), eps=0.1), F.rms_norm(x, (8,), w)), x, drawn(8), drawn(8, seed=1))  # fmt: skip


def filled(norm: nn.Module) -> nn.Module:
    for k, tensor in enumerate((*norm.parameters(), *norm.buffers())):
        if tensor.is_floating_point():
            tensor.detach().copy_(drawn(*tensor.shape, seed=k).abs() + 0.1)
    return norm


@pytest.mark.filterwarnings("ignore:Mismatch dtype")
@pytest.mark.parametrize("small", [torch.bfloat16, torch.float16])
def test_norms_of_small_floats_beside_wider_parameters(small: torch.dtype) -> None:
    """As autocast has them: computed in f32, rounded once."""

    def f(x: Tensor, w: Tensor, b: Tensor, mean: Tensor, variance: Tensor) -> list[Tensor]:
        rows = x.transpose(1, 3)
        return [
            F.batch_norm(x, mean, variance, w, b),
            F.batch_norm(x, mean, variance),
            F.instance_norm(x, mean, variance, w, b, use_input_stats=False),
            F.instance_norm(x, None, None, w, b),
            F.group_norm(x, 2, w, b),
            F.layer_norm(rows, (4,), w, b),
            F.rms_norm(rows, (4,), w),
            F.rms_norm(rows, (4,)),
        ]

    x, mean = drawn(2, 4, 5, 5).to(small), drawn(4, seed=3)
    variance = drawn(4, seed=4).abs() + 0.5
    given = x, drawn(4, seed=1), drawn(4, seed=2), mean, variance
    exe = tw.compile(Of(f), example_inputs=given, threads=1)
    for found, want in zip(exe(*given), f(*given), strict=True):
        assert found.dtype == small
        torch.testing.assert_close(
            found, want, rtol=2 ** (-7 if small is torch.bfloat16 else -9), atol=1e-3
        )


class Of(nn.Module):
    def __init__(self, f: Callable[..., Any]) -> None:
        super().__init__()
        self.f = f

    def forward(self, *given: Tensor) -> Any:
        return self.f(*given)


def test_norms_of_channels() -> None:
    for norm in (nn.BatchNorm2d(6), nn.BatchNorm2d(6, affine=False), nn.GroupNorm(3, 6), nn.InstanceNorm2d(6),
                 nn.InstanceNorm2d(6, affine=True), nn.InstanceNorm2d(6, track_running_stats=True),
                 nn.BatchNorm2d(6, track_running_stats=False)):  # fmt: skip
        agree(filled(norm), drawn(2, 6, 4, 5))
    agree(filled(nn.BatchNorm1d(6)), drawn(3, 6))


def test_running_values() -> None:
    agree(
        lambda x: (
            x.cumsum(1),
            x.cumsum(0),
            torch.cumprod(x, 1),
            torch.cummax(x, 1)[0],
            torch.diff(x),
        ),
        drawn(4, 5),
    )
