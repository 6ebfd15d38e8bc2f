"""PyTorch modules compiled by several threads at once, and under `torch.autocast`."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tilewright as tw
from tests.runtime.test_sharing import in_threads
from tilewright.driver.torch_backend import EagerWarning

SMALL = [torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def fresh() -> Any:
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error", EagerWarning)
        yield


def net(channels: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.GroupNorm(2, channels),
        nn.Flatten(),
        nn.Linear(channels * 36, 8),
        nn.LayerNorm(8),
        nn.Softmax(-1),
    ).eval()


def close(found: Tensor, want: Tensor, tolerance: float = 1e-4) -> None:
    assert found.dtype == want.dtype and found.shape == want.shape
    torch.testing.assert_close(found, want, rtol=tolerance, atol=tolerance)


# ---- Threads ----------------------------------------------------------------------------------


def at_once(count: int, work: Callable[[int], object]) -> None:
    begin = threading.Barrier(count)

    def begun(i: int) -> None:
        begin.wait(60)
        work(i)

    in_threads(count, begun)


def test_modules_are_compiled_by_threads_at_once() -> None:
    nets, x = [net(2 * k + 2) for k in range(4)], torch.randn(2, 3, 6, 6)
    wants = [n(x).detach() for n in nets]
    filters = list(warnings.filters)

    def work(k: int) -> None:
        for _ in range(2):
            exe = tw.compile(nets[k], example_inputs=(x,), threads=1)
            close(exe(x)[0], wants[k])

    at_once(4, work)
    assert warnings.filters == filters


def test_compile_beside_torch_compile() -> None:
    nets, x = [net(2 * k + 2) for k in range(4)], torch.randn(2, 3, 6, 6)
    wants = [n(x).detach() for n in nets]

    def work(k: int) -> None:
        if k % 2:
            close(tw.compile(nets[k], example_inputs=(x,), threads=1)(x)[0], wants[k])
        else:
            fast = torch.compile(nets[k], backend="tilewright", options={"threads": 1})
            with torch.no_grad():
                close(fast(x), wants[k])

    at_once(4, work)


def test_threads_call_what_is_compiled_at_the_first_call() -> None:
    """Sizes that change included: one thread compiles, the others wait."""
    model = net(4)
    fast = torch.compile(model, backend="tilewright", options={"threads": 1})

    def work(k: int) -> None:
        for n in (2, 3 + k, 2, 5):
            x = torch.randn(n, 3, 6, 6)
            with torch.no_grad():
                close(fast(x), model(x))

    at_once(4, work)


def test_parameters_change_while_threads_call() -> None:
    """Between rounds: no call sees the constants of the round before."""
    model, x = nn.Linear(4, 4).eval(), torch.randn(2, 4)
    fast = torch.compile(model, backend="tilewright", options={"threads": 1})
    for _ in range(4):
        with torch.no_grad():
            model.weight.add_(1)
            want = model(x)

        def work(k: int, want: Tensor = want) -> None:
            with torch.no_grad():
                for _ in range(5):
                    close(fast(x), want)

        at_once(3, work)


# ---- Autocast ---------------------------------------------------------------------------------


@pytest.mark.parametrize("small", SMALL)
def test_a_module_compiled_under_autocast(small: torch.dtype) -> None:
    model, x = net(4), torch.randn(2, 3, 6, 6)
    with torch.autocast("cpu", small), torch.no_grad():
        want = model(x)
        exe = tw.compile(model, example_inputs=(x,), threads=1)
    assert want.dtype == small
    close(exe(x)[0], want, 2e-2)  # what was compiled computes so anywhere
    plain = tw.compile(model, example_inputs=(x,), threads=1)
    close(plain(x)[0], model(x).detach())


@pytest.mark.parametrize("small", SMALL)
def test_autocast_inside_a_module(small: torch.dtype) -> None:
    class Inside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.third = (nn.Linear(8, 8) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", small):
                y = self.first(x)
                with torch.autocast("cpu", enabled=False):
                    z = self.second(y.float())
            return self.third(z) + y

    model, x = Inside().eval(), torch.randn(2, 8)
    with torch.no_grad():
        want = model(x)
    close(tw.compile(model, example_inputs=(x,), threads=1)(x)[0], want, 2e-2)
    with torch.no_grad():
        close(torch.compile(model, backend="tilewright")(x), want, 2e-2)


@pytest.mark.parametrize("small", SMALL)
def test_calls_under_autocast_of_a_torch_compiled_module(small: torch.dtype) -> None:
    """Each call computes as PyTorch would in its place: in, out and in again."""
    model, x = net(4), torch.randn(2, 3, 6, 6)
    fast = torch.compile(model, backend="tilewright")
    with torch.no_grad():
        for is_cast in (True, False, True):
            with torch.autocast("cpu", small, enabled=is_cast):
                want, found = model(x), fast(x)
            assert (want.dtype == small) == is_cast
            close(found, want, 2e-2 if is_cast else 1e-4)


def test_training_under_autocast() -> None:
    torch.manual_seed(0)
    layers = nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4)
    model = nn.Sequential(*layers)
    fast = torch.compile(model, backend="tilewright")
    x, grads = torch.randn(3, 8), []
    for f in (model, fast):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = f(x).float().square().mean()
        loss.backward()
        grads.append([p.grad.clone() for p in model.parameters()])
    for found, want in zip(grads[1], grads[0], strict=True):
        close(found, want, 2e-2)
