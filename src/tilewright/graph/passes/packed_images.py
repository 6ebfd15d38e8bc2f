"""packed_images: what moves, pools, normalises or computes pixels one by one runs on packed images
as on plain ones.

In: a node of the plain graph, and the layouts of its inputs. Out: True if it now runs on packed
layouts: whole vectors of channels are what is moved. False: it needs its inputs plain.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.graph import sizes
from tilewright.graph.graph import Node, Value
from tilewright.graph.operator import OPERATORS
from tilewright.graph.passes.channels import Packing
from tilewright.graph.passes.packed_values import PackedValues
from tilewright.graph.passes.sought_layouts import (
    KEEPS_FINITE,
    POOLS,
    channels_of,
    is_image,
    is_open,
    keeps_channels,
)
from tilewright.ir.expr import as_int

REDUCTIONS = tuple(
    name for name, entry in OPERATORS.items() if name.startswith("reduce_") and not entry.package
)


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


def instance_norm(edit: PackedValues, node: Node) -> bool:
    """Each channel by itself, normalised over its pixels: lanes stay lanes. Sums are taken
    along one axis after the others, so that threads have parts of an image too."""
    x, *parts = node.inputs
    vectors = [edit.content(v) for v in parts]
    if not edit.is_only_packed(x) or not is_image(x) or node["groups"] != channels_of(x):
        return False
    scale, bias = vectors
    packing = edit.packed[x]
    if scale is None or bias is None or not packing.is_full(channels_of(x)):
        return False
    image = edit.layouts[x, packing]
    first, *others = range(2, x.rank)

    def mean(value: Value) -> Value:
        rows = edit.emit("reduce_mean", value, axes=tuple(others), keepdims=True)
        return edit.emit("reduce_mean", rows, axes=(first,), keepdims=True)

    middle = mean(image)
    centred = edit.emit("sub", image, middle)
    power = mean(edit.emit("mul", centred, centred))
    power = edit.emit("add", power, edit.constant(np.float32(node["eps"]), "eps"))
    gain = edit.emit("mul", edit.emit("rsqrt", power), edit.per_channel(scale, packing, x.rank))
    # Again, and not as the same value, which would be stored for both.
    centred = edit.emit("add", image, edit.emit("neg", middle))
    made = edit.emit("mul", centred, gain)
    made = edit.emit("add", made, edit.per_channel(bias, packing, x.rank))
    edit.made(node.output, made, packing)
    return True


def elementwise(edit: PackedValues, node: Node) -> bool:
    """Run on packed layouts if an input exists only so and the others can follow."""
    out = node.output
    if len(node.outputs) != 1 or not is_image(out):
        return False
    leading = [v for v in node.inputs if edit.is_only_packed(v) and v.shape == out.shape]
    if not leading:
        return False
    packing = edit.packed[leading[0]]
    if not packing.is_full(channels_of(out)) and node.op not in KEEPS_FINITE:
        return False
    layouts: list[Value] = []
    for value in node.inputs:
        layout = _follow(edit, value, out, packing)
        if layout is None:
            return False
        layouts.append(layout)
    edit.made(out, edit.emit(node.op, *layouts, **dict(node.attrs)), packing)
    return True


def _follow(edit: PackedValues, value: Value, out: Value, packing: Packing) -> Value | None:
    """The layout in which an operand joins an elementwise operator on packed values."""
    if value.shape == out.shape:
        return edit.pack(value, packing)
    array = edit.content(value)
    if value in edit.packed and channels_of(value) == channels_of(out):
        return edit.pack(value, packing)  # (N, C, 1, 1): a gate for each channel
    if value.rank > out.rank:
        return None
    if array is None:  # a mask of pixels is the same for all channels
        shape = (*(sizes.size(1) for _ in range(out.rank - value.rank)), *value.shape)
        of_one = as_int(shape[1]) == 1
        return edit.emit("reshape", edit.plain(value), shape=(*shape, 1)) if of_one else None
    full = array.reshape((1,) * (out.rank - array.ndim) + array.shape)
    if full.shape[1:2] == (1,):
        return edit.constant(full.reshape(*full.shape, 1), "c")
    return edit.constant(packing.pack(full), "c")


IMAGES: dict[str, Callable[[PackedValues, Node], bool]] = {
    "concat": concat,
    "gather": gather,
    "group_norm": instance_norm,
    "lrn": lrn,
    "pad": pad,
    "reshape": reshape,
    "slice": slice_,
    **dict.fromkeys(POOLS, pool),
    **dict.fromkeys(REDUCTIONS, reduction),
}
