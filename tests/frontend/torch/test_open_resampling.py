"""Resampling with open sizes beside eager, compiled once and called at several sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tilewright as tw

SIZES = [(6, 10), (9, 7), (33, 4)]


class Resampled(nn.Module):
    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        self.options = options

    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(x, **self.options)


@pytest.mark.parametrize(
    "options",
    [
        {"scale_factor": 2},
        {"scale_factor": 1.5},
        {"scale_factor": (3, 0.75), "mode": "nearest-exact"},
        {"scale_factor": 1.3, "mode": "bilinear", "recompute_scale_factor": True},
        {"scale_factor": 1.6, "mode": "bicubic"},
        {"scale_factor": 2.5, "mode": "bilinear", "align_corners": True},
        {"size": (5, 8), "mode": "bicubic", "align_corners": True},
    ],
    ids=str,
)
def test_images(options: dict[str, Any]) -> None:
    model = Resampled(options).eval()
    h, w = torch.export.Dim("h", min=4, max=100), torch.export.Dim("w", min=4, max=100)
    drawn = torch.randn(1, 3, *SIZES[0], generator=torch.manual_seed(3))
    executable = tw.compile(
        model, example_inputs=(drawn,), dynamic_shapes=({2: h, 3: w},), threads=1, cache=False
    )
    for size in SIZES:
        x = torch.randn(1, 3, *size)
        (y,) = executable(x.numpy())
        np.testing.assert_allclose(y, model(x).numpy(), rtol=1e-5, atol=2e-5)


def test_to_the_size_of_another() -> None:
    class Joined(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return F.interpolate(x, y.shape[2:], mode="bilinear") + y

    dims = [torch.export.Dim(n, min=2, max=100) for n in ("a", "b", "c", "d")]
    given = torch.randn(1, 2, 5, 6), torch.randn(1, 2, 9, 11)
    executable = tw.compile(
        Joined(), example_inputs=given, threads=1, cache=False,
        dynamic_shapes=({2: dims[0], 3: dims[1]}, {2: dims[2], 3: dims[3]}),
    )  # fmt: skip
    for small, large in [((5, 6), (9, 11)), ((7, 2), (3, 40))]:
        x, y = torch.randn(1, 2, *small), torch.randn(1, 2, *large)
        (z,) = executable(x.numpy(), y.numpy())
        np.testing.assert_allclose(z, Joined()(x, y).numpy(), rtol=1e-5, atol=2e-5)
