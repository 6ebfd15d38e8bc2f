"""Segmentation nets, dilated convolutions among them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.zoo.blocks.layers import Residual, basic, conv


class DeepLab(nn.Module):
    """A dilated ResNet-18 with pyramid pooling by dilated convolutions. Chen 2017."""

    def __init__(self, classes: int = 21) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1), basic(64, 64), basic(64, 64),
            basic(64, 128, 2), basic(128, 128), basic(128, 256, 1, 2), basic(256, 256, 1, 2),
            basic(256, 512, 1, 4), basic(512, 512, 1, 4),
        )  # fmt: skip
        self.arms = nn.ModuleList(
            [conv(512, 128, 1), *(conv(512, 128, 3, 1, d) for d in (6, 12, 18))]
        )
        self.pool = conv(512, 128, 1)
        self.head = nn.Sequential(conv(640, 128, 1), conv(128, 128), nn.Conv2d(128, classes, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.trunk(x)
        whole = self.pool(F.adaptive_avg_pool2d(y, 1)).expand(-1, -1, y.shape[2], y.shape[3])
        y = self.head(torch.cat([*(arm(y) for arm in self.arms), whole], 1))
        return F.interpolate(y, x.shape[2:], mode="bilinear")


class ErfNet(nn.Sequential):
    """Factored residual blocks with dilation. Romera 2018."""

    def __init__(self) -> None:
        def block(c: int, d: int) -> nn.Module:
            return Residual(nn.Sequential(
                nn.Conv2d(c, c, (3, 1), 1, (1, 0)), nn.ReLU(), nn.Conv2d(c, c, (1, 3), 1, (0, 1)),
                nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, c, (3, 1), 1, (d, 0), (d, 1)), nn.ReLU(),
                nn.Conv2d(c, c, (1, 3), 1, (0, d), (1, d)), nn.BatchNorm2d(c),
            ))  # fmt: skip

        def up(i: int, o: int) -> list[nn.Module]:
            made = [nn.ConvTranspose2d(i, o, 3, 2, 1, 1), nn.BatchNorm2d(o), nn.ReLU()]
            return [*made, block(o, 1)]

        super().__init__(
            conv(3, 16, 3, 2), conv(16, 64, 3, 2), *(block(64, 1) for _ in range(3)),
            conv(64, 128, 3, 2), *(block(128, d) for d in (2, 4, 8, 16)), *up(128, 64),
            *up(64, 16), nn.ConvTranspose2d(16, 20, 2, 2),
        )  # fmt: skip


class UNet(nn.Module):
    """Ronneberger 2015, with sizes kept."""

    def __init__(self, widths: Sequence[int] = (32, 64, 128, 256)) -> None:
        super().__init__()
        ends = list(zip((3, *widths), widths, strict=False))
        self.down = nn.ModuleList(nn.Sequential(conv(i, o), conv(o, o)) for i, o in ends)
        self.up = nn.ModuleList(nn.ConvTranspose2d(o, i, 2, 2) for i, o in ends[:0:-1])
        self.join = nn.ModuleList(nn.Sequential(conv(2 * i, i), conv(i, i)) for i, _ in ends[:0:-1])
        self.last = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for k, level in enumerate(self.down):
            x = level(F.max_pool2d(x, 2) if k else x)
            kept.append(x)
        for up, join, other in zip(self.up, self.join, kept[-2::-1], strict=True):
            x = join(torch.cat([up(x), other], 1))
        return self.last(x)
