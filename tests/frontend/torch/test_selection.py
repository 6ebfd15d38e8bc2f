"""Operators that pick or replace elements by counting, ordering or position, and indices of pools."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.frontend.torch.agreement import agree, drawn


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_positions_of_the_greatest(dims: int) -> None:
    def f(x: Tensor) -> list[Tensor]:
        pool, adaptive = getattr(F, f"max_pool{dims}d"), getattr(F, f"adaptive_max_pool{dims}d")
        return [*pool(x, 3, 2, 1, return_indices=True), *pool(x, 2, 1, 0, 2, return_indices=True),
                *pool(x, 3, 2, 0, 1, True, return_indices=True), *adaptive(x, 3, return_indices=True)]  # fmt: skip

    agree(f, drawn(2, 3, *(8, 7, 6)[:dims]), tolerance=0)


def test_sums_over_windows() -> None:
    agree(lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=5), drawn(2, 3, 8, 8))


@pytest.mark.parametrize("reduce", ["mean", "prod", "amax", "amin"])
@pytest.mark.parametrize("include_self", [False, True])
def test_index_reduce(reduce: str, include_self: bool) -> None:
    index = torch.tensor([0, 3, 3, 1])
    agree(
        lambda x, s: x.index_reduce(1, index, s, reduce, include_self=include_self),
        drawn(3, 5),
        drawn(3, 4, seed=1),
    )


def test_running_extremes_and_their_positions() -> None:
    def f(x: Tensor, i: Tensor) -> list[Tensor]:
        return [
            *torch.cummax(x, 1),
            *torch.cummin(x, 0),
            *torch.cummax(i, -1),
            torch.logcumsumexp(x, 1),
        ]

    agree(f, drawn(4, 6), drawn(3, 7, of=torch.int64))


def test_medians_without_missing_numbers() -> None:
    x = drawn(5, 6)
    x[1, 2:4] = torch.nan
    agree(lambda x: [*torch.nanmedian(x, 1), torch.nanmedian(x)], x)


@pytest.mark.parametrize("count", [5, 40, 300])
def test_order_with_missing_numbers(count: int) -> None:
    """NaN is greater than all numbers; a few are selected, many are sorted."""
    x = drawn(3, count).round(decimals=1)
    x[:2, ::4] = torch.nan
    x[2] = torch.nan

    def f(x: Tensor) -> list[Tensor]:
        up, down = (torch.sort(x, dim=-1, stable=True, descending=d) for d in (False, True))
        few = [x.topk(3, largest=d).values for d in (False, True)]
        return [up[1], down[1], *(v.nan_to_num(99.0) for v in (up[0], down[0], *few))]

    agree(f, x, tolerance=0)


def test_masks() -> None:
    mask = drawn(4, 5, of=torch.bool)

    def f(x: Tensor, values: Tensor, rows: Tensor) -> list[Tensor]:
        y, z = x.clone(), x.clone()
        y[x > 0] = values
        z[x[:, 0] < 9] = rows
        return [y, z, torch.nonzero_static(x > 0, size=30), torch.nonzero_static(x, size=3)]

    x = torch.where(mask, drawn(4, 5).abs(), -1.0)
    agree(f, x, drawn(int(mask.sum())), drawn(4, 5, seed=2))


def test_replaced_positions() -> None:
    def f(x: Tensor, y: Tensor) -> list[Tensor]:
        return [
            x.diagonal_scatter(y, 1),
            x.as_strided_scatter(y, (4,), (3,), 2),
            x.put(torch.tensor([3, -1, 7, 7]), y, True),
        ]

    agree(f, drawn(5, 5), drawn(4, seed=1))


def test_counts() -> None:
    def f(x: Tensor, i: Tensor) -> list[Tensor]:
        return [
            torch.histc(x, 7),
            torch.histc(x, 5, -1.0, 1.0),
            *torch.mode(i, 1),
            torch.mode(i > 0, 1)[0],
            F.pdist(x),
            F.pdist(x, 1.0),
        ]

    agree(f, drawn(6, 4), drawn(4, 9, of=torch.int64))


def test_bilinear_forms() -> None:
    agree(lambda a, b, w: F.bilinear(a, b, w), drawn(4, 3), drawn(4, 5), drawn(2, 3, 5))


def test_padding_that_cuts() -> None:
    def f(x: Tensor) -> list[Tensor]:
        return [
            F.pad(x, (-3, 5), mode="replicate"),
            F.pad(x, (2, -1, -1, 1), value=2.0),
            F.pad(x, (-1, 2), mode="circular"),
        ]

    agree(f, drawn(2, 3, 4))
