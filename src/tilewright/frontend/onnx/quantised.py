"""Translators of ONNX quantised operators, on integers, whose products are added up in i32, and
floats.

A number q stands for (q - zero point) · scale; scale and zero point are one for a tensor, one for
each position along an axis, or one for each block of an axis.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontend.onnx.coded import Coded
from tilewright.frontend.onnx.neural import weights_of, window
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.frontend.onnx.runtime_broadcast import broadcast_operands
from tilewright.frontend.onnx.small_floats import codes, floats, format_of
from tilewright.frontend.onnx.tensors import axis
from tilewright.graph import sizes
from tilewright.graph.graph import Value
from tilewright.graph.ops.linear import kernel_of
from tilewright.ir.dtype import DType, dtype


def spread(n: NodeContext, part: Value, x: Value, at: int, block: int) -> Value:
    """A scale or zero point so that it broadcasts against x."""
    if part.elements == sizes.size(1):
        return n.build.emit("reshape", part, shape=())
    if block:  # one for each block along `at`
        d = axis(n, at, x.rank)
        shape = (*part.shape[: d + 1], 1, *part.shape[d + 1 :])
        y = n.build.emit("reshape", part, shape=shape)
        y = n.build.emit("expand", y, shape=(*part.shape[: d + 1], block, *part.shape[d + 1 :]))
        whole = sizes.size(part.shape[d] * block)
        y = n.build.emit("reshape", y, shape=(*part.shape[:d], whole, *part.shape[d + 1 :]))
        if whole == x.shape[d]:
            return y
        return n.build.emit("slice", y, starts=(0,) * y.rank, shape=x.shape)
    if part.rank != 1:
        return part
    d = axis(n, at, x.rank)
    return n.build.emit(
        "reshape", part, shape=tuple(part.shape[0] if k == d else 1 for k in range(x.rank))
    )


def as_type(n: NodeContext, x: Value, of: DType) -> Value:
    return x if x.dtype is of else n.build.emit("cast", x, to=of.name)


def dequantised(
    n: NodeContext, x: Value, scale: Value, zero: Value | None, at: int = 1, block: int = 0
) -> Value:
    """(x - zero) · scale in the scale's dtype."""
    wide = as_type(n, x, scale.dtype if x.dtype.is_float else dtype("f32"))
    if zero is not None and not is_zero(n, zero):
        wide = together(n, "sub", wide, as_type(n, spread(n, zero, x, at, block), wide.dtype))
    return together(n, "mul", wide, as_type(n, spread(n, scale, x, at, block), wide.dtype))


def together(n: NodeContext, op: str, x: Value, y: Value) -> Value:
    """`op` of x and of scales or zero points y, which may be one or, found by the run, one for each
    row or channel."""
    return n.build.emit(op, *broadcast_operands(n, (x, y)))


def is_zero(n: NodeContext, value: Value) -> bool:
    constant = n.build.constants.get(value)
    return constant is not None and not np.any(np.asarray(constant.array, np.float32))


def quantised(
    n: NodeContext,
    x: Value,
    scale: Value,
    zero: Value | None,
    of: DType,
    at: int = 1,
    block: int = 0,
) -> Value:
    """x / scale rounded (halves to even), plus zero, held within `of`."""
    y = together(n, "div", as_type(n, x, scale.dtype), spread(n, scale, x, at, block))
    y = as_type(n, y, dtype("f32"))
    if of.is_float:
        return n.build.emit("cast", saturated(n, y, of), to=of.name)
    y = n.build.emit("round", y)
    if zero is not None and not is_zero(n, zero):
        y = together(n, "add", y, as_type(n, spread(n, zero, x, at, block), y.dtype))
    return n.build.emit("cast", y, to=of.name)  # the cast saturates


def saturated(n: NodeContext, y: Value, of: DType) -> Value:
    return n.build.emit("clip", y, low=-of.largest, high=of.largest)


@translates("QuantizeLinear")
def quantize_linear(n: NodeContext) -> Any:
    zero = n.inputs[2] if len(n.inputs) > 2 else None
    format = zero.format if isinstance(zero, Coded) else format_of(n, "output_dtype")
    if format is not None:  # floats have no zero points
        y = n.build.emit(
            "div",
            as_type(n, n[0], n[1].dtype),
            spread(n, n[1], n[0], n.int("axis", 1), n.int("block_size", 0)),
        )
        return codes(n, y, format)
    of = zero.dtype if zero is not None else dtype("u8")
    if zero is None and n.int("output_dtype", 0):
        of = n.dtype("output_dtype")
    return quantised(n, n[0], n[1], zero, of, n.int("axis", 1), n.int("block_size", 0))


