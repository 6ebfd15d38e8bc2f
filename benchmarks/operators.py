"""Single operators beside eager PyTorch, one thread: `python -m benchmarks.operators [NAME …]`.

Models spend their time in few kernels, which `--kernels` watches; this finds the others, those that
a new model brings. Weights are constants, inputs random, both run in turns in one process, outputs
are compared. A ratio over 1 is a gap to look at.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import nn
from torch.nn import functional as F

import tilewright as tw
from benchmarks import pages

ROUNDS = 15
SLOWER = 1.3  # of PyTorch's time: marked in the table


@dataclass
class Case:
    """f(*inputs): the first `given` of them are the run's, the others constants."""

    f: Callable[..., Any]
    inputs: Callable[[], tuple[torch.Tensor, ...]]
    given: int = 0  # 0: all


def r(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def i(*shape: int, below: int = 100) -> torch.Tensor:
    return torch.randint(0, below, shape)


def unary(f: Callable[..., Any], *shape: int) -> Case:
    return Case(f, lambda: (r(*(shape or (128, 3072))),))


def conv(x: tuple[int, ...], w: tuple[int, ...], **how: Any) -> Case:
    f = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[len(x)]
    return Case(lambda a, b: f(a, b, **how), lambda: (r(*x), r(*w)), 1)


def permuted(rows: int, columns: int) -> torch.Tensor:
    return torch.stack([torch.randperm(columns)[:100] for _ in range(rows)])


CASES: dict[str, Case] = {
    # element by element
    "gelu": unary(F.gelu),
    "silu": unary(F.silu),
    "softplus": unary(F.softplus),
    "tanh": unary(torch.tanh),
    "sin": unary(torch.sin),
    "power": unary(lambda x: x.abs() ** 1.7),
    "remainder of floats": Case(torch.fmod, lambda: (r(128, 3072), r(128, 3072))),
    "quotient of integers": Case(lambda x, y: x // y, lambda: (i(128, 3072), i(128, 3072) + 1)),
    "bytes of an image": Case(
        lambda x: ((x.float() / 255 - 0.5) / 0.2).permute(2, 0, 1),
        lambda: (i(224, 224, 3, below=255).to(torch.uint8),),
    ),
    "row added": Case(torch.add, lambda: (r(128, 3072), r(3072))),
    "masked fill": Case(
        lambda x, m: x.masked_fill(m, -1e9), lambda: (r(8, 12, 128, 128), r(8, 1, 1, 128) > 0)
    ),
    # moves
    "transpose": unary(lambda x: x.t().contiguous(), 512, 768),
    "channels last": unary(lambda x: x.permute(0, 2, 3, 1).contiguous(), 1, 96, 56, 56),
    "concat": Case(lambda x, y: torch.cat([x, y], 1), lambda: (r(128, 768), r(128, 100))),
    "reflected pad": unary(lambda x: F.pad(x, (3, 3, 3, 3), mode="reflect"), 1, 64, 56, 56),
    "roll": unary(lambda x: torch.roll(x, (3, 3), (1, 2)), 1, 56, 56, 96),
    "pixel shuffle": unary(lambda x: F.pixel_shuffle(x, 2), 1, 64, 56, 56),
    "windows as columns": unary(lambda x: F.unfold(x, 3, padding=1), 1, 32, 56, 56),
    "resize, bilinear": unary(
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), 1, 64, 28, 28
    ),
    "grid sample": Case(
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        lambda: (r(1, 16, 56, 56), r(1, 56, 56, 2).tanh()),
    ),
    "embedding": Case(F.embedding, lambda: (i(8, 128, below=30000), r(30000, 384))),
    "gather": Case(lambda x, j: x.gather(1, j), lambda: (r(128, 768), i(128, 768, below=768))),
    "scatter": Case(
        lambda x, j, y: x.scatter(1, j, y), lambda: (r(128, 768), permuted(128, 768), r(128, 100))
    ),
    "rows added by index": Case(
        lambda x, j, y: x.index_add(0, j, y),
        lambda: (r(100, 768), i(500, below=100), r(500, 768)),
    ),
    # order
    "sort": unary(lambda x: x.sort(-1).values, 64, 1000),
    "the first 5": unary(lambda x: x.topk(5), 64, 1000),
    "the first 50 of a vocabulary": unary(lambda x: x.topk(50), 1, 50257),
    "running sum": unary(lambda x: x.cumsum(-1), 64, 1000),
    # reductions and norms
    "sum of all": unary(torch.sum, 8, 257, 251),
    "sum of rows": unary(lambda x: x.sum(1), 8, 256, 256),
    "sum of a part": unary(lambda x: x[:, :, 3:-2].sum(), 8, 256, 256),
    "sum of a pad": unary(lambda x: F.pad(x, (1, 1)).sum(-1), 8, 256, 256),
    "sum of a transpose": unary(lambda x: x.transpose(1, 2).sum(-1), 8, 256, 256),
    "position of the greatest": unary(lambda x: x.argmax(-1), 8, 256, 256),
    "softmax": unary(lambda x: x.softmax(-1), 8, 12, 128, 128),
    "softmax over channels": unary(lambda x: x.softmax(1), 8, 256, 256),
    "log softmax": unary(lambda x: x.log_softmax(-1), 64, 5003),
    "layer norm": Case(
        lambda x, w, b: F.layer_norm(x, (768,), w, b), lambda: (r(8, 128, 768), r(768), r(768)), 1
    ),
    "layer norm over channels": unary(
        lambda x: F.layer_norm(x.permute(0, 2, 3, 1), (96,)).permute(0, 3, 1, 2), 1, 96, 56, 56
    ),
    "group norm": Case(
        lambda x, w, b: F.group_norm(x, 32, w, b), lambda: (r(1, 320, 32, 32), r(320), r(320)), 1
    ),
    "instance norm": unary(F.instance_norm, 1, 64, 56, 56),
    "distances": Case(torch.cdist, lambda: (r(256, 64), r(256, 64))),
    # pools
    "max pool 3 × 3 / 2": unary(lambda x: F.max_pool2d(x, 3, 2, 1), 1, 64, 112, 112),
    "mean pool 3 × 3 / 2": unary(lambda x: F.avg_pool2d(x, 3, 2, 1), 1, 64, 112, 112),
    "max pool 3 / 2": unary(lambda x: F.max_pool1d(x, 3, 2), 1, 64, 4000),
    "mean of an image": unary(lambda x: F.adaptive_avg_pool2d(x, 1), 1, 512, 7, 7),
    # convolutions
    "conv 3 × 3": conv((1, 64, 56, 56), (64, 64, 3, 3), padding=1),
    "conv 3 × 3 / 2": conv((1, 128, 56, 56), (128, 128, 3, 3), padding=1, stride=2),
    "conv 1 × 1": conv((1, 64, 56, 56), (256, 64, 1, 1)),
    "conv 7 × 7 / 2 of colours": conv((1, 3, 224, 224), (64, 3, 7, 7), padding=3, stride=2),
    "patches": conv((1, 3, 224, 224), (192, 3, 16, 16), stride=16),
    "conv, dilated": conv((1, 64, 56, 56), (64, 64, 3, 3), padding=2, dilation=2),
    "depthwise 3 × 3": conv((1, 192, 56, 56), (192, 1, 3, 3), padding=1, groups=192),
    "depthwise 7 × 7": conv((1, 96, 56, 56), (96, 1, 7, 7), padding=3, groups=96),
    "32 groups": conv((1, 128, 56, 56), (128, 4, 3, 3), padding=1, groups=32),
    "conv 1-D": conv((1, 80, 3000), (384, 80, 3), padding=1),
    "conv 1-D / 2": conv((1, 384, 3000), (384, 384, 3), padding=1, stride=2),
    "conv of a waveform": conv((1, 1, 16000), (512, 1, 10), stride=5),
    "conv 3-D": conv((1, 16, 16, 28, 28), (32, 16, 3, 3, 3), padding=1),
    "transposed conv": Case(
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1),
        lambda: (r(1, 128, 28, 28), r(128, 64, 4, 4)),
        1,
    ),
    "transposed conv 1-D": Case(
        lambda x, w: F.conv_transpose1d(x, w, stride=8, padding=4),
        lambda: (r(1, 128, 200), r(128, 64, 16)),
        1,
    ),
    # products
    "linear": Case(F.linear, lambda: (r(128, 768), r(3072, 768)), 1),
    "linear of one row": Case(F.linear, lambda: (r(1, 768), r(3072, 768)), 1),
    "linear, odd": Case(F.linear, lambda: (r(197, 65), r(131, 65)), 1),
    "matrix by vector": Case(torch.mv, lambda: (r(1000, 768), r(768))),
    "dot product": Case(torch.dot, lambda: (r(100000), r(100000))),
    "batch of products": Case(torch.bmm, lambda: (r(96, 128, 64), r(96, 64, 128))),
    "many small products": Case(torch.bmm, lambda: (r(1024, 8, 8), r(1024, 8, 8))),
    "attention": Case(
        F.scaled_dot_product_attention,
        lambda: (r(1, 12, 128, 64), r(1, 12, 128, 64), r(1, 12, 128, 64)),
    ),
    "attention, one query": Case(
        F.scaled_dot_product_attention,
        lambda: (r(1, 12, 1, 64), r(1, 12, 512, 64), r(1, 12, 512, 64)),
    ),
    "inverse": Case(torch.linalg.inv, lambda: (r(16, 32, 32) + 8 * torch.eye(32),)),
    "Fourier transform": unary(lambda x: torch.view_as_real(torch.fft.rfft(x)), 16, 1024),
}


