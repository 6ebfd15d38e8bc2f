"""Translators of ATen operators on the parts of a number: its sign, its power of two, its bits."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.torch.registry import TRANSLATORS, NodeContext, translates
from tilewright.frontend.torch.special import Terms, choose
from tilewright.graph.graph import Value
from tilewright.ir.dtype import dtype


@translates("signbit.default")
def signbit(n: NodeContext, x: Value) -> Any:
    """Is the sign minus, also of zero?"""
    if x.dtype.is_bool:
        return n.full(False, dtype("bool"), x.shape)
    zero = n.constant(0, x.dtype)
    below = n.emit("less", x, zero)
    if not x.dtype.is_float:
        return below
    of_zero = n.emit("less", n.emit("reciprocal", x), zero)
    return n.emit("logical_or", below, n.emit("logical_and", n.emit("equal", x, zero), of_zero))


TRANSLATORS["prims.signbit.default"] = signbit


@translates("copysign.Tensor", "copysign.Scalar")
def copysign(n: NodeContext, x: Value, y: Any) -> Any:
    """|x| with the sign of y."""
    size = n.emit("abs", n.operand(x))
    sign = signbit(n, y if isinstance(y, Value) else n.operand(y))
    return n.emit("where", sign, n.emit("neg", size), size)


@translates("frexp.Tensor")
def frexp(n: NodeContext, x: Value) -> Any:
    """A mantissa in [1/2, 1) and the power of two that belongs to it."""
    of = n.of if n.of.bits >= 32 else dtype("f32")
    v = Terms(n, n.cast(x, of))
    a = v.abs()
    finite = (v - v).equal(0.0)
    power = choose(finite, choose(a > 0.0, a, 1.0).log2().floor() + 1.0, 0.0)
    half = (power * 0.5).floor()  # 2^power may be out of range where a half of it is not
    m = v / half.exp2() / (power - half).exp2()
    for wrong, factor, step in (
        (m.abs() < 0.5, 2.0, -1.0),
        ((m.abs() < 1.0).logical_not(), 0.5, 1.0),
    ):
        power, m = choose(wrong, power + step, power), choose(wrong, m * factor, m)
    known = choose(finite, a, 0.0) > 0.0
    power, m = choose(known, power, 0.0), choose(known, m, v)
    return n.cast(m.x, n.of), n.cast(power.x, "i32")


TRANSLATORS["prims.frexp.default"] = frexp


@translates("nextafter.default")
def nextafter(n: NodeContext, x: Value, y: Value) -> Any:
    """The number beside x on the way to y: the one whose bits, as a whole number, are one more or
    less, for numbers of one sign are in the order of their bits."""
    x, y = n.expand(n.operand(x), n.shape), n.expand(n.operand(y), n.shape)
    whole = f"i{x.dtype.bits}"
    bits, zero = n.emit("bitcast", x, to=whole), n.constant(0, x.dtype)
    away = n.emit("equal", n.emit("greater", y, x), n.emit("greater", x, zero))
    one = n.constant(1, whole)
    moved = n.emit("where", away, n.emit("add", bits, one), n.emit("sub", bits, one))
    moved = n.emit("bitcast", moved, to=x.dtype.name)
    least = n.emit("bitcast", n.emit("full", shape=n.shape, value=1, of=whole), to=x.dtype.name)
    least = n.emit("where", n.emit("less", y, zero), n.emit("neg", least), least)
    moved = n.emit("where", n.emit("equal", x, zero), least, moved)
    moved = n.emit("where", n.emit("equal", x, y), y, moved)
    unknown = n.emit("logical_or", n.emit("isnan", x), n.emit("isnan", y))
    return n.emit("where", unknown, n.emit("add", x, y), moved)


TRANSLATORS["prims.nextafter.default"] = nextafter
