"""Nets that make images."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.zoo.blocks.layers import Residual


class Edsr(nn.Module):
    """Lim 2017."""

    def __init__(self, width: int = 64, blocks: int = 8) -> None:
        super().__init__()

        def c(i: int, o: int) -> nn.Conv2d:
            return nn.Conv2d(i, o, 3, 1, 1)

        self.first, self.last = c(3, width), nn.Sequential(c(width, 12), nn.PixelShuffle(2))
        self.blocks = nn.ModuleList(
            nn.Sequential(c(width, width), nn.ReLU(), c(width, width)) for _ in range(blocks)
        )

    def forward(self, x: Tensor) -> Tensor:
        first = y = self.first(x)
        for block in self.blocks:
            y = y + 0.1 * block(y)
        return self.last(first + y)


class Espcn(nn.Sequential):
    """Shi 2016."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 64, 5, 1, 2), nn.Tanh(), nn.Conv2d(64, 32, 3, 1, 1), nn.Tanh(),
            nn.Conv2d(32, 9, 3, 1, 1), nn.PixelShuffle(3),
        )  # fmt: skip


class StyleTransfer(nn.Sequential):
    """Reflected padding, instance norms, upsampling. Johnson 2016."""

    def __init__(self) -> None:
        def c(i: int, o: int, k: int, s: int = 1) -> list[nn.Module]:
            return [
                nn.ReflectionPad2d(k // 2),
                nn.Conv2d(i, o, k, s),
                nn.InstanceNorm2d(o, affine=True),
            ]

        def block() -> nn.Module:
            return Residual(nn.Sequential(*c(128, 128, 3), nn.ReLU(), *c(128, 128, 3)))

        def up(i: int, o: int) -> list[nn.Module]:
            return [nn.Upsample(scale_factor=2), *c(i, o, 3), nn.ReLU()]

        super().__init__(
            *c(3, 32, 9), nn.ReLU(), *c(32, 64, 3, 2), nn.ReLU(), *c(64, 128, 3, 2), nn.ReLU(),
            *(block() for _ in range(3)), *up(128, 64), *up(64, 32),
            nn.ReflectionPad2d(4), nn.Conv2d(32, 3, 9),
        )  # fmt: skip


def waves(time: Tensor, width: int) -> Tensor:
    """Sines and cosines of a time: [n, width]."""
    rates = torch.exp(torch.arange(width // 2) * (-math.log(10000) / (width // 2)))
    angles = time[:, None] * rates
    return torch.cat([angles.cos(), angles.sin()], 1)


class TimeBlock(nn.Module):
    def __init__(self, i: int, o: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(16, i), nn.Conv2d(i, o, 3, 1, 1)
        self.norm2, self.conv2 = nn.GroupNorm(16, o), nn.Conv2d(o, o, 3, 1, 1)
        self.time = nn.Linear(256, o)
        self.way = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(t))[:, :, None, None]
        return self.conv2(F.silu(self.norm2(y))) + self.way(x)


class PixelAttention(nn.Module):
    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.norm, self.heads = nn.GroupNorm(16, width), heads
        self.qkv, self.out = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        split = self.qkv(self.norm(x)).reshape(n, 3, self.heads, c // self.heads, h * w)
        q, k, v = split.transpose(3, 4).unbind(1)
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(2, 3).reshape(n, c, h, w))


class DiffusionUNet(nn.Module):
    """Ho 2020, on latent images of 4 channels."""

    def __init__(self, w: int = 64) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(w, 256), nn.SiLU(), nn.Linear(256, 256))
        self.width, self.first = w, nn.Conv2d(4, w, 3, 1, 1)
        self.d1, self.d2, self.d3 = TimeBlock(w, w), TimeBlock(w, 2 * w), TimeBlock(2 * w, 4 * w)
        self.down1, self.down2 = nn.Conv2d(w, w, 3, 2, 1), nn.Conv2d(2 * w, 2 * w, 3, 2, 1)
        self.a2, self.a3, self.a4 = (PixelAttention(k * w) for k in (2, 4, 2))
        self.mid = TimeBlock(4 * w, 4 * w)
        self.u3, self.u2, self.u1 = (
            TimeBlock(8 * w, 2 * w),
            TimeBlock(4 * w, w),
            TimeBlock(2 * w, w),
        )
        self.up3, self.up2 = nn.Conv2d(2 * w, 2 * w, 3, 1, 1), nn.Conv2d(w, w, 3, 1, 1)
        self.last = nn.Sequential(nn.GroupNorm(16, w), nn.SiLU(), nn.Conv2d(w, 4, 3, 1, 1))

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        t = self.embed(waves(time, self.width))
        a = self.d1(self.first(x), t)
        b = self.a2(self.d2(self.down1(a), t))
        c = self.a3(self.d3(self.down2(b), t))
        y = self.u3(torch.cat([self.mid(c, t), c], 1), t)
        y = self.up3(F.interpolate(y, scale_factor=2))
        y = self.u2(torch.cat([self.a4(y), b], 1), t)
        y = self.up2(F.interpolate(y, scale_factor=2))
        return self.last(self.u1(torch.cat([y, a], 1), t))


class VaeDecoder(nn.Module):
    """Latent images to images eight times as large. Rombach 2022, narrow."""

    def __init__(self, widths: Sequence[int] = (128, 64, 32, 32)) -> None:
        super().__init__()
        self.first, self.attend = nn.Conv2d(4, widths[0], 3, 1, 1), PixelAttention(widths[0], 1)
        layers: list[nn.Module] = []
        for i, o in zip(widths, (*widths[1:], widths[-1]), strict=True):
            body = nn.Sequential(nn.GroupNorm(16, i), nn.SiLU(), nn.Conv2d(i, i, 3, 1, 1))
            layers += [Residual(body), nn.Conv2d(i, o, 3, 1, 1), nn.Upsample(scale_factor=2)]
        self.rest = nn.Sequential(
            *layers[:-1], nn.GroupNorm(16, widths[-1]), nn.SiLU(), nn.Conv2d(widths[-1], 3, 3, 1, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(self.attend(self.first(x)))


class DiT(nn.Module):
    """A transformer whose norms the time steers. Peebles 2022."""

    def __init__(self, width: int = 384, depth: int = 6, heads: int = 6) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        self.patch, self.place = nn.Conv2d(4, width, 2, 2), nn.Parameter(torch.randn(256, width))
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.steer = nn.ModuleList(nn.Linear(width, 6 * width) for _ in range(depth))
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(depth))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.mlp = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))
            for _ in range(depth)
        )
        self.last = nn.Linear(width, 16)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.patch(x).flatten(2).transpose(1, 2) + self.place
        t = F.silu(self.time(waves(time, self.width)))
        n, many, width = y.shape

        def norm(y: Tensor, shift: Tensor, by: Tensor) -> Tensor:
            return F.layer_norm(y, (width,)) * (1 + by[:, None]) + shift[:, None]

        for steer, qkv, out, mlp in zip(self.steer, self.qkv, self.out, self.mlp, strict=True):
            a, b, c, d, e, f = steer(t).chunk(6, 1)
            split = qkv(norm(y, a, b)).reshape(n, many, 3, self.heads, width // self.heads)
            q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
            z = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, many, width)
            y = y + c[:, None] * out(z)
            y = y + f[:, None] * mlp(norm(y, d, e))
        return self.last(F.layer_norm(y, (width,)))