class Call(nn.Module):
    """A case as a module of the inputs that the run gives."""

    def __init__(self, f: Callable[..., Any], constants: tuple[torch.Tensor, ...]) -> None:
        super().__init__()
        self.f, self.constants = (
            f,
            nn.ParameterList(nn.Parameter(c, requires_grad=False) for c in constants),
        )

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.f(*inputs, *self.constants)


def first(result: Any) -> torch.Tensor:
    return result if isinstance(result, torch.Tensor) else result[0]


def measure(case: Case) -> tuple[float, float, float]:
    """Our seconds, PyTorch's (minima), and the largest difference over the largest value."""
    torch.manual_seed(0)
    inputs = case.inputs()
    given, constants = inputs[: case.given or None], inputs[case.given :] if case.given else ()
    module = Call(case.f, constants).eval()
    exe = tw.compile(module, example_inputs=given, threads=1)
    got, wanted = (first(f(*given)).double().numpy() for f in (exe, module))
    error = float(np.abs(got - wanted).max(initial=0) / max(1e-9, np.abs(wanted).max(initial=0)))
    times: tuple[list[float], list[float]] = [], []
    for _ in range(ROUNDS):
        for f, seen in zip((exe, module), times, strict=True):
            start = time.perf_counter()
            f(*given)
            seen.append(time.perf_counter() - start)
    return min(times[0]), min(times[1]), error


