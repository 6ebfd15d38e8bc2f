"""Language and state spaces."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class GruLexer(nn.Module):
    """Characters through GRUs both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(256, 64)
        self.rnn = nn.GRU(64, 96, 2, batch_first=True, bidirectional=True)
        self.last = nn.Linear(192, 20)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.last(self.rnn(self.table(tokens))[0])


class DiagonalStates(nn.Module):
    """Layers of real diagonal state spaces, as long convolutions. After Gu 2022."""

    def __init__(self, width: int = 128, states: int = 16, layers: int = 4) -> None:
        super().__init__()
        self.decay = nn.ParameterList(torch.rand(width, states) * 0.1 + 0.01 for _ in range(layers))
        self.mix = nn.ParameterList(torch.randn(width, states) / 4 for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(layers))
        self.norm = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        length, width = x.shape[1], x.shape[2]
        back = torch.arange(length - 1, -1, -1.0)
        for decay, mix, out, norm in zip(self.decay, self.mix, self.out, self.norm, strict=True):
            kernel = (mix[:, :, None] * torch.exp(-decay[:, :, None] * back)).sum(1)
            y = F.pad(norm(x).transpose(1, 2), (length - 1, 0))
            y = F.conv1d(y, kernel[:, None], groups=width)
            x = x + F.glu(out(F.gelu(y.transpose(1, 2))), -1)
        return x
