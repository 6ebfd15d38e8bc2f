"""packed_images: what moves, pools or reduces pixels runs on packed images as on plain ones.

In: a node of the plain graph, and the layouts of its inputs. Out: True if it now runs on packed
layouts: whole vectors of channels are what is moved. False: it needs its inputs plain.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.graph.graph import Node
from tilewright.graph.operator import OPERATORS
from tilewright.graph.passes.channels import Packing
from tilewright.graph.passes.packed_values import PackedValues
from tilewright.graph.passes.sought_layouts import (
    POOLS,
    channels_of,
    is_image,
    is_open,
    keeps_channels,
)
from tilewright.ir.expr import as_int

REDUCTIONS = tuple(name for name in OPERATORS if name.startswith("reduce_"))


def pool(edit: PackedValues, node: Node) -> bool:
    (x,) = node.inputs
    if not is_image(x) or x not in edit.packed:
        return False
    attrs = dict(node.attrs)
    one = {"kernel": 1, "strides": 1, "dilations": 1, "pads": (0, 0), "inside": (0, 1)}
    for name, value in one.items():
        if attrs.get(name):
            attrs[name] = (*attrs[name], value)
    return edit.on_packed(node, attrs)


def reduction(edit: PackedValues, node: Node) -> bool:
    """All pixels of each channel: lanes stay lanes."""
    (x,) = node.inputs
    axes = node["axes"]
    space = tuple(range(2, x.rank))
    whole = axes is not None and tuple(sorted(a % x.rank for a in axes)) == space
    if x not in edit.packed or not is_image(x) or not whole or not node["keepdims"]:
        return False
    return edit.on_packed(node, {"axes": space, "keepdims": True})


def pad(edit: PackedValues, node: Node) -> bool:
    """Pixels around an image, as windows have them whose padding only the run knows."""
    (x,) = node.inputs
    before, after = node["before"], node["after"]
    wanted = edit.sought.get(node.output) if is_open(node) else None
    if not keeps_channels(node) or (wanted is None and not edit.is_only_packed(x)):
        return False
    if not edit.is_only_packed(x) and wanted is not None:
        edit.pack(x, wanted)
    if not edit.packed[x].is_full(channels_of(x)) and not np.isfinite(node["value"]):
        return False
    return edit.on_packed(node, {**dict(node.attrs), "before": (*before, 0), "after": (*after, 0)})


def reshape(edit: PackedValues, node: Node) -> bool:
    """Where images keep their channels, other axes of pixels are a view of packed ones too."""
    (x,) = node.inputs
    shape = node.output.shape
    images = is_image(x) and is_image(node.output) and shape[:2] == x.shape[:2]
    if not images or not edit.is_only_packed(x):
        return False
    packing = edit.packed[x]
    layout = edit.layouts[x, packing]
    made = edit.emit("reshape", layout, shape=(*layout.shape[:2], *shape[2:], layout.shape[-1]))
    edit.made(node.output, made, packing)
    return True


def slice_(edit: PackedValues, node: Node) -> bool:
    """Whole vectors of channels, and any pixels of them."""
    (x,) = node.inputs
    if not edit.is_only_packed(x) or not is_image(x):
        return False
    packing, made = edit.packed[x], node.output
    starts, steps = node["starts"], node["steps"] or (1,) * x.rank
    layout = edit.layouts[x, packing]
    if made.shape[1] == x.shape[1] and as_int(starts[1]) == 0 and steps[1] == 1:
        first, blocks = 0, layout.shape[1]
    else:
        count = channels_of(made)
        first, blocks = _blocks(packing, channels_of(x), as_int(starts[1]), count)
        if not blocks or steps[1] != 1:
            return False
    attrs = {
        "starts": (starts[0], first, *starts[2:], 0),
        "shape": (made.shape[0], blocks, *made.shape[2:], packing.block),
        "steps": (*steps, 1),
    }
    return edit.on_packed(node, attrs)


def _blocks(packing: Packing, channels: int, first: int | None, count: int) -> tuple[int, int]:
    """Which blocks of channels a run of them is, and how many; (0, 0) if it cuts any."""
    block, groups = packing
    last = (first or 0) + count
    ends = last % block == 0 or last == channels
    if first is None or first % block or not ends or groups > 1:
        return 0, 0
    return first // block, -(-count // block)


def gather(edit: PackedValues, node: Node) -> bool:
    """Pixels along an axis (an image is resized): whole vectors of channels are moved."""
    x, indices = node.inputs
    if not is_image(x) or indices.rank != 1 or node["axis"] % x.rank < 2:
        return False
    if not edit.is_only_packed(x) and node.output not in edit.sought:
        return False
    packing = edit.packed[x] if edit.is_only_packed(x) else edit.sought[node.output]
    layout = edit.emit(
        "gather", edit.pack(x, packing), edit.plain(indices), axis=node["axis"] % x.rank
    )
    edit.made(node.output, layout, packing)
    return True


def concat(edit: PackedValues, node: Node) -> bool:
    packings = {edit.packed.get(v) for v in node.inputs}
    if node.output in edit.sought and len(packings) == 2:
        packings.discard(None)  # the plain ones are packed for the sake of the others
    if len(packings) != 1 or node["axis"] % node.output.rank != 1:
        return False
    (packing,) = packings
    if packing is None or packing.groups > 1:
        return False
    if not all(packing.is_full(channels_of(v)) for v in node.inputs):
        return False
    layout = edit.emit("concat", *[edit.pack(v, packing) for v in node.inputs], axis=1)
    edit.made(node.output, layout, packing)
    return True


def lrn(edit: PackedValues, node: Node) -> bool:
    (x,) = node.inputs
    if not edit.is_only_packed(x) or x.rank != 4:
        return False
    packing = edit.packed[x]
    if not packing.is_full(channels_of(x)) or node["size"] > 2 * packing.block + 1:
        return False
    return edit.on_packed(node, dict(node.attrs), "lrn_packed")


IMAGES: dict[str, Callable[[PackedValues, Node], bool]] = {
    "concat": concat,
    "gather": gather,
    "lrn": lrn,
    "pad": pad,
    "reshape": reshape,
    "slice": slice_,
    **dict.fromkeys(POOLS, pool),
    **dict.fromkeys(REDUCTIONS, reduction),
}
