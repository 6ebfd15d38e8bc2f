"""Nets of sound."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.zoo.blocks.layers import conv


class HifiGan(nn.Module):
    """Kong 2020, the second version's structure."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.first = nn.Conv1d(80, width, 7, 1, 3)
        self.ups, self.blocks = nn.ModuleList(), nn.ModuleList()
        for rate, kernel in ((8, 16), (8, 16), (2, 4), (2, 4)):
            self.ups.append(
                nn.ConvTranspose1d(width, width // 2, kernel, rate, (kernel - rate) // 2)
            )
            width //= 2
            self.blocks.append(nn.ModuleList(
                nn.ModuleList(nn.Conv1d(width, width, k, 1, d * (k // 2), d) for d in (1, 3, 5))
                for k in (3, 7, 11)
            ))  # fmt: skip
        self.last = nn.Conv1d(width, 1, 7, 1, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for up, blocks in zip(self.ups, self.blocks, strict=True):
            x = up(F.leaky_relu(x, 0.1))
            total: Tensor | float = 0.0
            assert isinstance(blocks, nn.ModuleList)
            for block in blocks:
                y = x
                for layer in block:
                    y = y + layer(F.leaky_relu(y, 0.1))
                total = total + y
            x = total / 3
        return torch.tanh(self.last(F.leaky_relu(x)))


class WaveNet(nn.Module):
    """Gated dilated convolutions. van den Oord 2016."""

    def __init__(self, width: int = 64, layers: int = 16) -> None:
        super().__init__()
        self.first, self.distance = nn.Conv1d(1, width, 1), [2 ** (k % 8) for k in range(layers)]
        self.gates = nn.ModuleList(
            nn.Conv1d(width, 2 * width, 2, dilation=d) for d in self.distance
        )
        self.outs = nn.ModuleList(nn.Conv1d(width, 2 * width, 1) for _ in range(layers))
        self.last = nn.Sequential(
            nn.ReLU(), nn.Conv1d(width, 256, 1), nn.ReLU(), nn.Conv1d(256, 256, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        x, kept = self.first(x), None
        for gate, out, d in zip(self.gates, self.outs, self.distance, strict=True):
            a, b = gate(F.pad(x, (d, 0))).chunk(2, 1)
            y, skip = out(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
            x, kept = x + y, skip if kept is None else kept + skip
        return self.last(kept)


class ConvTasNet(nn.Module):
    """Luo 2019: two speakers, by masks over a learned transform."""

    def __init__(self, width: int = 128, hidden: int = 256) -> None:
        super().__init__()
        self.encode, self.norm = nn.Conv1d(1, 256, 16, 8), nn.GroupNorm(1, 256)
        self.squeeze = nn.Conv1d(256, width, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(width, hidden, 1), nn.PReLU(), nn.GroupNorm(1, hidden),
                nn.Conv1d(hidden, hidden, 3, 1, d, d, hidden), nn.PReLU(), nn.GroupNorm(1, hidden),
                nn.Conv1d(hidden, width, 1),
            )
            for d in (1, 2, 4, 8, 16, 32, 64) * 2
        )  # fmt: skip
        self.masks, self.decode = nn.Conv1d(width, 512, 1), nn.ConvTranspose1d(256, 1, 16, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.encode(x))
        y = self.squeeze(self.norm(x))
        for block in self.blocks:
            y = y + block(y)
        parts = torch.sigmoid(self.masks(y)).unflatten(1, (2, 256)) * x[:, None]
        return self.decode(parts.flatten(0, 1))


class Crnn(nn.Module):
    """Convolutions, then GRUs both ways along time. Shi 2015."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i, o in zip((1, 32, 64), (32, 64, 128), strict=True):
            layers += [conv(i, o), nn.MaxPool2d((4, 2))]
        self.body = nn.Sequential(*layers)
        self.rnn = nn.GRU(128, 128, 2, batch_first=True, bidirectional=True)
        self.last = nn.Linear(256, 40)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x).mean(2).transpose(1, 2)
        return self.last(self.rnn(y)[0])


class WhisperEncoder(nn.Module):
    """The encoder of Whisper's least model."""

    def __init__(self) -> None:
        super().__init__()
        import transformers

        config = transformers.WhisperConfig(
            d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536
        )
        self.encoder = transformers.WhisperModel(config).encoder

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(x, return_dict=False)[0]
