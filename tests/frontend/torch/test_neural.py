"""Products, convolutions, pooling, attention and resampling against eager PyTorch."""

from __future__ import annotations

import itertools
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.frontend.torch.agreement import agree, drawn, native
from tilewright.frontend.torch import import_torch


def test_products() -> None:
    def f(x: Tensor, y: Tensor, w: Tensor, v: Tensor) -> list[Tensor]:
        return [x @ y, torch.bmm(x, y), x @ y[0], x[0] @ y, x @ v, v @ y[0], v @ v, torch.mv(x[0], v), F.linear(x, w),
                F.linear(x, w, w[:, 0]), F.linear(v, w), torch.addmm(w[:3, 0], x[0], y[0][:, :3], beta=0.5, alpha=2),
                torch.baddbmm(x[..., :4], x, y), torch.einsum("bij,bjk->bki", x, y), torch.einsum("bij,kj->ik", x, w),
                torch.outer(v, v), torch.tensordot(x, y, ([2], [1])), torch.inner(x, w), torch.dot(v, v),
                torch.addbmm(x[0][:, :4], x, y)]  # fmt: skip

    agree(f, drawn(2, 3, 5), drawn(2, 5, 4, seed=1), drawn(6, 5, seed=2), drawn(5, seed=3))


def test_products_of_integers_are_added_up_in_i32() -> None:
    whole = torch.Generator().manual_seed(4)
    x, y = (
        torch.randint(-128, 128, shape, generator=whole, dtype=torch.int8)
        for shape in ((33, 40), (40, 24))
    )
    agree(torch._int_mm, x, y)


def test_products_of_small_floats_that_are_not_rounded() -> None:
    """PyTorch has them for GPUs alone: beside its products of f32."""
    x, y, z = drawn(5, 40).bfloat16(), drawn(40, 7, seed=1).bfloat16(), drawn(5, 7, seed=2)

    class Products(nn.Module):
        def forward(self, x: Tensor, y: Tensor, z: Tensor) -> list[Tensor]:
            of = torch.float32
            return [torch.mm(x, y, out_dtype=of), torch.bmm(x[None], y[None], out_dtype=of)[0],
                    torch.addmm(z, x, y, out_dtype=of, beta=2, alpha=3)]  # fmt: skip

    graph = import_torch(Products(), (x, y, z))
    small = graph.inputs[0].dtype.numpy
    given = [v.view(torch.uint16).numpy().view(small) for v in (x, y)]
    expected = x.float() @ y.float()
    one, batch, more = map(torch.as_tensor, native(graph, *given, z.numpy()))
    for found, want in ((one, expected), (batch, expected), (more, 2 * z + 3 * expected)):
        torch.testing.assert_close(found, want)


CONVOLUTIONS = [
    nn.Conv2d(4, 6, 3, padding=1), nn.Conv2d(4, 6, (3, 2), stride=(2, 1), dilation=(1, 2), bias=False),
    nn.Conv2d(4, 8, 3, groups=2), nn.Conv2d(4, 4, 3, groups=4, padding="same"), nn.Conv2d(4, 4, 4, padding="same"),
    nn.Conv2d(4, 6, 3, padding="valid"), nn.ConvTranspose2d(4, 6, 4, 2, 1),
    nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1, groups=2, bias=False),
    nn.ConvTranspose2d(4, 6, 3, dilation=2), nn.Conv2d(4, 6, 3, padding=2, padding_mode="reflect"),
]  # fmt: skip


@pytest.mark.parametrize("layer", CONVOLUTIONS, ids=str)
def test_convolutions(layer: nn.Module) -> None:
    agree(layer, drawn(2, 4, 9, 8))
    agree(layer, drawn(4, 9, 8))


def test_convolutions_of_other_ranks() -> None:
    agree(nn.Conv1d(4, 6, 3, 2, 1), drawn(2, 4, 9))
    agree(nn.ConvTranspose1d(4, 6, 4, 2, 1), drawn(2, 4, 9))
    agree(nn.Conv3d(2, 3, 3, padding=1), drawn(1, 2, 4, 5, 6))


def test_pooling() -> None:
    def f(x: Tensor) -> list[Tensor]:
        return [F.max_pool2d(x, 2), F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, 2, ceil_mode=True), F.max_pool2d(x, (2, 3), 1),
                F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
                F.avg_pool2d(x, 2, ceil_mode=True), F.avg_pool2d(x, 2, divisor_override=3), F.max_pool2d(x, 3, 1, 1, 1),
                F.max_pool2d(x[0], 2), F.lp_pool2d(x.abs(), 2, 2), F.avg_pool1d(x[:, :, 0], 2), F.max_pool1d(x[:, :, 0], 3, 2)]  # fmt: skip

    agree(f, drawn(2, 3, 7, 9))


