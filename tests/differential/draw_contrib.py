"""Draws of the `com.microsoft` operators that exports of transformers and quantisers contain."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.differential.draw_linear import NARROW, given_size, image, scale_and_zero, window
from tests.differential.growth import F16, F32, I8, I32, I64, U8, Growth, Value, within
from tests.differential.reference import Unsound
from tests.differential.table import draws

DOMAIN = "com.microsoft"


def full(v: Value) -> bool:
    """Has it elements in each world, and a last axis of known width?"""
    return min(map(min, v.dims)) > 0 and len(set(v.dims[-1])) == 1


def hidden(g: Growth, ranks: Any = (2, 3), types: Any = (F32,)) -> Value:
    """[..., width]: numbers of words."""
    return g.value(types, ranks, fits=full)


@draws("FusedMatMul", weight=0.8)
def fused_matmul(g: Growth, op: str) -> None:
    a = g.value((F32,), range(2, 5))
    across, down = g.int(0, 1), g.int(0, 1)
    inner = given_size(g, a.dims[-2 if across else -1])
    matrix = (g.size(), inner) if down else (inner, g.size())
    lead = tuple(d if g.chance(0.5) else g.same(1) for d in a.dims[:-2])
    lead = lead if g.declarable(lead) and g.chance(0.6) else ()
    b = g.fresh(F32, (*lead, *matrix), -1, 1)
    attrs = {"transA": across or None, "transB": down or None}
    g.apply(op, a, b, domain=DOMAIN, alpha=g.among([None, g.number(0.2, 2)]), **attrs)


@draws("Gelu", "BiasGelu", "FastGelu", "QuickGelu", weight=1.2)
def gelu(g: Growth, op: str) -> None:
    x = g.value((F32,), range(1, 5), where=lambda a: within(a, -60, 60), fits=full)
    parts = [x]
    if op == "BiasGelu" or (op == "FastGelu" and g.chance(0.5)):
        parts.append(g.fresh(F32, x.dims[-1:]))
    alpha = g.number(0.5, 2) if op == "QuickGelu" and g.chance(0.5) else None
    g.apply(op, *parts, domain=DOMAIN, rough=True, alpha=alpha)


@draws("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", weight=1)
def skip_norm(g: Growth, op: str) -> None:
    x = hidden(g, (3,), (F32, F32, F16))
    width, simple = x.dims[-1:], op == "SkipSimplifiedLayerNormalization"
    if width[0][0] < 2 or not g.declarable(x.dims):
        raise Unsound("one element")
    parts: list[Value | None] = [x, g.fresh(x.dtype, x.dims), g.fresh(x.dtype, width)]
    if not simple:
        parts.append(g.fresh(x.dtype, width) if g.chance(0.6) else None)
    if g.chance(0.5):
        parts.append(g.fresh(x.dtype, width))
    wanted = g.among([[1], [1, 0, 0, 1]])
    attrs = {"epsilon": g.among([1e-5, 1e-3])}
    g.apply(op, *parts, domain=DOMAIN, outputs=wanted, **attrs)


@draws("EmbedLayerNormalization", weight=0.3)
def embed_norm(g: Growth, op: str) -> None:
    words, positions, width = g.int(2, 9), max(20, *(g.size())), g.among([2, 4, 8])
    batch, length = g.among([g.same(1), g.same(2), g.size()]), g.size()
    ids = g.fresh(I32, (batch, length), 0, words - 1, fixed=False)
    segments = g.fresh(I32, (batch, length), 0, 1, fixed=False) if g.chance(0.6) else None

    def table(rows: int) -> Value:
        return g.fresh(F32, (g.same(rows), g.same(width)))

    parts = [ids, segments, table(words), table(positions), table(2) if segments else None]
    parts += [g.fresh(F32, (g.same(width),)), g.fresh(F32, (g.same(width),))]
    if g.chance(0.4):
        parts.append(g.fresh(I32, (batch, length), 0, 1, fixed=False))
    g.apply(op, *parts, domain=DOMAIN, outputs=2, epsilon=1e-4)


@draws("RotaryEmbedding", weight=0.8)
def rotary(g: Growth, op: str) -> None:
    heads, half = g.int(1, 3), g.among([1, 2, 4])
    batch, length = g.among([g.same(1), g.same(2), g.size()]), g.size()
    flat, most = g.chance(0.5), max(length) + 6
    shape = (
        (batch, length, g.same(heads * 2 * half)) if flat
        else (batch, g.same(heads), length, g.same(2 * half))
    )  # fmt: skip
    x = g.pick((F32,), (len(shape),), fits=lambda v: v.dims == shape) or g.fresh(F32, shape)
    if g.chance(0.5):
        at = g.fresh(I64, (g.same(1),), 0, 6, fixed=False)
    else:
        at = g.fresh(I64, (batch, length), 0, most - 1, fixed=False)
    tables = [g.fresh(F32, (g.same(most), g.same(half)), -1, 1) for _ in range(2)]
    g.apply(op, x, at, *tables, domain=DOMAIN, interleaved=g.int(0, 1))


@draws("MatMulNBits", weight=0.8)
def matmul_few_bits(g: Growth, op: str) -> None:
    x = hidden(g, (2, 3))
    bits, block = g.among([4, 4, 4, 8]), g.among([16, 32])
    inner, rows = x.dims[-1][0], g.among([1, 3, 8, 17])
    blocks = -(-inner // block)
    w = g.constant(g.rng.integers(0, 256, (rows, blocks, block * bits // 8)), np.uint8)
    scales = g.constant(g.rng.uniform(0.02, 0.2, rows * blocks), F32)
    parts: list[Value | None] = [x, w, scales]
    if g.chance(0.5):
        parts.append(g.constant(g.rng.integers(0, 256, rows * -(-blocks * bits // 8)), np.uint8))
    if g.chance(0.4):
        parts += [None] * (5 - len(parts)) + [g.fresh(F32, (g.same(rows),), fixed=True)]
    attrs = {"K": inner, "N": rows, "bits": bits, "block_size": block}
    g.apply(op, *parts, domain=DOMAIN, rough=True, **attrs)


# Attention ----------------------------------------------------------------------------------------


def key_mask(g: Growth, batch: tuple[int, ...], total: tuple[int, ...]) -> Value:
    """Which keys count, or how many: at least one."""
    if g.chance(0.4):
        lengths = [g.rng.integers(1, total[w] + 1, batch[w]) for w in range(g.count)]
        return g.told(lengths, np.int32)
    masks = []
    for w in range(g.count):
        mask = g.rng.integers(0, 2, (batch[w], total[w]))
        mask[:, :1] = 1
        masks.append(mask)
    return g.told(masks, np.int32)


@draws("Attention", weight=0.6)
def packed_attention(g: Growth, op: str) -> None:
    heads, depth = g.int(1, 3), g.among([1, 2, 4])
    x = hidden(g, (3,))
    batch, length, width = x.dims
    if not g.declarable(x.dims):
        raise Unsound("a size that no input can have")
    outer = heads * depth  # without a bias onnxruntime crashes
    parts: list[Value | None] = [x, g.fresh(F32, (width, g.same(3 * outer)), -0.6, 0.6, fixed=True)]
    parts.append(g.fresh(F32, (g.same(3 * outer),)))
    attrs: dict[str, Any] = {"num_heads": heads}
    one_way = g.chance(0.3)
    if one_way:
        attrs["unidirectional"] = 1
    elif g.chance(0.4):
        parts.append(key_mask(g, batch, length))
    if g.chance(0.2):
        attrs["scale"] = g.number(0.2, 1)
    if len(parts) == 3 and g.chance(0.3):
        past = (g.same(2), batch, g.same(heads), g.same(g.int(1, 4)), g.same(depth))
        parts += [None, g.fresh(F32, past)]
    wanted = 2 if len(parts) == 5 or g.chance(0.2) else 1
    g.apply(op, *parts, domain=DOMAIN, outputs=wanted, rough=True, **attrs)


@draws("MultiHeadAttention", weight=0.8)
def multi_head_attention(g: Growth, op: str) -> None:
    heads, depth = g.int(1, 3), g.among([1, 2, 4])
    batch, rows, columns = g.among([g.same(1), g.same(2), g.size()]), g.size(), g.size()
    wide, outer = g.same(heads * depth), g.same(heads * g.among([depth, 3]))

    def words(length: tuple[int, ...], width: tuple[int, ...]) -> Value:
        dims = (batch, length, width)
        return g.pick((F32,), (3,), fits=lambda v: v.dims == dims) or g.fresh(F32, dims)

    parts: list[Value | None] = [words(rows, wide), words(columns, wide), words(columns, outer)]
    if g.chance(0.4):
        parts.append(g.fresh(F32, (g.same(2 * wide[0] + outer[0]),)))
    attrs: dict[str, Any] = {"num_heads": heads}
    if g.chance(0.3):
        parts += [None] * (4 - len(parts)) + [key_mask(g, batch, columns)]
    elif g.chance(0.3):
        lead = (g.among([batch, g.same(1)]), g.among([g.same(heads), g.same(1)]))
        parts += [None] * (5 - len(parts)) + [g.fresh(F32, (*lead, rows, columns))]
    elif g.chance(0.3) and rows == columns:
        attrs["unidirectional"] = 1
    if g.chance(0.2):
        attrs["scale"] = g.number(0.2, 1)
    g.apply(op, *parts, domain=DOMAIN, rough=True, **attrs)


@draws("GroupQueryAttention", weight=0.5)
def group_query_attention(g: Growth, op: str) -> None:
    """A prompt, or one more word behind a cache."""
    few, group, depth = g.int(1, 2), g.int(1, 3), 16
    batch, prompt = g.int(1, 2), g.chance(0.5)
    length = g.size() if prompt else g.same(1)
    before = 0 if prompt else g.int(1, 6)
    q = g.fresh(F32, (g.same(batch), length, g.same(few * group * depth)))
    k, v = (g.fresh(F32, (g.same(batch), length, g.same(few * depth))) for _ in range(2))
    past = [None, None]
    if before:
        dims = tuple(g.same(s) for s in (batch, few, before, depth))
        past = [g.fresh(F32, dims, fixed=False) for _ in range(2)]
    totals = [before + length[w] for w in range(g.count)]
    counts = g.told([np.full(batch, t - 1) for t in totals], np.int32)
    total = g.told(totals, np.int32)
    attrs: dict[str, Any] = {"num_heads": few * group, "kv_num_heads": few}
    tables = []
    if g.chance(0.4):
        dims = (g.same(max(totals) + 3), g.same(depth // 2))
        tables = [g.fresh(F32, dims, -1, 1, fixed=True) for _ in range(2)]
        attrs |= {"do_rotary": 1, "rotary_interleaved": g.int(0, 1)}
    if g.chance(0.2):
        attrs["scale"] = g.number(0.1, 0.6)
    if g.chance(0.2):
        attrs["softcap"] = g.number(2, 8)
    if g.chance(0.2):
        attrs["local_window_size"] = g.int(1, 4)
    parts = (q, k, v, *past, counts, total, *tables)
    made = g.apply(op, *parts, domain=DOMAIN, outputs=3, rough=True, **attrs)
    if len(set(totals)) == 1:  # else it is a size, which nothing fixed is put beside
        g.forget(made[1:])  # their length follows from what the run knows


# Quantised ----------------------------------------------------------------------------------------


def quantised(g: Growth, ranks: Any = range(1, 5)) -> Value:
    return g.value((U8, I8), ranks, low=-100, high=200, fits=lambda v: min(map(min, v.dims)) > 0)


@draws("QLinearAdd", "QLinearMul", weight=0.8)
def qlinear_pair(g: Growth, op: str) -> None:
    x = quantised(g)
    y = g.partner(x, low=-128, high=255)
    parts = (x, *scale_and_zero(g, x.dtype), y, *scale_and_zero(g, x.dtype))
    g.apply(op, *parts, *scale_and_zero(g, x.dtype), domain=DOMAIN)


@draws("QLinearLeakyRelu", "QLinearSigmoid", weight=0.5)
def qlinear_activation(g: Growth, op: str) -> None:
    x = quantised(g)
    alpha = g.number(0.05, 0.9) if op == "QLinearLeakyRelu" else None
    ends = (*scale_and_zero(g, x.dtype), *scale_and_zero(g, x.dtype))
    g.apply(op, x, *ends, domain=DOMAIN, alpha=alpha)


@draws("QLinearAveragePool", "QLinearGlobalAveragePool", weight=0.5)
def qlinear_pool(g: Growth, op: str) -> None:
    x = image(g, g.among([1, 2, 2]), (U8, I8) if op == "QLinearAveragePool" else (U8,))
    ends = (*scale_and_zero(g, x.dtype), *scale_and_zero(g, x.dtype))
    attrs: dict[str, Any] = {}
    if op == "QLinearAveragePool":
        kernel = [g.among([1, 2, 3]) for _ in x.dims[2:]]
        attrs = {"kernel_shape": kernel, **window(g, x, kernel, False)}
        attrs["count_include_pad"] = g.int(0, 1)
    g.apply(op, x, *ends, domain=DOMAIN, **attrs)


@draws("QLinearConcat", weight=0.4)
def qlinear_concat(g: Growth, op: str) -> None:
    x = quantised(g)
    axis = g.int(0, x.rank - 1)
    parts: list[Value] = [*scale_and_zero(g, x.dtype), x, *scale_and_zero(g, x.dtype)]
    for _ in range(g.int(1, 2)):
        dims = tuple(g.size() if k == axis else d for k, d in enumerate(x.dims))
        parts += [g.fresh(x.dtype, dims, -100, 200), *scale_and_zero(g, x.dtype)]
    g.apply(op, *parts, domain=DOMAIN, axis=axis)


@draws("MatMulIntegerToFloat", "DynamicQuantizeMatMul", weight=0.7)
def integer_product(g: Growth, op: str) -> None:
    dynamic = op == "DynamicQuantizeMatMul"

    def fits(v: Value) -> bool:
        return min(map(min, v.dims)) > 0

    if dynamic:
        a = g.value((F32,), (2, 3), where=lambda a: bool(a.any()), fits=fits)
    else:
        a = g.value((U8, I8), (2, 3), low=-100, high=200, fits=fits)
    kind, columns = g.among([U8, I8]), g.among([1, 3, 8, 17])
    b = g.fresh(kind, (given_size(g, a.dims[-1]), g.same(columns)), *NARROW)
    scale, zero = scale_and_zero(g, kind, g.among([None, columns]))
    if not scale.rank:
        scale, zero = (g.constant(v.worlds[0].reshape(1), v.dtype) for v in (scale, zero))
    parts: list[Value | None] = [a, b]
    if not dynamic:
        left = scale_and_zero(g, a.dtype)
        parts += [left[0], scale, left[1]]
    else:
        parts.append(scale)
    parts.append(zero if g.chance(0.7) else None)
    if g.chance(0.5):
        parts.append(g.fresh(F32, (g.same(columns),)))
    g.apply(op, *parts, domain=DOMAIN, rough=True)
