"""Translators of ONNX signal operators: discrete Fourier transforms and windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.frontend.onnx import data_dependent
from tilewright.frontend.onnx.arithmetic import Floats
from tilewright.frontend.onnx.data_dependent import op
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.graph import fourier, sizes
from tilewright.graph.graph import Value
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Expr, as_int


@translates("DFT")
def dft(n: NodeContext) -> Any:
    """x[…, length, …, 1 or 2]: real numbers, or real and imaginary parts along the last axis."""
    inverse, half = n.flag("inverse"), n.flag("onesided")
    x, parts = complex_parts(n, n[0])
    before: tuple[Expr, ...] = ()
    after: tuple[Expr, ...] = ()
    late = n.version >= 20 and not data_dependent.is_known(n, 2)
    if late and not half and n.optional(1) is None and sizes.static(x.shape) is not None:
        return along_each_axis(n, x, parts, inverse)
    if late:
        axis = data_dependent.vector(n, 2)
        flat = data_dependent.around(n, x, axis)
    else:
        given = n.int("axis", 1) if n.version < 20 else int(n.scalar(2, -2))
        d = given % x.rank
        before, after = x.shape[:d], x.shape[d + 1 : -1]
        flat = around(n, x, d)
        axis = data_dependent.numbers(n, [d])
    have = flat.shape[1]
    if n.optional(1) is not None:
        length = n.sizes(1)[0] if data_dependent.is_known(n, 1) else data_dependent.count(n, 1)
    else:
        length = sizes.size((have - 1) * 2) if inverse and half else have
    y = transformed(n, flat, parts, sizes.size(length), inverse, half)
    count, last = y.shape[1], y.shape[3]
    if not late:
        return n.emit("view_as", y, shape=(*before, count, *after, last))
    dims = np.empty(x.rank, object)
    dims[:] = (*x.shape[:-1], last)
    here = data_dependent.chosen(n, axis, x.rank)
    at = np.empty((), object)
    at[()] = count
    goal = data_dependent.choose(
        n,
        here,
        n.build.from_sizes(at, data_dependent.I64),
        n.build.from_sizes(dims, data_dependent.I64),
    )
    return n.emit("view_as", y, shape=data_dependent.measure(n, goal, "the shape"))


def complex_parts(n: NodeContext, x: Value) -> tuple[Value, int]:
    """x, whose last axis holds real numbers, or real and imaginary parts, and how many: 1 or 2.
    Where only the run knows, both: what is missing is 0."""
    last = x.shape[-1] if x.rank > 1 else sizes.size(0)
    parts = as_int(last)
    if parts in (1, 2):
        return x, parts
    if parts is not None:
        raise Refusal("the last axis must hold real numbers, or real and imaginary parts")
    have = data_dependent.counted(n, last)
    fits = op(n, "logical_and", op(n, "less", 0, have), op(n, "less", have, 3))
    missing = data_dependent.valid(n, fits, op(n, "sub", 2, have))
    (more,) = data_dependent.measure(n, missing, "the missing parts")
    none = (0,) * (x.rank - 1)
    whole = op(n, "pad", x, before=(*none, 0), after=(*none, more), value=0.0)
    return op(n, "view_as", whole, shape=(*x.shape[:-1], 2)), 2


def around(n: NodeContext, x: Value, axis: int) -> Value:
    """x[before, size, after · parts] around an axis."""
    shape = x.shape
    goal = (sizes.product(shape[:axis]), shape[axis], sizes.product(shape[axis + 1 :]))
    return n.build.emit("reshape", x, shape=goal)


def along_each_axis(n: NodeContext, x: Value, parts: int, inverse: bool) -> Value:
    """The transform along an axis that the run names, of a tensor of known shape: fast ones along
    all axes, of which it takes one. A single one of a length that only the run knows would be a
    product with a matrix of that size, which the run would have to compute."""
    given = data_dependent.from_front(n, data_dependent.vector(n, 2), x.rank)
    inside = op(n, "logical_and", op(n, "less", given, x.rank - 1), op(n, "less", -1, given))
    (at,) = data_dependent.measure(n, data_dependent.valid(n, inside, given), "the axis")
    axis = data_dependent.counted(n, at)
    y: Value | None = None
    for d in range(x.rank - 1):
        along = transformed(n, around(n, x, d), parts, x.shape[d], inverse, False)
        along = n.build.emit("reshape", along, shape=(*x.shape[:-1], 2))
        y = along if y is None else data_dependent.choose(n, op(n, "equal", axis, d), along, y)
    if y is None:
        raise Refusal("it has no axis beside that of the real and imaginary parts")
    return y


def transformed(
    n: NodeContext, x: Value, parts: int, length: Expr, inverse: bool, half: bool
) -> Value:
    """x [outer, have, inner · parts] transformed: [outer, count, inner, 1 or 2]."""
    build, (outer, have, wide), of, f = n.build, x.shape, x.dtype, Floats(n)
    inner, count = sizes.size(wide // parts), as_int(length)
    if count is None or of.name != "f32" or (half and inverse) or not fourier.is_short(count):
        x = f.of(x)  # long sums of f32 would show
    x = build.emit("view_as", x, shape=(outer, have, inner, parts))

    def part(k: int) -> Value:
        taken = build.emit("slice", x, starts=(0, 0, 0, k), shape=(outer, have, inner, 1))
        return build.emit("reshape", taken, shape=(outer, have, inner))

    given = fourier.Parts(part(0), part(1) if parts == 2 else None)
    sign, rows = 1 if inverse else -1, length
    if half and inverse:
        made = [fourier.to_real(build, given, length)]
    elif count is None or as_int(have) is None:
        rows = sizes.size(length // 2 + 1) if half else length
        made = [*fourier.of_open_length(build, given, rows, length, sign)]
    else:
        given = given.each(lambda p: fourier.cut(build, p, count))
        made = [*fourier.transform(build, given, sign)]
        rows = sizes.size(count // 2 + 1 if half else count)
    shape = (outer, rows, inner)
    scale = 1 / count if count else f("div", 1.0, f.size(length))
    ends = []
    for v in made:
        if v is None:
            v = build.emit("full", shape=shape, value=0.0, of=x.dtype.name)
        elif v.shape != shape:
            v = build.emit("slice", v, starts=(0, 0, 0), shape=shape)
        if inverse:
            v = build.emit("mul", v, n.constant(scale, v.dtype) if count else scale)
        ends.append(build.emit("reshape", v, shape=(*shape, 1)))
    y = ends[0] if len(ends) == 1 else build.emit("concat", *ends, axis=3)
    return y if y.dtype is of else build.emit("cast", y, to=of.name)


@translates("STFT")
def stft(n: NodeContext) -> Any:
    """Frames of the signal, `step` apart, each times a window and transformed."""
    x, step = n[0], single(n, 1)
    window = n.optional(2)
    given = single(n, 3) if n.optional(3) is not None else None
    length = window.shape[0] if window is not None else given
    if length is None:
        raise Refusal("it needs a window or a frame length")
    half = n.flag("onesided", True)
    if x.rank == 2:
        x = n.build.emit("reshape", x, shape=(*x.shape, 1))
    x, parts = complex_parts(n, x)
    batch, have = x.shape[:2]
    room = data_dependent.floordiv(n, size_of(n, sizes.size(have - length)), size_of(n, step))
    many = op(n, "reshape", op(n, "add", room, 1), shape=(1,))
    (frames,) = data_dependent.measure(n, many, "the number of frames")
    start = op(n, "mul", op(n, "reshape", op(n, "arange", length=frames), shape=(frames, 1)),
               size_of(n, step))  # fmt: skip
    positions = op(n, "add", start, op(n, "arange", length=length))
    framed = n.build.emit("gather", x, positions, axis=1)  # batch, frames, length, parts
    if window is not None:
        framed = n.build.emit("mul", framed, n.build.emit("reshape", window, shape=(length, 1)))
    flat = n.build.emit("reshape", framed, shape=(sizes.size(batch * frames), length, parts))
    y = transformed(n, flat, parts, sizes.size(length), False, half)
    return n.emit("reshape", y, shape=(batch, frames, y.shape[1], 2))


def single(n: NodeContext, k: int) -> Expr:
    """The one whole number of input `k`."""
    return sizes.size(
        n.sizes(k)[0] if data_dependent.is_known(n, k) else data_dependent.count(n, k)
    )


def size_of(n: NodeContext, size: Expr) -> Value:
    made = np.empty((), object)
    made[()] = size
    return n.build.from_sizes(made, data_dependent.I64)


@translates("MelWeightMatrix")
def mel_weight_matrix(n: NodeContext) -> Any:
    """Triangles of equal width on the mel scale, one for each band."""
    f = Floats(n)
    of = n.dtype("output_datatype") if n.int("output_datatype") else dtype("f32")
    bands, length = single(n, 0), single(n, 1)
    rate, low, high = (f.of(n.build.emit("reshape", n[k], shape=())) for k in (2, 3, 4))
    spectrum = sizes.size(length // 2 + 1)

    def mel(hertz: Value) -> Value:
        return f("div", f("mul", f("log1p", f("div", hertz, 700.0)), 2595.0), math.log(10))

    low_mel, high_mel = mel(low), mel(high)
    step = f("div", f("sub", high_mel, low_mel), f.size(sizes.size(bands + 2)))
    at = f("add", f("mul", f.of(op(n, "arange", length=sizes.size(bands + 2))), step), low_mel)
    hertz = f("mul", f("expm1", f("mul", f("div", at, 2595.0), math.log(10))), 700.0)
    bins = f("floor", f("div", f("mul", f("add", f.size(length), 1.0), hertz), rate))

    def edge(k: int) -> Value:
        return n.build.emit("slice", bins, starts=(k,), shape=(bands,))

    lower, centre, upper = edge(0), edge(1), edge(2)
    position = f.of(op(n, "reshape", op(n, "arange", length=spectrum), shape=(spectrum, 1)))
    rise, fall = f("sub", centre, lower), f("sub", upper, centre)
    up = f("div", f("sub", position, lower), f("where", f("equal", rise, 0.0), 1.0, rise))
    up = f("where", f("equal", rise, 0.0), f("where", f("equal", position, centre), 1.0, 0.0), up)
    down = f("div", f("sub", upper, position), f("where", f("equal", fall, 0.0), 1.0, fall))
    begun = f("greater_equal", position, lower)
    on_rise = f("logical_and", begun, f("less_equal", position, centre))
    on_fall = f("logical_and", f("greater_equal", position, centre), f("less", position, upper))
    y = f("where", on_rise, up, f("where", on_fall, down, 0.0))
    return y if of is y.dtype else n.emit("cast", y, to=of.name)
