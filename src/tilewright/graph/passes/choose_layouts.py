"""choose_layouts: put convolutions and products on packed layouts, and keep values packed between
them.

In: a graph of plain operators and a machine's layout policy. Out: the same model with packed
operators, constants packed, and conversions only where a packed value reaches an operator that does
not know packing. The one idea: a value may have two layouts, plain and packed; each is made where
somebody first asks for it. What is legal is found first; what then is done are decisions:

    <value>.layout      channels of a block
    <value>.algorithm   of the operator that makes it: "plain", "packed", "winograd 2", "phases", …
    <value>.groups      the layout of a grouped convolution's channels
    <value>.across      do tiles of a convolution span rows of the image?
    <value>.panel       vectors of a panel of a product's weights
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, prod
from typing import Any, NamedTuple

import numpy as np

from tilewright.arith.estimate import estimate_by_symbols
from tilewright.arith.simplify import Facts
from tilewright.graph import sizes
from tilewright.graph.graph import Constant, Graph, Node, Value
from tilewright.graph.layout_policy import Decisions, LayoutPolicy
from tilewright.graph.operator import BROADCAST, OPERATORS
from tilewright.graph.ops.packed_transposed import pack_transposed, pack_transposed_each
from tilewright.graph.ops.winograd import POINTS, TAPS, pack_winograd
from tilewright.graph.passes.channels import ChannelLayout, Packing, dense, dense_filter, grouped
from tilewright.graph.passes.packed_images import IMAGES, elementwise
from tilewright.graph.passes.packed_products import PRODUCTS
from tilewright.graph.passes.packed_values import PackedValues
from tilewright.graph.passes.phases_apart import Phase, phases_apart
from tilewright.graph.passes.sought_layouts import (
    KEEPS_FINITE,
    POOLS,
    channels_of,
    is_f32,
    is_image,
)
from tilewright.ir.dtype import f32
from tilewright.ir.expr import Expr, as_int
from tilewright.ir.walk import free_vars


def choose_layouts(
    graph: Graph,
    policy: LayoutPolicy,
    *,
    winograd: bool = True,
    decisions: Decisions | None = None,
) -> Graph:
    """Packed layouts as `policy` picks them, or whoever chooses for `decisions`, which keeps what
    was decided. `winograd`: may convolutions be Winograd's?"""
    return _Layouts(graph, policy, winograd, decisions or Decisions()).run()


class _Convolution(NamedTuple):
    """A convolution that may be packed. window: its strides, pads and dilations."""

    node: Node
    weights: Constant
    bias: np.ndarray | None
    window: dict[str, Any]
    ci: int
    co: int

    @property
    def groups(self) -> int:
        return self.node["groups"]

    @property
    def is_depthwise(self) -> bool:
        return self.groups == self.ci == self.co

    @property
    def taps(self) -> int:
        return prod(self.weights.shape[2:])


