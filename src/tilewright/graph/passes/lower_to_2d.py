"""lower_to_2d: windows along one axis, and some along three, are seen as windows along two.

[N, C, L] is seen as [N, C, 1, L]; and where a convolution of [N, C, D, H, W] has windows of one
pixel along two neighbouring axes, these are seen as one: [N, C, D, H · W]; an axis of one pixel is
seen as none. Pixels that such windows step over are left out before. Packed layouts and their
kernels then serve sequences and videos as they serve images. The view moves behind element-wise
work, so that chains of convolutions stay packed. A softmax over channels of an image sees its
pixels as one row.
"""

from __future__ import annotations

from typing import Any

from tilewright.graph import sizes
from tilewright.graph.builder import Edit, Rule
from tilewright.graph.graph import Graph, Node
from tilewright.graph.operator import ONE, WINDOW, having
from tilewright.graph.passes.canonicalise import RULES
from tilewright.ir.dtype import f32

_NEUTRAL = {"kernel": 1, "strides": 1, "dilations": 1, "pads": (0, 0), "extra": 0, "inside": (0, 1)}
_WINDOWS = sorted(having(WINDOW) - {"max_pool_index", "col2im"})


def lower_to_2d(graph: Graph) -> Graph:
    """Rewrite such windows, if there are any."""
    if any(_along_one(n) or any(_plain(n)) or _columns(n) for n in graph.nodes):
        return Edit(graph, _RULES).run()
    return graph


def _along_one(node: Node) -> bool:
    x = node.inputs[0] if node.inputs else None
    return node.op in _WINDOWS and x is not None and x.rank == 3 and x.dtype is f32


def _one_more(edit: Edit, node: Node) -> Any:
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


def _plain(node: Node) -> list[bool]:
    """Along which axes the windows of a convolution over three axes or more are one pixel each."""
    if node.op != "conv" or node.inputs[0].rank < 5 or node.inputs[0].dtype is not f32:
        return []
    kernel = node.inputs[1].shape[2:]
    pads = node["pads"] or ((0, 0),) * len(kernel)
    return [size == ONE and not any(pad) for size, pad in zip(kernel, pads, strict=True)]


def _steps_first(edit: Edit, node: Node) -> Any:
    """A convolution of single pixels, some of which are left out: they are left out before."""
    plain = _plain(node)
    if not plain or not all(plain) or all(step == 1 for step in node["strides"]):
        return None
    x, *others = node.inputs
    taken = edit.emit(
        "slice",
        x,
        starts=(0,) * x.rank,
        shape=(*x.shape[:2], *node.output.shape[2:]),
        steps=(1, 1, *node["strides"]),
    )
    attrs = {**dict(node.attrs), "strides": (1,) * len(plain)}
    return edit.emit("conv", taken, *others, **attrs, name=node.name)


def _plain_pair(node: Node) -> int:
    """The first of two neighbouring axes (2, …) that a convolution sees pixel by pixel, all of
    them; 0: there are none."""
    plain = _plain(node)
    strides = node["strides"] if plain else ()
    whole = [
        one and step == 1 for one, step in zip(plain, strides or (1,) * len(plain), strict=True)
    ]
    return next((d for d in range(2, len(whole) + 1) if whole[d - 2] and whole[d - 1]), 0)


def _plane(node: Node) -> int:
    """The axis (2, …) of one pixel that a convolution sees by itself; 0: there is none."""
    sizes_of = zip(node.inputs[0].shape[2:], node.output.shape[2:], _plain(node), strict=False)
    single = [one and size == ONE == left for size, left, one in sizes_of]
    return single.index(True) + 2 if any(single) else 0


def _one_less(edit: Edit, node: Node) -> Any:
    x, w, *bias = node.inputs
    plane, pair = _plane(node), _plain_pair(node)
    axis = plane or pair
    if not axis:
        return None
    merged = (*x.shape[:axis], *x.shape[axis + 1 :])
    if not plane:
        merged = (*x.shape[:axis], sizes.product(x.shape[axis : axis + 2]), *x.shape[axis + 2 :])
    inputs = (
        edit.emit("reshape", x, shape=merged),
        edit.emit("reshape", w, shape=(*w.shape[:axis], *w.shape[axis + 1 :])),
        *bias,
    )
    attrs = {
        name: (*value[: axis - 2], *value[axis - 1 :]) if value and name in _NEUTRAL else value
        for name, value in node.attrs
    }
    made = edit.emit("conv", *inputs, **attrs)
    return edit.emit("reshape", made, shape=node.output.shape, name=node.name)


def _columns(node: Node) -> int:
    """The axis of a softmax over one with several behind it; 0 for any other."""
    if node.op not in ("softmax", "log_softmax"):
        return 0
    (x,) = node.inputs
    axis = node["axis"] % x.rank
    long = [size for size in x.shape[axis + 1 :] if size != ONE]
    return axis if len(long) > 1 else 0


def _one_column(edit: Edit, node: Node) -> Any:
    """Rows that follow each other in memory are one long one: its vectors end once, not in each."""
    axis = _columns(node)
    if not axis:
        return None
    (x,) = node.inputs
    flat = edit.emit("reshape", x, shape=(*x.shape[: axis + 1], sizes.product(x.shape[axis + 1 :])))
    made = edit.emit(node.op, flat, axis=axis)
    return edit.emit("reshape", made, shape=node.output.shape, name=node.name)


_RULES: dict[str, list[Rule]] = {**RULES, **{op: [_one_more] for op in _WINDOWS}}
_RULES |= {op: [*RULES.get(op, ()), _one_column] for op in ("softmax", "log_softmax")}
_RULES["conv"] = [_one_more, _steps_first, _one_less]
