"""A few architectures, one of each kind; all of them: `python -m tests.frontend.torch.architectures`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from tests.frontend.torch.architectures import examine
from tests.frontend.torch.small_models import LIBRARIES
from tilewright.driver.kernels import KernelPool
from tilewright.frontend.torch import import_torch
from tilewright.graph import evaluate

FEW = ("transformers/bert", "transformers/llama", "transformers/t5", "transformers/mobilenet_v2")
SPREAD = [f"transformers/{name}" for name in LIBRARIES["transformers"][0][::9]]
AT_OTHER_SIZES = tuple(
    f"transformers/{name}" for name in ("gpt2", "hubert", "beit", "audio-spectrogram-transformer")
)
REFUSED = frozenset(["transformers/vilt"])  # by torch.export: its sizes depend on data
OPEN = {0: torch.export.Dim.DYNAMIC}


@pytest.fixture(scope="module")
def pool() -> Iterator[KernelPool]:
    with KernelPool() as workers:
        yield workers


@pytest.mark.parametrize("key", FEW)
def test_architectures(key: str, pool: KernelPool) -> None:
    (found,) = examine(key, ["static"], pool)
    assert found.verdict == "agrees", found.why


@pytest.mark.slow
@pytest.mark.parametrize("key", sorted(set(SPREAD) - REFUSED))
def test_more_architectures(key: str, pool: KernelPool) -> None:
    (found,) = examine(key, ["static"], pool)
    assert found.verdict == "agrees", found.why


@pytest.mark.slow
@pytest.mark.parametrize("key", AT_OTHER_SIZES)
def test_architectures_at_other_sizes(key: str, pool: KernelPool, turn) -> None:
    """One compilation, five sizes; likewise through ONNX."""
    ways = turn(["dynamic", "onnx"], AT_OTHER_SIZES.index(key))
    for found in examine(key, ways, pool):
        assert (found.verdict, found.sizes) == ("agrees", 5), found.why


def test_sizes_that_meet_a_table_are_its_length() -> None:
    """PyTorch may leave a size open that one condition on several sizes fixes."""

    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.randn(6, 4))

        def forward(self, x: Tensor) -> Tensor:
            return x.reshape(-1, 4) + self.table

    graph = import_torch(
        Positions(), (torch.randn(2, 3, 4),), dynamic_shapes={"x": {0: OPEN[0], 1: OPEN[0]}}
    )
    assert graph.inputs[0].static_shape == (2, 3, 4)


def test_windows_that_cover_an_image_fix_its_size() -> None:
    """How many windows of 50 fit is no linear function of its size: the example's is taken."""

    class Pooled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.avg_pool1d(x, 50, ceil_mode=True).reshape(-1, 4)

    graph = import_torch(
        Pooled(),
        (torch.randn(2, 4, 8),),
        dynamic_shapes={"x": {0: OPEN[0], 2: torch.export.Dim.AUTO}},
    )
    assert graph.outputs[0].shape[0] == graph.inputs[0].shape[0]


def test_a_slice_from_a_symbolic_end() -> None:
    class Last(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x[:, -y.shape[0] :] + 0

    x, y = torch.randn(2, 9), torch.randn(4)
    shapes = {"x": {1: OPEN[0]}, "y": {0: OPEN[0]}}
    graph = import_torch(Last(), (x, y), dynamic_shapes=shapes)
    (found,) = evaluate(graph, [x.numpy(), y.numpy()])
    assert (found == x[:, -4:].numpy()).all()
