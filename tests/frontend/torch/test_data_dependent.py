"""Results of as many elements as are found: one import serves them all."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import tilewright as tw
from tests.frontend.torch.agreement import Call, agree, close, drawn
from tilewright.frontend.torch import import_torch
from tilewright.graph.evaluate import evaluate

FINDS = {
    "nonzero": lambda x: (torch.nonzero(x), torch.nonzero(x > 1, as_tuple=True)),
    "argwhere": lambda x: torch.argwhere(x[0] < 0),
    "masked_select": lambda x: torch.masked_select(x, x[0] > 0),
    "mask": lambda x: (x[x > 0] * 2, x[x[:, 0] > 0], x[:, x[0] > 0].sum(1)),
    "unique": lambda x: torch.unique(x, return_inverse=True, return_counts=True),
    "unique_consecutive": lambda x: torch.unique_consecutive(x, return_inverse=True),
    "unique_dim": lambda x: torch.unique(x, dim=1, return_inverse=True, return_counts=True),
    "runs": lambda x: torch.unique_consecutive(x, return_counts=True, dim=0),
    "runs along the last": lambda x: torch.unique_consecutive(x[0], return_counts=True, dim=-1),
    "repeats": lambda x: torch.repeat_interleave(x, x[:, 0].abs(), dim=0),
    "bincount": lambda x: torch.bincount(x.flatten().abs(), minlength=3),
}


def integers(seed: int) -> torch.Tensor:
    return drawn(4, 5, of=torch.int64, seed=seed) // 3


@pytest.mark.parametrize("native", [False, True])
def test_as_many_as_are_found(native: bool) -> None:
    module = Call(lambda x: [f(x) for f in FINDS.values()])
    if not native:
        agree(module, integers(0), other=(integers(1),))
        return
    run = tw.compile(import_torch(module, (integers(0),)), cache=False)
    for seed in (1, 2):
        x = integers(seed)
        expected = pytree.tree_leaves(module(x))
        for a, b in zip(run(x.numpy()), expected, strict=True):
            close(np.asarray(a), b.numpy(), 0)


@pytest.mark.parametrize("of", [torch.float32, torch.int64, torch.bool])
def test_numbers_among_the_results(of: torch.dtype) -> None:
    x = drawn(3, of=of)
    graph = import_torch(Call(lambda x: (x[1].item(), x)), (x,))
    for seed in (0, 5):
        x = drawn(3, of=of, seed=seed)
        assert evaluate(graph, [x.numpy()])[0] == x[1].item()


def test_unique_slices_with_nan():
    """As without an axis: each NaN is a value of its own, greater than all numbers. (Eager's order
    of such slices depends on how they were sorted.)"""
    nan = float("nan")
    x = torch.tensor([[1.0, 2], [nan, 1], [1, 2], [0, nan], [nan, 1], [0, 1], [0, 0]])
    module = Call(lambda x: torch.unique(x, dim=0, return_inverse=True, return_counts=True))
    wanted = [[0, 0], [0, 1], [0, nan], [1, 2], [nan, 1], [nan, 1]]
    eager = sorted(map(str, module(x)[0].tolist()))
    assert sorted(str([float(v) for v in row]) for row in wanted) == eager
    graph = import_torch(module, (torch.zeros(7, 2),))
    rows, positions, counts = tw.compile(graph, cache=False)(x)
    np.testing.assert_array_equal(rows, wanted)
    np.testing.assert_array_equal(np.asarray(rows)[positions], x)
    np.testing.assert_array_equal(counts, np.bincount(positions))


def test_slices_up_to_numbers_in_tensors() -> None:
    """PyTorch has a name of its own for how many positions they take."""

    def cut(x: torch.Tensor, k: torch.Tensor, m: torch.Tensor) -> list[torch.Tensor]:
        a, b = k.item(), m.item()
        return [x[:a] * 2, x[b:].sum(0), x[b:a], x[:a, b:], torch.cat([x, x])[:a], x[:a:2]]

    x = drawn(5, 4)
    args = x, torch.tensor(3), torch.tensor(1)
    axes = ({0: torch.export.Dim.DYNAMIC}, {}, {})
    graph = import_torch(Call(cut), args, dynamic_shapes=(axes,))
    run = tw.compile(graph, cache=False)
    for rows, a, b in ((5, 3, 1), (5, 9, 2), (7, 2, 4), (2, 0, 0), (3, 1, 1)):
        given = drawn(rows, 4), torch.tensor(a), torch.tensor(b)
        for made, wanted in zip(run(*(t.numpy() for t in given)), cut(*given), strict=True):
            close(np.asarray(made), wanted.numpy(), 1e-6)
