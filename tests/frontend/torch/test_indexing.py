"""ATen operators whose positions depend on data, against eager PyTorch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.frontend.torch.agreement import agree, drawn


def within(size: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randint(-size, size, shape, generator=torch.Generator().manual_seed(seed))


def test_gathers() -> None:
    i = within(3, 2, 3) % 3

    def f(x: Tensor, i: Tensor) -> list[Tensor]:
        return [F.embedding(i, x), x.index_select(0, i[0]), x[:2, :3].gather(0, i % 2), torch.take_along_dim(x, i[:, :1], 0),
                torch.take(x, i), x[i], x[:, i], x[i, i], F.one_hot(i, 6)]  # fmt: skip

    agree(f, drawn(4, 5), i)


def test_indices_apart_come_to_the_front() -> None:
    i, j = within(3, 2, 4), within(4, 4, seed=1)
    agree(
        lambda x, i, j: (x[i, :, j], x[:, i % 3, j], x[i, None, j], x[..., j], x[i][:, :, 1]),
        drawn(3, 4, 5),
        i,
        j,
    )


def test_known_masks() -> None:
    mask = torch.tensor([True, False, True])
    agree(lambda x, y: x.index_put((mask,), y), drawn(3, 4), drawn(2, 4, seed=1))


def test_written_positions() -> None:
    i = within(4, 3)

    def f(x: Tensor, y: Tensor, i: Tensor) -> list[Tensor]:
        a, b, c, d = (x.clone() for _ in range(4))
        a[torch.tensor([2, 0, 1])] = y[:3]
        b[:, torch.tensor([3, 1])] = 5.0
        c[c > 0] = -1.0
        d.index_put_((i,), y[:3], accumulate=True)
        return [a, b, c, d, x.index_add(0, i % 4, y[:3]), x.index_copy(0, torch.tensor([1, 3]), y[:2]),
                x.index_fill(1, torch.tensor([0, 2]), 9.0)]  # fmt: skip

    agree(f, drawn(4, 5), drawn(4, 5, seed=1), i)


@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin", "mean"])
def test_scatters(reduce: str) -> None:
    i = within(4, 3, 5) % 4

    def f(x: Tensor, i: Tensor, y: Tensor) -> list[Tensor]:
        return [x.scatter(0, torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 1]]), y), x.scatter(0, i[:1], 2.5),
                x.scatter_add(0, i, y), x.scatter_reduce(0, i, y, reduce),
                x.scatter_reduce(0, i, y, reduce, include_self=False)]  # fmt: skip

    agree(f, drawn(4, 5), i, drawn(4, 5, seed=1))


def test_masked_scatter() -> None:
    mask = drawn(3, 4, of=torch.bool)
    agree(lambda x, m, s: x.masked_scatter(m, s), drawn(3, 4), mask, drawn(12, seed=1))


def test_orders() -> None:
    def f(x: Tensor) -> list[Tensor]:
        return [*x.topk(2), *x.topk(3, 0, largest=False), *x.sort(1), *x.sort(0, descending=True), x.argsort(1),
                *torch.sort(x, stable=True), torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])),
                torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), x, right=True),
                torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), 0.5)]  # fmt: skip

    agree(f, drawn(4, 5))
