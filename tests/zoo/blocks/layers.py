"""Layers that several of the nets here have."""

from __future__ import annotations

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn


def conv(i: int, o: int, k: int = 3, s: int = 1, d: int = 1, g: int = 1, act: type = nn.ReLU):
    """Convolution that keeps the size (over s), batch norm, activation."""
    return nn.Sequential(
        nn.Conv2d(i, o, k, s, d * (k // 2), d, g, bias=False), nn.BatchNorm2d(o), act()
    )


class Residual(nn.Module):
    """x + f(x), through a projection where the sizes differ."""

    def __init__(self, body: nn.Module, way: nn.Module | None = None) -> None:
        super().__init__()
        self.body, self.way = body, way or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.way(x))


def basic(i: int, o: int, s: int = 1, d: int = 1) -> nn.Module:
    """ResNet's block of two 3×3."""
    body = nn.Sequential(conv(i, o, 3, s, d), conv(o, o, 3, 1, d, act=nn.Identity))
    return Residual(body, None if i == o and s == 1 else conv(i, o, 1, s, act=nn.Identity))


def mlp(*widths: int) -> nn.Sequential:
    ends = pairwise(widths)
    layers = [m for i, o in ends for m in (nn.Linear(i, o), nn.ReLU())]
    return nn.Sequential(*layers[:-1])
