"""Ten small models of different kinds, compiled to artifacts, with inputs and what eager PyTorch
makes of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tilewright as tw
from tests.zoo.export import export
from tilewright.driver.compile import compile_file


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.second = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return F.adaptive_avg_pool2d(F.relu(x + self.second(x)), 1).flatten(1)


class Depthwise(nn.Sequential):
    def __init__(self) -> None:
        deep = nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8)
        super().__init__(nn.Conv2d(3, 8, 1), nn.Hardswish(), deep, nn.ReLU6(), nn.Conv2d(8, 4, 1))


class Upsampling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 6, 3, 2, 1), nn.ConvTranspose2d(6, 3, 4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        low = F.gelu(self.down(x))
        return torch.cat([self.up(low), F.interpolate(low, scale_factor=2.0)], 1)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.layer = kind(6, 5, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(20, 16), nn.LayerNorm(16)
        self.layer = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        return self.norm(x + self.layer(x, x, x, need_weights=False)[0])


class Best(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, indices = x.softmax(1).topk(3, dim=1)
        return values, indices


class Statistics(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x.mean(1), x.std(1), x.amax(1), x.cumsum(1)[:, -1]])


class Nonzero(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.nonzero(x > 0)


IMAGE, ROWS, SERIES = ("image", (2, 3, 12, 12)), ("rows", (4, 32)), ("series", (2, 7, 6))
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[str, tuple[int, ...]]]] = {
    "perceptron": (
        lambda: nn.Sequential(nn.Linear(32, 24), nn.Tanh(), nn.Linear(24, 10)),
        ROWS,
    ),
    "residual": (Residual, IMAGE),
    "depthwise": (Depthwise, IMAGE),
    "upsampling": (Upsampling, IMAGE),
    "lstm": (lambda: Recurrent(nn.LSTM), SERIES),
    "gru": (lambda: Recurrent(nn.GRU), SERIES),
    "attention": (Attention, ("tokens", (2, 9))),
    "best": (Best, ROWS),
    "statistics": (Statistics, ROWS),
    "nonzero": (Nonzero, ROWS),
}


def made(folder: Path, name: str) -> tuple[nn.Module, Tensor]:
    """The module and an input; writes `name`.npz: that input and what it must give."""
    build, (kind, shape) = MODELS[name]
    torch.manual_seed(len(name))
    module = build().eval()
    x = torch.randint(20, shape) if kind == "tokens" else torch.randn(shape)
    with torch.no_grad():
        expected = module(x)
    outputs = expected if isinstance(expected, tuple) else (expected,)
    arrays = {f"output{i}": np.asarray(y) for i, y in enumerate(outputs)}
    np.savez(folder / f"{name}.npz", input=x.numpy(), **arrays)
    return module, x


def write(folder: Path, name: str, **options: Any) -> None:
    """Write `name`.tw for this machine, and `name`.npz."""
    module, x = made(folder, name)
    tw.compile(module, example_inputs=(x,), **options).save(folder / f"{name}.tw")


def write_for(folder: Path, name: str, target: str) -> None:
    """Write `name`.tw for a target, and `name`.npz."""
    module, x = made(folder, name)
    path = folder / f"{name}.onnx"
    export(module, {"x": x.numpy()}, ["y"], 18, path)
    compile_file(path, folder / f"{name}.tw", target)


# Run in a process of its own: loads each artifact of the folder in sys.argv[1] and compares.
CHECK = """
import pathlib, sys
import numpy as np
import tilewright_runtime as tw

names = []
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.tw")):
    told = np.load(path.with_suffix(".npz"))
    exe = tw.load(path, int(sys.argv[2]))
    found = exe(told["input"])
    for i, output in enumerate(found):
        expected = told[f"output{i}"]
        assert output.shape == expected.shape and np.allclose(output, expected, 1e-4, 1e-5), path
    assert len(found) == len(told.files) - 1
    names.append(path.stem)
print(len(names), *names)
"""
