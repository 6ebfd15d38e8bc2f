"""Transposed convolutions on blocked channels: one small convolution for each phase of the stride.

In: a packed image and weights whose taps are ordered phase by phase. Out: an image in which the
phases of a pixel lie beside each other, so that each is stored where it belongs. As in `packed`, no
importer makes these operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.graph import sizes
from tilewright.graph.operator import COMPLEX, Type, need, operator
from tilewright.graph.ops.packed import Indices, padded_image, taps_over
from tilewright.ir.expr import Expr, as_int


def _phases(kernel: int, stride: int) -> int:
    """Taps of the kernel that an output phase has."""
    return -(-kernel // stride)


def pack_transposed(weights: np.ndarray, strides: Sequence[int], cb: int, ob: int) -> np.ndarray:
    """(Ci, Co, *K) → (Co/ob, *strides, Ci/cb, *taps, cb, ob), the taps of each phase together.

    Tap r of phase p is kernel row p + r * stride; taps beyond the kernel are zeros.
    """
    ci, co, *kernel = weights.shape
    taps = [_phases(k, s) for k, s in zip(kernel, strides, strict=True)]
    whole = [r * s for r, s in zip(taps, strides, strict=True)]
    full = np.zeros((-(-ci // cb) * cb, -(-co // ob) * ob, *whole), weights.dtype)
    full[(slice(ci), slice(co), *map(slice, kernel))] = weights
    pairs = [size for pair in zip(taps, strides, strict=True) for size in pair]
    split = full.reshape(full.shape[0] // cb, cb, full.shape[1] // ob, ob, *pairs)
    rows, phases = range(4, 4 + len(pairs), 2), range(5, 4 + len(pairs), 2)
    return np.ascontiguousarray(split.transpose(2, *phases, 0, *rows, 1, 3))


def pack_transposed_each(weights: np.ndarray, strides: Sequence[int], block: int) -> np.ndarray:
    """(C, 1, *K) → (C/b, *strides, *taps, b): each channel has a kernel of its own."""
    packed = pack_transposed(weights.swapaxes(0, 1), strides, 1, block)
    at = 1 + len(strides)
    return packed.reshape(*packed.shape[:at], *packed.shape[at + 1 : -2], block)


def _phase_type(
    x: Any, w: Any, positions: Sequence[int], strides: Sequence[int], lead: int
) -> Type:
    """The image of all phases; `lead`: axes of the weights that are neither phases nor taps."""
    rank = len(strides)
    need(rank in (2, 3), f"slides windows over 2 or 3 axes, not {rank}")
    need(
        x.rank == rank + 3 and w.rank == 2 * rank + lead,
        f"takes a packed image of rank {rank + 3} and weights of rank {2 * rank + lead}",
    )
    size = sizes.shape(n for pair in zip(positions, strides, strict=True) for n in pair)
    return x.dtype, (x.shape[0], w.shape[0], *size, w.shape[-1])


def _transpose_type(
    x: Any, w: Any, *, strides: Sequence[int], offsets: Sequence[int], positions: Sequence[int]
) -> Type:
    made = _phase_type(x, w, positions, strides, 4)
    need(x.shape[-1] == w.shape[-2], "the channel blocks of image and weights differ")
    return made


def _transpose_each_type(
    x: Any, w: Any, *, strides: Sequence[int], offsets: Sequence[int], positions: Sequence[int]
) -> Type:
    made = _phase_type(x, w, positions, strides, 2)
    need(x.shape[1] == w.shape[0] and x.shape[-1] == w.shape[-1], "the channel blocks differ")
    return made


def _transpose_reference(
    x: np.ndarray,
    w: np.ndarray,
    strides: Sequence[int],
    offsets: Sequence[int],
    positions: Sequence[int],
) -> np.ndarray:
    rank = len(strides)
    each = w.ndim == 2 * rank + 2
    lead = 1 if each else 2
    taps = w.shape[lead + rank : lead + 2 * rank]
    pairs = [n for pair in zip(positions, strides, strict=True) for n in pair]
    out = np.zeros((x.shape[0], w.shape[0], *pairs, w.shape[-1]), x.dtype)
    for pixel in np.ndindex(*(p * s for p, s in zip(positions, strides, strict=True))):
        at = [divmod(y + o, s) for y, o, s in zip(pixel, offsets, strides, strict=True)]
        own = [n for y, s in zip(pixel, strides, strict=True) for n in divmod(y, s)]
        for tap in np.ndindex(*taps):
            source = [m - r for (m, _), r in zip(at, tap, strict=True)]
            if all(0 <= m < size for m, size in zip(source, x.shape[2:-1], strict=True)):
                inner = (slice(None),) * (lead - 1)
                filters = w[(slice(None), *(p for _, p in at), *inner, *tap)]
                image = x[(slice(None), slice(None), *source)]
                made = image * filters if each else np.einsum("nci,ocik->nok", image, filters)
                out[(slice(None), slice(None), *own)] += made
    return out


@operator(fusion=COMPLEX, infer=_transpose_type, reference=_transpose_reference)
def conv_transpose_packed(
    x: te.Tensor,
    w: te.Tensor,
    *,
    strides: Sequence[int],
    offsets: Sequence[int],
    positions: Sequence[Expr],
) -> te.Tensor:
    """Transposed convolution without the zeros between the pixels: one small convolution for each
    phase.

    x: (N, Ci/cb, [D,] H, W, cb); w as `pack_transposed` gives it; result (N, Co/ob, *S, ob), where
    S has two axes for each of the image's, as many `positions` and as many phases as its stride:
    in row-major order that is an image of positions * strides pixels. Pixel (Y, X) takes tap r of
    phase (Y + offset) % stride from image row (Y + offset) // stride - r.
    """
    _, ci, *_, cb = x.shape
    pixels = _Phases(x, w.shape[2 + len(strides) : -2], strides, offsets, positions)
    rc, ri = te.reduce_axis(ci, "rc"), te.reduce_axis(cb, "ri")

    def element(b: Expr, o: Expr, at: Indices, i: Expr) -> Expr:
        own, source = pixels.sources(at)
        value = pixels.image[(b, rc, *source, ri)]
        return te.sum(value * w[(o, *own, rc, *pixels.taps, ri, i)], [rc, *pixels.taps, ri])

    return pixels.result(w, element, "conv_transpose", "conv_transpose_packed")


@operator(fusion=COMPLEX, infer=_transpose_each_type, reference=_transpose_reference)
def depthwise_transpose_packed(
    x: te.Tensor,
    w: te.Tensor,
    *,
    strides: Sequence[int],
    offsets: Sequence[int],
    positions: Sequence[Expr],
) -> te.Tensor:
    """`conv_transpose_packed` where each channel has its own kernel. x: (N, C/b, [D,] H, W, b); w
    as `pack_transposed_each` gives it; result (N, C/b, *S, b)."""
    pixels = _Phases(x, w.shape[1 + len(strides) : -1], strides, offsets, positions)

    def element(b: Expr, o: Expr, at: Indices, i: Expr) -> Expr:
        own, source = pixels.sources(at)
        return te.sum(pixels.image[(b, o, *source, i)] * w[(o, *own, *pixels.taps, i)], pixels.taps)

    return pixels.result(w, element, "depthwise_transpose", "depthwise_transpose_packed")


class _Phases:
    """The pixels that the phases of a transposed convolution read, whose kernel has so many `taps`
    of each: the padded `image` and the axes `taps` of the reduction."""

    def __init__(
        self,
        x: te.Tensor,
        taps: Sequence[Expr],
        strides: Sequence[int],
        offsets: Sequence[int],
        positions: Sequence[Expr],
    ) -> None:
        counts = [as_int(t) or 0 for t in taps]
        self.steps = [*zip(strides, offsets, counts, strict=True)]
        # rows of zeros so that every tap of every phase reads inside the image
        pads = []
        for count, own, (s, o, t) in zip(positions, x.shape[2:-1], self.steps, strict=True):
            more = as_int(sizes.size(count - own)) or 0
            pads.append((t - 1, max(0, more + (s - 1 + o) // s)))
        self.image = padded_image(x, pads)
        self.taps = taps_over(taps)
        self.size = [n for pair in zip(positions, strides, strict=True) for n in pair]

    def result(
        self,
        w: te.Tensor,
        element: Callable[[Expr, Expr, Indices, Expr], Any],
        name: str,
        role: str,
    ) -> te.Tensor:
        """The packed result of a function of (image, block, positions and phases, channel)."""

        def at(b: Expr, o: Expr, *rest: Expr) -> Expr:
            return element(b, o, rest[:-1], rest[-1])

        return te.compute(
            (self.image.shape[0], w.shape[0], *self.size, w.shape[-1]),
            at if len(self.steps) == 3 else lambda b, o, y, p, z, q, i: at(b, o, y, p, z, q, i),
            name=name,
            attrs={"role": role},
        )

    def sources(self, at: Indices) -> tuple[list[Expr], list[Expr]]:
        """The phases of a pixel of the result, and the pixel of the padded image that each tap
        reads."""
        own, source = [], []
        for y, p, (s, o, t), r in zip(at[::2], at[1::2], self.steps, self.taps, strict=True):
            own.append((p + o) % s)
            source.append(y + (p + o) // s + (t - 1) - r)
        return own, source