@pytest.mark.parametrize("size", [1, (1, 1), (3, 2), (5, 7), (4, 3), (None, 3)])
def test_adaptive_pooling(size: object) -> None:
    agree(
        lambda x: (F.adaptive_avg_pool2d(x, size), F.adaptive_max_pool2d(x, size)),
        drawn(2, 3, 9, 6),
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("height", [5, 7, 16])
def test_adaptive_pooling_to_open_sizes(height: int) -> None:
    def f(x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(x, (x.shape[2] - 3, 2))

    other = (drawn(2, 3, height, 6, seed=height),)
    agree(f, drawn(2, 3, 9, 6), dynamic=[({2: torch.export.Dim("h", min=5)},)], other=other)


def test_attention() -> None:
    def f(q: Tensor, k: Tensor, v: Tensor, m: Tensor, bias: Tensor) -> list[Tensor]:
        attend = F.scaled_dot_product_attention
        return [attend(q, k, v), attend(q, k, v, is_causal=True), attend(q, k, v, attn_mask=m), attend(q, k, v, bias),
                attend(q, k, v, scale=0.5), attend(q, k[:, :2], v[:, :2], enable_gqa=True),
                attend(q, k[:, :2], v[:, :2], m, enable_gqa=True)]  # fmt: skip

    q, k, v = (drawn(2, 4, 6, 8, seed=n) for n in range(3))
    m = drawn(2, 1, 6, 6, of=torch.bool)
    m[0, 0, 3] = False  # a row that sees nothing
    bias = torch.where(m, drawn(2, 1, 6, 6, seed=5), -torch.inf)
    agree(f, q, k, v, m, bias)


def test_attention_layer() -> None:
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    agree(lambda x: layer(x, x, x, need_weights=False)[0], drawn(2, 5, 8))
    agree(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu"), drawn(2, 5, 8))


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True, "bias": False}]
)
def test_recurrent_layers(layer: type[nn.Module], options: dict[str, object]) -> None:
    made = layer(5, 6, **options)
    directions, layers = (2 if options.get("bidirectional") else 1), options.get("num_layers", 1)
    h = drawn(directions * layers, 3 if not options.get("batch_first") else 4, 6, seed=1)  # type: ignore[operator]
    x = drawn(4, 3, 5)
    agree(made, x)
    agree(lambda x, h: made(x, (h, h * 0.5) if layer is nn.LSTM else h), x, h)


def test_recurrent_layer_with_relu() -> None:
    agree(nn.RNN(5, 6, nonlinearity="relu"), drawn(4, 3, 5))


def test_cells() -> None:
    agree(nn.LSTMCell(4, 5), drawn(3, 4))
    agree(nn.GRUCell(4, 5), drawn(3, 4))


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
@pytest.mark.parametrize("how", [{"size": (7, 11)}, {"scale_factor": 2}, {"scale_factor": (1.5, 0.7)},
                                 {"size": (3, 9), "align_corners": True}])  # fmt: skip
def test_resampling(mode: str, how: dict[str, object]) -> None:
    if mode.startswith("nearest"):
        how = {k: v for k, v in how.items() if k != "align_corners"}
    agree(lambda x: F.interpolate(x, mode=mode, **how), drawn(2, 3, 5, 6))  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_resampling_in_double_precision(mode: str) -> None:
    image = drawn(2, 3, 5, 6).double()
    agree(lambda x: F.interpolate(x, mode=mode, size=(7, 11)), image, tolerance=1e-14)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_sampling_at_a_grid(mode: str) -> None:
    grid = drawn(2, 4, 5, 2, seed=1).clamp(-1.4, 1.4)
    kinds = itertools.product(("zeros", "border", "reflection"), (True, False))
    calls = [partial(F.grid_sample, mode=mode, padding_mode=p, align_corners=c) for p, c in kinds]
    agree(lambda x, g: [f(x, g) for f in calls], drawn(2, 3, 6, 7), grid)
    if mode != "bicubic":
        volume, grid = drawn(2, 3, 4, 5, 3), drawn(2, 2, 3, 4, 3, seed=1).clamp(-1.4, 1.4)
        agree(lambda x, g: [f(x, g) for f in calls], volume, grid)


def test_rows_of_an_embedding_are_shortened() -> None:
    rows = torch.tensor([[1, 4], [4, 2]])
    for norm in (1.0, 2.0):
        agree(
            lambda w, i, norm=norm: F.embedding(i, w.clone(), max_norm=1.5, norm_type=norm),
            drawn(6, 5),
            rows,
        )


def test_attention_whose_query_lacks_the_batch() -> None:
    f = partial(F.scaled_dot_product_attention, is_causal=True)
    agree(f, drawn(4, 3, 8), drawn(2, 4, 6, 8, seed=1), drawn(2, 4, 6, 8, seed=2))


def test_shuffled_pixels() -> None:
    agree(
        lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 3), F.channel_shuffle(x, 4)),
        drawn(2, 8, 3, 6),
    )
