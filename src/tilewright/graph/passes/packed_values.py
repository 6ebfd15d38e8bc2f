"""packed_values: the layouts in which values of a graph exist while their layouts are chosen.

In: a graph of plain operators. Out: an `Edit` that gives each value plain, or packed in a given
way, and makes a layout when somebody first asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.graph.builder import Edit
from tilewright.graph.graph import Deferred, Graph, Node, Value
from tilewright.graph.layout_policy import Decisions, LayoutPolicy, P
from tilewright.graph.passes.channels import Packing
from tilewright.graph.passes.sought_layouts import channels_of, sought_packed
from tilewright.ir.dtype import f32


class PackedValues(Edit):
    """The edit, with the packed layout of each value that has one."""

    def __init__(self, graph: Graph, policy: LayoutPolicy, decisions: Decisions) -> None:
        super().__init__(graph)
        self.policy, self.decisions, self.lanes = policy, decisions, policy.lanes(f32)
        self.own: dict[Value, Packing] = {}  # decided for values that nothing has packed
        self.packed: dict[Value, Packing] = {}  # of each value of the old graph, its first one
        self.layouts: dict[tuple[Value, Packing], Value] = {}  # and in which value it is so
        self.sought = sought_packed(graph, policy)
        self.weights: dict[tuple[Any, ...], Value] = {}  # packed, by what they were packed from

    def decide(self, node: Node, what: str, own: P, legal: Sequence[P]) -> P:
        """A decision on an operator, called by its first result."""
        return self.decisions.decide(f"{node.outputs[0].name}.{what}", own, legal)

    def own_packing(self, value: Value, channels: int) -> Packing:
        """That of a value of so many channels which nothing has packed yet."""
        if value not in self.own:
            own, legal = self.policy.block(channels, f32), self.policy.blocks(f32)
            self.own[value] = Packing(self.decisions.decide(f"{value.name}.layout", own, legal))
        return self.own[value]

    def plain(self, value: Value) -> Value:
        """The plain layout of a value of the old graph."""
        if self.is_only_packed(value):
            packing = self.packed[value]
            self.replaced[value] = self.emit(
                "unpack_channels",
                self.layouts[value, packing],
                channels=channels_of(value),
                groups=packing.groups,
            )
        return self.replaced.get(value, value)

    def pack(self, value: Value, packing: Packing) -> Value:
        """The layout of a value packed so."""
        found = self.layouts.get((value, packing))
        if found is not None:
            return found
        if packing.block == 1:  # the same memory under another shape
            return self.emit("reshape", self.plain(value), shape=(*value.shape, 1))
        plain = self.plain(value)
        made = self.emit("pack_channels", plain, block=packing.block, groups=packing.groups)
        self.layouts[value, packing] = made
        if value not in self.packed:
            self.packed[value] = packing
            self.replaced.setdefault(value, value)
        return made

    def made(self, value: Value, layout: Value, packing: Packing) -> None:
        """Note that a value of the old graph is computed in this layout."""
        self.packed[value] = packing
        self.layouts[value, packing] = layout

    def is_only_packed(self, value: Value) -> bool:
        """Does the value have a packed layout and not (yet) a plain one?"""
        return value in self.packed and value not in self.replaced

    def on_packed(self, node: Node, attrs: dict[str, Any], op: str = "") -> bool:
        """Run on the packed layout of the only input."""
        (x,) = node.inputs
        packing = self.packed[x]
        layout = self.emit(op or node.op, self.layouts[x, packing], **attrs)
        self.made(node.output, layout, packing)
        return True

    def later(
        self,
        key: tuple[Any, ...],
        make: Callable[[], np.ndarray],
        of: np.dtype[Any],
        shape: tuple[int, ...],
        rows: Callable[[int, int], np.ndarray] | None = None,
    ) -> Value:
        """Packed weights, to be made when they are written (see Deferred); those of one key are one
        constant."""
        if key not in self.weights:
            self.weights[key] = self.constant(Deferred(make, of, shape, rows), "w")
        return self.weights[key]

    def per_channel(self, values: np.ndarray, packing: Packing, rank: int) -> Value:
        """One number a channel, shaped to broadcast against a packed image of plain rank `rank`."""
        return self.constant(packing.pack(values.reshape(1, -1, *(1,) * (rank - 2))), "b")
