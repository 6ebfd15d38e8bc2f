"""unroll_recurrences: a recurrent layer becomes its steps, where these are large.

In: `lstm`, `gru` and `rnn` nodes. Out: for each step a matrix product and the element-wise rest, so
that the products run on all threads with packed weights. Of a known length they are unrolled,
and share their kernels, because a step reads its row of the input through an index that is data; of
an open or a great one they are rounds that the host program runs. Early-ending sequences stay as
they are, and so do steps that are too small to be shared: in one kernel nothing waits between them,
and both directions of a layer run at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from math import prod
from typing import Any

import numpy as np

from tilewright.graph import sizes
from tilewright.graph.builder import Builder, Edit, Rule
from tilewright.graph.graph import Graph, Node, Value
from tilewright.graph.ops.while_loop import spoken_of
from tilewright.graph.passes.demand import conditional
from tilewright.graph.quantise import rounded
from tilewright.ir.expr import as_int

LONGEST = 128  # steps that are unrolled
# a step worth the threads' while has as many weights, or multiplies as often
LEAST_WEIGHTS, LEAST_PRODUCTS = 1 << 17, 1 << 20
# and of one beside which another recurrence runs, which leaves no thread idle, so many
LEAST_BESIDE = 1 << 20

PLAIN = ("tanh", "sigmoid", "relu")  # of an RNN: operators of the same name
DEFAULTS = {"lstm": ("sigmoid", "tanh", "tanh"), "gru": ("sigmoid", "tanh")}


def unroll_recurrences(graph: Graph) -> Graph:
    """Part the layers of this graph that are large enough."""
    return _Layers(graph, RULES).run()


class _Layers(Edit):
    """An edit that knows how the graph's recurrences stand to one another."""

    @cached_property
    def conditional(self) -> set[str]:
        """Those that are not always needed: rounds of the host program would be run all the
        same."""
        return conditional(self.graph)

    @cached_property
    def beside(self) -> set[str]:
        """Those that have another one of their size beside them: as many are before both."""
        depth: dict[Value, int] = {}
        of_size: dict[str, Any] = {}
        for node in self.graph.nodes:
            behind = max((depth.get(v, 0) for v in node.inputs), default=0)
            if node.op in RULES:
                of_size[node.name] = behind, node.inputs[1].shape
                behind += 1
            depth.update(dict.fromkeys(node.outputs, behind))
        count = Counter(of_size.values())
        return {name for name, kind in of_size.items() if count[kind] > 1}


class _Unrolled:
    """The steps of one layer, one after the other in the order in which they run."""

    def __init__(self, edit: Edit, node: Node, count: int) -> None:
        self.build, self.node = edit, node
        self.order = range(count)[::-1] if node["reverse"] else range(count)

    def product(self, state: Value, weights: Value) -> Value:
        """A state times the weights."""
        return self.build.emit("matmul", state, weights, transpose_b=True)

    def row(self, t: int) -> Value:
        """The projections of step t."""
        index = self.build.constant(np.asarray(t, np.int64), "step")
        return self.build.emit("gather", self.node.inputs[0], index, axis=0)

    def run(self, step: Step, states: Sequence[Value], values: Sequence[Value]) -> Any:
        """(the results of all steps, one after the other, *the last states)."""
        found: dict[int, Value] = {}
        for t in self.order:
            states = step(self, partial(self.row, t), states, values)
            found[t] = states[0]
        rows = [
            self.build.emit("reshape", found[t], shape=(1, *found[t].shape))
            for t in range(len(self.order))
        ]
        return self.build.emit("concat", *rows, axis=0, name=self.node.name), *states


class _Rounds:
    """The steps of one layer as rounds of a loop."""

    def __init__(self, edit: Edit, node: Node) -> None:
        self.outer, self.node, self.build = edit, node, Builder("step")
        self.build.share_names(edit)
        self.first: Value | None = None  # is this the first round, of a state of zeros?

    def product(self, state: Value, weights: Value) -> Value:
        """A state times the weights; in the first round zeros are not multiplied."""
        made = self.build.emit("matmul", state, weights, transpose_b=True)
        if self.first is None:
            return made
        zero = self.build.constant(np.zeros((), state.dtype.numpy), "zero")
        return self.build.emit("where", self.first, zero, made)

    def row(self, turn: Value, gates: Value) -> Value:
        """The projections of a round's step."""
        if self.node["reverse"]:
            last = sizes.size(gates.shape[0] - 1)
            last = self.build.emit("size_values", values=(last,), shape=(), of="i64")
            turn = self.build.emit("sub", last, turn)
        return self.build.emit("gather", gates, turn, axis=0)

    def run(self, step: Step, states: Sequence[Value], values: Sequence[Value]) -> Any:
        """(the results of all steps, one after the other, *the last states)."""
        build, outer, gates = self.build, self.outer, self.node.inputs[0]
        length = gates.shape[0]
        turn = build.input("round", "i64", ())
        now = [build.input("state", v.dtype, v.shape) for v in states]
        read, *rest = (build.input(v.name, v.dtype, v.shape) for v in (gates, *values))
        if _is_zero(outer, states[0]):
            self.first = build.emit("equal", turn, build.constant(np.asarray(0, np.int64)))
        after = step(self, partial(self.row, turn, read), now, rest)
        on = build.constant(np.asarray(True), "on")
        body = build.finish([build.emit("copy", v) for v in (on, *after, after[0])])
        inputs = [*body.inputs, *body.constants]
        own = [outer.constant(c, v.name) for v, c in body.constants.items()]
        body = body.replace(inputs=inputs, input_names=[v.name for v in inputs], constants={})
        _, *last, stack = outer.emit(
            "while_loop",
            outer.emit("size_values", values=(length,), shape=(), of="i64"),
            outer.constant(np.asarray(True), "on"),
            *states, gates, *values, *own,
            body=str(body), states=len(states), symbols=(), extents=spoken_of(body),
            length=length, reverse=self.node["reverse"],
        )  # fmt: skip
        return stack, *last


