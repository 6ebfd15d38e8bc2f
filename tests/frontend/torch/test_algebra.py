"""Linear algebra: factorisations, and what is made of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import tilewright as tw
from tests.frontend.torch.agreement import Call, agree, close, drawn
from tilewright.frontend.torch import import_torch
from tilewright.graph.evaluate import evaluate


def matrices(*shape: int) -> torch.Tensor:
    return drawn(*shape) + 3 * torch.eye(*shape[-2:])


def positive(*shape: int) -> torch.Tensor:
    x = drawn(*shape)
    return x @ x.mT + torch.eye(shape[-1])


SQUARE = {
    "inv": torch.linalg.inv,
    "det": torch.linalg.det,
    "slogdet": torch.linalg.slogdet,
    "lu": torch.linalg.lu,
    "lu_factor": torch.linalg.lu_factor,
    "solve_vector": lambda a: torch.linalg.solve(a, a[..., 0]),
    "solve_right": lambda a: torch.linalg.solve(a, a + 1, left=False),
    "solve_adjoint": lambda a: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), a, adjoint=True),
    "solve_triangular": lambda a: torch.linalg.solve_triangular(a, a + 1, upper=True, left=False),
    "ldl": lambda a: torch.linalg.ldl_factor(a + a.mT - 6 * torch.eye(4)),
    "eigvalsh": lambda a: torch.linalg.eigvalsh(a, UPLO="U"),
    "matrix_exp": torch.linalg.matrix_exp,
    "cond": torch.linalg.cond,
}


@pytest.mark.parametrize("lead", [(), (2, 3)], ids=str)
def test_square(lead: tuple[int, ...]) -> None:
    agree(lambda a: [f(a) for f in SQUARE.values()], matrices(*lead, 4, 4), tolerance=1e-5)


def test_exponentials_of_halves() -> None:
    """Beside single precision: PyTorch's own in half loses every digit."""
    x = (drawn(3, 3) / 8).to(torch.float16)
    (found,) = evaluate(import_torch(Call(torch.matrix_exp), (x,)), [x.numpy()])
    close(found, torch.matrix_exp(x.float()).half().numpy(), 2e-3)


def test_qr() -> None:
    def f(*inputs: torch.Tensor):
        return [torch.linalg.qr(x, mode=m) for x in inputs for m in ("reduced", "complete")]

    agree(f, *[drawn(*s) for s in ((5, 3), (2, 3, 5), (0, 2), (4, 4))])


def test_cholesky() -> None:
    def f(a: torch.Tensor, b: torch.Tensor):
        for upper in (False, True):
            factor = torch.linalg.cholesky(a, upper=upper)
            yield factor
            yield torch.cholesky_solve(b, factor, upper)
            yield torch.cholesky_inverse(factor, upper)

    agree(lambda a, b: list(f(a, b)), positive(2, 4, 4), drawn(2, 4, 3))


def test_positions_of_reflections() -> None:
    def f(a: torch.Tensor, c: torch.Tensor):
        v, tau = torch.geqrf(a)
        q = torch.linalg.householder_product(v, tau)
        return v, tau, q, torch.ormqr(v, tau, c), torch.ormqr(v, tau, c.mT, False, True)

    agree(f, drawn(5, 3), drawn(5, 4))


def compiled(f, *inputs: torch.Tensor) -> list[np.ndarray]:
    """f compiled to native code and run."""
    run = tw.compile(import_torch(Call(f), inputs), cache=False)
    return [np.asarray(y) for y in run(*[x.numpy() for x in inputs])]


@pytest.mark.parametrize(("shape", "full"), [((2, 5, 3), False), ((3, 6), True)], ids=str)
def test_singular_values_in_native_code(shape: tuple[int, ...], full: bool) -> None:
    x = drawn(*shape)
    x[..., 1, :] = x[..., 0, :]  # a singular value of zero needs vectors too
    u, s, vh = compiled(lambda x: torch.linalg.svd(x, full_matrices=full), x)
    close(s, torch.linalg.svdvals(x).numpy(), 1e-5)
    k = s.shape[-1]
    close((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], x.numpy(), 1e-5)
    for q in (u.swapaxes(-1, -2), vh):
        close(q @ q.swapaxes(-1, -2), np.broadcast_to(np.eye(q.shape[-2], dtype=q.dtype),
                                                      (*q.shape[:-1], q.shape[-2])), 1e-5)  # fmt: skip


def test_factorisations_in_native_code() -> None:
    a = matrices(2, 7, 7)
    f = {k: SQUARE[k] for k in ("inv", "slogdet", "solve_right", "matrix_exp")}
    made = compiled(lambda a: [f[k](a) for k in f], a)
    expected = pytree.tree_leaves([f[k](a) for k in f])
    for x, y in zip(made, expected, strict=True):
        close(x, y.numpy(), 1e-4)
    w, v = compiled(torch.linalg.eigh, a + a.mT)
    close(v * w[:, None, :] @ v.swapaxes(1, 2), (a + a.mT).numpy(), 1e-5)
    assert (np.diff(w) >= 0).all()


def test_pseudo_inverses() -> None:
    x = drawn(2, 5, 3)
    x[0, :, 2] = x[0, :, 1]
    agree(torch.linalg.pinv, x)
    y = x[0] @ x[0].mT
    agree(lambda y: torch.linalg.pinv(y, hermitian=True, rtol=1e-3), y)
    agree(lambda y: torch.linalg.matrix_rank(y, rtol=1e-3), y)