@translates("DequantizeLinear")
def dequantize_linear(n: NodeContext) -> Any:
    x, zero = n.inputs[0], n.optional(2)
    if isinstance(x, Coded):
        x, zero = floats(n, x), None
    y = dequantised(n, x, n[1], zero, n.int("axis", 1), n.int("block_size", 0))
    return as_type(n, y, n.dtype("output_dtype") if n.int("output_dtype", 0) else n[1].dtype)


def shifted(n: NodeContext, x: Value, zero: Value | None, shape: Any) -> tuple[Value, Value | None]:
    """(x, its zero point): a constant without one, in the smallest integers that hold it."""
    if zero is None or is_zero(n, zero):
        return x, None
    found, at = (n.build.constants.get(v) for v in (x, zero))
    if found is None or at is None or not x.dtype.is_int:
        return x, zero
    wide = np.int16 if x.dtype.bits == 8 else np.int32
    offset = at.array.astype(wide)
    offset = offset.reshape(() if offset.size == 1 else shape(-1) if offset.ndim == 1 else at.shape)
    moved = found.array.astype(wide) - offset
    for of in (dtype("i8"), dtype("u8"), dtype("i16")):
        if not moved.size or (of.lowest <= moved.min() and moved.max() <= of.highest):
            return n.constant(moved.astype(of.numpy)), None
    return x, zero


def zero_point(n: NodeContext, zero: Value, shape: Any, of: DType) -> Value:
    """A zero point in the dtype of sums; `shape` says how a vector of them broadcasts."""
    if zero.elements == sizes.size(1):
        zero = n.build.emit("reshape", zero, shape=())
    elif zero.rank == 1:
        zero = n.build.emit("reshape", zero, shape=shape(zero.shape[0]))
    return as_type(n, zero, of)


def sums_of(x: Value) -> DType:
    """The dtype in which products of quantised numbers are added up."""
    return dtype("f32" if x.dtype.is_float else "i32")


def rows(size: Any) -> tuple[Any, ...]:
    """How one number for each row of a matrix broadcasts."""
    return size, 1


def columns(size: Any) -> tuple[Any, ...]:
    """How one number for each column of a matrix broadcasts."""
    return 1, size


