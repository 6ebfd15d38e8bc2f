"""Resampling along an axis whose size only the run knows: `sampling.py`'s arithmetic on tensors."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.torch.registry import NodeContext
from tilewright.graph import sizes
from tilewright.graph.graph import Value
from tilewright.ir.dtype import dtype

F32 = dtype("f32")
F64 = dtype("f64")


class Floats:
    """Arithmetic on numbers and vectors of one floating-point dtype."""

    def __init__(self, n: NodeContext, of: Any) -> None:
        self.n, self.of = n, of

    def __call__(self, op: str, *operands: Any) -> Value:
        return self.n.emit(op, *(self.n.operand(x, self.of) for x in operands))

    def positions(self, count: Any) -> Value:
        return self.n.cast(self.n.emit("arange", length=sizes.size(count)), self.of)


def nearest(
    n: NodeContext, x: Value, axis: int, count: Any, scale: float | None, half: float
) -> Value:
    """x with `count` positions along `axis`, each the one that its position (or its middle: `half`
    0.5) falls into. Products are rounded to f32, as PyTorch has them."""
    size = x.shape[axis]
    if scale and scale == int(scale) and sizes.size(size * int(scale)) is sizes.size(count):
        return repeated(n, x, axis, int(scale))
    f = Floats(n, F32)
    step = n.constant(1 / scale, F32) if scale else f("div", size, count)
    at = f("floor", f("mul", f("add", f.positions(count), half), step))
    at = f("minimum", at, f("sub", size, 1))
    return n.emit("gather", x, n.cast(at, "i64"), axis=axis)


def repeated(n: NodeContext, x: Value, axis: int, times: int) -> Value:
    """Each position `times` times."""
    before, after = x.shape[: axis + 1], x.shape[axis + 1 :]
    x = n.reshape(x, (*before, 1, *after))
    x = n.expand(x, (*before, times, *after))
    return n.reshape(x, (*before[:-1], before[-1] * times, *after))


def smooth(
    n: NodeContext, x: Value, axis: int, count: Any, scale: float | None, corners: bool, kind: str
) -> Value:
    """x with `count` positions along `axis`, each a weighted sum of its two (kind "linear") or four
    ("cubic") neighbours."""
    f = Floats(n, F64)
    size, positions = x.shape[axis], f.positions(count)
    if corners:
        gaps = f("sub", count, 1)
        step = f("div", f("sub", size, 1), f("maximum", gaps, 1))
        at = f("mul", positions, step)
    else:
        step = n.constant(1 / scale, F64) if scale else f("div", size, count)
        at = f("sub", f("mul", f("add", positions, 0.5), step), 0.5)
    last = f("sub", size, 1)
    if kind == "linear":
        at = f("maximum", at, 0)
        low = f("minimum", f("floor", at), last)
        part = f("sub", at, low)
        taps = [(0, f("sub", 1, part)), (1, part)]
    else:
        low = f("floor", at)
        taps = list(enumerate(cubic(f, f("sub", at, low)), -1))
    total: Value | None = None
    column = tuple(count if d == axis else 1 for d in range(x.rank))
    for offset, weight in taps:
        position = f("minimum", f("maximum", f("add", low, offset), 0), last)
        taken = n.emit("gather", x, n.cast(position, "i64"), axis=axis)
        weight = n.reshape(n.cast(weight, x.dtype), column)
        part = n.emit("mul", taken, weight)
        total = part if total is None else n.emit("add", total, part)
    assert total is not None
    return total


def polynomial(f: Floats, x: Value, *factors: float) -> Value:
    """Horner's rule, the highest power first."""
    total: Any = factors[0]
    for c in factors[1:]:
        total = f("add", f("mul", total, x), c)
    return total


def near(f: Floats, x: Value, a: float) -> Value:
    """Keys' kernel at distances up to 1 (Keys 1981)."""
    return polynomial(f, x, a + 2, -(a + 3), 0.0, 1.0)


def far(f: Floats, x: Value, a: float) -> Value:
    """Keys' kernel at distances from 1 to 2."""
    return polynomial(f, x, a, -5 * a, 8 * a, -4 * a)


def cubic(f: Floats, t: Value, a: float = -0.75) -> list[Value]:
    """Weights of the four neighbours of a position that lies `t` beyond the second."""
    other = f("sub", 1, t)
    return [
        far(f, f("add", t, 1), a),
        near(f, t, a),
        near(f, other, a),
        far(f, f("add", other, 1), a),
    ]


def resampling_weights(
    n: NodeContext, size: Any, count: Any, scale: float | None, corners: bool, reach: int
) -> Value:
    """[count, size]: as `sampling.resampling_weights` has it."""
    f = Floats(n, F64)
    if corners:
        step = f("div", f("sub", size, 1), f("maximum", f("sub", count, 1), 1))
    else:
        step = n.constant(1 / scale, F64) if scale else f("div", size, count)
    wide = f("maximum", step, 1)
    centre = n.reshape(f("mul", step, f("add", f.positions(count), 0.5)), (count, 1))
    span = f("mul", wide, reach)
    first = f("floor", f("maximum", f("add", f("sub", centre, span), 0.5), 0))
    end = f("minimum", f("floor", f("add", f("add", centre, span), 0.5)), size)
    at = f.positions(size)
    t = f("abs", f("div", f("add", f("sub", at, centre), 0.5), wide))
    if reach == 1:
        weights = f("maximum", f("sub", 1, t), 0)
    else:
        outer = n.emit("where", f("less", t, 2), far(f, t, -0.5), n.constant(0, F64))
        weights = n.emit("where", f("less", t, 1), near(f, t, -0.5), outer)
    covered = n.emit("logical_and", f("greater_equal", at, first), f("less", at, end))
    weights = n.emit("where", covered, weights, n.constant(0, F64))
    return f("div", weights, n.emit("reduce_sum", weights, axes=(1,), keepdims=True))
