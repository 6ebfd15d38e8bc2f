"""Nets over three axes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.zoo.blocks.layers import Residual


def basic3d(i: int, o: int, s: int, factored: bool) -> nn.Module:
    """Two 3×3×3 convolutions (Hara 2018), or each as 1×3×3 and 3×1×1 (Tran 2018). With biases,
    without which PyTorch 2.13 exports them wrong."""

    def one(i: int, o: int, s: int) -> list[nn.Module]:
        if not factored:
            return [nn.Conv3d(i, o, 3, s, 1), nn.BatchNorm3d(o)]
        return [
            nn.Conv3d(i, o, (1, 3, 3), (1, s, s), (0, 1, 1)), nn.BatchNorm3d(o),
            nn.ReLU(), nn.Conv3d(o, o, (3, 1, 1), (s, 1, 1), (1, 0, 0)),
            nn.BatchNorm3d(o),
        ]  # fmt: skip

    way = None if i == o else nn.Sequential(nn.Conv3d(i, o, 1, s), nn.BatchNorm3d(o))
    return Residual(nn.Sequential(*one(i, o, s), nn.ReLU(), *one(o, o, 1)), way)


class ResNet3d(nn.Sequential):
    def __init__(self, factored: bool = False) -> None:
        widths, layers = (32, 64, 128, 256), []
        for i, o in zip((32, *widths), widths, strict=False):
            layers += [basic3d(i, o, 1 if i == o else 2, factored), basic3d(o, o, 1, factored)]
        super().__init__(
            nn.Conv3d(3, 32, (3, 7, 7), (1, 2, 2), (1, 3, 3)), nn.BatchNorm3d(32),
            nn.ReLU(), *layers, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(256, 400),
        )  # fmt: skip


class UNet3d(nn.Module):
    """Çiçek 2016."""

    def __init__(self, widths: Sequence[int] = (16, 32, 64)) -> None:
        super().__init__()

        def two(i: int, o: int) -> nn.Module:
            return nn.Sequential(
                nn.Conv3d(i, o, 3, padding=1), nn.InstanceNorm3d(o, affine=True), nn.ReLU(),
                nn.Conv3d(o, o, 3, padding=1), nn.InstanceNorm3d(o, affine=True), nn.ReLU(),
            )  # fmt: skip

        ends = list(zip((1, *widths), widths, strict=False))
        self.down = nn.ModuleList(two(i, o) for i, o in ends)
        self.up = nn.ModuleList(nn.ConvTranspose3d(o, i, 2, 2) for i, o in ends[:0:-1])
        self.join = nn.ModuleList(two(2 * i, i) for i, o in ends[:0:-1])
        self.last = nn.Conv3d(widths[0], 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for k, level in enumerate(self.down):
            x = level(F.max_pool3d(x, 2) if k else x)
            kept.append(x)
        for up, join, other in zip(self.up, self.join, kept[-2::-1], strict=True):
            x = join(torch.cat([up(x), other], 1))
        return self.last(x)
