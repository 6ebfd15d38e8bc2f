"""Complex numbers inside a model, and Fourier transforms of many lengths."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import tilewright as tw
from tests.frontend.torch.agreement import Call, agree, drawn
from tilewright.frontend.torch import import_torch
from tilewright.support.errors import ImportFault


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


def functions(a: Tensor, b: Tensor) -> list[Tensor]:
    x = torch.complex(a, b)
    return [
        x.sqrt(), (x * 0).sqrt(), x.log(), x**2, x**2.5, (2j) ** x, x.sgn(), x.sin(), x.cos(), x.sinh(), x.cosh(),
        x.tanh(), x.sigmoid(), F.linear(x, x.conj(), x[:, 0]), x.cumsum(1), x.roll(1, 0),
        F.conv1d(x[None], x[None, :, :2], x[:1, 0]), x * torch.tensor([1j, 2, 3 - 1j, 0]),
    ]  # fmt: skip


def test_functions() -> None:
    def f(a: Tensor, b: Tensor) -> list[Tensor]:
        x = torch.complex(a, b)
        others = [x == x.conj(), x != x, x.isnan(), torch.linalg.vector_norm(x, dim=1)]
        others += [(x * 1e30).abs()]
        return [torch.view_as_real(v.resolve_conj()) for v in functions(a, b)] + others

    agree(f, drawn(3, 4), drawn(3, 4, seed=1))


def test_complex_inputs_are_pairs() -> None:
    z = torch.complex(drawn(3, 4), drawn(3, 4, seed=1))
    module = Call(lambda z, x: z * z.conj() + x)
    exe = tw.compile(module, example_inputs=(z, z.real), cache=False)
    assert [t.shape for t in exe.inputs] == [(3, 4, 2), (3, 4)]
    want = torch.view_as_real(module(z, z.real).resolve_conj()).numpy()
    for given in ((z, z.real), (z.numpy(), z.real.numpy()), (torch.view_as_real(z), z.real)):
        np.testing.assert_allclose(np.asarray(exe(*given)[0]), want, rtol=1e-5, atol=1e-6)
    strided = np.asfortranarray(z.numpy())
    np.testing.assert_allclose(exe(strided, z.real.numpy())[0], want, rtol=1e-5, atol=1e-6)


def test_torch_compile_takes_and_gives_complex_numbers(recwarn: pytest.WarningsRecorder) -> None:
    def f(z: Tensor, a: Tensor) -> list[Tensor]:
        return [z * torch.complex(a, a), z.abs(), torch.polar(a, a) @ z.mT, torch.fft.fft(z)]

    z, a = torch.complex(drawn(3, 4), drawn(3, 4, seed=1)), drawn(3, 4, seed=2)
    torch._dynamo.reset()
    for given in (z, z.conj()):
        made = torch.compile(f, backend="tilewright")(given, a)
        for got, want in zip(made, f(given, a), strict=True):
            torch.testing.assert_close(got, want.resolve_conj(), rtol=1e-5, atol=1e-5)
    assert not [w for w in recwarn if "EagerWarning" in w.category.__name__]


def parts(x: Tensor) -> Tensor:
    return torch.view_as_real(x.resolve_conj())


def test_products_and_positions() -> None:
    """What is made, written at indices, and reduced."""
    positions = torch.tensor([2, 0])

    def f(a: Tensor, b: Tensor) -> list[Tensor]:
        x = torch.complex(a, b)
        made = [
            x.prod(), x.prod(1), x.prod(0, keepdim=True), x.real.prod(dtype=x.dtype), x[:0].prod(0),
            x.cumprod(1), x.cumprod(0), x.square(), x.rsqrt(), torch.vdot(x[0], x[1]),
            torch.dot(x[0], x[1]), torch.addmm(x[:, :3], x, x.mT, beta=2, alpha=1j),
            torch.outer(x[0], x[1]), torch.full((3,), 1 + 2j) * x[:, 0], x.new_zeros(3, 7) + x,
            F.pad(x, (1, 2), value=2.0), x.index_put((positions,), x[:2]), torch.where(a > 0, x, 2),
            x.index_put((positions,), a[:2].to(x.dtype), accumulate=True), torch.diag(x[0]),
            x.index_add(0, positions, x[:2], alpha=3), x.masked_fill(a > 0, 1 + 2j),
            torch.lerp(x, 2 * x, 0.3), x.logsumexp(1),
        ]  # fmt: skip
        return [*map(parts, made), x.any(1), (x * 0).any()]

    agree(f, drawn(3, 7), drawn(3, 7, seed=1), tolerance=1e-5)


class Rotated(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rotation", torch.complex(drawn(3, 4), drawn(3, 4, seed=1)))
        self.weight = torch.nn.Parameter(torch.complex(drawn(4, 2), drawn(4, 2, seed=2)))

    def forward(self, x: Tensor) -> Tensor:
        self.rotation.mul_(1 + 1j).add_(x)
        return parts((self.rotation * x) @ self.weight)


def test_a_complex_buffer_that_the_module_writes() -> None:
    x, module = drawn(3, 4, seed=5), Rotated()
    exe = tw.compile(module.eval(), example_inputs=(x,), cache=False)
    state = parts(module.rotation).clone().numpy()
    for _ in range(2):
        y, state = exe(x, state)
        np.testing.assert_allclose(y, module(x).detach(), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(state, parts(module.rotation), rtol=1e-5, atol=1e-5)


FUNCTIONS = ("exp2", "expm1", "log1p", "log2", "log10", "tan", "asin", "acos", "atan", "asinh",
             "acosh", "atanh")  # fmt: skip


def near(a: Tensor, b: Tensor) -> list[Tensor]:
    """Functions of numbers of all sizes."""
    x = torch.complex(a, b)
    return [parts(getattr(torch, name)(z)) for name in FUNCTIONS for z in (x, x * 1e-3, x * 10)]


def test_functions_of_complex_numbers() -> None:
    agree(near, drawn(5, 9), drawn(5, 9, seed=1), tolerance=2e-5)


def test_functions_on_their_cuts() -> None:
    """The sign of a zero part says on which side."""
    positions = torch.tensor([-2.0, -0.5, -0.0, 0.0, 0.5, 2.0])
    zeros = torch.tensor([[0.0], [-0.0]]).expand(2, 6)

    def f(a: Tensor, b: Tensor) -> list[Tensor]:
        pairs = (torch.complex(a, b), torch.complex(b, a))
        return [parts(getattr(torch, name)(z)) for name in FUNCTIONS[6:] for z in pairs]

    agree(f, positions.expand(2, 6).contiguous(), zeros.contiguous(), tolerance=1e-5)


def test_variances_of_complex_numbers() -> None:
    def f(a: Tensor, b: Tensor) -> list[Tensor]:
        x = torch.complex(a, b)
        return [x.var(), x.std(), x.var(1), x.std(0, correction=0, keepdim=True)]

    agree(f, drawn(4, 7), drawn(4, 7, seed=1))


def test_complex_equations() -> None:
    def f(a: Tensor, b: Tensor) -> list[Tensor]:
        x, y = torch.complex(a, b), torch.complex(b, a)
        solve = torch.linalg.solve
        made = [solve(x, y[..., :2]), solve(x, y[..., 0, :]), solve(x[0], y[0, 0]),
                solve(x, y, left=False), torch.linalg.inv(x)]  # fmt: skip
        return [parts(v) for v in made]

    agree(f, drawn(3, 5, 5), drawn(3, 5, 5, seed=1), tolerance=1e-4)


def test_complex_determinants() -> None:
    def f(a: Tensor, b: Tensor) -> list[Tensor]:
        x = torch.complex(a, b)
        sign, size = torch.linalg.slogdet(x)
        singular = torch.cat([torch.zeros_like(x[0, :1]), x[0, 1:]])
        made = [
            sign,
            torch.linalg.det(x),
            torch.linalg.det(x[0, :1, :1]),
            torch.linalg.det(singular),
        ]
        return [size, *(parts(v) for v in made)]

    for size in (1, 2, 5, 12):
        agree(f, drawn(3, size, size), drawn(3, size, size, seed=1), tolerance=1e-4)


def test_what_is_refused_is_named() -> None:
    with pytest.raises(ImportFault, match=r"aten\.linalg_chol.*complex numbers are not supported"):
        import_torch(
            Call(lambda x: parts(torch.linalg.cholesky(torch.complex(x, x)))), (drawn(3, 3),)
        )
