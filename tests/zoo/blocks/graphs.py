"""Nets over graphs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.zoo.blocks.layers import mlp


def gathered(x: Tensor, edges: Tensor) -> Tensor:
    """At each node the sum of what its edges bring."""
    index = edges[1][:, None].expand(-1, x.shape[1])
    return torch.zeros(1000, x.shape[1]).scatter_add(0, index, x)


class Gcn(nn.Module):
    """Kipf 2017."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 128), nn.Linear(128, 128), nn.Linear(128, 16)])

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        degree = gathered(torch.ones_like(edges[0][:, None].float()), edges) + 1
        by = degree.rsqrt()
        for k, layer in enumerate(self.layers):
            y = layer(x) * by
            x = (gathered(y[edges[0]], edges) + y) * by
            x = F.relu(x) if k < 2 else x
        return x


class Gat(nn.Module):
    """Veličković 2018."""

    def __init__(self, heads: int = 4, width: int = 32) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.layers = nn.ModuleList(nn.Linear(i, heads * width) for i in (64, heads * width))
        self.goal = nn.ParameterList(torch.randn(heads, width) * 0.1 for _ in range(2))
        self.start = nn.ParameterList(torch.randn(heads, width) * 0.1 for _ in range(2))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        for layer, goal, start in zip(self.layers, self.goal, self.start, strict=True):
            y = layer(x).view(-1, self.heads, self.width)
            score = (y * start).sum(2)[edges[0]] + (y * goal).sum(2)[edges[1]]
            share = F.leaky_relu(score, 0.2).clamp(-20, 20).exp()
            total = gathered(share, edges)[edges[1]]
            sent = y[edges[0]] * (share / total)[:, :, None]
            x = F.elu(gathered(sent.flatten(1), edges))
        return x


class Gin(nn.Module):
    """Xu 2019."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(mlp(i, 128, 128) for i in (64, 128, 128))
        self.last = nn.Linear(128, 10)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.relu(layer(x + gathered(x[edges[0]], edges)))
        return self.last(x.mean(0, keepdim=True))
