"""Products in groups, whose rows the run finds, beside PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers.integrations.moe  # noqa: F401  it registers the operator
from torch import Tensor, nn
from torch.nn import functional as F

import tilewright as tw
from tests.frontend.torch.agreement import Call, agree, close, drawn, native
from tilewright.frontend.torch import import_torch
from tilewright.frontend.torch.convert import array
from tilewright.support.errors import InputError

ROWS = {0: torch.export.Dim.DYNAMIC}


class Experts(nn.Module):
    """Weights of each group, transposed as the layers of experts keep them."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(drawn(count, 6, 5, seed=1))

    def forward(self, x: Tensor, ends: Tensor) -> Tensor:
        return torch.ops.transformers.grouped_mm_fallback(x, self.weights.mT, ends)


@pytest.mark.parametrize("ends", [[1, 3, 4, 7], [0, 0, 7, 7], [7, 7, 7, 7], [0, 0, 0, 7]])
def test_grouped_mm(ends: list[int]) -> None:
    agree(Experts(4), drawn(7, 5), torch.tensor(ends, dtype=torch.int32))


def test_rows_fewer_than_groups() -> None:
    agree(Experts(9), drawn(2, 5), torch.tensor([0, 0, 1, 1, 1, 2, 2, 2, 2], dtype=torch.int32))


def test_small_floats() -> None:
    """PyTorch's own operator, which it traces for these alone."""
    weights = drawn(3, 8, 16, of=torch.bfloat16)
    ends = torch.tensor([2, 2, 5], dtype=torch.int32)
    graph = import_torch(
        Call(lambda x: F.grouped_mm(x, weights, offs=ends)), (drawn(5, 8).bfloat16(),)
    )
    (found,) = native(graph, array(drawn(5, 8).bfloat16()))
    expected = F.grouped_mm(drawn(5, 8).bfloat16(), weights, offs=ends)
    close(found.astype(np.float32), expected.float().numpy(), 1e-2)


def test_rows_of_open_number() -> None:
    """Rows behind the last group give 0; more than there are end the run."""
    ends = torch.tensor([2, 2, 5, 6], dtype=torch.int32)
    module = Experts(4).eval()
    graph = import_torch(module, (drawn(6, 5), ends), dynamic_shapes={"x": ROWS, "ends": None})
    x = drawn(8, 5, seed=2)
    with torch.no_grad():
        expected = module(x[:6], ends).numpy()
    (found,) = native(graph, x.numpy(), ends.numpy())
    close(found[:6], expected, 2e-6)
    assert not found[6:].any()
    with pytest.raises(InputError, match="do not fit"):
        native(graph, x[:5].numpy(), ends.numpy())


def test_many_groups() -> None:
    """Their kernels know each other's ends no more than they have to."""
    ends = torch.arange(1, 41, dtype=torch.int32)
    module = Experts(40).eval()
    (found,) = tw.compile(import_torch(module, (drawn(40, 5), ends)), cache=False)(
        drawn(40, 5).numpy(), ends.numpy()
    )
    with torch.no_grad():
        close(np.asarray(found), module(drawn(40, 5), ends).numpy(), 2e-6)
