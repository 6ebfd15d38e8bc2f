"""Draws of products, convolutions, pooling, recurrences and quantised operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.differential.growth import (
    F16,
    F32,
    F64,
    FLOATS,
    I8,
    I32,
    U8,
    Dims,
    Growth,
    Value,
)
from tests.differential.reference import Unsound
from tests.differential.table import draws


def given_size(g: Growth, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes of an axis, when an input may have them."""
    if not g.declarable((sizes,)):
        raise Unsound("a size that no input can have")
    return sizes


@draws("MatMul", weight=3.5, empties=True)
def matmul(g: Growth, op: str) -> None:
    a = g.value((F32, F64, F16) if g.chance(0.95) else (I32,), range(1, 5))
    inner = given_size(g, a.dims[-1])
    if a.dtype == F16 and 0 in inner:
        raise Unsound("onnxruntime leaves such results unwritten")

    def fits(v: Value) -> bool:
        return v.dims[-2 if v.rank > 1 else 0] == a.dims[-1] and v is not a

    b = g.pick((a.dtype,), range(1, 5), fits=fits) if g.chance(0.5) else None
    if b is None:
        rank = g.among([1, 2, 2, 2, a.rank])
        if rank == 1 and 0 in inner:
            raise Unsound("onnxruntime leaves such results unwritten")
        lead = tuple(d if g.chance(0.6) else g.same(1) for d in a.dims[:-2])
        lead = lead[len(lead) - max(0, rank - 2) :]
        if not g.declarable(lead):
            lead = ()
        b = g.fresh(a.dtype, (inner,) if rank == 1 else (*lead, inner, g.size()), -1, 1)
    g.apply(op, a, b)


@draws("Gemm", weight=1.8, empties=True)
def gemm(g: Growth, op: str) -> None:
    a = g.value(FLOATS, (2,))
    across, down = g.int(0, 1), g.int(0, 1)
    rows, inner = (a.dims[1], a.dims[0]) if across else a.dims
    columns = g.size()
    b = g.fresh(
        a.dtype, (columns, given_size(g, inner)) if down else (given_size(g, inner), columns), -1, 1
    )
    shapes: list[Dims] = [(columns,), (g.same(1), columns), (rows, columns), (rows, g.same(1)), ()]
    shape = g.among(shapes)
    c = g.fresh(a.dtype, shape if g.declarable(shape) else ()) if g.chance(0.7) else None
    if c is None and g.version < 11:
        c = g.fresh(a.dtype, ())
    betas = [None] if 0 in given_size(g, inner) else [None, g.number(0.2, 2), 0.0]
    attrs = {  # without inner elements onnxruntime forgets beta
        "alpha": g.among([None, g.number(0.2, 2)]), "beta": g.among(betas),
        "transA": across or None, "transB": down or None,
    }  # fmt: skip
    g.apply(op, a, b, *([c] if c else []), **attrs)


@draws("Einsum", weight=0.6, since=12)
def einsum(g: Growth, op: str) -> None:
    a = g.value((F32, F64), (2, 3))
    i, j, *k = a.dims
    n = g.size()
    if a.rank == 2:
        forms: list[tuple[str, list[Dims]]] = [
            ("ij,jk->ik", [(j, n)]), ("ij,kj->ki", [(n, j)]), ("ij->ji", []), ("ij->i", []),
            ("ij,ij->", [a.dims]), ("ij,j->ij", [(j,)]), ("...j,jk->...k", [(j, n)]),
            ("ij,ik->jk", [(i, n)]),
        ]  # fmt: skip
    else:
        forms = [
            ("bij,bjk->bik", [(i, k[0], n)]), ("bij,bkj->bik", [(i, n, k[0])]), ("abc->cab", []),
            ("bij,j->bi", [(k[0],)]), ("abc,acd,ad->bd", [(i, k[0], n), (i, n)]),
            ("bij,bij->b", [a.dims]), ("aij,kj->aik", [(n, k[0])]),
        ]  # fmt: skip
    equation, shapes = g.among(forms)
    g.apply(op, a, *(g.fresh(a.dtype, s, -1, 1) for s in shapes), equation=equation)


