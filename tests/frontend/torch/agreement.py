"""The law of the torch frontend: an imported module gives what the eager one gives, by the
operators' references and as native code."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.frontend.torch import import_torch
from tilewright.graph.evaluate import evaluate
from tilewright.graph.graph import Graph

ROUNDING = {8: 1e-14, 4: 2e-6, 2: 2e-3}  # by bytes of a float: some roundings of it


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, f: Callable[..., Any]) -> None:
        super().__init__()
        self.f = f

    def forward(self, *inputs: Any) -> Any:
        return self.f(*inputs)


@cache
def workers() -> KernelPool:
    """The compile workers of all tests here, until the process ends."""
    pool = KernelPool().start()
    atexit.register(pool.close)
    return pool


def native(graph: Graph, *inputs: np.ndarray) -> list[np.ndarray]:
    """What compiled code makes of `inputs`."""
    return compile_observed(graph, threads=1, cache=False, pool=workers())(*inputs)


def agree(f: Any, *inputs: torch.Tensor, tolerance: float | None = None, dynamic: Any = None,
          other: tuple[torch.Tensor, ...] | None = None, compiled: bool = True) -> Graph:  # fmt: skip
    """Import a module or function, run it on `inputs` (or on `other` ones), by the operators'
    references and compiled to native code, and compare both with eager. tolerance: of the largest
    value; by default some roundings of the type (`ROUNDING`)."""
    module = f if isinstance(f, nn.Module) else Call(f)
    graph = import_torch(module.eval(), inputs, dynamic_shapes=dynamic)
    run = inputs if other is None else other
    with torch.no_grad():
        leaves = pytree.tree_leaves(module(*[x.clone() for x in run]))
    expected = [y.numpy() for y in leaves if isinstance(y, torch.Tensor)]
    arrays = [x.detach().numpy() for x in run]
    ways = {"references": evaluate(graph, arrays)}
    if compiled:
        ways["compiled"] = native(graph, *arrays)
    for way, found in ways.items():
        assert len(found) == len(expected)
        for number, (a, b) in enumerate(zip(found, expected, strict=True)):
            within = ROUNDING.get(b.dtype.itemsize, 0) if tolerance is None else tolerance
            close(a, b, within, f"output {number}, {way}")
    return graph


def close(found: np.ndarray, expected: np.ndarray, tolerance: float, what: str = "") -> None:
    """Same type; values within `tolerance` of the largest."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), what
    finite = expected[np.isfinite(expected)] if expected.dtype.kind == "f" else expected
    most = max(1.0, float(np.abs(finite.astype(np.float64)).max(initial=0)))
    np.testing.assert_allclose(
        found.astype(np.float64),
        expected.astype(np.float64),
        rtol=0,
        atol=tolerance * most if expected.dtype.kind == "f" else 0,
        err_msg=what,
    )


def drawn(*shape: int, seed: int = 0, of: torch.dtype = torch.float32) -> torch.Tensor:
    """Random numbers: standard normal, or small whole ones."""
    generator = torch.Generator().manual_seed(seed)
    if of is torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if not of.is_floating_point:
        return torch.randint(-5 if of.is_signed else 0, 6, shape, generator=generator, dtype=of)
    return torch.randn(shape, generator=generator).to(of)
