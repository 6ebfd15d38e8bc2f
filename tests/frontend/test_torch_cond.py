"""torch.cond: results beside PyTorch's, and kernels of one branch launched."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tilewright as tw
from tilewright.runtime.profile import Roofline


class TwoWays(torch.nn.Module):
    def __init__(self, nested: bool) -> None:
        super().__init__()
        self.a, self.b, self.nested = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64), nested

    def forward(self, x):
        def deep(x):
            return self.b(torch.tanh(self.a(x)))

        def inner(x):
            return torch.cond(x.mean() > 0.5, deep, lambda x: torch.sigmoid(self.b(x)), (x,))

        return torch.cond(x.sum() > 0, inner if self.nested else deep, lambda x: x.abs() + 1, (x,))


@pytest.mark.parametrize("nested", [False, True])
def test_cond_runs_one_branch(nested: bool) -> None:
    module = TwoWays(nested).eval()
    rows = torch.export.Dim("rows", min=2, max=512)
    exe = tw.compile(
        module,
        example_inputs=(torch.ones(7, 64),),
        dynamic_shapes={"x": {0: rows}},
        cache=False,
        threads=1,
    )
    launched = []
    for n, shift in ((7, 1.0), (33, 0.1), (7, -1.0)):
        x = (0.1 * torch.randn(n, 64) + shift).float()
        with torch.no_grad():
            wanted = module(x).numpy()
        np.testing.assert_allclose(exe(x.numpy())[0], wanted, rtol=1e-4, atol=1e-5)
        profile = exe.profile(x.numpy(), seconds=0.0, machine=Roofline(1, 1))
        launched.append({op for k in profile if k.launches for op in k.ops})
    assert "tanh" in launched[0] and ("tanh" in launched[1]) is not nested
    assert "tanh" not in launched[2] and "dense_packed" not in launched[2]
    assert ("sigmoid" in launched[1]) is nested