class _Layouts(PackedValues):
    """The edit."""

    def __init__(
        self, graph: Graph, policy: LayoutPolicy, winograd: bool, decisions: Decisions
    ) -> None:
        super().__init__(graph, policy, decisions)
        self.winograd = winograd
        self.preferred: dict[Value, Packing] = {}
        self.preferred = self.preferences()

    def preferences(self) -> dict[Value, Packing]:
        """The packing that a grouped convolution wants of a value, seen through what runs on any
        packing."""
        wanted: dict[Value, Packing] = {}
        for node in reversed(self.graph.nodes):
            channels = channels_of(node.inputs[0]) if node.op == "conv" else 0
            if channels:
                groups = node["groups"]
                if groups == channels and node.output in wanted:
                    wanted.setdefault(node.inputs[0], wanted[node.output])
                elif 1 < groups < channels:
                    co, _, *window = (as_int(n) or 0 for n in node.inputs[1].shape)
                    own, ways = "plain", dict[str, ChannelLayout]()
                    if co:
                        own, ways = grouped(channels, co, groups, prod(window), self.policy)
                    if own != "plain" and not self.is_along_rows(node):
                        wanted[node.inputs[0]] = ways[own].image
            elif node.op in KEEPS_FINITE | POOLS and node.output in wanted:
                for value in node.inputs:
                    if value.shape == node.output.shape or node.op in POOLS:
                        wanted.setdefault(value, wanted[node.output])
        return wanted

    def run(self) -> Graph:
        for node in self.graph.nodes:
            handler = _HANDLERS.get(node.op)
            if handler is None and OPERATORS[node.op].fusion is BROADCAST:
                handler = elementwise
            is_empty = any(as_int(s) == 0 for v in (*node.inputs, *node.outputs) for s in v.shape)
            if handler is not None and not is_empty and handler(self, node):
                continue
            for value in node.inputs:
                self.plain(value)
            self.append(self.current(node))
        for value in self.graph.outputs:
            self.plain(value)
        return self.finish_edit() if self.packed or self.replaced else self.graph

    # Operators ------------------------------------------------------------------------------

    def conv(self, node: Node) -> bool:
        found = self.as_packable(node)
        if found is None:
            return False
        layout = self.depthwise(found) if found.is_depthwise else self.channels(found)
        if layout is None:
            return False
        edges = {} if found.is_depthwise else self.winograd_edges(found, layout)
        own = max(edges.values(), default=0)
        names = {"plain": 0, "packed": 0} | {f"winograd {e}": e for e in edges}
        pick = "plain" if self.is_along_rows(node, own) else f"winograd {own}" if own else "packed"
        algorithm = self.decide(node, "algorithm", pick, (*names,))
        if algorithm == "plain":
            return False
        if found.is_depthwise:
            made = self.run_depthwise(found, layout)
        elif edge := names[algorithm]:
            made = self.run_winograd(found, self.in_tiles(found, layout), edge)
        else:
            made = self.run_direct(found, layout)
        if found.bias is not None:
            rank = node.output.rank
            made = self.emit("add", made, self.per_channel(found.bias, layout.result, rank))
        self.made(node.output, made, layout.result)
        return True

    def as_packable(self, node: Node) -> _Convolution | None:
        """A convolution as packed ones take it; None for one that cannot be packed."""
        x, w = node.inputs[:2]
        weights, ci = self.known(w), channels_of(x)
        if weights is None or not is_f32(node) or not is_image(x) or not ci:
            return None
        bias = self.content(node.inputs[2]) if len(node.inputs) > 2 else None
        if len(node.inputs) > 2 and bias is None:
            return None
        one = (1,) * (x.rank - 2)
        window = {
            "strides": tuple(node["strides"]) or one,
            "pads": tuple(node["pads"]) or tuple((0, 0) for _ in one),
            "dilations": tuple(node["dilations"]) or one,
        }
        return _Convolution(node, weights, bias, window, ci, weights.shape[0])

    def depthwise(self, of: _Convolution) -> ChannelLayout:
        """How the channels of a depthwise convolution are laid out: as those of its image do."""
        x = of.node.inputs[0]
        packing = self.packed.get(x) or self.preferred.get(x) or self.own_packing(x, of.ci)
        return ChannelLayout(packing, packing, 1, of.groups)

    def run_depthwise(self, of: _Convolution, layout: ChannelLayout) -> Value:
        """Each channel by itself: its filter's taps are packed as an image is."""
        taps = of.weights.array.reshape(1, of.co, *of.weights.shape[2:])
        filters = self.constant(layout.image.pack(taps)[0], "w")
        return self.emit(
            "depthwise_packed", self.pack(of.node.inputs[0], layout.image), filters, **of.window
        )

    def run_direct(self, of: _Convolution, layout: ChannelLayout) -> Value:
        """Tap by tap."""
        weights = self.filter_of(of, layout)
        shape = layout.filter_shape(weights.shape)
        filters = self.packed_filter(of, layout, weights, shape, layout.pack_filter, 0)
        group, across = layout.group(of.ci, of.co), self.across(of.node, layout.result)
        image = self.pack(of.node.inputs[0], layout.image)
        return self.emit("conv_packed", image, filters, group=group, across=across, **of.window)

    def run_winograd(self, of: _Convolution, layout: ChannelLayout, edge: int) -> Value:
        """In tiles with this edge."""
        weights = self.filter_of(of, layout)
        shape = layout.filter_shape(weights.shape)
        shape = (shape[0], edge + 2, edge + 2, *shape[2:-4], shape[1], *shape[-2:])

        def packed(rows: np.ndarray) -> np.ndarray:
            return pack_winograd(layout.pack_filter(rows), edge)

        filters = self.packed_filter(of, layout, weights, shape, packed, edge)
        own = {name: of.window[name] for name in ("pads", "dilations")}
        return self.emit(
            "winograd_packed", self.pack(of.node.inputs[0], layout.image), filters, **own
        )

    def filter_of(self, of: _Convolution, layout: ChannelLayout) -> Constant:
        """The weights of a convolution with channels laid out so: of as many groups."""
        if layout.groups == of.groups:
            return of.weights
        return Constant(dense_filter(of.weights.array, of.groups))

    def packed_filter(
        self,
        of: _Convolution,
        layout: ChannelLayout,
        weights: Constant,
        shape: tuple[int, ...],
        pack: Callable[[np.ndarray], np.ndarray],
        edge: int,
    ) -> Value:
        """Packed weights, block by block of results if those are neighbouring channels."""

        def packed(first: int = 0, last: int | None = None) -> np.ndarray:
            block = layout.result.block
            return pack(weights.rows(first * block, None if last is None else last * block))

        rows = packed if layout.result.groups == 1 else None
        key = of.node.inputs[1], of.groups, layout, edge
        return self.later(key, packed, weights.dtype, shape, rows)

    def is_along_rows(self, node: Node, edge: int = 0) -> bool:
        """Whether a convolution (of Winograd's tiles with this edge) had better stay plain."""
        x, w = node.inputs[:2]
        steps, width = prod(as_int(n) or 1 for n in w.shape[1:]), as_int(node.output.shape[-1])
        of = channels_of(x), channels_of(node.output), steps, width, node["groups"]
        is_packed = self.is_only_packed(x) or x in self.preferred
        return self.policy.is_along_rows(*of, is_packed=is_packed, edge=edge, of=f32)

    def channels(self, of: _Convolution) -> ChannelLayout | None:
        """How the channels of a convolution are laid out; None where it stays plain."""
        x, result = of.node.inputs[0], of.node.output
        image: Packing | None = None
        if of.groups > 1:
            own, ways = grouped(of.ci, of.co, of.groups, of.taps, self.policy)
            way = self.decide(of.node, "groups", own, ("plain", *ways))
            if way != "dense":
                return ways.get(way)
        elif self.is_only_packed(x):
            image = self.packed[x]
        if image is None:  # one number is broadcast: any layout does
            image = Packing(1) if of.ci < self.lanes else self.own_packing(x, of.ci)
        return dense(of.ci, self.own_packing(result, of.co), image, self.policy)

    def in_tiles(self, of: _Convolution, layout: ChannelLayout) -> ChannelLayout:
        """The layout for Winograd's tiles, which walk whole blocks of the image's channels."""
        image = layout.image
        if image.block == 1:
            image = self.own_packing(of.node.inputs[0], of.ci)
        return layout._replace(image=image, step=image.block)

    def winograd_edges(self, of: _Convolution, layout: ChannelLayout) -> dict[int, int]:
        """The edges that Winograd's tiles may have for a convolution, each with what of it the
        policy picks: itself, or 0."""
        node, window = of.node, of.window
        shape = self.filter_of_shape(of, layout)
        unit = set(window["strides"]) == {1} and layout.groups == 1
        if not (self.winograd and unit and shape[-2:] == (3, 3)):
            return {}
        images, _, *deep, height, width = map(as_int, node.output.shape)
        if None in (*deep, height, width) and all(map(self.never_negative, node.output.shape)):
            *deep, height, width = map(estimate_by_symbols, node.output.shape[2:])
        if not (height and width and all(deep)):
            return {}
        tiled = self.in_tiles(of, layout)
        if tiled.image.block == 1:
            return {}
        planes = prod(d or 1 for d in deep)
        rows = (images or 1) * planes * height  # an open batch pays if one image does
        padded, co = tiled.depth().padded(shape[1]), layout.result.padded(shape[0])
        ci = shape[1] if layout.image.block == 1 else padded
        sides = map(estimate_by_symbols, node.inputs[0].shape[2:])
        axes = [*zip(sides, window["pads"], shape[2:], window["dilations"], strict=True)]
        block = layout.result.block
        of_tiles = rows, width, ci, padded, co, block, axes, planes, node.output.dtype
        own = self.policy.winograd_edge(*of_tiles)
        return {edge: own * (edge == own) for edge in POINTS}

    def filter_of_shape(self, of: _Convolution, layout: ChannelLayout) -> tuple[int, ...]:
        """The shape of `filter_of`."""
        co, each, *window = of.weights.shape
        return (co, each * of.groups // layout.groups, *window)

    def never_negative(self, size: Expr) -> bool:
        """Whether a kernel knows that tiles of it are never less than none: however small what it
        is made of, or because it is counted from there (driver/own_sizes.py)."""
        known = Facts(dict.fromkeys(free_vars(size), (0, None)))
        low, high = known.bounds(known.affine(size))
        of_one = len([m for m in sizes.monomials(size) if m]) == 1 == len(sizes.factors(size))
        if low > -TAPS:
            return True
        return of_one and high == inf and set(self.graph.data_dependent).isdisjoint(free_vars(size))

    def across(self, node: Node, packing: Packing) -> bool:
        """Whether tiles of a convolution's result span rows of the image."""
        _, channels, *planes, height, width = map(as_int, node.output.shape)
        if not (channels and height and width and all(planes)):
            return False
        rows, vectors = height * prod(filter(None, planes)), packing.padded(channels)
        own = self.policy.is_across(rows, width, vectors // packing.block, packing.block)
        return self.decide(node, "across", own, (False, True))

    def conv_transpose(self, node: Node) -> bool:
        x, w = node.inputs[:2]
        weights = self.content(w)
        if weights is None or not is_f32(node) or not is_image(x):
            return False
        shape = node.output.shape
        bias = self.content(node.inputs[2]) if len(node.inputs) > 2 else None
        one = (1,) * (x.rank - 2)
        strides = tuple(node["strides"]) or one
        each = 1 < node["groups"] == weights.shape[0] == channels_of(node.output)  # depthwise
        plain_window = (each or node["groups"] == 1) and (tuple(node["dilations"]) or one) == one
        positions = [
            sizes.size((s + (k - 1)) // k) for s, k in zip(shape[2:], strides, strict=True)
        ]
        # A number more or less of pixels for each phase than the image has.
        near = all(
            as_int(sizes.size(p - own)) is not None
            for p, own in zip(positions, x.shape[2:], strict=True)
        )
        if not (plain_window and near) or (len(node.inputs) > 2 and bias is None):
            return False
        begins = [before for before, _ in node["pads"] or ((0, 0),) * len(one)]
        ci, co = weights.shape[0], weights.shape[1] * node["groups"]
        window = {"strides": strides, "offsets": tuple(begins), "positions": tuple(positions)}
        apart = None
        if not each:
            apart = phases_apart(weights, strides, begins, tuple(positions), x.shape[2:])
        own = "packed"
        if each and not self.is_worth_packing(node.output):
            own = "plain"
        elif apart and self.policy.saves_steps(ci, weights.shape[2:], strides):
            own = "phases"
        legal = ("plain", "packed", "phases") if apart else ("plain", "packed")
        algorithm = self.decide(node, "algorithm", own, legal)
        if algorithm == "plain":
            return False
        ob = self.own_packing(node.output, co).block
        if apart and algorithm == "phases":
            made = self.together([self.of_phase(node, phase) for phase in apart], strides)
        elif each:
            filters = self.constant(pack_transposed_each(weights, strides, ob), "w")
            image = self.pack(x, Packing(ob))
            made = self.emit("depthwise_transpose_packed", image, filters, **window)
        else:
            many = ci >= self.lanes or self.is_only_packed(x)
            cb = self.own_packing(x, ci).block if many else 1
            filters = self.constant(pack_transposed(weights, strides, cb, ob), "w")
            image = self.pack(x, Packing(cb))
            made = self.emit("conv_transpose_packed", image, filters, **window)
        whole = [sizes.size(p * k) for p, k in zip(positions, strides, strict=True)]
        made = self.emit("reshape", made, shape=(shape[0], -(-co // ob), *whole, ob))
        if tuple(whole) != tuple(shape[2:]):  # the last phases may have a pixel less than the first
            kept = (*made.shape[:2], *shape[2:], ob)
            made = self.emit("slice", made, starts=(0,) * made.rank, shape=kept)
        if bias is not None:
            made = self.emit("add", made, self.per_channel(bias, Packing(ob), x.rank))
        self.made(node.output, made, Packing(ob))
        return True

    def is_worth_packing(self, result: Value) -> bool:
        """Is the result of a transposed depthwise convolution read as it is packed, or unpacked
        while it is still near? As an image of open size it takes twice as long unpacked."""
        count = [as_int(size) for size in result.shape]
        if None in count or result in self.sought:
            return True
        return self.policy.stays_near(result.dtype.nbytes(prod(map(int, filter(None, count)))))

    def of_phase(self, node: Node, phase: Phase) -> Value:
        """One phase of a transposed convolution, packed."""
        x, one = node.inputs[0], (1,) * (node.output.rank - 2)
        window = {"strides": one, "pads": phase.pads, "dilations": one}
        weights = Constant(phase.weights)
        layout = self.channels(
            _Convolution(node, weights, None, window, channels_of(x), len(phase.weights))
        )
        assert layout is not None, "only groups may better stay plain"
        filters = self.constant(layout.pack_filter(phase.weights), "w")
        return self.emit("conv_packed", self.pack(x, layout.image), filters, across=False, **window)

    def together(self, phases: list[Value], strides: tuple[int, ...]) -> Value:
        """The pixels of packed phases (N, C, *positions, b), row-major, beside each other."""
        n, c, *positions, b = phases[0].shape
        pairs = [size for count in positions for size in (count, 1)]
        found = [self.emit("reshape", v, shape=(n, c, *pairs, b)) for v in phases]
        for d, stride in reversed([*enumerate(strides)]):
            runs = (found[k : k + stride] for k in range(0, len(found), stride))
            found = [self.emit("concat", *run, axis=3 + 2 * d) for run in runs]
        return found[0]


_HANDLERS: dict[str, Callable[[Any, Node], bool]] = {
    **IMAGES,
    **PRODUCTS,
    "conv": _Layouts.conv,
    "conv_transpose": _Layouts.conv_transpose,
}
