"""second_axis: windows along one axis get a second one, of size 1.

[N, C, L] is seen as [N, C, 1, L]: packed layouts and their kernels then serve convolutions and
pools of sequences as they serve those of images. The view moves behind element-wise work, so that
chains of convolutions stay packed.
"""

from __future__ import annotations

from typing import Any

from tilewright.graph.builder import Edit, Rule
from tilewright.graph.graph import Graph, Node
from tilewright.graph.passes.canonicalise import RULES
from tilewright.ir.dtype import f32

_NEUTRAL = {"kernel": 1, "strides": 1, "dilations": 1, "pads": (0, 0), "extra": 0}
_WINDOWS = ("conv", "conv_transpose", "max_pool", "avg_pool")


def second_axis(graph: Graph) -> Graph:
    """Rewrite windows over one axis, if there are any."""
    if any(_along_one(node) for node in graph.nodes):
        return Edit(graph, _RULES).run()
    return graph


def _along_one(node: Node) -> bool:
    x = node.inputs[0] if node.inputs else None
    return node.op in _WINDOWS and x is not None and x.rank == 3 and x.dtype is f32


def _over_two(edit: Edit, node: Node) -> Any:
    if not _along_one(node):
        return None
    wide = [
        edit.emit("reshape", v, shape=(*v.shape[:2], 1, v.shape[2])) if v.rank == 3 else v
        for v in node.inputs
    ]
    attrs = {
        name: (_NEUTRAL[name], *value) if value and name in _NEUTRAL else value
        for name, value in node.attrs
    }
    made = edit.emit(node.op, *wide, **attrs)
    return edit.emit("reshape", made, shape=node.output.shape, name=node.name)


_RULES: dict[str, list[Rule]] = {**RULES, **{op: [_over_two] for op in _WINDOWS}}