def image(g: Growth, rank: int, types: Any = (F32,), group: int = 1) -> Value:
    """[batch, channels, *space] with `group` dividing the channels."""

    def fits(v: Value) -> bool:
        known = len(set(v.dims[1])) == 1 and v.dims[1][0] > 0
        return known and v.dims[1][0] % group == 0 and min(map(min, v.dims[1:])) > 0

    found = g.pick(types, (rank + 2,), fits=fits)
    if found is not None and g.chance(0.8):
        return found
    channels = group * g.among([1, 2, 3, 4, 8, 16])
    sizes = [g.size() for _ in range(rank)]
    dims = (g.among([g.same(1), g.same(2), g.size()]), g.same(channels), *sizes)
    if max(int(np.prod([d[w] for d in dims])) for w in range(g.count)) > 4000:
        raise Unsound("large")
    return g.fresh(g.among(types), dims)


def window(
    g: Growth, x: Value, kernel: list[int], dilate: bool = True, pads_itself: bool = False
) -> dict[str, Any]:
    """Strides, dilations and pads. `pads_itself`: also SAME with strides along symbolic axes."""
    rank = len(kernel)
    attrs: dict[str, Any] = {}
    if g.chance(0.5):
        attrs["strides"] = [g.int(1, 3) for _ in range(rank)]
    if dilate and g.chance(0.3):
        attrs["dilations"] = [g.int(1, 3) for _ in range(rank)]
    if g.chance(0.5):
        attrs["pads"] = [g.int(0, min(2, k - 1)) for k in (*kernel, *kernel)]
    elif g.chance(0.4) and not (dilate and "dilations" in attrs):
        attrs["auto_pad"] = g.among(["SAME_UPPER", "SAME_LOWER", "VALID"])
        symbolic = any(len(set(d)) > 1 for d in x.dims[2:])
        if symbolic and max(attrs.get("strides", [1])) > 1 and not pads_itself:
            attrs["auto_pad"] = "VALID"
    if attrs.get("auto_pad", "VALID").startswith("SAME"):
        strides = attrs.get("strides", kernel)
        if any(k < s for k, s in zip(kernel, strides, strict=True)):
            raise Unsound("onnxruntime pads by less than nothing, in some operators")
    else:
        pads, dilations = attrs.get("pads", [0] * 2 * rank), attrs.get("dilations", [1] * rank)
        for k, size in enumerate(x.dims[2:]):
            if min(size) + pads[k] + pads[rank + k] <= dilations[k] * (kernel[k] - 1):
                raise Unsound("the kernel reaches further")
    return attrs


