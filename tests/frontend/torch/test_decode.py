"""Text, token by token: one executable for every length of a growing cache."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tilewright as tw
from tests.frontend.torch.agreement import Call
from tests.frontend.torch.small_models import of_transformers
from tilewright.frontend.torch import import_torch

DYNAMIC = torch.export.Dim.DYNAMIC


class Step(nn.Module):
    """The scores after one token and the cache that contains it, as flat keys and values."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, past: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        from transformers import DynamicCache

        cache = DynamicCache(list(zip(past[::2], past[1::2], strict=True)))
        found = self.model(input_ids=ids, past_key_values=cache, use_cache=True)
        now = found.past_key_values.layers
        return found.logits, [x for layer in now for x in (layer.keys, layer.values)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ("gpt2", "llama"))
def test_decoding_with_a_growing_cache(name: str) -> None:
    torch.manual_seed(0)
    model, _ = of_transformers(name)
    config = model.config
    heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
    step = Step(model)
    past = [torch.randn(1, heads, 4, 8) for _ in range(2 * config.num_hidden_layers)]
    token = torch.tensor([[7]])
    open_ = {"ids": None, "past": [{2: DYNAMIC}] * len(past)}
    with torch.no_grad():
        run = tw.compile(
            torch.export.export(step, (token, past), dynamic_shapes=open_), cache=False
        )
        ours, cache = token.numpy(), [x.numpy() for x in past]
        for length in range(5, 25):
            scores, past = step(token, past)
            found, *cache = run(ours, *cache)
            np.testing.assert_allclose(found, scores.numpy(), rtol=1e-3, atol=1e-5)
            assert cache[0].shape[2] == past[0].shape[2] == length
            token, ours = scores[:, -1].argmax(-1, keepdim=True), found[:, -1].argmax(-1)[:, None]
            assert np.array_equal(ours, token.numpy())


def test_sizes_that_must_agree_are_one() -> None:
    """PyTorch leaves the lengths of keys and values apart; attention takes one."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, torch.cat([k, k], 2), torch.cat([v, v], 2))

    x = [torch.randn(1, 2, 5, 4) for _ in range(3)]
    open_ = {"inputs": (None, {2: DYNAMIC}, {2: DYNAMIC})}
    graph = import_torch(Call(attend), x, dynamic_shapes=open_)
    q, k, v = (value.shape for value in graph.inputs)
    assert k == v != q
