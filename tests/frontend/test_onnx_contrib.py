"""Operators of com.microsoft: compiled, beside onnxruntime, on random inputs and options."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.differential.growth import F32, I8, I32, U8, Growth, Value
from tests.differential.verdict import run

MS = "com.microsoft"


def growth(seed: int, *symbols: str) -> Growth:
    g = Growth(np.random.default_rng(seed), 18, symbols)
    g.count = 3 if symbols else 1
    return g


def made(
    g: Growth, *sizes: Any, of: Any = F32, low: float = -2, high: float = 2, fixed: bool = False
) -> Value:
    dims = tuple(s if isinstance(s, tuple) else g.same(s) for s in sizes)
    return g.fresh(of, dims, low, high, fixed=fixed)


@pytest.mark.parametrize("across, down", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_fused_matmul(across: int, down: int) -> None:
    g = growth(across + 2 * down)
    a = made(g, 2, *((5, 3) if across else (3, 5)))
    b = made(g, 2, *((4, 5) if down else (5, 4)))
    g.apply("FusedMatMul", a, b, domain=MS, transA=across, transB=down, alpha=0.7)
    run(g.finish())


@pytest.mark.parametrize("op", ["Gelu", "BiasGelu", "FastGelu", "QuickGelu"])
def test_activation(op: str) -> None:
    g = growth(1, "N")
    x = made(g, (6, 11, 1), 8)
    g.apply(op, x, *([made(g, 8)] if op == "BiasGelu" else []), domain=MS, rough=True)
    if op == "FastGelu":
        g.apply(op, x, made(g, 8), domain=MS, rough=True)
    if op == "QuickGelu":
        g.apply(op, x, domain=MS, alpha=0.9)
    run(g.finish())


@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
@pytest.mark.parametrize("bias", [False, True])
def test_skip_norm(op: str, bias: bool) -> None:
    g = growth(2, "N")
    x, skip, scale = made(g, 2, (6, 11, 1), 8), made(g, 2, (6, 11, 1), 8), made(g, 8)
    beta = [] if "Simplified" in op else [made(g, 8)]
    parts = [x, skip, scale, *beta, *([made(g, 8)] if bias else [])]
    g.apply(op, *parts, domain=MS, outputs=[1, 0, 0, 1], epsilon=1e-5)
    g.apply(op, *parts, domain=MS)
    run(g.finish())


def test_simplified_norm() -> None:
    g = growth(3)
    g.apply("SimplifiedLayerNormalization", made(g, 2, 5, 8), made(g, 8), axis=-1, epsilon=1e-5)
    run(g.finish())


@pytest.mark.parametrize("options", range(8))
def test_embed_norm(options: int) -> None:
    segment, mask, positions = options & 1, options & 2, options & 4
    g = growth(4)
    ids = made(g, 2, 5, of=I32, low=0, high=8)
    parts: list[Value | None] = [
        ids, made(g, 2, 5, of=I32, low=0, high=1) if segment else None, made(g, 9, 8),
        made(g, 7, 8), made(g, 2, 8) if segment else None, made(g, 8), made(g, 8),
        made(g, 2, 5, of=I32, low=0, high=1) if mask else None,
        made(g, 2, 5, of=I32, low=0, high=6) if positions else None,
    ]  # fmt: skip
    while parts[-1] is None:
        parts.pop()
    g.apply("EmbedLayerNormalization", *parts, domain=MS, outputs=2, epsilon=1e-5)
    g.apply("EmbedLayerNormalization", *parts, domain=MS, outputs=3)
    run(g.finish())


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("offset", [False, True])
def test_rotary_embedding(interleaved: int, offset: bool) -> None:
    g = growth(5)
    tables = made(g, 12, 4), made(g, 12, 4)
    positions = g.given(
        [np.array([3] if offset else [[0, 2, 4, 6, 8], [1, 1, 2, 11, 3]], np.int64)], False
    )
    op, attrs = "RotaryEmbedding", {"domain": MS, "interleaved": interleaved}
    g.apply(op, made(g, 2, 5, 24), positions, *tables, **attrs)
    g.apply(op, made(g, 2, 3, 5, 8), positions, *tables, **attrs)
    part = {"num_heads": 2, "rotary_embedding_dim": 8}
    g.apply(op, made(g, 2, 5, 24), positions, *tables, **part, **attrs)
    run(g.finish())


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_matmul_of_few_bits(bits: int, zeros: bool) -> None:
    g, rows, columns, block = growth(6), 6, 40, 16
    blocks, per_byte = 3, 8 // bits
    packed = g.rng.integers(0, 256, (rows, blocks, block // per_byte)).astype(np.uint8)
    parts: list[Value | None] = [
        made(g, 2, 3, columns), g.constant(packed, U8),
        g.constant(g.rng.uniform(0.01, 0.1, rows * blocks), F32),
    ]  # fmt: skip
    if zeros:
        width = -(-blocks // per_byte)
        parts.append(g.constant(g.rng.integers(0, 256, rows * width), U8))
    sizes = {"K": columns, "N": rows, "bits": bits, "block_size": block}
    g.apply("MatMulNBits", *parts, domain=MS, rough=True, **sizes)
    run(g.finish())


# quantised ----------------------------------------------------------------------------------------


def scale(g: Growth, of: Any) -> tuple[Value, Value]:
    zero = g.rng.integers(*((90, 160) if of == U8 else (-9, 9)))
    return g.constant(g.rng.uniform(0.02, 0.1), F32), g.constant(zero, of)


def numbers(g: Growth, of: Any, *sizes: int) -> tuple[Value, Value, Value]:
    return (made(g, *sizes, of=of, low=-100, high=220 if of == U8 else 100), *scale(g, of))


@pytest.mark.parametrize("of", [U8, I8])
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_quantised_pair(op: str, of: Any) -> None:
    g = growth(7)
    parts = (*numbers(g, of, 2, 3, 4), *numbers(g, of, 3, 4), *scale(g, of))
    g.apply(op, *parts, domain=MS)
    run(g.finish())


@pytest.mark.parametrize("of", [U8, I8])
@pytest.mark.parametrize("op", ["QLinearSigmoid", "QLinearLeakyRelu"])
def test_quantised_activation(op: str, of: Any) -> None:
    g = growth(8)
    attrs = {"alpha": 0.2} if op == "QLinearLeakyRelu" else {}
    g.apply(op, *numbers(g, of, 3, 5), *scale(g, of), domain=MS, **attrs)
    run(g.finish())


@pytest.mark.parametrize("of", [U8, I8])
def test_quantised_pool(of: Any) -> None:
    g = growth(9)
    x = numbers(g, of, 1, 3, 6, 7)
    g.apply("QLinearGlobalAveragePool", *x, *scale(g, of), domain=MS)
    window = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    for counts in (0, 1):
        attrs = {**window, "count_include_pad": counts}
        g.apply("QLinearAveragePool", *x, *scale(g, of), domain=MS, **attrs)
    run(g.finish())


def test_quantised_concat() -> None:
    g = growth(10)
    parts = (*scale(g, U8), *numbers(g, U8, 2, 3), *numbers(g, U8, 2, 4))
    g.apply("QLinearConcat", *parts, domain=MS, axis=1)
    run(g.finish())


@pytest.mark.parametrize("of", [U8, I8])
def test_product_to_float(of: Any) -> None:
    g = growth(11)
    a, a_scale, a_zero = numbers(g, of, 3, 8)
    b = made(g, 8, 5, of=I8, low=-60, high=60, fixed=True)
    b_scale, bias = g.constant(g.rng.uniform(0.02, 0.1, 5), F32), made(g, 5)
    parts = (a, b, a_scale, b_scale, a_zero, None, bias)
    g.apply("MatMulIntegerToFloat", *parts, domain=MS, rough=True)
    g.apply("DynamicQuantizeMatMul", made(g, 3, 8), b, b_scale, None, bias, domain=MS, rough=True)
    run(g.finish())
