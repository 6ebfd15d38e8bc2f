"""phases_apart: phases of a transposed convolution that have unequal numbers of taps.

In: the window of a transposed convolution. Out: an ordinary convolution for each phase of its
stride. Together (conv_transpose_packed) every phase takes as many steps as the one with the most
taps: 16 for the 9 taps of a 3×3 window with stride 2. Apart none takes a step in vain, for one more
pass over the result, that brings the phases together.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from tilewright.graph import sizes
from tilewright.graph.sizes import Shape
from tilewright.ir.expr import as_int


class Phase(NamedTuple):
    """One phase: its filter (Co, Ci, *taps) and the zeros around the image, as convolutions have
    them."""

    weights: np.ndarray
    pads: tuple[tuple[int, int], ...]


def phases_apart(
    weights: np.ndarray,
    strides: Sequence[int],
    begins: Sequence[int],
    positions: Shape,
    image: Shape,
) -> list[Phase] | None:
    """The phases of the result, in row-major order, of a convolution with weights (Ci, Co, *K) that
    leaves out so much at the beginning; each has `positions` pixels. None where one has no taps, or
    sees less than the image.

    Pixel y of phase p is the sum of kernel[own + s r] · image[y + first - r] over taps r, where
    p + begin = s first + own.
    """
    apart: list[Phase] = []
    for phase in product(*map(range, strides)):
        pads: list[tuple[int, int]] = []
        taken: list[slice] = []
        for p, s, begin, k, count, size in zip(
            phase, strides, begins, weights.shape[2:], positions, image, strict=True
        ):
            first, own = divmod(p + begin, s)
            taps = len(range(own, k, s))
            after = as_int(sizes.size(count - size))
            pad = (taps - 1 - first, -1 if after is None else after + first)
            if not taps or min(pad) < 0:
                return None
            pads.append(pad)
            taken.append(slice(own, None, s))
        part = weights[(slice(None), slice(None), *taken)]
        flipped = np.flip(part, tuple(range(2, part.ndim)))
        apart.append(Phase(flipped.swapaxes(0, 1), tuple(pads)))
    return apart
