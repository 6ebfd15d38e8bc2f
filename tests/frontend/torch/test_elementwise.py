"""Element-wise ATen operators against eager PyTorch: one module applies many."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import tilewright as tw
from tests.frontend.torch.agreement import agree, drawn

UNARY = (
    "abs acos asin atan ceil cos cosh erf exp exp2 expm1 floor isinf isnan log log10 log1p log2 logical_not neg "
    "reciprocal relu round rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc frac deg2rad"
).split()
ACTIVATIONS = (
    "celu elu gelu hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu relu6 selu silu softplus "
    "softsign softshrink hardshrink tanhshrink"
).split()


def test_operators_of_one_operand() -> None:
    x = torch.rand(4, 5, generator=torch.Generator().manual_seed(1)) * 0.9 + 0.05
    agree(lambda x: [getattr(torch, name)(x) for name in UNARY], x)


def test_inverse_hyperbolic() -> None:
    x = torch.rand(7) * 0.9
    agree(lambda x: (torch.asinh(x), torch.atanh(x), torch.acosh(x + 1)), x)


def test_activations() -> None:
    def f(x: Tensor) -> list[Tensor]:
        made = [getattr(F, name)(x) for name in ACTIVATIONS]
        return [*made, F.gelu(x, approximate="tanh"), F.threshold(x, 0.1, 7.0), F.softplus(x, 2.0),
                F.elu(x, 0.5), F.leaky_relu(x, 0.3)]  # fmt: skip

    agree(f, drawn(6, 7) * 3)


def test_prelu_with_a_slope_for_each_channel() -> None:
    agree(lambda x, w: F.prelu(x, w), drawn(2, 3, 4), drawn(3))


@pytest.mark.parametrize("native", [False, True])
def test_powers_of_whole_numbers(native: bool) -> None:
    x, y = drawn(40, of=torch.int64), drawn(40, of=torch.int64, seed=1)
    x, y = torch.cat([x, torch.tensor([7, 3])]), torch.cat([y, torch.tensor([17, 4])])
    graph = agree(torch.pow, x, y, tolerance=0)
    if native:
        found = tw.compile(graph, cache=False)(x.numpy(), y.numpy())
        np.testing.assert_array_equal(found[0], torch.pow(x, y).numpy())


@pytest.mark.parametrize("of", [torch.float32, torch.int64, torch.int32])
def test_arithmetic(of: torch.dtype) -> None:
    def f(x: Tensor, y: Tensor) -> list[Tensor]:
        return [x + y, x - y, x * y, x / y, torch.add(x, y, alpha=2), torch.sub(x, y, alpha=3), 2 - x, 5 * x,
                torch.rsub(x, y, alpha=2), torch.floor_divide(x, y), torch.div(x, y, rounding_mode="trunc"),
                torch.div(x, y, rounding_mode="floor"), torch.remainder(x, y), torch.fmod(x, y), x % 3,
                torch.maximum(x, y), torch.minimum(x, y), x.clamp(-1, 2), x.clamp(min=y), x.clamp_max(1), x // 2]  # fmt: skip

    y = drawn(4, 5, seed=1, of=of)
    agree(f, drawn(3, 4, 5, of=of), torch.where(y == 0, 3, y).to(of))


def test_operands_of_different_dtypes_meet_as_in_pytorch() -> None:
    def f(x: Tensor, i: Tensor, b: Tensor) -> list[Tensor]:
        return [x + i, i * b, b + b, i / 2, i + 0.5, i * 2, x > i, i == 1.5, b == 1, b < x, torch.exp(i),
                torch.where(b, x, i), torch.atan2(i, x), torch.pow(i, 2), torch.pow(2.0, i), b & True, i | 3]  # fmt: skip

    agree(f, drawn(3, 4), drawn(3, 4, of=torch.int64), drawn(3, 4, of=torch.bool))


def test_powers() -> None:
    x = drawn(4, 5).abs() + 0.1
    agree(
        lambda x, y: [x**p for p in (0, 1, 2, 3, 4, 0.5, -0.5, -1, 1.7)] + [x**y, 2**y],
        x,
        drawn(4, 5, seed=1),
    )


def test_comparisons_and_logic() -> None:
    def f(x: Tensor, y: Tensor, b: Tensor) -> list[Tensor]:
        return [x == y, x != y, x < y, x <= y, x > y, x >= y, x > 0, torch.logical_and(x, b),
                torch.logical_or(b, y), torch.logical_xor(b, y), ~b, b & (x > 0), b | (x > 0), b ^ (x > 0)]  # fmt: skip

    agree(
        f,
        drawn(3, 4, of=torch.int64),
        drawn(3, 4, seed=1, of=torch.int64),
        drawn(3, 4, of=torch.bool),
    )


def test_bits() -> None:
    def f(x: Tensor, y: Tensor) -> list[Tensor]:
        return [x & y, x | y, x ^ y, ~x, x << 2, x >> 1]

    agree(f, drawn(9, of=torch.int32), drawn(9, seed=1, of=torch.int32))


def test_special_values() -> None:
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -1.5])
    agree(lambda x: [torch.isnan(x), torch.isinf(x), torch.isfinite(x), torch.nan_to_num(x), x.sign(),
                     torch.relu(x), x.clamp(-1, 1), torch.maximum(x, -x)], x)  # fmt: skip


def test_ends_of_ranges_that_the_type_does_not_hold() -> None:
    """-1 is the greatest of unsigned numbers; constants fold to the same."""
    x = torch.tensor([0, 5, 200, 255], dtype=torch.uint8)
    agree(lambda x: [x.clamp(min=-1), x.clamp(-3, 7), x.clamp_min(-3), x.clamp(2, 9)], x)
    agree(lambda y: [y + x.clamp(min=-1), y + x.clamp(-3, 7)], x)


@pytest.mark.parametrize("to", [torch.float64, torch.int64, torch.int8, torch.bool, torch.int32])
def test_conversions(to: torch.dtype) -> None:
    agree(
        lambda x, i: (x.to(to), i.to(to), i.bool().to(to)),
        drawn(4, 5) * 3,
        drawn(4, 5, of=torch.int64) * 100,
    )


def test_masks_and_choices() -> None:
    agree(
        lambda x, m: (x.masked_fill(m, -1e9), torch.where(m, x, 0.0), torch.where(m, 1.0, x), torch.lerp(x, x * 2, 0.3),
                      torch.addcmul(x, x, x, value=0.5), torch.addcdiv(x, x, x + 9)),
        drawn(3, 4), drawn(3, 4, of=torch.bool),
    )  # fmt: skip
