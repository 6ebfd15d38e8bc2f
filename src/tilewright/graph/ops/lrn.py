"""Local response normalisation: each number divided by a power of the squares of its neighbours in
other channels.

`lrn` works on [batch, channels, *space], `lrn_packed` on channels in blocks, as `choose_layouts`
leaves them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import te
from tilewright.graph.operator import REDUCTION, Type, need, operator
from tilewright.graph.ops.elementwise import keeping_dtype, same_float
from tilewright.graph.ops.packed import pack, unpack
from tilewright.ir.expr import Expr, as_int


def _lrn(x: np.ndarray, size: int, alpha: float, beta: float, bias: float) -> np.ndarray:
    half = (size - 1) // 2
    squares = np.pad(x * x, ((0, 0), (half, size - 1 - half)) + ((0, 0),) * (x.ndim - 2))
    total = sum(squares[:, k : k + x.shape[1]] for k in range(size))
    return x / (bias + alpha / size * total) ** beta


def _lrn_type(
    x: Any, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Type:
    need(len(x.shape) >= 2, "needs a channel axis")
    need(size > 0, "needs a positive size")
    return same_float(x)


@operator(fusion=REDUCTION, infer=_lrn_type, reference=keeping_dtype(_lrn))
def lrn(x: Any, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Any:
    """x / (bias + alpha / size × the sum of squares over `size` neighbouring channels)^beta.
    Source: ONNX LRN."""
    half = (size - 1) // 2
    k = te.reduce_axis(size, "k")
    channels = x.shape[1]

    def squares(*i: Expr) -> Expr:
        c = i[1] + k - half
        v = te.select((c >= 0) & (c < channels), x[(i[0], c, *i[2:])], te.const(0, x.dtype))
        return te.sum(v * v, k)

    total = te.compute(x.shape, squares, name="lrn_sum")
    scale = te.const(alpha / size, x.dtype)
    return te.compute(
        x.shape,
        lambda *i: x[i] / _power(te.const(bias, x.dtype) + scale * total[i], beta),
        name="lrn",
    )


def _power(base: Expr, exponent: float) -> Expr:
    """base ** exponent; quarters (networks use 0.75) by square roots, which cost far less."""
    quarters = exponent * 4
    if quarters not in range(1, 9):
        return te.power(base, te.const(exponent, base.dtype))
    root = te.sqrt(base)
    factors = [base] * (int(quarters) // 4)
    factors += [root] * (int(quarters) % 4 // 2) + [te.sqrt(root)] * (int(quarters) % 2)
    made = factors[0]
    for factor in factors[1:]:
        made = made * factor
    return made


def _packed_type(
    x: Any, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Type:
    need(x.rank == 5, "takes a packed image of rank 5")
    need(0 < size <= 2 * (as_int(x.shape[-1]) or 0) + 1, "reaches beyond the neighbouring blocks")
    return same_float(x)


def _packed(x: np.ndarray, **attrs: Any) -> np.ndarray:
    channels = x.shape[1] * x.shape[-1]
    return pack(_lrn(unpack(x, channels), **attrs), x.shape[-1])


@operator(fusion=REDUCTION, infer=_packed_type, reference=keeping_dtype(_packed))
def lrn_packed(
    x: te.Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> te.Tensor:
    """`lrn` of a packed image (N, C/b, H, W, b) without padding channels.

    The squares of a pixel lie side by side, with a block of zeros at either end, so that those of
    neighbouring channels are vectors that begin a few numbers earlier or later.
    """
    half = (size - 1) // 2
    n, blocks, h, w, b = x.shape

    def square(n: Expr, y: Expr, z: Expr, c: Expr, i: Expr) -> Expr:
        v = x[n, c - 1, y, z, i]
        return te.if_then_else((c >= 1) & (c <= blocks), v * v, te.const(0, x.dtype))

    squares = te.compute(
        (n, h, w, blocks + 2, b),
        lambda n, y, z, c, i: square(n, y, z, c, i),
        name="squares",
        attrs={"role": "lrn"},
    )

    def near(n: Expr, c: Expr, y: Expr, z: Expr, i: Expr, k: int) -> Expr:
        channel = (c + 1) * b + i + k
        return squares[n, y, z, channel // b, channel % b]

    def at(n: Expr, c: Expr, y: Expr, z: Expr, i: Expr) -> Expr:
        total = near(n, c, y, z, i, -half)
        for k in range(1 - half, size - half):
            total = total + near(n, c, y, z, i, k)
        base = te.const(bias, x.dtype) + te.const(alpha / size, x.dtype) * total
        return x[n, c, y, z, i] / _power(base, beta)

    return te.compute(
        x.shape, lambda n, c, y, z, i: at(n, c, y, z, i), name="lrn", attrs={"role": "lrn_packed"}
    )
