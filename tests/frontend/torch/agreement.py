"""The law of the torch frontend: an imported module gives what the eager one gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from tilewright.frontend.torch import import_torch
from tilewright.graph.evaluate import evaluate
from tilewright.graph.graph import Graph


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, f: Callable[..., Any]) -> None:
        super().__init__()
        self.f = f

    def forward(self, *inputs: Any) -> Any:
        return self.f(*inputs)


def agree(f: Any, *inputs: torch.Tensor, tolerance: float = 1e-5, dynamic: Any = None,
          other: tuple[torch.Tensor, ...] | None = None) -> Graph:  # fmt: skip
    """Import a module or function, run it on `inputs` (or on `other` ones) and compare with eager."""
    module = f if isinstance(f, nn.Module) else Call(f)
    graph = import_torch(module.eval(), inputs, dynamic_shapes=dynamic)
    run = inputs if other is None else other
    with torch.no_grad():
        leaves = pytree.tree_leaves(module(*[x.clone() for x in run]))
    expected = [y for y in leaves if isinstance(y, torch.Tensor)]
    found = evaluate(graph, [x.detach().numpy() for x in run])
    assert len(found) == len(expected)
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        close(a, b.numpy(), tolerance, f"output {number}")
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
        atol=tolerance * most,
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
