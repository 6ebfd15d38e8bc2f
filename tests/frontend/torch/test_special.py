"""Special functions against eager PyTorch, over the whole of their domains."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.frontend.torch.agreement import Call, agree
from tilewright.frontend.torch import import_torch
from tilewright.graph.evaluate import evaluate

S = torch.special
ALL = (-30.0, 30.0)
POSITIVE = (1e-3, 60.0)
CASES: list[tuple[Callable[[Tensor], Tensor], tuple[float, float]]] = [
    (S.erfcx, (-4, 50)), (torch.erfc, (-5, 9)), (S.log_ndtr, ALL), (torch.erfinv, (-0.99999, 0.99999)),
    (S.ndtri, (1e-6, 0.99999)), (torch.lgamma, (-6.4, 60)), (torch.digamma, (0.1, 60)), (torch.i0, (-20, 20)),
    (S.i0e, ALL), (S.i1, (-20, 20)), (S.i1e, ALL), (S.modified_bessel_k0, POSITIVE),
    (S.modified_bessel_k1, (0.1, 60)), (S.scaled_modified_bessel_k0, POSITIVE), (S.scaled_modified_bessel_k1, (0.1, 60)),
    (S.bessel_j0, ALL), (S.bessel_j1, ALL), (S.bessel_y0, POSITIVE), (S.bessel_y1, (0.1, 60)),
    (S.spherical_bessel_j0, ALL), (lambda x: S.polygamma(2, x), (0.3, 40)),
    (lambda x: S.zeta(x, 2 * x), (1.5, 9)),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CASES)))
def test_functions(number: int) -> None:
    f, (low, high) = CASES[number]
    x = torch.linspace(low, high, 1501)
    found = evaluate(import_torch(Call(f), (x,)), [x.numpy()])[0].astype(np.float64)
    expected = f(x.double()).numpy()
    error = np.abs(found - expected) / np.maximum(np.abs(expected), 0.5)
    assert error.max() < 2e-5


@pytest.mark.parametrize("kind", "tuvw")
@pytest.mark.parametrize("shifted", [False, True])
def test_chebyshev_polynomials(kind: str, shifted: bool) -> None:
    f = getattr(S, f"{'shifted_' if shifted else ''}chebyshev_polynomial_{kind}")
    x = torch.tensor([-1.5, -1.1, -1.0, -0.9, -0.1, 0.0, 0.3, 0.95, 1.0, 1.2, 1.7])
    agree(lambda x, n: f(x, n), x[:, None], torch.arange(-1.0, 9.0))


def test_parts_of_numbers() -> None:
    x = torch.tensor([0.0, -0.0, 1.0, 0.5, -3.7, 1e-30, 1e30, 7.0, -0.1, 255.9])
    agree(lambda x: torch.frexp(x)[0], x, tolerance=0)
    agree(
        lambda x: (torch.frexp(x)[1], torch.signbit(x), torch.copysign(x.flip(0), x)),
        x,
        tolerance=0,
    )
