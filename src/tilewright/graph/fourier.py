"""Discrete Fourier transforms.

In: the real parts of `[outer, count, inner]`, and the imaginary ones if there are any. Out: both
parts of the transform along the middle axis. The one idea (Cooley and Tukey, 1965): with
`count = first · second` an index is `i · second + j` on the way in and `k + first · l` on the way
out, so the sum over both is a transform of length `first` over i, a turn by `k · j` parts of the
circle, and a transform of length `second` over j. Those are products with small matrices; where the
whole transform is short, sums and differences of the values that share a factor (butterflies) do
with a quarter of the multiplications. A length that only the run knows is one product with a matrix
that the run computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from tilewright.graph import sizes
from tilewright.graph.builder import Builder
from tilewright.graph.folding import Folding
from tilewright.graph.graph import Value
from tilewright.ir.expr import Expr, as_int

LONGEST = 64  # a transform of at most this length is one matrix product,
WRITTEN_OUT = 16  # or of at most this one, if it has no prime factor beyond the next, butterflies
GREATEST_FACTOR = 7
LONGEST_KEPT = 4096  # a prime: the matrix of longer ones is not kept but made in the run


Pair = tuple[Any, ...]  # real and imaginary parts; None is zero


class Parts(NamedTuple):
    """Complex numbers. imag: None if all are real."""

    real: Value
    imag: Value | None

    def each(self, f: Callable[[Value], Value]) -> Parts:
        return Parts(f(self.real), None if self.imag is None else f(self.imag))

    def viewed(self, build: Builder, shape: tuple[sizes.SizeLike, ...]) -> Parts:
        return self.each(lambda p: build.emit("reshape", p, shape=shape))


Part = Callable[[Folding, Parts, int], Parts]  # a transform as one step: x, the waves' sign


@cache
def waves(count: int, sign: int) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin of sign · 2π j k / count, exact at quarters of the circle."""
    turns = np.outer(np.arange(count), np.arange(count)) % count
    made = []
    for f, shift in ((np.cos, 0), (np.sin, 1)):
        wave = f(sign * 2 * np.pi * turns / count)
        made.append(np.where(4 * turns % (2 * count) == (1 - shift) * count, 0.0, wave))
    return made[0], made[1]


