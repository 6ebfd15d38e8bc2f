"""Translators of ONNX signal operators: discrete Fourier transforms as matrix products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.frontend.onnx import measured
from tilewright.frontend.onnx.arithmetic import Floats
from tilewright.frontend.onnx.measured import op
from tilewright.frontend.onnx.registry import Refusal, Site, translates
from tilewright.graph import fourier, sizes
from tilewright.graph.graph import Value
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Expr, as_int


@translates("DFT")
def dft(n: Site) -> Any:
    """x[…, length, …, 1 or 2]: real numbers, or real and imaginary parts along the last axis."""
    x, inverse, half = n[0], n.flag("inverse"), n.flag("onesided")
    parts = as_int(x.shape[-1])
    if parts not in (1, 2):
        raise Refusal("the last axis must hold real numbers, or real and imaginary parts")
    before: tuple[Expr, ...] = ()
    after: tuple[Expr, ...] = ()
    late = n.version >= 20 and not measured.is_known(n, 2)
    if late:
        axis = measured.vector(n, 2)
        flat = measured.around(n, x, axis)
    else:
        given = n.int("axis", 1) if n.version < 20 else int(n.scalar(2, -2))
        d = given % x.rank
        before, after = x.shape[:d], x.shape[d + 1 : -1]
        goal = (sizes.product(before), x.shape[d], sizes.product(x.shape[d + 1 :]))
        flat = n.build.emit("reshape", x, shape=goal)
        axis = measured.numbers(n, [d])
    have = flat.shape[1]
    if n.optional(1) is not None:
        length = n.sizes(1)[0] if measured.is_known(n, 1) else measured.count(n, 1)
    else:
        length = sizes.size((have - 1) * 2) if inverse and half else have
    y = transformed(n, flat, parts, sizes.size(length), inverse, half)
    count, last = y.shape[1], y.shape[3]
    if not late:
        return n.emit("view_as", y, shape=(*before, count, *after, last))
    dims = np.empty(x.rank, object)
    dims[:] = (*x.shape[:-1], last)
    here = measured.chosen(n, axis, x.rank)
    at = np.empty((), object)
    at[()] = count
    goal = measured.choose(
        n, here, n.build.from_sizes(at, measured.I64), n.build.from_sizes(dims, measured.I64)
    )
    return n.emit("view_as", y, shape=measured.measure(n, goal, "the shape"))


def transformed(n: Site, x: Value, parts: int, length: Expr, inverse: bool, half: bool) -> Value:
    """x [outer, have, inner · parts] transformed: [outer, count, inner, 1 or 2]."""
    count, have = as_int(length), as_int(x.shape[1])
    if count and have:
        return of_known_length(n, x, parts, count, inverse, half)
    return of_any_length(n, x, parts, length, inverse, half)


def of_known_length(n: Site, x: Value, parts: int, count: int, inverse: bool, half: bool) -> Value:
    build, (outer, have, wide) = n.build, x.shape
    inner = sizes.size(wide // parts)
    x, of = Floats(n).of(x), x.dtype
    given = count // 2 + 1 if inverse and half else count
    have = min(given, as_int(have) or 0)
    x = build.emit("view_as", x, shape=(outer, x.shape[1], inner, parts))

    def part(k: int) -> Value:
        taken = build.emit("slice", x, starts=(0, 0, 0, k), shape=(outer, have, inner, 1))
        taken = build.emit("reshape", taken, shape=(outer, have, inner))
        if have == given:
            return taken
        return build.emit("pad", taken, before=(0, 0, 0), after=(0, given - have, 0))

    spectrum = fourier.Parts(part(0), part(1) if parts == 2 else None)
    scale = 1 / count if inverse else 1.0
    if inverse and half:
        made = [fourier.to_real(build, spectrum, count, scale)]
    else:
        real, imaginary = fourier.transform(build, spectrum, 1 if inverse else -1, scale)
        if imaginary is None:
            imaginary = build.emit("full", shape=real.shape, value=0, of=real.dtype.name)
        made = [real, imaginary]
    kept = count // 2 + 1 if half and not inverse else count
    shape = (outer, kept, inner)
    made = [build.emit("slice", p, starts=(0, 0, 0), shape=shape) for p in made]
    made = [build.emit("reshape", p, shape=(*shape, 1)) for p in made]
    y = made[0] if len(made) == 1 else build.emit("concat", *made, axis=3)
    return y if y.dtype is of else build.emit("cast", y, to=of.name)


def of_any_length(n: Site, x: Value, parts: int, length: Expr, inverse: bool, half: bool) -> Value:
    """The same for a length that is known when the graph runs: one product with computed waves."""
    build, f = n.build, Floats(n)
    wide_x = f.of(x)
    outer, have, wide = x.shape
    inner = sizes.size(wide // parts)
    to_real = inverse and half
    count = sizes.size(length // 2 + 1) if half and not inverse else length
    turn = op(n, "mul", op(n, "reshape", op(n, "arange", length=count), shape=(count, 1)),
              op(n, "arange", length=have))  # fmt: skip
    at = np.empty((), object)
    at[()] = length
    period = build.from_sizes(at, measured.I64)
    angle = f("mul", f.of(op(n, "floormod", turn, period)), f("div", 2 * math.pi, f.size(length)))
    place = op(n, "arange", length=have)
    weight = f("where", op(n, "less", place, period), 1.0, 0.0)
    if to_real:  # the half that is not given mirrors the one that is
        alone = op(n, "logical_or", op(n, "equal", place, 0),
                   op(n, "equal", op(n, "mul", place, 2), period))  # fmt: skip
        weight = f("mul", weight, f("where", alone, 1.0, 2.0))
    if inverse:
        weight = f("div", weight, f.size(length))
    waves = [f("mul", f(w, angle), weight) for w in ("cos", "sin")]
    cosines, sines = (build.emit("matmul", w, wide_x) for w in waves)
    shape = (outer, count, inner, parts)
    a, b = (build.emit("view_as", v, shape=shape) for v in (cosines, sines))

    def part(v: Value, k: int) -> Value:
        return build.emit("slice", v, starts=(0, 0, 0, k), shape=(outer, count, inner, 1))

    if parts == 1:
        real, imaginary = a, b if inverse else build.emit("neg", b)
    else:
        ahead, back = ("sub", "add") if inverse else ("add", "sub")
        real = build.emit(ahead, part(a, 0), part(b, 1))
        imaginary = build.emit(back, part(a, 1), part(b, 0))
    y = real if to_real else build.emit("concat", real, imaginary, axis=3)
    return y if y.dtype is x.dtype else build.emit("cast", y, to=x.dtype.name)


@translates("STFT")
def stft(n: Site) -> Any:
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
    batch, have, parts = x.shape[0], x.shape[1], as_int(x.shape[2])
    if parts not in (1, 2):
        raise Refusal("the signal holds real numbers, or real and imaginary parts")
    room = measured.floordiv(n, size_of(n, sizes.size(have - length)), size_of(n, step))
    many = op(n, "reshape", op(n, "add", room, 1), shape=(1,))
    (frames,) = measured.measure(n, many, "the number of frames")
    start = op(n, "mul", op(n, "reshape", op(n, "arange", length=frames), shape=(frames, 1)),
               size_of(n, step))  # fmt: skip
    places = op(n, "add", start, op(n, "arange", length=length))
    framed = n.build.emit("gather", x, places, axis=1)  # batch, frames, length, parts
    if window is not None:
        framed = n.build.emit("mul", framed, n.build.emit("reshape", window, shape=(length, 1)))
    flat = n.build.emit("reshape", framed, shape=(sizes.size(batch * frames), length, parts))
    y = transformed(n, flat, parts, sizes.size(length), False, half)
    return n.emit("reshape", y, shape=(batch, frames, y.shape[1], 2))


def single(n: Site, k: int) -> Expr:
    """The one whole number of input `k`."""
    return sizes.size(n.sizes(k)[0] if measured.is_known(n, k) else measured.count(n, k))


def size_of(n: Site, size: Expr) -> Value:
    made = np.empty((), object)
    made[()] = size
    return n.build.from_sizes(made, measured.I64)


@translates("MelWeightMatrix")
def mel_weight_matrix(n: Site) -> Any:
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
    place = f.of(op(n, "reshape", op(n, "arange", length=spectrum), shape=(spectrum, 1)))
    rise, fall = f("sub", centre, lower), f("sub", upper, centre)
    up = f("div", f("sub", place, lower), f("where", f("equal", rise, 0.0), 1.0, rise))
    up = f("where", f("equal", rise, 0.0), f("where", f("equal", place, centre), 1.0, 0.0), up)
    down = f("div", f("sub", upper, place), f("where", f("equal", fall, 0.0), 1.0, fall))
    ahead = f("logical_and", f("greater_equal", place, lower), f("less_equal", place, centre))
    after = f("logical_and", f("greater_equal", place, centre), f("less", place, upper))
    y = f("where", ahead, up, f("where", after, down, 0.0))
    return y if of is y.dtype else n.emit("cast", y, to=of.name)
