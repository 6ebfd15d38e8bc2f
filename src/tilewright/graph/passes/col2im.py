"""col2im: a transposed convolution to few channels is a product of all its taps and every pixel,
and a sum of what lies shifted.

Where the kernel is wider than the stride, the windows that pixels begin overlap. As a convolution
of phases (`sub_pixel`) each pixel of the result gathers what overlaps there, over a padded
image and with taps of zeros where phases have fewer than others. The product has neither, and its
rows are all pixels in one run; a second kernel then adds up to a few neighbours for each pixel,
phase by phase. (The operator `col2im` takes any windows, and asks each tap of each pixel whether it
falls there.)

In: a graph whose weights are known. Out: the same with a product, slices, pads and sums for each
such convolution.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from tilewright.graph import sizes
from tilewright.graph.builder import Edit, Rule
from tilewright.graph.graph import Graph, Node
from tilewright.graph.ops.linear import is_of_one_type
from tilewright.graph.passes.canonicalise import RULES
from tilewright.graph.passes.sub_pixel import FEW, interleave, phases_of
from tilewright.ir.dtype import f32
from tilewright.ir.expr import as_int

DEEP = 32  # channels: so many products are worth storing their sum, and reading it again
MOST_STRIDE = 2  # lanes take turns at as many lines, in each of the neighbours that are added
MOST_ADDED = 2  # neighbours along an axis: phases of three taps are Winograd's


def col2im(graph: Graph) -> Graph:
    """Rewrite transposed convolutions of one image to few channels, whose windows overlap."""
    if any(_overlaps(graph, node) for node in graph.nodes):
        return Edit(graph, _RULES).run()
    return graph


def _overlaps(graph: Graph, node: Node) -> bool:
    if node.op != "conv_transpose" or node["groups"] > 1 or max(node["dilations"] or (1,)) > 1:
        return False
    x, w, *bias = node.inputs
    if x.dtype is not f32 or not is_of_one_type(node) or as_int(x.shape[0]) != 1:
        return False
    if any(v not in graph.constants for v in (w, *bias)):
        return False
    ci, co, *kernel = (as_int(d) or 0 for d in w.shape)
    strides = node["strides"] or (1,) * len(kernel)
    added = max(-(-k // s) for k, s in zip(kernel, strides, strict=True))
    few = 0 < co <= FEW and 1 < max(strides) <= MOST_STRIDE
    return few and ci >= DEEP and 1 < added <= MOST_ADDED


def _product(edit: Edit, node: Node) -> Any:
    if not _overlaps(edit.graph, node) or (phases := phases_of(node)) is None:
        return None
    if any(phases.first) or min(phases.more) < 0:
        return None  # pads that cut off whole pixels of phases
    x, w, *bias = node.inputs
    ci, co, *kernel = edit.graph.constants[w].shape
    image = x.shape[2:]
    rows = edit.graph.constants[w].array.reshape(ci, -1).T
    pixels = edit.emit("reshape", x, shape=(ci, sizes.product(image)))
    made = edit.emit("matmul", edit.constant(rows, "w"), pixels)
    made = edit.emit("reshape", made, shape=(1, co, *kernel, *image))
    # Pixel u of a phase sums up tap phase + s t of the kernel times pixel u - t.
    added: Any = None
    for at in product(*map(range, phases.taps)):
        firsts = [s * t for t, s in zip(at, phases.strides, strict=True)]
        taps = [min(s, k - f) for f, k, s in zip(firsts, kernel, phases.strides, strict=True)]
        behind = [more - t for t, more in zip(at, phases.more, strict=True)]
        kept = [sizes.size(n + min(0, b)) for n, b in zip(image, behind, strict=True)]
        if 0 in map(as_int, kept):
            continue
        starts = (0, 0, *firsts, *(0 for _ in kept))
        part = edit.emit("slice", made, starts=starts, shape=(1, co, *taps, *kept))
        missing = [s - n for s, n in zip(phases.strides, taps, strict=True)]
        after = (0, 0, *missing, *(max(0, b) for b in behind))
        before = (0, 0, *(0 for _ in missing), *at)
        part = edit.emit("pad", part, before=before, after=after)
        added = part if added is None else edit.emit("add", added, part)
    name = "" if bias else node.name
    result = interleave(edit, node, added, phases, name)
    if bias:
        array = edit.graph.constants[bias[0]].array
        each = edit.constant(array.reshape(-1, *(1 for _ in kernel)), "b")
        result = edit.emit("add", result, each, name=node.name)
    return result


_RULES: dict[str, list[Rule]] = {**RULES, "conv_transpose": [_product]}
