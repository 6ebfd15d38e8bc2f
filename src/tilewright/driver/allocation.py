"""Where values lie while a program runs.

In: a fused graph and its memory plan. Out: `Allocation`, which gives each value its location: in
the arena, the weights, a caller's tensor or a buffer of the run's; and the weights themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from tilewright.codegen.host_steps import (
    Location,
    Provide,
    Renew,
)
from tilewright.graph import sizes
from tilewright.graph.graph import Constant, Node, Value
from tilewright.graph.group import FusedGraph
from tilewright.graph.ops.loop import body_of
from tilewright.graph.ops.while_loop import states_of
from tilewright.graph.passes.plan_memory import MemoryPlan, is_data_dependent
from tilewright.ir.dtype import DType
from tilewright.ir.expr import Expr, Var
from tilewright.runtime import abi
from tilewright.runtime.tensor import pack

PART = 1 << 20  # bytes of a weight that are made and written at a time: about a core's own cache


class Allocation:
    """Where values lie: in the arena, the weights, a caller's tensor or a buffer of the run's.
    Those of a loop's body (of `loop`, with the locations around it) lie in buffers and where its
    states are."""

    def __init__(
        self,
        fused: FusedGraph,
        plan: MemoryPlan,
        around: Allocation | None = None,
        loop: Node | None = None,
    ) -> None:
        self.fused, self.graph, self.plan = fused, fused.graph, plan
        self.around, self.loop = around, loop
        self.data_dependent = set(self.graph.data_dependent)
        self.taken: Counter[str] = Counter() if around is None else around.taken
        self.first_buffer = self.take("buffers", len(self.graph.outputs) + plan.buffers)
        self.workspace = Location("buffer", self.take("buffers", 1))
        self.first_state = self.take("states", plan.states)
        self.turns = self.take("buffers", 2 * plan.states)
        self.given: dict[Value, Value] = {}  # inputs of a body → what they are around it
        if loop is not None:
            self.counter, self.again, self.arena = (
                Location("buffer", self.take("buffers", 1)) for _ in range(3)
            )
            self.turn = Var(f"round.{self.counter.index}")  # no symbol's name has a dot
            values = (*states_of(loop)[1:], *loop.inputs[2 + loop["states"] :])
            self.given = dict(zip(body_of(loop["body"]).inputs[1:], values, strict=True))
        groups = [g for g in fused.groups if not g.is_view and not g.is_loop]
        read = [v for g in groups for v in g.inputs] + [*_read_by_host(fused)]
        used = dict.fromkeys(v for v in read if plan.locations[v].space == "constant")
        # views of constants share the constant's location
        self.stored = list(dict.fromkeys(plan.locations[v].at for v in used))
        by_index = list(self.graph.constants)
        self.constants = [by_index[sizes.at(at, {})] for at in self.stored]
        self.weight_at: dict[Expr, int] = {}
        loops = {g.name: g.anchor for g in fused.groups if g.is_loop}
        self.bodies = {
            name: Allocation(body, plan.bodies[name], self, loops[name])
            for name, body in fused.bodies.items()
        }
        if around is None:
            parts = [*self.parts()]
            offsets, _ = abi.plan_weights([_nbytes(v) for p in parts for v in p.constants])
            rest = iter(offsets)
            for part in parts:
                part.weight_at = {at: next(rest) for at in part.stored}

    def take(self, what: str, count: int) -> int:
        """The first of `count` numbers of buffers or states that nothing else has."""
        self.taken[what] += count
        return self.taken[what] - count

    def parts(self) -> Iterator[Allocation]:
        """The allocation of the whole model, then those of the bodies of loops."""
        yield self
        for body in self.bodies.values():
            yield from body.parts()

    def __call__(self, value: Value) -> Location:
        found = self.plan.locations[value]
        if found.space == "constant":
            return Location("weights", offset=self.weight_at[found.at])
        if found.space == "arena":
            return self.in_arena(found.at)
        index = sizes.at(found.at, {})
        if found.space == "state":
            return Location("state", self.first_state + index)
        if found.space == "buffer":
            return Location("buffer", self.first_buffer + index)
        if self.around is not None and found.space == "input":
            first = self.graph.inputs[index]
            return self.around(self.given[first]) if first in self.given else self.counter
        if self.around is not None and self.loop is not None:
            if not index:
                return self.again
            result = self.around(self.loop.outputs[index])
            if not self.is_row(value):
                return Location("next", result.index)
            row = self.loop["length"] - 1 - self.turn if self.loop["reverse"] else self.turn
            offset = sizes.size(result.offset + row * self.graph.outputs[index].nbytes)
            return Location(result.space, result.index, offset)
        if found.space == "output" and is_data_dependent(
            self.graph.outputs[index], self.data_dependent
        ):
            return Location("buffer", index=index)  # allocated once its size is known
        return Location(found.space, index=index)

    def is_row(self, value: Value) -> bool:
        """Is it one of the rows that the rounds of a loop give, for which there is room?"""
        found = self.plan.locations[value]
        if self.loop is None or found.space != "output":
            return False
        return sizes.at(found.at, {}) >= len(states_of(self.loop))

    def in_arena(self, offset: Expr) -> Location:
        if self.around is None:
            return Location("arena", offset=offset)
        return Location("buffer", self.arena.index, offset)

    def room(self, value: Value, nbytes: Expr) -> Provide | Renew | None:
        """The step that makes room for a value, if it has none yet."""
        at = self(value)
        if self.is_row(value):
            return None
        if at.space == "next":
            return Renew(at.index, nbytes)
        if at.space == "buffer" and self.plan.locations[value].space != "arena":
            return Provide(at.index, nbytes)
        return None

    def weights(self) -> list[abi.Weight]:
        """The constants that kernels read, made when they are written."""
        return [
            abi.Weight(part.weight_at[at], _nbytes(v), _stored(part.graph.constants[v], v.dtype))
            for part in self.parts()
            for at, v in zip(part.stored, part.constants, strict=True)
        ]


def _read_by_host(fused: FusedGraph) -> Iterator[Value]:
    """What the host program itself reads, or hands to a loop that it runs."""
    for group in fused.groups:
        yield from (condition for condition, _ in group.demand)
        for node in group.nodes:
            if node.op == "measure":
                yield node.inputs[0]
            elif node.op == "check_bounds":
                yield from node.inputs[1:]
            elif node.op == "while_loop":
                yield from node.inputs[: 2 + node["states"]]
                yield from (v for v in node.inputs if v not in fused.graph.constants)


def _stored(constant: Constant, of: DType) -> list[Callable[[], np.ndarray]]:
    """What makes a constant's bytes as kernels read them, part by part."""
    if of.is_packed:
        return [lambda: pack(constant.array, of.bits)]
    return constant.parts(PART)


def _nbytes(value: Value) -> int:
    return sizes.at(value.nbytes, {})
