"""Architectures of `others.py` that no installed library has, as small modules.

Each follows its paper's structure at a size that runs in milliseconds to a second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
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


# three axes ---------------------------------------------------------------------------------------


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


# dilated, segmentation ----------------------------------------------------------------------------


def basic(i: int, o: int, s: int = 1, d: int = 1) -> nn.Module:
    """ResNet's block of two 3×3."""
    body = nn.Sequential(conv(i, o, 3, s, d), conv(o, o, 3, 1, d, act=nn.Identity))
    return Residual(body, None if i == o and s == 1 else conv(i, o, 1, s, act=nn.Identity))


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


# detection ----------------------------------------------------------------------------------------


class YoloTiny(nn.Module):
    """Redmon 2018, the tiny one."""

    def __init__(self) -> None:
        super().__init__()

        def leaky() -> nn.Module:
            return nn.LeakyReLU(0.1)

        layers: list[nn.Module] = []
        for i, o in zip((3, 16, 32, 64, 128), (16, 32, 64, 128, 256), strict=True):
            layers += [conv(i, o, act=leaky), nn.MaxPool2d(2)]
        self.near = nn.Sequential(*layers[:-1])
        self.far = nn.Sequential(
            nn.MaxPool2d(2), conv(256, 512, act=leaky), nn.ZeroPad2d((0, 1, 0, 1)),
            nn.MaxPool2d(2, 1), conv(512, 1024, act=leaky), conv(1024, 256, 1, act=leaky),
        )  # fmt: skip
        self.large = nn.Sequential(conv(256, 512, act=leaky), nn.Conv2d(512, 255, 1))
        self.up = conv(256, 128, 1, act=leaky)
        self.small = nn.Sequential(conv(384, 256, act=leaky), nn.Conv2d(256, 255, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        near = self.near(x)
        far = self.far(near)
        up = F.interpolate(self.up(far), scale_factor=2)
        return self.large(far), self.small(torch.cat([up, near], 1))


class Cross(nn.Module):
    """Half of the channels go on, the other half through blocks, all of them are joined."""

    def __init__(self, i: int, o: int, blocks: int, adds: bool) -> None:
        super().__init__()
        self.half, self.adds = o // 2, adds
        self.first = conv(i, o, 1, act=nn.SiLU)
        self.blocks = nn.ModuleList(
            nn.Sequential(conv(o // 2, o // 2, act=nn.SiLU), conv(o // 2, o // 2, act=nn.SiLU))
            for _ in range(blocks)
        )
        self.last = conv((2 + blocks) * (o // 2), o, 1, act=nn.SiLU)

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.first(x).split(self.half, 1))
        for block in self.blocks:
            y = block(parts[-1])
            parts.append(parts[-1] + y if self.adds else y)
        return self.last(torch.cat(parts, 1))


class Yolo8(nn.Module):
    """Cross-stage blocks, spatial pyramid pooling, two-way pyramid, boxes as distributions."""

    def __init__(self, w: int = 16, classes: int = 80) -> None:
        super().__init__()

        def c(i: int, o: int, k: int = 3, s: int = 1) -> nn.Module:
            return conv(i, o, k, s, act=nn.SiLU)

        self.a = nn.Sequential(c(3, w, 3, 2), c(w, 2 * w, 3, 2), Cross(2 * w, 2 * w, 1, True),
                               c(2 * w, 4 * w, 3, 2), Cross(4 * w, 4 * w, 2, True))  # fmt: skip
        self.b = nn.Sequential(c(4 * w, 8 * w, 3, 2), Cross(8 * w, 8 * w, 2, True))
        self.c = nn.Sequential(c(8 * w, 16 * w, 3, 2), Cross(16 * w, 16 * w, 1, True))
        self.squeeze, self.mix = c(16 * w, 8 * w, 1), c(32 * w, 16 * w, 1)
        self.up1, self.up2 = Cross(24 * w, 8 * w, 1, False), Cross(12 * w, 4 * w, 1, False)
        self.down1, self.down2 = c(4 * w, 4 * w, 3, 2), c(8 * w, 8 * w, 3, 2)
        self.join1, self.join2 = Cross(12 * w, 8 * w, 1, False), Cross(24 * w, 16 * w, 1, False)
        levels = (4 * w, 8 * w, 16 * w)
        self.boxes = nn.ModuleList(
            nn.Sequential(c(i, 64), c(64, 64), nn.Conv2d(64, 64, 1)) for i in levels
        )
        self.kinds = nn.ModuleList(
            nn.Sequential(c(i, classes), c(classes, classes), nn.Conv2d(classes, classes, 1))
            for i in levels
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a = self.a(x)
        b = self.b(a)
        c = self.squeeze(self.c(b))
        pools = [c]
        for _ in range(3):
            pools.append(F.max_pool2d(pools[-1], 5, 1, 2))
        c = self.mix(torch.cat(pools, 1))
        up = self.up1(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        small = self.up2(torch.cat([F.interpolate(up, scale_factor=2), a], 1))
        middle = self.join1(torch.cat([self.down1(small), up], 1))
        large = self.join2(torch.cat([self.down2(middle), c], 1))
        boxes, kinds = [], []
        for y, box, kind in zip((small, middle, large), self.boxes, self.kinds, strict=True):
            boxes.append(box(y).flatten(2))
            kinds.append(kind(y).flatten(2))
        spread = torch.cat(boxes, 2).unflatten(1, (4, 16)).softmax(2)
        sides = (spread * torch.arange(16.0).view(1, 1, 16, 1)).sum(2)
        return sides, torch.cat(kinds, 2).sigmoid()


class RetinaNet(nn.Module):
    """ResNet-18, a feature pyramid, two heads shared by its levels. Lin 2017."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1), basic(64, 64))
        self.stages = nn.ModuleList(
            nn.Sequential(basic(i, 2 * i, 2), basic(2 * i, 2 * i)) for i in (64, 128, 256)
        )
        self.side = nn.ModuleList(nn.Conv2d(i, 128, 1) for i in (128, 256, 512))
        self.smooth = nn.ModuleList(nn.Conv2d(128, 128, 3, 1, 1) for _ in range(3))

        def head(o: int) -> nn.Module:
            layers = [m for _ in range(2) for m in (nn.Conv2d(128, 128, 3, 1, 1), nn.ReLU())]
            return nn.Sequential(*layers, nn.Conv2d(128, o, 3, 1, 1))

        self.kinds, self.boxes = head(9 * 20), head(9 * 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x, levels = self.stem(x), []
        for stage, side in zip(self.stages, self.side, strict=True):
            x = stage(x)
            levels.append(side(x))
        for k in (1, 0):
            levels[k] = levels[k] + F.interpolate(levels[k + 1], scale_factor=2)
        levels = [smooth(y) for smooth, y in zip(self.smooth, levels, strict=True)]
        kinds, boxes = [
            torch.cat([head(y).flatten(2) for y in levels], 2) for head in (self.kinds, self.boxes)
        ]
        return kinds.sigmoid(), boxes


# images made --------------------------------------------------------------------------------------


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


# sound --------------------------------------------------------------------------------------------


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
            for block in blocks:  # type: ignore[union-attr]
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


# recommender --------------------------------------------------------------------------------------


def mlp(*widths: int) -> nn.Sequential:
    ends = pairwise(widths)
    layers = [m for i, o in ends for m in (nn.Linear(i, o), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


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


# graphs -------------------------------------------------------------------------------------------


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


# language and state spaces ------------------------------------------------------------------------


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
