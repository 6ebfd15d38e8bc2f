"""Recommenders."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.zoo.blocks.layers import mlp


class Dlrm(nn.Module):
    """Products of all pairs of embedded features. Naumov 2019."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(1000, width) for _ in range(26))
        self.bottom, self.top = mlp(13, 256, 64, width), mlp(width + 27 * 26 // 2, 256, 64, 1)
        self.register_buffer("pairs", torch.tril_indices(27, 27, -1))

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        x = self.bottom(dense)
        found = [table(sparse[:, k]) for k, table in enumerate(self.tables)]
        every = torch.stack([x, *found], 1)
        products = (every @ every.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return torch.sigmoid(self.top(torch.cat([x, products], 1)))


class DeepFm(nn.Module):
    """Guo 2017."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.table, self.linear = nn.Embedding(26000, width), nn.Embedding(26000, 1)
        self.deep, self.dense = mlp(26 * width + 13, 256, 128, 1), nn.Linear(13, 1)
        self.register_buffer("offset", torch.arange(26) * 1000)

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        at = sparse + self.offset
        v = self.table(at)
        square = 0.5 * (v.sum(1) ** 2 - (v * v).sum(1)).sum(1, keepdim=True)
        first = self.linear(at).sum(1) + self.dense(dense)
        return torch.sigmoid(first + square + self.deep(torch.cat([v.flatten(1), dense], 1)))


class NeuralFiltering(nn.Module):
    """He 2017."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(5000, width) for _ in range(4))
        self.deep, self.last = mlp(2 * width, 128, 64, 32), nn.Linear(width + 32, 1)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        a, b, c, d = (t(k) for t, k in zip(self.tables, (users, items, users, items), strict=True))
        return torch.sigmoid(self.last(torch.cat([a * b, self.deep(torch.cat([c, d], 1))], 1)))