def _is_zero(edit: Edit, state: Value) -> bool:
    """Are all numbers of a state surely 0?"""
    full = edit.producer(state, "full")
    content = edit.content(state) if full is None else np.asarray(full["value"])
    return content is not None and not content.any()


Steps = _Unrolled | _Rounds
# (steps, what gives the projections of one, the states, what else each reads) → the states after it
Step = Callable[[Any, Callable[[], Value], Sequence[Value], Sequence[Value]], Sequence[Value]]


def steps_of(edit: _Layers, node: Node, inputs: int) -> Steps | None:
    """The steps, if the layer is one that can be parted: no lengths, no clipping, default
    activations; and if they are large."""
    count, batch = (as_int(s) for s in node.inputs[0].shape[:2])
    weights = prod(as_int(s) or 1 for s in node.inputs[1].shape)
    if weights < LEAST_WEIGHTS and weights * (batch or 1) < LEAST_PRODUCTS:
        return None
    if count == 0 or len(node.inputs) > inputs or node["clip"] is not None:
        return None
    if node.inputs[1].rank == 3:  # it was decided before, and zeros that fill panels count here
        return None
    if node.op in DEFAULTS and node["activations"] not in ((), DEFAULTS[node.op]):
        return None
    if node.op == "rnn" and node["activation"] not in PLAIN:
        return None
    if count is not None and count <= LONGEST:
        return _Unrolled(edit, node, count)
    is_shared = weights >= LEAST_BESIDE or node.name not in edit.beside
    if is_shared and node.inputs[1] in edit.constants and node.name not in edit.conditional:
        return _Rounds(edit, node)
    return None


def lstm(edit: Any, node: Node) -> Any:
    steps = steps_of(edit, node, 4)
    if steps is None:
        return None
    _, weights, h, c = node.inputs

    def step(s: Steps, row: Any, states: Sequence[Value], values: Sequence[Value]) -> Any:
        h, c = states
        state = rounded(s.build, h) if node["rounds"] else h
        sums = s.product(state, *values)
        return s.build.emit("lstm_cell", s.build.emit("add", sums, row()), c)

    return steps.run(step, (h, c), (weights,))


def gru(edit: Any, node: Node) -> Any:
    steps = steps_of(edit, node, 4)
    if steps is None:
        return None
    _, weights, bias, h = node.inputs
    hidden = as_int(h.shape[1])
    if hidden is None:
        return None
    one = edit.constant(np.asarray(1, h.dtype.numpy), "one")

    def part(build: Builder, x: Value, first: int, count: int, axis: int) -> Value:
        starts = [0] * x.rank
        shape = list(x.shape)
        starts[axis], shape[axis] = first * hidden, count * hidden  # type: ignore[call-overload]
        return build.emit("slice", x, starts=tuple(starts), shape=tuple(shape))

    def step(s: Steps, row: Any, states: Sequence[Value], values: Sequence[Value]) -> Any:
        (h,), (one, bias, *products), emit = states, values, s.build.emit
        x, inner = row(), None
        sums = s.product(h, products[0])
        if len(products) == 1:
            sums, inner = part(s.build, sums, 0, 2, 1), part(s.build, sums, 2, 1, 1)
        both = emit("sigmoid", emit("add", sums, part(s.build, x, 0, 2, 1)))
        z, r = part(s.build, both, 0, 1, 1), part(s.build, both, 1, 1, 1)
        if node["reset_after"]:
            inner = s.product(h, products[1]) if inner is None else inner
            inner = emit("mul", r, emit("add", inner, bias))
        else:
            inner = emit("add", s.product(emit("mul", r, h), products[1]), bias)
        candidate = emit("tanh", emit("add", part(s.build, x, 2, 1, 1), inner))
        fresh = emit("mul", emit("sub", one, z), candidate)
        return (emit("add", fresh, emit("mul", z, h)),)

    products = [weights]
    # unrolled, what follows a product of a gate is done in its tiles; of rounds, there is one less
    if isinstance(steps, _Unrolled) or not node["reset_after"]:
        products = [part(edit, weights, 0, 2, 0), part(edit, weights, 2, 1, 0)]
    return steps.run(step, (h,), (one, bias, *products))


def rnn(edit: Any, node: Node) -> Any:
    steps = steps_of(edit, node, 3)
    if steps is None:
        return None
    _, weights, h = node.inputs

    def step(s: Steps, row: Any, states: Sequence[Value], values: Sequence[Value]) -> Any:
        sums = s.product(*states, *values)
        return (s.build.emit(node["activation"], s.build.emit("add", sums, row())),)

    return steps.run(step, (h,), (weights,))


RULES: dict[str, list[Rule]] = {"lstm": [lstm], "gru": [gru], "rnn": [rnn]}
