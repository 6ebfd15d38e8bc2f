"""ATen operators that move elements or make them, against eager PyTorch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.frontend.torch.agreement import agree, drawn
from tilewright.graph.evaluate import evaluate


def test_shapes() -> None:
    def f(x: Tensor) -> list[Tensor]:
        return [x.view(6, 20), x.reshape(-1, 5), x.flatten(1), x.flatten(), x.unsqueeze(1), x[:1].squeeze(0), x.squeeze(),
                x.unflatten(2, (2, 2)), x.permute(2, 0, 1, 3), x.transpose(1, -1), x.mT, x.movedim(0, 2),
                x.expand(2, 2, 3, 4, 5), x[:, :1].expand(-1, 3, -1, -1), x.repeat(1, 2, 1, 3), x[:1].repeat(3, 1, 1, 1),
                x.swapaxes(0, 1), x[0, 0].t()]  # fmt: skip

    agree(f, drawn(2, 3, 4, 5))


def test_slices() -> None:
    def f(x: Tensor) -> list[Tensor]:
        return [x[1:], x[:, -2:], x[..., ::2], x[1], x[:, -1], x[1:1], x[:, 1:100], x.narrow(1, 1, 2), x.select(2, -2),
                *x.split(2, 1), *x.split([1, 3, 1], 2), *x.chunk(3, 1), *x.unbind(0), x.flip(0, 2), x.roll(2, 1), x[::3, None],
                *x.tensor_split(3, 2)]  # fmt: skip

    agree(f, drawn(3, 4, 5))


def test_joins() -> None:
    def f(x: Tensor, y: Tensor) -> list[Tensor]:
        return [torch.cat([x, y, x], 1), torch.stack([x, x * 2], -1), torch.stack([x, x], 0), torch.hstack([x, y]),
                torch.cat([x[:, :0], y], 1), torch.cat([x.long(), y], 1)]  # fmt: skip

    agree(f, drawn(3, 4), drawn(3, 2))


def test_replaced_parts() -> None:
    def f(x: Tensor, y: Tensor) -> list[Tensor]:
        z = x.clone()
        z[:, 1] = 7.0
        z[1, 2:4] = y[1, :2]
        return [z, torch.slice_scatter(x, y, 1, 1, 3), torch.slice_scatter(x, y, 1, 0, 4, 2),
                torch.select_scatter(x, x[0], 0, -1)]  # fmt: skip

    agree(f, drawn(3, 5), drawn(3, 2, seed=1))


def test_diagonals_and_triangles() -> None:
    def f(x: Tensor) -> list[Tensor]:
        return [x.diagonal(0, 1, 2), x.diagonal(1, -1, 0), x.diagonal(-2, 1, 2), x.tril(), x.triu(1), x.tril(-1),
                torch.diag(x[0, 0]), torch.diag_embed(x[0])]  # fmt: skip

    agree(f, drawn(3, 4, 5))


def test_windows_and_strides() -> None:
    agree(
        lambda x: (
            x.unfold(1, 3, 2),
            torch.as_strided(x, (2, 3), (4, 2), 1),
            F.unfold(x[None, None], 2),
        ),
        drawn(3, 8),
    )


def test_pads_to_a_multiple() -> None:
    """Windows that share out an image of any size: how much is added follows from the size."""

    def f(x: Tensor) -> Tensor:
        return F.pad(x, (0, -x.shape[2] % 4, 0, -x.shape[1] % 4))

    sizes = torch.export.Dim.AUTO
    graph = agree(f, drawn(2, 5, 7), dynamic={"inputs": ({1: sizes, 2: sizes},)})
    for shape in ((2, 6, 9), (2, 8, 4), (2, 11, 13)):
        x = drawn(*shape, seed=shape[1])
        np.testing.assert_array_equal(evaluate(graph, [x.numpy()])[0], f(x).numpy())


def test_pads() -> None:
    def f(x: Tensor) -> list[Tensor]:
        return [F.pad(x, (1, 2)), F.pad(x, (1, 2, 0, 1), value=3.0), F.pad(x, (-1, 2)), F.pad(x, (-1, -1, -1, 0)),
                F.pad(x, (2, 1, 0, 0), mode="reflect"), F.pad(x, (2, 1, 1, 0), mode="replicate"),
                F.pad(x, (2, 1, 1, 1), mode="circular"), F.pad(x, (0, 0))]  # fmt: skip

    agree(f, drawn(2, 3, 4, 5))


def test_generated() -> None:
    def f(x: Tensor) -> list[Tensor]:
        return [torch.zeros(3), torch.ones(2, 3), torch.full((2,), 7), torch.full_like(x, 0.5), torch.zeros_like(x),
                x.new_ones(4), torch.arange(5), torch.arange(1, 9, 3), torch.arange(0, 1, 0.25), torch.linspace(0, 1, 5),
                torch.linspace(-4.3, 3, 8, dtype=torch.int64), torch.linspace(x[0, 0] * 9, 4, 8, dtype=torch.int64),
                torch.arange(2.1, -2.9, -1.0, dtype=torch.int64),
                torch.eye(3), torch.tensor([1, 2, 3]), torch.tensor(2.5), x.new_full((2,), True, dtype=torch.bool),
                torch.arange(5, dtype=torch.float32), torch.zeros_like(x, dtype=torch.int64)]  # fmt: skip

    agree(f, drawn(2, 3))
