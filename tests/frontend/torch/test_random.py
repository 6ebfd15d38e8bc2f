"""Random numbers: as PyTorch's in shape, dtype and distribution."""

from __future__ import annotations

import numpy as np
import torch

from tests.frontend.torch.agreement import Call
from tests.frontend.torch.opinfo import compare_drawn
from tilewright.frontend.torch import import_torch
from tilewright.graph.evaluate import evaluate

MANY = 4000
LAWS = [
    lambda x: torch.rand_like(x),
    lambda x: torch.rand_like(x),  # another stream
    lambda x: torch.randn(MANY),
    lambda x: torch.normal(x * 0 + 3.0, 2.0),
    lambda x: torch.randint(-3, 9, (MANY,)),
    lambda x: x.clone().exponential_(2.0),
    lambda x: x.clone().uniform_(-1, 4),
    lambda x: x.clone().cauchy_(1.0, 0.5),
    lambda x: x.clone().geometric_(0.3),
    lambda x: x.clone().log_normal_(0.2, 0.5),
    lambda x: torch.bernoulli(x * 0 + 0.3),
    lambda x: torch.multinomial(torch.tensor([1.0, 5, 0, 2]), MANY, replacement=True),
    lambda x: torch.multinomial(torch.tensor([[1.0, 5, 0, 2]]).expand(MANY, 4), 2),
    lambda x: torch.randperm(MANY),
]


def test_distributions() -> None:
    x = torch.ones(MANY)
    module = Call(lambda x: [law(x) for law in LAWS])
    found = evaluate(import_torch(module, (x,)), [x.numpy()])
    expected = [y.numpy() for y in module(x)]
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert compare_drawn([a], [b]) == ("agree", ""), number
    assert (found[0] != found[1]).any()
    assert abs(np.corrcoef(found[0], found[1])[0, 1]) < 0.06
    assert (np.sort(found[-1]) == np.arange(MANY)).all()
    assert (found[-2][:, 0] != found[-2][:, 1]).all()
    assert compare_drawn([found[0]], [found[0] * 0.9])[0] == "differ"
