"""Operators along open sizes, beside PyTorch at sizes that the export did not see."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.support.errors import ImportFault


def replaced(x):
    y = x.clone()
    y[:, 1::3] = x[:, 1::3] * 2 + 1
    return y


def in_windows(x):
    """Padded to whole windows of 2 x 3, whose number the model divides for in floating point."""
    height, width = math.ceil(x.shape[0] / 2), math.ceil(x.shape[1] / 3)
    y = F.pad(x, (0, width * 3 - x.shape[1], 0, height * 2 - x.shape[0]))
    return y.reshape(height, 2, width, 3).transpose(1, 2).reshape(height * width, 6)


CASES = {
    "windows-of-quotients": in_windows,
    "whole-of-quotient": lambda x: x[: math.floor(x.shape[0] / 4)] * math.floor(x.shape[1] / 3),
    "tile": lambda x: x.repeat(1, x.shape[0]),
    "eye": lambda x: torch.eye(x.shape[1]) + x[:1],
    "eye-of-two": lambda x: torch.eye(x.shape[0], x.shape[1]) * x,
    "diagonal": lambda x: torch.diagonal(x),
    "lower-diagonal": lambda x: torch.diagonal(x[None], -1, 1, 2) * 2,
    "variance": lambda x: (x.var(1), x.std(0, correction=2, keepdim=True)),
    "slice-scatter": replaced,
    "slice-scatter-of-a-number": lambda x: replaced(x[:, :1].expand(-1, 7)),
    "median": lambda x: x.median(1),
    "kth-value": lambda x: x.kthvalue(2, 0),
    "nan-median": lambda x: x.nanmedian(1)[0],
    "log-sums": lambda x: x.logcumsumexp(1),
    "windows": lambda x: x.unfold(1, 3, 2),
    "steps": lambda x: x[1::2, ::3],
    "some-of-all": lambda x: torch.topk(x, x.shape[1] // 2, 1),
}


class Function(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x):
        return self.f(x)


@pytest.mark.parametrize("name", CASES)
def test_open_sizes(name):
    f, torch_seed = CASES[name], torch.manual_seed(len(name))
    sizes = ({0: Dim.AUTO, 1: Dim.AUTO},)
    example = (torch.randn(6, 10, generator=torch_seed),)
    run = compile_observed(
        Function(f), example_inputs=example, dynamic_shapes=sizes, cache=False, pool=KernelPool(1)
    )
    assert run.manifest.symbols
    for shape in ((7, 11), (5, 14)):
        x = torch.randn(shape, generator=torch_seed)
        wanted = f(x)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for found, right in zip(run(x), wanted, strict=True):
            torch.testing.assert_close(torch.as_tensor(found), right, rtol=1e-5, atol=1e-6)


class Root(torch.nn.Module):
    def forward(self, x):
        y = x[: math.floor(torch.sym_sqrt(x.shape[0]))]
        return F.scaled_dot_product_attention(y, y, y)


def test_what_follows_from_what_is_refused_says_nothing_of_its_own():
    """Of the size of y nothing is known, were it only how many axes there are."""
    with pytest.raises(ImportFault, match="sqrt.*is computed in floating point"):
        compile_observed(
            Root(),
            example_inputs=(torch.randn(9, 4, 8),),
            dynamic_shapes=({0: Dim.AUTO},),
            cache=False,
            pool=KernelPool(1),
        )