def main(
    names: Annotated[list[str] | None, typer.Argument(help="default: all")] = None,
    output: Annotated[Path | None, typer.Option(help="markdown file")] = None,
) -> None:
    """Measure operators beside eager PyTorch and print the table."""
    for name in names or []:
        if name not in CASES:
            raise typer.BadParameter(f"no operator '{name}'; there are {', '.join(CASES)}")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    lines = ["| operator | tilewright, us | PyTorch, us | ratio | error |", "|---|---|---|---|---|"]
    ratios = []
    print("\n".join(lines))
    for name in names or CASES:
        with torch.no_grad():
            ours, theirs, error = measure(CASES[name])
        ratios.append(ours / theirs)
        mark = " ◀" if ratios[-1] > SLOWER else ""
        times = f"{ours * 1e6:,.0f} | {theirs * 1e6:,.0f} | {ratios[-1]:.2f}{mark}"
        lines.append(f"| {name} | {times} | {error:.0e} |")
        print(lines[-1], flush=True)
    mean = float(np.exp(np.mean(np.log(ratios))))
    print(f"geometric mean of the ratios: {mean:.2f}")
    if output:
        head = [
            "# Operators beside PyTorch",
            "",
            "Written by `python -m benchmarks.operators --output FILE`: one thread, f32, minima of"
            f" {ROUNDS} calls in turns, calls and all. ◀: more than {SLOWER} times PyTorch's time.",
            f"Geometric mean of the ratios: {mean:.2f} (torch {torch.__version__}).",
            "",
        ]
        pages.write(output, "\n".join([*head, *lines, ""]))


if __name__ == "__main__":
    typer.run(main)
