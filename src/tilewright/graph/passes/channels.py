"""channels: how the channels of packed images and of convolutions lie in memory.

In: how many channels and groups a convolution has, and the machine's lanes and constants. Out: a
`Channels`, and weights packed to match. The one idea: a vector of results needs neighbouring
channels that read the same numbers of the image; where groups are too narrow to fill a vector,
shorter vectors, groups filled up with zeros, and one dense convolution are weighed by the time that
the model gives them.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

import numpy as np

from tilewright.graph.ops.packed import in_blocks, pack
from tilewright.target.costs import COMMON, UNITS, Costs

MOST_PADDING = 4  # times as many channels as there are: beyond, groups are not filled up
SHORTEST = 4  # lanes of a vector
HALF = 0.8  # of the time that blocks of whole vectors take: what blocks of halves may
MOVED = 10.0  # cycles in which a vector of pixels is packed, or unpacked
WORTH = 0.9  # of the time of a packed convolution: what a plain one may take
SAVED = 0.5  # of the time of a convolution to few channels: what Winograd's tiles take
TILE = 8  # vectors that a step of a reduction works on, of a tile on the small side


class Packing(NamedTuple):
    """How a value is packed: `block` neighbouring channels side by side, each of `groups` equal
    runs of channels filled up to whole blocks."""

    block: int
    groups: int = 1

    @classmethod
    def of(cls, channels: int, block: int, groups: int = 1) -> Packing:
        """The packing by groups; by none where blocks do not straddle groups anyway."""
        return cls(block, 1 if channels // groups % block == 0 else groups)

    def is_full(self, channels: int) -> bool:
        """Are there no padding channels?"""
        return channels // self.groups % self.block == 0

    def padded(self, channels: int) -> int:
        """How many channels there are with the padding."""
        return -(-(channels // self.groups) // self.block) * self.block * self.groups

    def pack(self, array: np.ndarray) -> np.ndarray:
        """The array (N, C, …) packed this way."""
        return pack(array, self.block, self.groups)


class Channels(NamedTuple):
    """How a convolution's channels lie: the packing of its image and of its result, the groups it
    runs as, and how many neighbouring channels of the image a step of the reduction walks."""

    image: Packing
    result: Packing
    step: int
    groups: int = 1

    def group(self, ci: int, co: int) -> tuple[int, ...]:
        """How many groups, and the channels that one has of the image and of the result, padding
        included; () for one group."""
        if self.groups == 1:
            return ()
        sides = (self.image, ci), (self.result, co)
        sources, results = ((p.padded(c) if p.groups > 1 else c) // self.groups for p, c in sides)
        return self.groups, sources, results

    def filter_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that `pack_filter` gives weights of this one."""
        co, ci, *window = shape
        return (
            self.result.padded(co) // self.result.block,
            self.depth().padded(ci) // self.step,
            *window,
            self.step,
            self.result.block,
        )

    def pack_filter(self, weights: np.ndarray) -> np.ndarray:
        """(Co, Ci, KH, KW) → (Co/ob, Ci/step, KH, KW, step, ob); missing channels are zeros.

        Ci counts the channels of one of the convolution's groups.
        """
        return self.result.pack(in_blocks(weights, *self.depth())[None])[0]

    def depth(self) -> Packing:
        """How a filter's own channels lie: those that the image keeps apart stay apart."""
        return Packing(self.step, max(1, self.image.groups // self.groups))


def block_of(channels: int, lanes: int, costs: Costs = COMMON) -> int:
    """How many channels of an image a block had better have: a vector of them, or half of one where
    fewer lanes then stay empty and half a vector takes less time.

    It is the channels' number alone that tells, so that images that meet are packed alike."""

    def cycles(block: int, costs: Costs) -> float:
        return -(-channels // block) / costs.multiply_adds

    half = lanes // 2
    if half < SHORTEST or cycles(half, costs.of_halves) > HALF * cycles(lanes, costs):
        return lanes
    return half


def dense(
    ci: int, co: int, lanes: int, image: Packing | None = None, costs: Costs = COMMON
) -> Channels:
    """Of a convolution without groups; of an image that is packed already, if one is given."""
    result = Packing(block_of(co, lanes, costs))
    if image is None and ci < lanes:
        return Channels(Packing(1), result, 1)  # one number is broadcast: any layout does
    image = image or Packing(block_of(ci, lanes, costs))
    step = step_of(ci, image.block) if image.groups == 1 else image.block
    return Channels(image, result, step)


def grouped(
    ci: int, co: int, groups: int, taps: int, lanes: int, costs: Costs = COMMON
) -> Channels | None:
    """Of a convolution with groups that reads `taps` pixels for each: what takes the least modelled
    time; None where that would be groups filled up with too many zeros."""
    sources, results = ci // groups, co // groups
    plain, fast = Packing(lanes), costs.multiply_adds

    def cycles(lie: Channels, lanes_alike: int) -> float:
        """For one pixel."""
        vectors = lie.result.padded(co) / lanes_alike
        depth = lie.depth().padded(ci // lie.groups)
        sides = (lie.image, ci), (lie.result, co)
        moved = sum(p.padded(c) / lanes for p, c in sides if p.groups > 1)
        rate = fast if lanes_alike == lanes else max(fast, UNITS)
        return vectors * depth * taps / rate + moved * costs.transform

    filled = Channels(
        Packing.of(ci, lanes, groups),
        Packing.of(co, lanes, groups),
        step_of(sources, lanes),
        groups,
    )
    one = dense(ci, co, lanes, costs=costs)
    best = min((cycles(filled, lanes), 0, filled), (cycles(one, lanes), 1, one))
    alike = gcd(results, lanes)
    if alike >= min(SHORTEST, lanes):
        in_place = Channels(plain, plain, gcd(sources, lanes), groups)
        best = min(best, (cycles(in_place, alike), -1, in_place))
    lie = best[2]
    padding = max(lie.image.padded(ci) / ci, lie.result.padded(co) / co)
    return None if lie.groups > 1 and padding > MOST_PADDING else lie


def along_rows(
    ci: int, co: int, steps: int, width: int | None, lanes: int, is_packed: bool, tiles: bool,
    costs: Costs = COMMON,
) -> bool:  # fmt: skip
    """Whether the vectors of a convolution had better be neighbouring pixels, of rows of `width`
    results: where its channels do not fill a vector, and its image (is it packed?) had better be
    plain for it. A result takes so many `steps`, packed ones fewer if in Winograd's `tiles`."""
    if co >= lanes:
        return False
    block = block_of(co, lanes, costs)
    if ci < lanes and co < block:
        return not is_packed and (width is None or width >= max(ci, co))
    full = -(-width // lanes) * lanes / width if width else 1.0  # the last vector of a row is not
    rate = 1.0 if co == 1 else costs.multiply_adds  # one result: each step waits for a load
    moved = ci / lanes * MOVED
    plain = steps * co / lanes * full / rate + is_packed * moved
    vector = costs if block == lanes else costs.of_halves
    packed = steps * (SAVED if tiles else 1.0) / vector.multiply_adds
    return plain < WORTH * (packed + (not is_packed) * moved)


def step_of(channels: int, block: int) -> int:
    """The part of a block that a step of a reduction over so many channels walks: long steps cost
    less, short ones fewer channels that are missing."""
    parts = (n for n in range(1, block + 1) if block % n == 0)
    return min(parts, key=lambda n: -(-channels // n) * (n + 1 / TILE))


def dense_filter(weights: np.ndarray, groups: int) -> np.ndarray:
    """The filter of a grouped convolution as one over all channels: zeros between the groups."""
    co, each = weights.shape[:2]
    full = np.zeros((co, each * groups, *weights.shape[2:]), weights.dtype)
    step = co // groups
    for g in range(groups):
        full[g * step : (g + 1) * step, g * each : (g + 1) * each] = weights[
            g * step : (g + 1) * step
        ]
    return full
