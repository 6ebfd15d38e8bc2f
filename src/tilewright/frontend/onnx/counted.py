"""Loops without a trip count that count by themselves: `while i < limit`, `i` a state that every
round moves by the same step.

In: such a loop and its body. Out: a number of rounds that it never exceeds. The condition still
decides when it ends, so a bound that is one too large costs nothing but room.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tilewright.frontend.onnx.data_dependent import op
from tilewright.frontend.onnx.messages import GraphProto, NodeProto, TensorProto
from tilewright.frontend.onnx.registry import NodeContext
from tilewright.graph.graph import Value
from tilewright.ir.expr import as_int

T = TensorProto
# Casts that keep order; those to fewer bits than a counter has may not.
KEEP_ORDER = {T.FLOAT, T.DOUBLE, T.INT64}
# Comparison → (which side must stay the smaller one, whether both may be equal).
COMPARED = {
    "Less": (0, False),
    "LessOrEqual": (0, True),
    "Greater": (1, False),
    "GreaterOrEqual": (1, True),
}


class Counter(NamedTuple):
    """State `at` moves by `step` a round; `updated`: what is compared is what the round made."""

    at: int
    step: int
    updated: bool


class Rounds:
    """Reads a body's condition. `scope` has its loop-invariant values."""

    def __init__(self, n: NodeContext, body: GraphProto, scope: dict[str, Any]) -> None:
        self.n, self.scope = n, scope
        self.makers = {name: node for node in body.node for name in node.output}
        self.states = {entry.name: k - 2 for k, entry in enumerate(body.input) if k >= 2}
        self.results = [entry.name for entry in body.output]

    def bound(self) -> Value | None:
        """At least as many rounds as the loop runs (i64[]); None if no counter is found."""
        for node in self.comparisons(self.results[0]):
            side, equal = COMPARED[node.op_type]
            small, big = node.input[side], node.input[1 - side]
            for moving, still, sign in ((small, big, 1), (big, small, -1)):
                counter, limit = self.counter(moving), self.unchanged(still)
                if counter is None or limit is None or counter.step * sign <= 0:
                    continue
                start = self.whole(self.n.optional(2 + counter.at))
                if start is not None:
                    return self.rounds(start, limit, counter, equal)
        return None

    def rounds(self, start: Value, limit: Value, counter: Counter, equal: bool) -> Value:
        """1 + how many multiples of the step, from the first that is compared, lie before the
        limit."""
        n, step = self.n, abs(counter.step)
        way = op(n, "sub", limit, start) if counter.step > 0 else op(n, "sub", start, limit)
        way = op(n, "add", op(n, "maximum", way, 0), step - 1 + equal)
        multiples = way if step == 1 else op(n, "div", way, step)
        return op(n, "maximum", op(n, "add", multiples, 1 - counter.updated), 1)

    def comparisons(self, name: str) -> Iterator[NodeProto]:
        """Those of which all must hold for another round."""
        node = self.makers.get(self.through(name, set()))
        if node is not None and node.op_type == "And":
            for part in node.input:
                yield from self.comparisons(part)
        elif node is not None and node.op_type in COMPARED:
            yield node

    def through(self, name: str, casts: set[int]) -> str:
        """What a value is a copy of, or a cast to one of these types."""
        while (node := self.makers.get(name)) is not None:
            is_cast = node.op_type == "Cast" and node.attribute[0].i in casts
            if node.op_type != "Identity" and not is_cast:
                break
            name = node.input[0]
        return name

    def counter(self, name: str) -> Counter | None:
        name = self.through(name, KEEP_ORDER)
        if name in self.states:
            step = self.step(self.through(self.results[1 + self.states[name]], set()))
            return Counter(self.states[name], step[1], False) if step and step[0] == name else None
        step = self.step(name)
        if step is None or self.through(self.results[1 + self.states[step[0]]], set()) != name:
            return None
        return Counter(self.states[step[0]], step[1], True)

    def step(self, name: str) -> tuple[str, int] | None:
        """(state, step) if this is a state with a constant added."""
        node = self.makers.get(name)
        if node is None or node.op_type not in ("Add", "Sub"):
            return None
        for one, other in ((0, 1), (1, 0))[: 2 if node.op_type == "Add" else 1]:
            state, by = self.through(node.input[one], set()), self.unchanged(node.input[other])
            known = self.n.build.constants.get(by) if by is not None else None
            if state in self.states and known is not None and known.array.size == 1:
                number = int(known.array.reshape(-1)[0])
                return state, number if node.op_type == "Add" else -number
        return None

    def passes_on(self, at: int) -> bool:
        """Does every round give state `at` as it got it?"""
        return self.states.get(self.through(self.results[1 + at], set())) == at

    def unchanged(self, name: str) -> Value | None:
        """A whole number that is the same in every round, as it is outside."""
        name = self.through(name, KEEP_ORDER)
        if name in self.states:
            at = self.states[name]
            return self.whole(self.n.optional(2 + at)) if self.passes_on(at) else None
        if name in self.scope:
            return self.whole(self.scope[name])
        if name in self.makers:
            return None
        value, around = self.n.importer.find(name)[1], self.n.importer.body
        return self.whole(value if around is None else around.own(value))

    def whole(self, value: Any) -> Value | None:
        """The value as i64[], if it is one whole number."""
        if not isinstance(value, Value) or not value.dtype.is_int or as_int(value.elements) != 1:
            return None
        value = value if value.dtype.name == "i64" else self.n.build.emit("cast", value, to="i64")
        return value if not value.rank else self.n.build.emit("reshape", value, shape=())
