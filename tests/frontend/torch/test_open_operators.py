"""Operators at sizes that only the run knows, beside eager, at two sizes from one compilation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.export import Dim
from torch.nn import functional as F

import tilewright as tw
from tests.frontend.torch.agreement import Call, close, drawn
from tilewright.frontend.torch import import_torch
from tilewright.support.errors import InputError

H, W = Dim("h", min=4, max=64), Dim("w", min=4, max=64)


def check(
    f: Callable[[Tensor], Any], example: Tensor, dims: dict[int, Any], *others: tuple[int, ...],
    tolerance: float = 1e-5,
) -> None:  # fmt: skip
    module = Call(f).eval()
    run = tw.compile(import_torch(module, (example,), dynamic_shapes=((dims,),)), cache=False)
    for k, shape in enumerate(others):
        x = drawn(*shape, seed=k + 1)
        found = f(x)
        wanted = [found] if isinstance(found, Tensor) else found
        for n, (a, b) in enumerate(zip(run(x), wanted, strict=True)):
            close(np.asarray(a), b.numpy(), tolerance, f"output {n} at {shape}")


def positive(x: Tensor) -> Tensor:
    return x @ x.mT + torch.eye(x.shape[-1]) * x.shape[-1]


def test_factors() -> None:
    def f(x: Tensor) -> list[Tensor]:
        a = positive(x)
        p, lower, upper = torch.linalg.lu(x)
        q, r = torch.linalg.qr(x)
        return [torch.linalg.inv(a), torch.linalg.det(a / x.shape[-1]), *torch.linalg.slogdet(a),
                q @ r, r.abs(), p @ lower @ upper, lower, torch.cholesky_inverse(torch.linalg.cholesky(a)),
                torch.linalg.svdvals(a), torch.linalg.pinv(a), torch.linalg.matrix_rank(a)]  # fmt: skip

    check(f, drawn(5, 5), {0: H, 1: H}, (4, 4), (9, 9), tolerance=1e-4)


def test_singular_values_of_either_side() -> None:
    """Which side is longer the run finds: two matrices that are compared by what they multiply
    to."""

    def f(x: Tensor) -> list[Tensor]:
        u, s, vh = torch.linalg.svd(x, full_matrices=False)
        eye = (u.mT @ u, vh @ vh.mT)
        return [s, (u * s[..., None, :]) @ vh, *eye, torch.linalg.pinv(x)]

    check(f, drawn(2, 5, 6), {1: H, 2: W}, (2, 4, 7), (2, 9, 5), (2, 5, 5), tolerance=1e-4)


def test_whole_bases_of_either_side() -> None:
    """The vectors without singular values too, of a matrix whose longer side the run finds."""

    def f(x: Tensor) -> list[Tensor]:
        u, s, vh = torch.linalg.svd(x)
        k = s.shape[-1]
        return [s, (u[..., :k] * s[..., None, :]) @ vh[..., :k, :], u.mT @ u, vh @ vh.mT]

    check(f, drawn(5, 6), {0: H, 1: W}, (4, 7), (9, 5), tolerance=1e-4)


@pytest.mark.parametrize("size", [3, 50])
def test_the_first_that_are_not_zero(size: int) -> None:
    def f(x: Tensor) -> Tensor:
        return torch.nonzero_static(x > 0.3, size=size, fill_value=-7)

    check(f, drawn(5, 6), {0: H, 1: W}, (4, 7), (9, 5))


def test_memory_by_strides() -> None:
    def f(x: Tensor) -> list[Tensor]:
        return [x.as_strided((x.shape[0] - 1, 3), (x.shape[1], 1), 2), x.as_strided((4, 2), (1, 3))]

    check(f, drawn(6, 7), {0: H, 1: W}, (5, 6), (9, 8))


def test_pools() -> None:
    def f(x: Tensor) -> list[Tensor]:
        return [*F.adaptive_max_pool2d(x, (3, 4), return_indices=True),
                *F.adaptive_max_pool1d(x[0], 2, return_indices=True),
                F.avg_pool2d(x, 3, 2, 1, divisor_override=5)]  # fmt: skip

    check(f, drawn(2, 3, 8, 9), {2: H, 3: W}, (2, 3, 11, 6), (2, 3, 5, 17))


def test_images_made_smaller_smoothly() -> None:
    def f(x: Tensor) -> list[Tensor]:
        return [F.interpolate(x, size=(5, 4), mode="bilinear", antialias=True),
                F.interpolate(x, size=(3, 20), mode="bicubic", antialias=True),
                F.interpolate(x, size=(3, 5), mode="bilinear", antialias=True, align_corners=True),
                F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True)]  # fmt: skip

    check(f, drawn(2, 3, 8, 9), {2: H, 3: W}, (2, 3, 11, 6), (2, 3, 5, 17))


def test_distances_of_pairs() -> None:
    def f(x: Tensor) -> list[Tensor]:
        return [F.pdist(x), F.pdist(x, 1.0)]

    check(f, drawn(5, 6), {0: H, 1: W}, (4, 7), (23, 4))


def test_a_diagonal_is_replaced() -> None:
    def square(x: Tensor) -> list[Tensor]:
        return [torch.diagonal_scatter(x, x.diagonal() * 2),
                torch.diagonal_scatter(x.mT[None], x.diagonal()[None] + 1, 0, -2, 2)]  # fmt: skip

    check(square, drawn(6, 6), {0: H, 1: H}, (4, 4), (9, 9))

    def many(x: Tensor) -> list[Tensor]:
        return [torch.diagonal_scatter(x, x.diagonal(k, 1, 2) * 2, k, 1, 2) for k in (2, -1, -3)]

    check(many, drawn(5, 3, 6), {0: H}, (4, 3, 6), (9, 3, 6))


@pytest.mark.parametrize("width", [5, 1, 0])
def test_open_channels_and_heads(width: int) -> None:
    def f(x: Tensor) -> list[Tensor]:
        heads = x.movedim(1, -1)
        return [F.instance_norm(x), F.scaled_dot_product_attention(heads, heads * 2, heads)]

    check(f, drawn(2, 6, 3, 4), {1: Dim("c")}, (2, width, 3, 4))


def test_a_slice_of_less_than_nothing_is_refused() -> None:
    """torch.export says t - 1, which eager does not mean at t = 0."""
    module, dims = Call(lambda x: x[:-1] + 1).eval(), ({0: Dim.AUTO},)
    run = tw.compile(import_torch(module, (drawn(5, 3),), dynamic_shapes=(dims,)), cache=False)
    assert np.asarray(run(drawn(1, 3))[0]).shape == (0, 3)
    with pytest.raises(InputError, match=r"output 0 .* would have the shape \[-1, 3\]"):
        run(drawn(0, 3))