def stages(count: int) -> tuple[int, ...]:
    """The lengths of the matrix products: factors near roots of `count`, each short or prime."""
    if count <= LONGEST:
        return (count,)
    first = next(f for f in range(math.isqrt(count), 0, -1) if count % f == 0)
    return (count,) if first == 1 else stages(first) + stages(count // first)


def factors(count: int) -> tuple[int, ...]:
    """The lengths of the butterflies for a transform, ascending: primes, and 4 for two 2s."""
    found = []
    for f in (4, 2, 3, 5, 7):
        while count % f == 0:
            found.append(f)
            count //= f
    return (*sorted(found), count) if count > 1 or not found else tuple(sorted(found))


def is_short(count: int) -> bool:
    """Is a transform of this length unrolled?"""
    return 0 < count <= WRITTEN_OUT and all(f <= GREATEST_FACTOR for f in factors(count))


def transform(build: Folding, x: Parts, sign: int) -> Parts:
    """The transform of x[outer, count, inner] along its middle axis; its waves are
    e^(sign · 2πi jk / count)."""
    count = as_int(x.real.shape[1])
    if count is None:
        return of_open_length(build, x, x.real.shape[1], x.real.shape[1], sign)
    if count == 0:
        return x
    if not is_short(count):
        return _staged(build, x, sign, stages(count), product)
    # Real numbers take half the work until the first turn, so the longest comes first; the order
    # makes no difference for complex ones.
    return _staged(build, x, sign, factors(count)[:: -1 if x.imag is None else 1], butterfly)


def _staged(build: Folding, x: Parts, sign: int, lengths: tuple[int, ...], part: Part) -> Parts:
    outer, _, inner = x.real.shape
    first, second = lengths[0], math.prod(lengths[1:])
    x = part(build, x.viewed(build, (outer, first, second * inner)), sign)
    if second == 1:
        return x
    split = (outer, first, second, inner)
    x = x.viewed(build, split)
    parts = np.outer(np.arange(first), np.arange(second))[:, :, None] / (first * second)
    angles, of = sign * 2 * np.pi * parts, x.real.dtype
    turn = [build.constant(f(angles), "turn", of) for f in (np.cos, np.sin)]
    x = _times(build, turn, x, lambda w, p: rounded_product(build, w, p))
    x = _staged(build, x.viewed(build, (outer * first, second, inner)), sign, lengths[1:], part)
    x = x.viewed(build, split).each(lambda p: build.emit("transpose", p, perm=(0, 2, 1, 3)))
    return x.viewed(build, (outer, first * second, inner))


def product(build: Folding, x: Parts, sign: int) -> Parts:
    """The transform as one product with a matrix."""
    count = as_int(x.real.shape[1])
    assert count is not None
    if count > LONGEST_KEPT:
        return of_open_length(build, x, x.real.shape[1], x.real.shape[1], sign)
    return times_matrix(build, waves(count, sign), x)


def butterfly(build: Folding, x: Parts, sign: int) -> Parts:
    """The transform unrolled. Rows k and count - k take the same cosines and opposite sines: the
    one multiplies their sum, the other their difference; results u and count - u are the sum and
    the difference of what that gives."""
    outer, rows, inner = x.real.shape
    count = as_int(rows)
    assert count is not None
    zero = build.emit("full", shape=(outer, 1, inner), value=0.0, of=x.real.dtype.name)

    def row(k: int) -> Pair:
        return tuple(
            None if p is None
            else build.emit("slice", p, starts=(0, k, 0), shape=(outer, 1, inner)) for p in x
        )  # fmt: skip

    def sum_of(a: Pair, b: Pair, op: str = "add") -> Pair:
        return tuple(_joined(build, op, p, q) for p, q in zip(a, b, strict=True))

    def scaled(by: float, p: Value | None) -> Value | None:
        if p is None or by == 0:
            return None
        if abs(by) == 1:
            return p if by > 0 else build.emit("neg", p)
        return rounded_product(build, p, build.constant(np.asarray(by), "wave", p.dtype))

    mirrored = range(1, (count + 1) // 2)
    sums = [sum_of(row(k), row(count - k)) for k in mirrored]
    differences = [sum_of(row(k), row(count - k), "sub") for k in mirrored]
    alone = [row(0), row(0)]  # beside even and odd results
    if count % 2 == 0:
        alone = [sum_of(row(0), row(count // 2), op) for op in ("add", "sub")]
    cosines, sines = waves(count, sign)
    made: list[Pair] = [(None, None)] * count
    for u in range(count // 2 + 1):
        even, odd = alone[u % 2], (None, None)
        for k, (a, b), (c, d) in zip(mirrored, sums, differences, strict=True):
            even = sum_of(even, (scaled(cosines[u, k], a), scaled(cosines[u, k], b)))
            odd = sum_of(odd, (scaled(-sines[u, k], d), scaled(sines[u, k], c)))
        made[u] = sum_of(even, odd)
        made[-u] = sum_of(even, odd, "sub")
    parts = zip(*made, strict=True)
    return Parts(*(build.emit("concat", *(q or zero for q in p), axis=1) for p in parts))


def rounded_product(build: Builder, a: Value, b: Value) -> Value:
    """a · b, not fused with the sum that takes it: results have the same bits on every machine, as
    have those of libraries that are built for all of them."""
    return build.emit("rounded", build.emit("mul", a, b))


def of_open_length(
    build: Folding, x: Parts, rows: Expr, count: Expr, sign: int, mirrored: bool = False
) -> Parts:
    """The first `rows` results of the transform of `count` values, which are the first of x[outer,
    have, inner] and zeros behind them; for sizes that only the run knows. `mirrored`: x is the
    first half of a spectrum, the rest its mirror image, and the result has real parts only."""
    emit, of = build.emit, x.real.dtype
    column = emit("arange", length=x.real.shape[1])
    row = emit("reshape", emit("arange", length=rows), shape=(rows, 1))
    period = build.size_vector(count)
    turn = emit("cast", emit("floormod", emit("mul", row, column), period), to="f64")
    angle = emit("mul", turn, build.constant(np.asarray(sign * 2 * np.pi), "turn", "f64"))
    angle = emit("div", angle, emit("cast", period, to="f64"))
    one, two, none = (build.constant(np.asarray(v), "weight", "f64") for v in (1.0, 2.0, 0.0))
    if mirrored:
        zero, double = (build.constant(np.asarray(v, np.int64), "n") for v in (0, 2))
        twice = emit("mul", column, double)
        own = emit("logical_or", emit("equal", column, zero), emit("equal", twice, period))
        weight = emit("where", own, one, emit("where", emit("less", twice, period), two, none))
    else:
        weight = emit("where", emit("less", column, period), one, none)
    w = [emit("mul", emit(wave, angle), weight) for wave in ("cos", "sin")]
    w = [p if p.dtype is of else emit("cast", p, to=of.name) for p in w]
    return _times(build, w, x, lambda wave, p: emit("matmul", wave, p), only_real=mirrored)


def to_real(build: Folding, x: Parts, size: Expr) -> Value:
    """The backward transform [outer, size, inner] of a spectrum whose second half mirrors the
    first, which is all that is read of x[outer, have, inner]; zeros behind what it has."""
    count, have = as_int(size), as_int(x.real.shape[1])
    if count is None or have is None:
        return of_open_length(build, x, size, size, 1, mirrored=True).real
    half = count // 2 + 1
    twice = np.full(half, 2.0)
    twice[0] = 1.0  # these two are no mirror images
    if count % 2 == 0:
        twice[-1] = 1.0
    c, s = (w[:, : min(have, half)] * twice[:have] for w in waves(count, 1))
    x = x.each(lambda p: cut(build, p, min(have, half)))
    return times_matrix(build, (c, s), x, only_real=True).real


def cut(build: Builder, x: Value, count: int) -> Value:
    """x[outer, count, inner]: the first along the middle axis, zeros behind them."""
    outer, have, inner = x.shape
    more = count - (as_int(have) or 0)
    if more > 0:
        return build.emit("pad", x, before=(0, 0, 0), after=(0, more, 0))
    return build.emit("slice", x, starts=(0, 0, 0), shape=(outer, count, inner)) if more else x


def times_matrix(
    build: Builder, w: tuple[np.ndarray, np.ndarray], x: Parts, only_real: bool = False
) -> Parts:
    """w @ x for each outer index. w: the real and imaginary parts of a matrix."""
    outer, _, inner = x.real.shape
    rows = len(w[0])

    def matmul(wave: np.ndarray, p: Value) -> Value | None:
        if not wave.any():
            return None
        if as_int(inner) != 1:
            return build.emit("matmul", build.constant(wave, "wave", p.dtype), p)
        flat = build.emit("reshape", p, shape=p.shape[:2])  # one product, not one for each vector
        y = build.emit("matmul", flat, build.constant(wave.T, "wave", p.dtype))
        return build.emit("reshape", y, shape=(outer, rows, 1))

    return _times(build, w, x, matmul, only_real)


def _times(build: Builder, w: Any, x: Parts, times: Any, only_real: bool = False) -> Parts:
    """The complex product of w and x, whose parts `times` multiplies (None: the product is 0)."""
    (c, s), (a, b) = w, x
    real = _joined(build, "sub", times(c, a), None if b is None else times(s, b))
    assert real is not None
    if only_real:
        return Parts(real, None)
    return Parts(real, _joined(build, "add", None if b is None else times(c, b), times(s, a)))


def _joined(build: Builder, op: str, a: Value | None, b: Value | None) -> Value | None:
    """a op b, where None is zero."""
    if a is None:
        return b if b is None or op == "add" else build.emit("neg", b)
    return a if b is None else build.emit(op, a, b)
