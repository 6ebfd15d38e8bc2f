"""cut_taps: the taps of a convolution that read nothing but padding are cut off.

In: a graph. Out: the same model, where filters reach further than their images with smaller ones: a
3 × 3 × 3 filter over an image of one plane, padded by one, is a 3 × 3 filter. Only taps at the ends
of an axis, of constant weights, are cut. A weight that is no finite number stays, as padding times
it is not zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.builder import Edit, Rule
from tilewright.graph.graph import Graph, Node
from tilewright.graph.passes.canonicalise import RULES
from tilewright.ir.expr import as_int


def cut_taps(graph: Graph) -> Graph:
    """Cut off such taps, if there are any."""
    if any(node.op == "conv" and needless(node) for node in graph.nodes):
        return Edit(graph, _RULES).run()
    return graph


def needless(node: Node) -> dict[int, tuple[int, int, tuple[int, int]]]:
    """Of a convolution the space axes along which taps are needless: (the first tap that is kept,
    the one behind the last, how much the image is then padded)."""
    rank = node.inputs[0].rank - 2
    found = {}
    for axis in range(rank):
        size, taps, count = (as_int(v.shape[2 + axis]) for v in (*node.inputs[:2], node.output))
        before, after = (node["pads"] or ((0, 0),) * rank)[axis]
        step, apart = (int((node[name] or (1,) * rank)[axis]) for name in ("strides", "dilations"))
        if not (size and taps and count) or not (before or after):
            continue
        last = (count - 1) * step  # where the last window begins
        begins = [before - tap * apart for tap in range(taps)]  # where a window has it on pixel 0
        used = [
            tap
            for tap, begin in enumerate(begins)
            if max(0, -(-begin // step) * step) <= min(last, begin + size - 1)
        ]
        first, end = (used[0], used[-1] + 1) if used else (0, 1)
        first = min(first, before // apart)  # nothing of the image is cut off: that would be a copy
        free = size + before - 1 - last  # pixels behind the first tap of the last window
        while free - (end - 1) * apart >= step:
            end += 1  # or there would be more windows
        if end - first < taps:
            pads = before - first * apart, max(0, (end - 1) * apart - free)
            found[axis] = first, end, pads
    return found


def _shorter(edit: Edit, node: Node) -> Any:
    found, weights = needless(node), edit.content(node.inputs[1])
    if not found or weights is None:
        return None
    kept: list[slice] = [slice(None)] * weights.ndim
    pads = list(node["pads"])
    for axis, (first, end, around) in found.items():
        along = weights.swapaxes(0, 2 + axis)
        if np.isfinite(along[:first]).all() and np.isfinite(along[end:]).all():
            kept[2 + axis], pads[axis] = slice(first, end), around
    if all(part == slice(None) for part in kept):
        return None
    x, w, *bias = node.inputs
    short = edit.constant(np.ascontiguousarray(weights[tuple(kept)]), w.name)
    attrs = {**dict(node.attrs), "pads": tuple(pads)}
    return edit.emit("conv", x, short, *bias, **attrs, name=node.name)


_RULES: dict[str, list[Rule]] = {**RULES, "conv": [*RULES["conv"], _shorter]}
