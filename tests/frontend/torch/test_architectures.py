"""A few architectures, one of each kind; all of them: `python -m tests.frontend.torch.architectures`."""

from __future__ import annotations

import pytest
import torch

from tests.frontend.torch.architectures import LIBRARIES, NOT_YET, judge

FEW = ("transformers/bert", "transformers/llama", "transformers/t5", "transformers/mobilenet_v2")


@pytest.mark.parametrize("name", FEW)
def test_architectures(name: str) -> None:
    library, _, kind = name.partition("/")
    torch.manual_seed(0)
    assert judge(*LIBRARIES[library][1](kind)) == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(LIBRARIES["transformers"][0][::9]) - NOT_YET))
def test_more_architectures(name: str) -> None:
    torch.manual_seed(0)
    assert judge(*LIBRARIES["transformers"][1](name)) == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", ("bert", "gpt2", "vit"))
def test_architectures_at_other_sizes(name: str) -> None:
    """One compilation, five sizes."""
    torch.manual_seed(0)
    assert judge(*LIBRARIES["transformers"][1](name), sizes=True) == ""
