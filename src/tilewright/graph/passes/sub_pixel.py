"""sub_pixel: a transposed convolution to few channels becomes a sub-pixel convolution, which
computes all its phases together.

With stride s, the s pixels of the result that one pixel of the image begins are in s phases, and
all of them read the same pixels of the image. Where there are few channels, each phase by itself
would leave most of a vector empty; so the phases become channels of one plain convolution, and its
result is then spread out to where they belong. So do those of groups, whose channels the plain
convolution knows to lay out, but for depthwise ones of many channels, which fill vectors as they
are; the one phase of stride 1 is a plain convolution anyway.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tilewright.graph import sizes
from tilewright.graph.builder import Edit, Rule
from tilewright.graph.graph import Graph, Node
from tilewright.graph.ops.linear import types_of
from tilewright.graph.passes.canonicalise import RULES
from tilewright.ir.expr import as_int

FEW = 4  # channels: no vector of any machine is full of them


def sub_pixel(graph: Graph) -> Graph:
    """Rewrite transposed convolutions to few channels, in groups or of one phase."""
    if any(_is_plain(graph, node) for node in graph.nodes):
        return Edit(graph, _RULES).run()
    return graph


def _is_plain(graph: Graph, node: Node) -> bool:
    if node.op != "conv_transpose" or max(node["dilations"] or (1,)) > 1:
        return False
    _, w, *bias = node.inputs
    one_phase, groups = prod(node["strides"] or (1,)) == 1, node["groups"]
    ci, each = (as_int(d) or 0 for d in w.shape[:2])
    some = 0 < each * groups <= FEW if groups in (1, ci) else True
    known = all(v in graph.constants for v in (w, *bias))
    return known and (one_phase or some)


class Phases(NamedTuple):
    """Along each axis: strides, taps of a phase (at most), the position of the first result, and
    how many pixels a phase has and how many more than the image that is."""

    strides: tuple[int, ...]
    taps: tuple[int, ...]
    first: tuple[int, ...]
    positions: tuple[Any, ...]
    more: tuple[int, ...]


def phases_of(node: Node) -> Phases | None:
    """The phases of a transposed convolution; None where they are empty, or only the run knows how
    much longer than the image they are.

    Pixel Y of the result is phase (Y + begin) % s of pixel u = (Y + begin) // s, and sums up tap
    phase + s t of the kernel times pixel u - t of the image.
    """
    x, w, *_ = node.inputs
    kernel = [as_int(d) or 0 for d in w.shape[2:]]
    strides = tuple(node["strides"]) or (1,) * len(kernel)
    begins = _begins(node)
    first = tuple(b // s for b, s in zip(begins, strides, strict=True))
    image, result = (v.shape[2:] for v in (x, node.output))
    positions = tuple(
        sizes.size((n - 1 + b) // s - u + 1)
        for n, b, s, u in zip(result, begins, strides, first, strict=True)
    )
    more = [as_int(sizes.size(m - n)) for m, n in zip(positions, image, strict=True)]
    if any(m is None for m in more) or 0 in map(as_int, positions):
        return None
    taps = tuple(-(-k // s) for k, s in zip(kernel, strides, strict=True))
    return Phases(strides, taps, first, positions, tuple(m or 0 for m in more))


def _begins(node: Node) -> list[int]:
    return [before for before, _ in node["pads"] or ((0, 0),) * (node.inputs[0].rank - 2)]


def interleave(edit: Edit, node: Node, made: Any, phases: Phases, name: str) -> Any:
    """The result of transposed convolution `node` from its phases (N, co, *strides, *positions)."""
    rank, strides, positions = len(phases.strides), phases.strides, phases.positions
    mixed = [axis for d in range(rank) for axis in (2 + rank + d, 2 + d)]
    made = edit.emit("transpose", made, perm=(0, 1, *mixed))
    whole = tuple(sizes.size(m * s) for m, s in zip(positions, strides, strict=True))
    made = edit.emit("reshape", made, shape=(*node.output.shape[:2], *whole))
    starts = (0, 0, *(b % s for b, s in zip(_begins(node), strides, strict=True)))
    return edit.emit("slice", made, starts=starts, shape=node.output.shape, name=name)


def _together(edit: Edit, node: Node) -> Any:
    if node.op != "conv_transpose" or not _is_plain(edit.graph, node):
        return None
    phases = phases_of(node)
    if phases is None:
        return None
    x, w, *bias = node.inputs
    weights, groups = edit.graph.constants[w].array, node["groups"]
    ci, each, *kernel = weights.shape
    rank, sources, co = len(kernel), ci // groups, each * groups
    strides, taps, first, positions, more = phases
    pads = tuple((t - 1 - u, m + u) for t, u, m in zip(taps, first, more, strict=True))
    if any(side < 0 for pad in pads for side in pad):
        return None
    filters = np.zeros((co, *strides, sources, *taps), weights.dtype)
    for phase in product(*map(range, strides)):
        part = weights[
            (
                slice(None),
                slice(None),
                *(slice(p, None, s) for p, s in zip(phase, strides, strict=True)),
            )
        ]
        last_first = tuple(slice(t - n, t) for t, n in zip(taps, part.shape[2:], strict=True))
        flipped = np.flip(part, tuple(range(2, 2 + rank)))
        by_group = flipped.reshape(groups, sources, each, *part.shape[2:]).swapaxes(1, 2)
        own = by_group.reshape(co, sources, *part.shape[2:])
        filters[(slice(None), *phase, slice(None), *last_first)] = own
    count = prod(strides)
    inputs = [x, edit.constant(filters.reshape(co * count, sources, *taps), "w")]
    if bias:
        inputs.append(edit.constant(np.repeat(edit.graph.constants[bias[0]].array, count), "b"))
    made = edit.emit("conv", *inputs, pads=pads, groups=groups, **types_of(node))
    if count == 1:
        return made
    made = edit.emit("reshape", made, shape=(x.shape[0], co, *strides, *positions))
    return interleave(edit, node, made, phases, node.name)


_RULES: dict[str, list[Rule]] = {**RULES, "conv_transpose": [_together]}
