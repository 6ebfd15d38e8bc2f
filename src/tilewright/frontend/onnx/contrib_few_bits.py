"""Translators of `com.microsoft` operators with weights of few bits, in blocks that have a scale.

Weights of products are unpacked when compiling; tables are looked up as they are, a byte for each
number, and only the rows that are found become floats.

Source of their meaning: onnxruntime's docs/ContribOperators.md; the tests compare with onnxruntime.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontend.onnx.contrib import DOMAIN, split_bits
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.graph.graph import Value

# What each code of bitsandbytes stands for (its 4-bit floats, and the quantiles of a normal
# distribution of Dettmers 2023), as a part of the greatest in its block.
_FP4 = (0.0, 5.208333333e-03, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
CODES = {
    0: np.array([*_FP4, *(-v for v in _FP4)], np.float32),
    1: np.array(
        [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
         -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
         0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
         0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0], np.float32),
}  # fmt: skip


@translates("MatMulBnb4", domain=DOMAIN)
def matmul_codes(n: NodeContext) -> Any:
    """x · Wᵀ, or x · W with transB 0; W is [N, K], two codes a byte, the high one first."""
    x, rows, columns = n[0], n.int("N"), n.int("K")
    codes, block = CODES.get(n.int("quant_type", -1)), n.int("block_size", 0)
    if rows is None or columns is None or codes is None or not block or block < 1:
        raise Refusal("it needs N, K, block_size and quant_type 0 or 1")
    packed = n.array(1).reshape(-1)
    flat = codes[np.stack([packed >> 4, packed & 15], -1).reshape(-1)[: rows * columns]]
    scales = np.repeat(n.array(2).astype(np.float32).reshape(-1), block)[: flat.size]
    weights = n.constant((flat * scales).reshape(rows, columns).astype(x.dtype.numpy))
    return n.emit("matmul", x, weights, transpose_b=n.int("transB", 1) == 1)


@translates("MatMulFpQ4", domain=DOMAIN)
def matmul_blob(n: NodeContext) -> Any:
    """x · W; W [K, N] lies in columns of blocks of 32: an f32 scale, perhaps a zero, and a byte for
    each two numbers that are 16 apart, the first one low."""
    kind, (depth, columns) = n.int("blk_quant_type", 1), n.numbers(2)
    if kind not in (0, 1):
        raise Refusal(f"blk_quant_type {kind} is not 0 or 1, as onnxruntime's CPU has them")
    blocks, size = -(-depth // 32), 20 + kind
    blob = n.array(1).reshape(-1)
    if blob.size != columns * blocks * size:
        raise Refusal(f"its blob has {blob.size} bytes, not {columns * blocks * size}")
    blob = blob.reshape(columns, blocks, size)
    scales = np.ascontiguousarray(blob[..., :4]).view("<f4")
    zeros = blob[..., 4:5].astype(np.float32) if kind else np.float32(8)
    codes = blob[..., 4 + kind :]
    q = np.concatenate([codes & 15, codes >> 4], -1).astype(np.float32)
    weights = ((q - zeros) * scales).reshape(columns, -1)[:, :depth]
    return n.emit("matmul", n[0], n.constant(np.ascontiguousarray(weights)), transpose_b=True)


@translates("GatherBlockQuantized", domain=DOMAIN)
def gather_few_bits(n: NodeContext) -> Any:
    """Slices of a table of integers as floats: (q - zero) · scale. Indices outside give zeros."""
    table, zeros = numbers_of(n, 0), numbers_of(n, 3)
    scales = n.array(2)
    along, axis = (n.int(k, d) % table.ndim for k, d in (("quantize_axis", 1), ("gather_axis", 0)))
    block, count = n.int("block_size", 128), table.shape[along]
    if zeros is None and np.asarray(n.array(0)).dtype == np.uint8:
        zeros = np.full(scales.shape, 1 << (n.int("bits", 4) - 1), np.uint8)
    indices = n[1]
    found = n.build.emit("gather", n.constant(table), indices, axis=axis)

    def spread(of: np.ndarray) -> Value:
        """One for each block, as one for each number that was found."""
        if along == axis:
            whole = np.repeat(of, block, axis)[(slice(None),) * axis + (slice(count),)]
            return n.build.emit("gather", n.constant(whole), indices, axis=axis)
        rows = n.build.emit("gather", n.constant(of), indices, axis=axis)
        each = n.constant(np.arange(count) // block)
        at = along if along < axis else along + indices.rank - 1
        return n.build.emit("gather", rows, each, axis=at)

    y = n.build.emit("cast", found, to="i32")
    if zeros is not None:
        y = n.build.emit("sub", y, n.build.emit("cast", spread(zeros), to="i32"))
    scale = spread(scales)
    y = n.build.emit("mul", n.build.emit("cast", y, to=scale.dtype.name), scale)
    return n.emit(
        "where", inside(n, indices, table.shape[axis], y, axis), y, n.constant(0, y.dtype)
    )


def numbers_of(n: NodeContext, k: int) -> Any:
    """A constant in whole bytes; None if it is left out."""
    if n.optional(k) is None:
        return None
    content = n.array(k)
    if content.dtype == np.uint8:
        return split_bits(content, n.int("bits", 4))
    if content.dtype.name not in ("int4", "uint4"):
        raise Refusal(f"its table holds {content.dtype}")
    return content.astype(np.int8 if content.dtype.name == "int4" else np.uint8)


def inside(n: NodeContext, indices: Value, size: int, y: Value, axis: int) -> Value:
    """Where the indices lie in an axis, in the shape of what they found."""
    shape = (1,) * axis + indices.shape + (1,) * (y.rank - axis - indices.rank)
    ends = [n.constant(v, indices.dtype) for v in (-size, size - 1)]
    low = n.build.emit("greater_equal", indices, ends[0])
    high = n.build.emit("less_equal", indices, ends[1])
    return n.build.emit("reshape", n.build.emit("logical_and", low, high), shape=shape)
