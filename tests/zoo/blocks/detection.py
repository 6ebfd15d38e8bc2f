"""Detectors."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.zoo.blocks.layers import basic, conv


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