def integer_product(
    n: NodeContext,
    a: Value,
    b: Value,
    za: Value | None,
    zb: Value | None,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Value:
    """(a - za) (b - zb), added up in i32: a b - (sums of the rows of a - za) zb - za (sums of the
    columns of b), so that nothing of the size of an operand is stored in i32.
    """
    if a.rank < 2 or b.rank < 2:
        raise Refusal("its operands must be matrices")
    of, each_row = sums_of(a), columns if transpose_a else rows
    a, za = shifted(n, a, za, each_row)
    b, zb = shifted(n, b, zb, rows if transpose_b else columns)
    y = n.build.emit(
        "matmul", a, b, transpose_a=transpose_a, transpose_b=transpose_b, out_dtype=of.name
    )
    if zb is not None:
        wide = as_type(n, a, of)
        if za is not None:
            wide = together(n, "sub", wide, zero_point(n, za, each_row, of))
        total = lines(n, wide, -2 if transpose_a else -1, -1)
        taken = together(n, "mul", total, zero_point(n, zb, columns, of))
        y = together(n, "sub", y, taken)
    if za is not None:
        total = lines(n, as_type(n, b, of), -1 if transpose_b else -2, -2)
        taken = together(n, "mul", total, zero_point(n, za, rows, of))
        y = together(n, "sub", y, taken)
    return y


def lines(n: NodeContext, x: Value, axis: int, at: int) -> Value:
    """The sums along one of a matrix's last two axes, as its axis `at` of one element."""
    total = n.build.emit("reduce_sum", x, axes=(x.rank + axis,))
    *batch, size = total.shape
    return n.build.emit("reshape", total, shape=(*batch, *((1, size) if at == -2 else (size, 1))))


@translates("MatMulInteger")
def matmul_integer(n: NodeContext) -> Any:
    return integer_product(n, n[0], n[1], n.optional(2), n.optional(3))


@translates("QLinearMatMul")
def qlinear_matmul(n: NodeContext) -> Any:
    total = integer_product(n, n[0], n[3], n[2], n[5])
    a_scale, b_scale = n[1], n[4]
    y = as_type(n, total, dtype("f32"))
    for scale, shape in ((a_scale, lambda s: (s, 1)), (b_scale, lambda s: (1, s))):
        if scale.elements == sizes.size(1):
            scale = n.build.emit("reshape", scale, shape=())
        elif scale.rank == 1:
            scale = n.build.emit("reshape", scale, shape=shape(scale.shape[0]))
        y = together(n, "mul", y, as_type(n, scale, y.dtype))
    return quantised(n, y, as_type(n, n[6], y.dtype), n[7], n[7].dtype)


def integer_convolution(
    n: NodeContext, x: Value, w: Value, zx: Value | None, zw: Value | None
) -> Value:
    """(x - zx) convolved with (w - zw), added up in i32; pads stand for 0, so x is padded with zx.
    What zx adds is the convolution of as many zx as a window has with w; what zw adds is zw times
    a convolution with ones.
    """
    of, groups = sums_of(x), n.int("group", 1)
    space = (1,) * (w.rank - 2)
    w, zw = shifted(n, w, zw, lambda size: (size, 1, *space))
    attrs = window(n, x, kernel_of(w))
    zx = None if zx is None or is_zero(n, zx) else zx
    at: Value | None = None
    if zx is not None:
        zx = zero_point(n, zx, lambda size: (1, size, *space), x.dtype)
        x, attrs["pads"] = padded_with(n, x, zx, attrs["pads"]), ((0, 0),) * len(space)
        at = n.build.emit("expand", zx, shape=(1, x.shape[1], *w.shape[2:]))

    def convolved(weights: Value) -> Value:
        y = n.build.emit("conv", x, weights, **attrs, groups=groups, out_dtype=of.name)
        if at is None:
            return y
        taken = n.build.emit("conv", at, weights, groups=groups, out_dtype=of.name)
        return n.build.emit("sub", y, taken)

    y = convolved(w)
    if zw is None:
        return y
    outputs = 1 if groups == 1 else w.shape[0]  # of one group all are the same
    ones = n.build.emit("full", shape=(outputs, *w.shape[1:]), value=1, of=w.dtype.name)
    zw = zero_point(n, zw, lambda size: (1, size, *space), of)
    return together(n, "sub", y, together(n, "mul", convolved(ones), zw))


def padded_with(n: NodeContext, x: Value, zero: Value, pads: Any) -> Value:
    """An image with its zero point around it."""
    if not any(side for pad in pads for side in pad):
        return x
    before, after = ((0, 0, *sides) for sides in zip(*pads, strict=True))
    known = n.build.constants.get(zero)
    if known is not None and known.array.size == 1:
        value = known.array.item()
        return n.build.emit("pad", x, before=before, after=after, value=value)
    image = n.build.emit("full", shape=(1, 1, *x.shape[2:]), value=True, of="bool")
    inside, around = (
        n.build.emit("pad", v, before=before, after=after, value=0) for v in (image, x)
    )
    return n.build.emit("where", inside, around, zero)


@translates("ConvInteger")
def conv_integer(n: NodeContext) -> Any:
    return integer_convolution(n, n[0], weights_of(n), n.optional(2), n.optional(3))


@translates("QLinearConv")
def qlinear_conv(n: NodeContext) -> Any:
    total = integer_convolution(n, n[0], weights_of(n, 3), n[2], n[5])
    channels = tuple(-1 if d == 1 else 1 for d in range(total.rank))
    if n.optional(8) is not None:
        shape = tuple(n[8].shape[0] if c == -1 else 1 for c in channels)
        total = n.build.emit("add", total, n.build.emit("reshape", n[8], shape=shape))
    y = as_type(n, total, dtype("f32"))
    for scale in (n[1], n[4]):
        y = n.build.emit("mul", y, as_type(n, spread(n, scale, y, 1, 0), y.dtype))
    return quantised(n, y, as_type(n, n[6], y.dtype), n[7], n[7].dtype)
