"""sought_layouts: which values had better be packed, as those who read them tell.

In: a graph of plain operators and a layout policy, before any layout is chosen. Out: the
packing of each value that nothing but packed convolutions and pools reads, through operators that
run on any packing: whoever makes such a value may as well make it packed.
"""

from __future__ import annotations

from collections import Counter

from tilewright.graph.graph import Graph, Node, Value
from tilewright.graph.layout_policy import LayoutPolicy
from tilewright.graph.operator import FINITE, POOL, having
from tilewright.graph.ops.linear import is_of_one_type
from tilewright.graph.passes.channels import Packing
from tilewright.ir.dtype import f32
from tilewright.ir.expr import as_int

KEEPS_FINITE, POOLS = having(FINITE), having(POOL)


def sought_packed(graph: Graph, policy: LayoutPolicy) -> dict[Value, Packing]:
    """The values that nothing but packed convolutions reads, through what runs on any packing."""
    sought: dict[Value, Packing] = {}
    readers = Counter(v for node in graph.nodes for v in set(node.inputs))
    readers.update(graph.outputs)
    asked: Counter[Value] = Counter()  # readers that want it packed
    for node in reversed(graph.nodes):
        packs = node.op == "conv" and node["groups"] == 1 and node.inputs[1] in graph.constants
        wanted = len(node.outputs) == 1 and node.output in sought
        moves = node.op == "gather" and node["axis"] % node.inputs[0].rank > 1
        moves = moves or (node.op == "pad" and keeps_channels(node) and is_open(node))
        joins = node.op == "concat" and node["axis"] % node.output.rank == 1
        if packs or (wanted and moves):
            asking = node.inputs[:1]
        elif wanted and (joins or node.op in KEEPS_FINITE):
            asking = node.inputs
        else:
            continue
        asked.update(set(asking))
        for value in asking:
            channels = channels_of(value) if is_image(value) and value.dtype is f32 else 0
            packing = sought[node.output] if joins else Packing(policy.block(channels, f32))
            full = channels > 0 and packing.is_full(channels)
            if full and asked[value] == readers[value]:
                sought[value] = packing
    return sought


def keeps_channels(pad: Node) -> bool:
    """Is it pixels around images that are added?"""
    ends = (*pad["before"][:2], *pad["after"][:2])
    return pad["mode"] == "constant" and is_image(pad.output) and all(as_int(p) == 0 for p in ends)


def is_open(pad: Node) -> bool:
    """Is it only the run that knows by how much?"""
    return any(as_int(p) is None for p in (*pad["before"], *pad["after"]))


def is_image(value: Value) -> bool:
    """Does it have channels over two axes, or over three?"""
    return value.rank in (4, 5)


def channels_of(image: Value) -> int:
    """How many channels an image has; 0 if the run finds it."""
    return (as_int(image.shape[1]) or 0) if image.rank > 1 else 0


def is_f32(node: Node) -> bool:
    """Is it a product or convolution of f32 alone? Others have no packed kernels."""
    return is_of_one_type(node) and node.output.dtype is f32
