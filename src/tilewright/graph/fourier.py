"""Discrete Fourier transforms of known length, as products with small matrices.

In: the real parts of `[outer, count, inner]`, and the imaginary ones if there are any. Out: both
parts of the transform along the middle axis. The one idea (Cooley and Tukey, 1965): with
`count = first · second` an index is `i · second + j` on the way in and `k + first · l` on the way
out, so the sum over both is a transform of length `first` over i, a turn by `k · j` parts of the
circle, and a transform of length `second` over j. What is short enough is one matrix product.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from tilewright.graph import sizes
from tilewright.graph.builder import Builder
from tilewright.graph.graph import Value
from tilewright.ir.expr import as_int

LONGEST = 64  # a transform of at most this length is one matrix product


class Parts(NamedTuple):
    """Complex numbers. imag: None if all are real."""

    real: Value
    imag: Value | None

    def each(self, f: Callable[[Value], Value]) -> Parts:
        return Parts(f(self.real), None if self.imag is None else f(self.imag))

    def viewed(self, build: Builder, shape: tuple[sizes.SizeLike, ...]) -> Parts:
        return self.each(lambda p: build.emit("reshape", p, shape=shape))


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


def transform(build: Builder, x: Parts, sign: int, scale: float = 1.0) -> Parts:
    """The transform of x[outer, count, inner] along its middle axis, times `scale`; its waves are
    e^(sign · 2πi jk / count). The count is a number."""
    count = as_int(x.real.shape[1])
    assert count is not None
    return _staged(build, x, sign, scale, stages(count))


def _staged(build: Builder, x: Parts, sign: int, scale: float, lengths: tuple[int, ...]) -> Parts:
    outer, _, inner = x.real.shape
    first, second = lengths[0], math.prod(lengths[1:])
    if second == 1:
        return product(build, waves(first, sign), x, scale)
    x = product(build, waves(first, sign), x.viewed(build, (outer, first, second * inner)))
    split = (outer, first, second, inner)
    x = x.viewed(build, split)
    parts = np.outer(np.arange(first), np.arange(second))[:, :, None] / (first * second)
    angles, of = sign * 2 * np.pi * parts, x.real.dtype
    turn = [build.constant(f(angles), "turn", of) for f in (np.cos, np.sin)]
    x = _times(build, turn, x, lambda w, p: build.emit("mul", w, p))
    x = _staged(build, x.viewed(build, (outer * first, second, inner)), sign, scale, lengths[1:])
    x = x.viewed(build, split).each(lambda p: build.emit("transpose", p, perm=(0, 2, 1, 3)))
    return x.viewed(build, (outer, first * second, inner))


def to_real(build: Builder, x: Parts, count: int, scale: float = 1.0) -> Value:
    """The backward transform [outer, count, inner], times `scale`, of a spectrum whose second half
    mirrors the first: x[outer, count // 2 + 1, inner]."""
    half = count // 2 + 1
    twice = np.full(half, 2.0)
    twice[0] = 1.0  # these two are no mirror images
    if count % 2 == 0:
        twice[-1] = 1.0
    c, s = (w[:, :half] * twice for w in waves(count, 1))
    return product(build, (c, s), x, scale, only_real=True).real


def product(
    build: Builder,
    w: tuple[np.ndarray, np.ndarray],
    x: Parts,
    scale: float = 1.0,
    only_real: bool = False,
) -> Parts:
    """w @ x for each outer index, times `scale`. w: the real and imaginary parts of a matrix."""
    outer, _, inner = x.real.shape
    rows = len(w[0])

    def matmul(part: np.ndarray, p: Value) -> Value | None:
        if not part.any():
            return None
        wave = scale * part
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