@draws("Conv", weight=4)
def conv(g: Growth, op: str) -> None:
    rank = g.among([1, 2, 2, 2, 2, 3])
    group = g.among([1, 1, 1, 2, 4])
    x = image(g, rank, (F32,) if g.chance(0.9) else (F64, F16), group)
    channels = x.dims[1][0]
    if g.chance(0.2):
        group = channels
    kernel = [g.among([1, 2, 3, 3, 5]) for _ in range(rank)]
    out = group * g.among([1, 2, 3, 4, 8])
    shape = (out, channels // group, *kernel)
    w = g.fresh(x.dtype, tuple(g.same(s) for s in shape), -1, 1, fixed=g.chance(0.85))
    b = [g.fresh(x.dtype, (g.same(out),), fixed=g.chance(0.85))] if g.chance(0.5) else []
    attrs = window(g, x, kernel, pads_itself=True)
    if g.chance(0.3):
        attrs["kernel_shape"] = kernel
    g.apply(op, x, w, *b, group=group if group > 1 else None, **attrs)


@draws("ConvTranspose", weight=1.5)
def conv_transpose(g: Growth, op: str) -> None:
    rank, group = g.among([1, 2, 2, 3]), g.among([1, 1, 2])
    x = image(g, rank, (F32,), group)
    kernel = [g.among([1, 2, 3, 4]) for _ in range(rank)]
    out = g.among([1, 2, 3, 8])
    shape = (x.dims[1][0], out, *kernel)
    w = g.fresh(F32, tuple(g.same(s) for s in shape), -1, 1, fixed=g.chance(0.85))
    b = [g.fresh(F32, (g.same(out * group),), fixed=g.chance(0.85))] if g.chance(0.5) else []
    attrs = window(g, x, kernel)
    strides = attrs.get("strides", [1] * rank)
    if "auto_pad" in attrs and any(k < s for k, s in zip(kernel, strides, strict=True)):
        raise Unsound("its result is larger than what the kernel reaches")
    if g.chance(0.3) and max(strides) > 1:
        attrs["output_padding"] = [g.int(0, s - 1) for s in strides]
    g.apply(op, x, w, *b, group=group if group > 1 else None, **attrs)


@draws("MaxPool", "AveragePool", weight=2.4)
def pool(g: Growth, op: str) -> None:
    rank = g.among([1, 2, 2, 3])
    x = image(g, rank)
    kernel = [g.among([1, 2, 3, 3]) for _ in range(rank)]
    dilate = g.version >= (10 if op == "MaxPool" else 19)
    attrs = window(g, x, kernel, dilate)
    if g.version >= 10 and g.chance(0.3) and "auto_pad" not in attrs:
        attrs["ceil_mode"] = 1
    if op == "AveragePool" and g.chance(0.4):
        attrs["count_include_pad"] = 1
    outputs = 2 if op == "MaxPool" and g.chance(0.2) else 1
    g.apply(op, x, kernel_shape=kernel, outputs=outputs, exact=op == "MaxPool", **attrs)


@draws("LpPool", weight=0.3, since=18)
def lp_pool(g: Growth, op: str) -> None:
    x = image(g, 2)
    kernel = [g.int(1, 3), g.int(1, 3)]
    g.apply(op, x, kernel_shape=kernel, p=g.among([1, 2, 3]), **window(g, x, kernel, False))


@draws("GlobalAveragePool", "GlobalMaxPool", weight=1)
def global_pool(g: Growth, op: str) -> None:
    g.apply(op, image(g, g.among([1, 2, 3])), exact=op == "GlobalMaxPool")


@draws("LSTM", "GRU", "RNN", weight=1.5)
def recurrence(g: Growth, op: str) -> None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    x = g.value((F32,), (3,), fits=lambda v: len(set(v.dims[2])) == 1 and min(map(min, v.dims)) > 0)
    steps, batch, inputs = x.dims[0], x.dims[1], x.dims[2][0]
    direction = g.among(["forward", "reverse", "bidirectional"])
    ways, hidden = (2 if direction == "bidirectional" else 1), g.among([1, 2, 3, 5, 8])

    def part(*shape: Any, low: float = -0.8, high: float = 0.8) -> Value:
        dims = tuple(s if isinstance(s, tuple) else g.same(s) for s in shape)
        return g.fresh(F32, dims, low, high)

    inputs_: list[Value | None] = [
        x, part(ways, gates * hidden, inputs), part(ways, gates * hidden, hidden),
        part(ways, 2 * gates * hidden) if g.chance(0.6) else None, None,
        part(ways, given_size(g, batch), hidden) if g.chance(0.4) else None,
    ]  # fmt: skip
    if g.chance(0.2) and len(set(batch)) == 1:
        lengths = g.rng.integers(1, min(steps) + 1, batch[0]).astype(np.int32)
        inputs_[4] = g.given([lengths] * g.count, g.chance(0.5))
    attrs: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if op == "LSTM":
        inputs_.append(part(ways, given_size(g, batch), hidden) if g.chance(0.4) else None)
        inputs_.append(part(ways, 3 * hidden) if g.chance(0.3) else None)
    if op == "GRU" and g.chance(0.5):
        attrs["linear_before_reset"] = 1
    if op != "RNN" and g.chance(0.15):  # onnxruntime's does not clip
        attrs["clip"] = g.number(0.5, 2)
    if op == "RNN" and g.chance(0.4):
        attrs["activations"] = [g.among(["Tanh", "Relu", "Sigmoid"])] * ways
    most = 3 if op == "LSTM" else 2
    wanted = g.among([[1] * most, [1, 0, 0][:most], [0, 1, 1][:most], [1, 1]])
    g.apply(op, *inputs_, outputs=wanted, rough=True, **attrs)


# quantised ----------------------------------------------------------------------------------------


NARROW = (-60, 60)  # onnxruntime adds pairs of products in 16 bits on some machines


def scale_and_zero(g: Growth, dtype: Any, size: int | None = None) -> tuple[Value, Value]:
    """The scale and the zero point of a quantised type, one or `size` of them."""
    shape = () if size is None else (size,)
    scale = g.rng.uniform(0.02, 0.12, shape).astype(np.float32)
    zero = g.rng.integers(*((100, 150) if dtype == U8 else (-5, 6)), shape).astype(dtype)
    return g.constant(scale, F32), g.constant(zero, dtype)


@draws("QuantizeLinear", weight=1.4, since=10)
def quantize(g: Growth, op: str) -> None:
    dtype = g.among([U8, I8])
    x = g.value((F32,))
    axis = g.int(0, x.rank - 1) if x.rank and g.version >= 13 and g.chance(0.3) else None
    if axis is not None and len(set(x.dims[axis])) > 1:
        axis = None
    scale, zero = scale_and_zero(g, dtype, None if axis is None else x.dims[axis][0])
    q = g.apply(op, x, scale, zero, axis=axis)[0]
    if g.chance(0.5):
        g.apply("DequantizeLinear", q, scale, zero, axis=axis)


@draws("DequantizeLinear", weight=0.8, since=10)
def dequantize(g: Growth, op: str) -> None:
    x = g.value((U8, I8), low=-100, high=100)
    g.apply(op, x, *scale_and_zero(g, x.dtype))


@draws("DynamicQuantizeLinear", weight=0.4, since=11)
def dynamic_quantize(g: Growth, op: str) -> None:
    """Of zeros alone the specification has the scale 0, onnxruntime 1: they are not drawn."""
    x = g.value((F32,), range(1, 4), where=lambda a: bool(a.any()))
    g.apply(op, x, outputs=3)


@draws("MatMulInteger", weight=0.6, since=10)
def matmul_integer(g: Growth, op: str) -> None:
    a = g.value((U8, I8), range(2, 4), low=-100, high=200)
    b = g.fresh(g.among([U8, I8]), (given_size(g, a.dims[-1]), g.size()), *NARROW)
    zeros = []
    if g.chance(0.6):
        zeros = [g.constant(g.int(0, 9), a.dtype), g.constant(g.int(0, 9), b.dtype)]
    g.apply(op, a, b, *zeros, exact=True)


@draws("QLinearMatMul", weight=0.6, since=10)
def qlinear_matmul(g: Growth, op: str) -> None:
    a = g.value((U8, I8), range(2, 4), low=-100, high=200)
    b = g.fresh(g.among([a.dtype, I8]), (given_size(g, a.dims[-1]), g.size()), *NARROW)
    out = a.dtype
    parts = (a, *scale_and_zero(g, a.dtype), b, *scale_and_zero(g, b.dtype))
    g.apply(op, *parts, *scale_and_zero(g, out))


@draws("ConvInteger", "QLinearConv", weight=0.9, since=10)
def quantised_conv(g: Growth, op: str) -> None:
    group = g.among([1, 1, 2])
    x = image(g, 2, (U8, I8) if op == "QLinearConv" else (U8,), group)
    kernel = [g.among([1, 2, 3]), g.among([1, 3])]
    out = group * g.int(1, 4)
    kind = g.among([U8, I8]) if x.dtype == U8 else I8
    shape = (out, x.dims[1][0] // group, *kernel)
    w = g.fresh(kind, tuple(g.same(s) for s in shape), *NARROW, fixed=True)
    attrs = {**window(g, x, kernel), "group": group if group > 1 else None}
    if op == "ConvInteger":
        zeros = [g.constant(g.int(0, 9), x.dtype)] if g.chance(0.6) else []
        g.apply(op, x, w, *zeros, exact=True, **attrs)
        return
    per_channel = None if g.chance(0.5) else out
    scale, zero = scale_and_zero(g, kind, per_channel)
    if per_channel and kind == I8:
        zero = g.constant(np.zeros(out), I8)
    bias = [g.fresh(I32, (g.same(out),), -500, 500, fixed=True)] if g.chance(0.5) else []
    parts = (x, *scale_and_zero(g, x.dtype), w, scale, zero, *scale_and_zero(g, x.dtype))
    g.apply(op, *parts, *bias, **attrs)


@draws("Attention", weight=0.5, since=23)
def attention(g: Growth, op: str) -> None:
    heads, groups, depth = g.int(1, 2), g.int(1, 2), g.among([2, 4, 8])
    batch, rows, columns = g.size(), g.size(), g.size()
    q = g.fresh(F32, (batch, g.same(heads * groups), rows, g.same(depth)))
    k = g.fresh(F32, (batch, g.same(heads), columns, g.same(depth)))
    v = g.fresh(F32, (batch, g.same(heads), columns, g.same(g.among([depth, 3]))))
    g.apply(op, q, k, v, is_causal=g.int(0, 1), scale=g.among([None, g.number(0.2, 1)]))
