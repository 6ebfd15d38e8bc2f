"""Complex numbers inside a model, and Fourier transforms of many lengths."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.frontend.torch.agreement import agree, drawn


@pytest.mark.parametrize("length", [2, 7, 64, 96, 127, 360])
def test_fourier_transforms(length: int) -> None:
    def f(x: Tensor) -> list[Tensor]:
        y = torch.fft.fft(x, norm="ortho")
        return [torch.view_as_real(y.resolve_conj()), torch.fft.irfft(torch.fft.rfft(x), length), torch.fft.ifft(y).real,
                torch.fft.fft2(x).abs(), torch.fft.rfft(x, dim=0).imag, torch.fft.hfft(x), torch.fft.fft(x[0]).angle().abs()]  # fmt: skip

    agree(f, drawn(3, length) + 2)


def test_open_lengths() -> None:
    def f(x: Tensor) -> list[Tensor]:
        y = torch.fft.fft2(x, norm="ortho")
        half = torch.fft.rfft(x)
        return [torch.view_as_real(y.resolve_conj()), half.abs(), torch.fft.ifft(y).real,
                torch.fft.irfft(half, x.shape[-1])]  # fmt: skip

    dims = {0: torch.export.Dim("a", max=64), 1: torch.export.Dim("b", min=3, max=64)}
    for other in ((3, 5), (13, 4), (1, 40)):
        agree(f, drawn(6, 9), dynamic=((dims,),), other=(drawn(*other, seed=1),))


def test_arithmetic() -> None:
    def f(a: Tensor, b: Tensor) -> list[Tensor]:
        x, y = torch.complex(a, b), torch.view_as_complex(torch.stack([b, a], -1))
        made = [x + y, x - 2 * y, x * y, x / (y + 3), x.conj() * 1.5, torch.exp(x), x @ y.mT, torch.polar(a.abs(), b),
                torch.where(a > 0, x, y), torch.cat([x, y], 1)[:, 1:].reshape(-1), (x * (1 + 2j)).sum(0)]  # fmt: skip
        return [torch.view_as_real(v.resolve_conj()) for v in made]

    agree(f, drawn(3, 4), drawn(3, 4, seed=1))


def test_rotary_embedding_by_complex_products() -> None:
    def f(x: Tensor) -> Tensor:
        angles = torch.outer(torch.arange(6.0), 10.0 ** -torch.arange(4.0))
        turn = torch.polar(torch.ones_like(angles), angles)
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turn).flatten(-2)

    agree(f, drawn(2, 3, 6, 8))


def test_a_complex_result_is_a_pair() -> None:
    graph = agree(lambda x: torch.view_as_real(torch.fft.fft(x)), drawn(4, 6))
    assert graph.outputs[0].static_shape == (4, 6, 2)
