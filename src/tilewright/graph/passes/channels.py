"""channels: how the channels of packed images and of convolutions are laid out in memory.

In: how many channels and groups a convolution has, and the machine's policy. Out: a
`ChannelLayout`, and weights packed to match. The one idea: a vector of results needs neighbouring
channels that read the same numbers of the image; where groups are too narrow to fill a vector,
shorter vectors, groups filled up with zeros, and one dense convolution are weighed by the time that
the model gives them.
"""

from __future__ import annotations

from math import gcd, inf
from typing import NamedTuple

import numpy as np

from tilewright.graph.layout_policy import LayoutPolicy
from tilewright.graph.ops.packed import in_blocks, pack
from tilewright.ir.dtype import DType, f32

MOST_PADDING = 4  # times as many channels as there are: beyond, groups are not filled up


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


class ChannelLayout(NamedTuple):
    """How a convolution's channels are laid out: the packing of its image and of its result, the
    groups it runs as, and how many neighbouring channels of the image a reduction step walks."""

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
        """How a filter's own channels are laid out: those that the image keeps apart stay apart."""
        return Packing(self.step, max(1, self.image.groups // self.groups))


def dense(ci: int, result: Packing, image: Packing, policy: LayoutPolicy) -> ChannelLayout:
    """Of a convolution of `ci` channels without groups."""
    in_steps = image.groups == 1 and image.block > 1
    return ChannelLayout(image, result, policy.step(ci, image.block) if in_steps else image.block)


def grouped(
    ci: int, co: int, groups: int, taps: int, policy: LayoutPolicy, of: DType = f32
) -> tuple[str, dict[str, ChannelLayout]]:
    """The layouts that the channels of a convolution with groups may have, by name, and the one
    that takes the least modelled time for `taps` pixels: "plain", not among them, where that would
    be groups filled up with too many zeros."""
    lanes, sources, results = policy.lanes(of), ci // groups, co // groups
    plain, result = Packing(lanes), Packing(policy.block(co, of))
    image = Packing(1 if ci < lanes else policy.block(ci, of))  # one is broadcast: any layout does
    ways = {  # of equals the first
        "in place": (ChannelLayout(plain, plain, gcd(sources, lanes), groups), gcd(results, lanes)),
        "padded": (
            ChannelLayout(
                Packing.of(ci, lanes, groups),
                Packing.of(co, lanes, groups),
                policy.step(sources, lanes),
                groups,
            ),
            lanes,
        ),
        "dense": (dense(ci, result, image, policy), lanes),
    }

    def cycles(layout: ChannelLayout, same_input: int) -> float:
        """For one pixel."""
        sides = (layout.image, ci), (layout.result, co)
        moved = sum(p.padded(c) / lanes for p, c in sides if p.groups > 1)
        depth = layout.depth().padded(ci // layout.groups) * taps
        return policy.group_cycles(layout.result.padded(co), same_input, depth, moved, of)

    times = {name: cycles(*way) for name, way in ways.items()}
    best = min(times, key=lambda name: times[name])
    layout, _ = ways[best]
    padding = max(layout.image.padded(ci) / ci, layout.result.padded(co) / co)
    own = "plain" if layout.groups > 1 and padding > MOST_PADDING else best
    return own, {name: ways[name][0] for name, time in times.items() if time < inf}


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
