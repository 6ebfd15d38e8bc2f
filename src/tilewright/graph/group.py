"""Fused groups: the unit that becomes one kernel.

In: nodes that are computed together. Out: a `FusedGroup` with its inputs, its outputs and the
reason for every edge that was fused or cut; `group_func` turns one into te tensors, the same ones
for all of one `computation`. A `FusedGraph` is a graph with its groups in an order of execution.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.graph.graph import Graph, Node, Value
from tilewright.graph.operator import BROADCAST, OPAQUE, OPERATORS, Fusion
from tilewright.graph.text import node_lines
from tilewright.ir.dtype import DType, i64
from tilewright.ir.expr import Expr, const


class FusedGroup:
    """Nodes that one kernel computes.

    anchor: the node whose loops the others follow. fusion: its class. embedded: single-element
    constants that stand in the code (integers do not: they may be indices, and then one kernel
    serves all of them). why: for each node but the anchor, and for each input that another group
    makes, why. demand: the booleans, made before, that must be as said for the group to be needed.
    joins: is it a choice of two values that are never both made, and so lie where its result does?
    """

    __slots__ = (
        "anchor",
        "demand",
        "embedded",
        "fusion",
        "inputs",
        "joins",
        "name",
        "nodes",
        "outputs",
        "why",
    )

    def __init__(
        self,
        name: str,
        nodes: Sequence[Node],
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        anchor: Node,
        embedded: Mapping[Value, Any],
        why: Mapping[str, str],
        demand: Sequence[tuple[Value, bool]] = (),
    ) -> None:
        self.name, self.nodes = name, tuple(nodes)
        self.demand = tuple(demand)
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.anchor, self.embedded, self.why = anchor, dict(embedded), dict(why)
        self.fusion: Fusion = OPERATORS[anchor.op].fusion
        self.joins = False

    @property
    def is_view(self) -> bool:
        """Is the result in memory that others wrote, under another shape perhaps, so that no code
        is needed?"""
        return self.joins or all(OPERATORS[n.op].view for n in self.nodes)

    @property
    def is_loop(self) -> bool:
        """Does the host program run it, round by round?"""
        return self.anchor.op == "while_loop"

    @property
    def ops(self) -> tuple[str, ...]:
        """The operators, in order."""
        return tuple([n.op for n in self.nodes])

    def explain(self) -> str:
        """The group as text: its nodes, then why each edge is fused or cut."""
        lines = [f"{self.name}: {self.fusion.value}, anchor {self.anchor.name}"]
        if self.demand:
            told = " and ".join(v.name if holds else f"not {v.name}" for v, holds in self.demand)
            lines[0] += f", if {told}"
        lines += [f"    {line}" for n in self.nodes for line in node_lines(n)]
        lines += [f"  {subject}: {reason}" for subject, reason in self.why.items()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"FusedGroup({self.name}: {' '.join(self.ops)})"


class FusedGraph:
    """A graph and its groups, in an order of execution. together: ranges of groups that run at
    once (see `run_together`). bodies: of the loops that the host program runs, by their groups'
    names."""

    __slots__ = ("bodies", "graph", "groups", "together")

    def __init__(
        self,
        graph: Graph,
        groups: Sequence[FusedGroup],
        together: Sequence[range] = (),
        bodies: Mapping[str, FusedGraph] | None = None,
    ) -> None:
        self.graph, self.groups, self.together = graph, tuple(groups), tuple(together)
        self.bodies = dict(bodies or {})

    def parts(self) -> Iterator[FusedGraph]:
        """This graph, and the bodies in it."""
        yield self
        for body in self.bodies.values():
            yield from body.parts()

    def at_once(self) -> list[range]:
        """For each group, which run at once with it, itself included."""
        found = [range(n, n + 1) for n in range(len(self.groups))]
        for team in self.together:
            found[team.start : team.stop] = [team] * len(team)
        return found

    def explain(self) -> str:
        """Every group, explained."""
        return "\n".join(g.explain() for g in self.groups)

    __str__ = explain


class Splat:
    """A tensor of one number, for te definitions: every element is that constant."""

    __slots__ = ("dtype", "shape", "value")

    def __init__(self, of: DType, shape: Sequence[Expr], value: Any) -> None:
        self.dtype, self.shape, self.value = of, tuple(shape), value

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, index: Any) -> Expr:
        return const(self.value, self.dtype)


def group_func(group: FusedGroup) -> tuple[list[te.Tensor], list[te.Tensor]]:
    """The te inputs and outputs of a group: its operators' definitions, chained.

    Inputs are placeholders in the order of `group.inputs`; outputs in that of `group.outputs`.
    """
    tensors: dict[Value, Any] = {
        v: te.placeholder(v.shape, v.dtype, f"x{n}") for n, v in enumerate(group.inputs)
    }
    inputs = list(tensors.values())
    tensors.update({v: Splat(v.dtype, v.shape, x) for v, x in group.embedded.items()})
    for node in group.nodes:
        made = OPERATORS[node.op].define(*[tensors[v] for v in node.inputs], **dict(node.attrs))
        results = made if isinstance(made, tuple) else (made,)
        tensors.update(zip(node.outputs, results, strict=True))
    return inputs, [tensors[v] for v in group.outputs]


def computation(group: FusedGroup) -> Hashable:
    """What a group computes, by whatever names: groups of one computation are one function."""
    numbers = {v: n for n, v in enumerate((*group.inputs, *group.embedded))}
    given = tuple([(v.dtype, v.shape) for v in group.inputs])
    embedded = tuple([(v.shape, const(x, v.dtype)) for v, x in group.embedded.items()])
    steps: list[Hashable] = []
    for node in group.nodes:
        told = tuple(map(repr, node.attrs))  # by which 0.0 and -0.0, 1 and True differ
        steps.append((node.op, told, tuple([numbers[v] for v in node.inputs])))
        for v in node.outputs:
            numbers[v] = len(numbers)
    results = tuple([numbers[v] for v in group.outputs])
    return given, embedded, tuple(steps), results


def make_group(
    graph: Graph,
    name: str,
    nodes: Sequence[Node],
    outputs: Sequence[Value],
    anchor: Node,
    why: Mapping[str, str],
    demand: Sequence[tuple[Value, bool]] = (),
) -> FusedGroup:
    """A group of nodes: its inputs are what the nodes read and do not make. Single numbers are
    embedded, but for operators that read memory themselves."""
    made = {v for n in nodes for v in n.outputs}
    stored = {v for n in nodes for v in n.inputs if _is_stored(v, OPERATORS[n.op].fusion)}
    read = dict.fromkeys(v for n in nodes for v in n.inputs if v not in made)
    embedded = {}
    for v in read:
        if v in graph.constants and v not in stored and set(v.static_shape or ()) <= {1}:
            array = graph.array(v)
            embedded[v] = (
                array.reshape(())[()].item()
                if array.dtype.kind in "iufb"
                else float(np.asarray(array, np.float32).reshape(()))
            )
    inputs = [v for v in read if v not in embedded]
    return FusedGroup(name, nodes, inputs, outputs, anchor, embedded, why, demand)


def _is_stored(number: Value, fusion: Fusion) -> bool:
    """Does an operator read a constant from memory? Whole numbers stand in the code of arithmetic
    on indices alone: layers that differ by codes and zero points share functions."""
    if number.dtype.is_int:
        return number.dtype is not i64 or fusion is not BROADCAST
    return fusion is OPAQUE
