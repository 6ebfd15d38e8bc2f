"""Random numbers: as PyTorch's in shape, dtype and distribution."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

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


def test_dropout_from_a_seed() -> None:
    """Elements or channels are dropped as often as in eager, others at each seed."""
    x = torch.linspace(1, 2, MANY).reshape(MANY // 4, 2, 2)
    laws = [
        lambda x: F.dropout(x, 0.3),
        lambda x: F.alpha_dropout(x, 0.3, training=True),
        lambda x: F.dropout1d(x, 0.3),
        lambda x: F.feature_alpha_dropout(x, 0.3, training=True),
    ]
    module = Call(lambda x: [law(x) for law in laws])
    graph = import_torch(module, (x,), seeded=True)
    assert graph.input_names[1:] == ("seed",)
    once, again, other = (evaluate(graph, [x.numpy(), np.asarray(s)]) for s in (1, 1, 2))
    for number, (a, b) in enumerate(zip(once, [y.numpy() for y in module(x)], strict=True)):
        assert (a == again[number]).all() and (a != other[number]).any()
        assert compare_drawn([a], [b], by_channel=number > 1) == ("agree", ""), number
        lowest = a.min() if number % 2 else 0
        lost = a <= lowest if number % 2 == 0 else np.isclose(a, lowest)
        kept = module(x)[number].numpy()
        both = ~lost & ~np.isclose(kept, kept.min())
        np.testing.assert_allclose(a[both], kept[both], rtol=1e-5)
        if number > 1:
            assert (lost.all(-1) | ~lost.any(-1)).all()


def test_attention_that_drops_weights() -> None:
    """Over many seeds the mean is what it gives without; at 1 nothing is left."""
    q, k, v = (torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(s)) for s in range(3))
    module = Call(lambda *x: F.scaled_dot_product_attention(*x, dropout_p=0.4))
    graph = import_torch(module, (q, k, v), seeded=True)
    arrays = [x.numpy() for x in (q, k, v)]
    found = [evaluate(graph, [*arrays, np.asarray(seed)])[0] for seed in range(400)]
    expected = F.scaled_dot_product_attention(q, k, v).numpy()
    assert np.std(found, axis=0).min() > 0.01
    np.testing.assert_allclose(np.mean(found, axis=0), expected, atol=0.25)
