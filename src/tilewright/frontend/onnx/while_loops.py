"""ONNX loops that no kernel runs: their rounds are a program of the host's own.

In: a loop whose states change their sizes from round to round, or whose body has operators that are
kernels themselves. Out: a `while_loop`. Which sizes change is found by translating the body: where
a state comes out with another size than it went in, that size gets a symbol, and the body is
translated again. Rows that rounds give are a state that each of them makes longer, where it is not
known before how many there are of which shape. A sequence is the two tensors that it is made of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.frontend.onnx import ragged
from tilewright.frontend.onnx.bodies import Inside
from tilewright.frontend.onnx.data_dependent import FAR, op, view_of
from tilewright.frontend.onnx.files import type_of
from tilewright.frontend.onnx.messages import ValueInfoProto
from tilewright.frontend.onnx.registry import NodeContext, Ragged, Refusal
from tilewright.graph import sizes
from tilewright.graph.builder import without_dead
from tilewright.graph.graph import Graph, Value
from tilewright.graph.ops.while_loop import spoken_of
from tilewright.ir.expr import Expr, Var, as_int

Round = Callable[[list[Any]], Any]  # (round, condition, *states) → (condition, *states, *rows)


def while_loop(
    n: NodeContext,
    limit: Value | None,
    go: Value,
    states: list[Any],
    told: list[ValueInfoProto],
    round_: Round,
    length: Callable[[], Expr | None],
) -> tuple[list[Any], list[Value]]:
    """The states after the last round, and the rows of all rounds. limit: None if data alone ends
    them. told: what the model says of the states in the body. length: the limit as a size."""
    most = n.constant(FAR, "i64") if limit is None else limit
    known = n.build.constants.get(most)
    is_endless = known is not None and int(known.array) >= FAR
    if n.build.under is not None:  # where the branch is not taken, there are no rounds
        go = n.build.emit("logical_and", n.build.under, go)
    begins = n.build.constants.get(go)
    counted = None if begins is None or not begins.array.all() else length
    starts = [_Start(n, v, entry) for v, entry in zip(states, told, strict=True)]
    while True:
        body = _Body(n, [most, go], starts, counted)
        made = n.importer.attempt(lambda body=body: body.translate(round_))
        if isinstance(made, tuple):
            changed = [s.changes_as(new) for s, new in zip(starts, body.after, strict=True)]
            if is_endless and body.is_steady:
                why = "nothing ends it: it has no trip count, and its condition always holds"
                raise Refusal(why)
            if not any(changed):
                return body.emitted()
        else:  # what was refused may be of sizes that are not so in every round
            opened = [s.open_what_is_not_told() for s in starts]
            if not any(opened):
                raise made


class _Start:
    """A state before the first round: the tensors that hold it, and which of their axes are open:
    what a round makes of them may have another size."""

    def __init__(self, n: NodeContext, value: Any, told: ValueInfoProto) -> None:
        self.n, self.told, self.is_sequence = n, told, ragged.is_sequence(value)
        self.rank: int | None = None
        if self.is_sequence:
            kind = told.type.sequence_type.elem_type.tensor_type
            of = type_of(kind.elem_type, "a sequence") if kind.elem_type else None
            value = ragged.ragged(n, value, of)
            self.rank = value.rank
            if as_int(value.shapes.shape[0]) == 0 and kind.HasField("shape"):
                self.rank = len(kind.shape.dim)
                value = Ragged(
                    value.data, ragged.widened(n, value.shapes, max(1, self.rank)), self.rank
                )
            self.parts = [value.data, value.shapes]
            self.open = {(0, 0), (1, 0)}
        elif isinstance(value, Value):
            self.parts, self.open = [value], set[tuple[int, int]]()
        else:
            raise Refusal(f"its state is {value!r}, which is neither a tensor nor a sequence")

    def held(self, parts: list[Value]) -> Any:
        """The state as translators know it, from the tensors that hold it."""
        return Ragged(parts[0], parts[1], self.rank) if self.is_sequence else parts[0]

    def open_what_is_not_told(self) -> bool:
        """Open the axes that the model does not say to be the same in every round; False if there
        is none that was not open before."""
        kind = self.told.type.tensor_type
        if self.is_sequence:
            return False
        known = [d.HasField("dim_value") for d in kind.shape.dim] if kind.HasField("shape") else []
        rank = self.parts[0].rank
        fixed = known if len(known) == rank else [False] * rank
        more = {(0, d) for d in range(rank) if not fixed[d]} - self.open
        self.open |= more
        return bool(more)

    def changes_as(self, new: Any) -> bool:
        """Is there more that a round may change, now that this is what one makes of the state?"""
        if self.is_sequence:
            if not ragged.is_sequence(new.value):
                raise Refusal("its state is a sequence before a round and none after it")
            made = ragged.ragged(self.n, new.value, self.parts[0].dtype)
            if made.rank != self.rank and self.rank is not None:
                self.rank = None
                return True
            have, want = (as_int(v.shape[1]) or 1 for v in (self.parts[1], made.shapes))
            if want > have:
                self.parts[1] = ragged.widened(self.n, self.parts[1], want)
                return True
        before = set(self.open)
        for k, (a, b) in enumerate(zip(new.before, new.after, strict=True)):
            if a.dtype is not b.dtype or a.rank != b.rank:
                raise Refusal(f"its state is {a.type_text} before a round and {b.type_text} after")
            self.open |= {
                (k, d) for d, pair in enumerate(zip(a.shape, b.shape, strict=True))
                if pair[0] != pair[1]
            }  # fmt: skip
        return self.open != before


class _After:
    """What a round makes of a state: the tensors `before` and `after`."""

    def __init__(self, value: Any, before: list[Value]) -> None:
        self.value, self.before, self.after = value, before, list[Value]()


class _Body(Inside):
    """The body as a graph of its own, for what is open so far."""

    in_kernel = False

    def __init__(
        self,
        n: NodeContext,
        given: list[Value],
        starts: list[_Start],
        length: Callable[[], Expr | None] | None,
    ) -> None:
        """length: how many rounds there are if no condition ends them; None where one may."""
        super().__init__(n, given)
        self.starts, self.symbols, self.length = starts, list[Var](), length
        self.first: list[Value] = []  # the states before the first round
        self.after: list[_After] = []
        inner, label = self.inner, n.node.name or next(filter(None, n.node.output), n.op)
        self.label = label
        self.round = inner.input("round", "i64", ())
        self.states: list[Value] = []
        for k, start in enumerate(starts):
            self.after.append(_After(None, []))
            for j, part in enumerate(start.parts):
                shape = [self.open(f"{label}_{k}_size{d}") if (j, d) in start.open else s
                         for d, s in enumerate(part.shape)]  # fmt: skip
                self.first.append(part)
                self.states.append(inner.input(f"state{k}", part.dtype, shape))
                self.after[-1].before.append(self.states[-1])

    def open(self, name: str) -> Var:
        """A new symbol for a size that rounds change."""
        symbol = self.inner.symbol(self.inner.fresh(name))
        self.symbols.append(symbol)
        return symbol

    def translate(self, round_: Round) -> tuple[Value, ...]:
        """The condition, the states and the rows after a round."""
        inner = self.inner
        with self.translating():
            given = [s.held(a.before) for s, a in zip(self.starts, self.after, strict=True)]
            go, *made = round_([self.round, inner.constant(np.asarray(True)), *given])
            if go is None or None in made:
                raise Refusal("its body leaves an output out")
            on = self.own(go)
            self.on = inner.emit("reshape", on, shape=()) if on.rank else on
            for start, after, value in zip(self.starts, self.after, made, strict=False):
                after.value = self.own(value)
                if not start.is_sequence:
                    if not isinstance(after.value, Value):
                        raise Refusal("its state is a tensor before a round and none after it")
                    after.after = [after.value]
                elif ragged.is_sequence(after.value):
                    held = ragged.ragged(self.n, after.value, start.parts[0].dtype)
                    after.after = [held.data, held.shapes]
            self.rows = [self.own(v) for v in made[len(self.starts) :]]
            if not all(isinstance(v, Value) for v in self.rows):
                raise Refusal("what its rounds give is no tensor")
            self.stacks = [self.stack(v) for v in self.rows]
        return (self.on,)

    @property
    def is_steady(self) -> bool:
        """Does its condition hold after each round?"""
        goes = self.inner.constants.get(self.on)
        return goes is not None and bool(goes.array.all())

    def stack(self, row: Value) -> tuple[Value, Value] | None:
        """The rows of the rounds before, and with that of this round; None where it is known before
        how many there are of which shape, and each is written where it stays. Where only rounds
        tell their shape, the first row does, and the run finds the others to hold as many
        elements."""
        own, n, emit = {*self.symbols, *self.inner.found}, self.n, self.inner.emit
        if self.length and self.is_steady and own.isdisjoint(sizes.symbols(row.shape)):
            return None
        shape = [s if own.isdisjoint(sizes.symbols([s])) else self.open(f"{self.label}_row{d}")
                 for d, s in enumerate(row.shape)]  # fmt: skip
        count = self.open(f"{self.label}_rounds")
        before = self.inner.input("rows", row.dtype, (count, *shape))
        if tuple(shape) == row.shape:
            one = emit("reshape", row, shape=(1, *row.shape))
            return before, emit("concat", before, one, axis=0)
        flat = [emit("reshape", v, shape=(v.elements,)) for v in (before, row)]
        return before, view_of(n, emit("concat", *flat, axis=0), (count + 1, *row.shape))

    def graph(self, states: list[Value]) -> Graph:
        """The body that takes (round, *states, *captured): it gives (condition, *states, *rows)."""
        inner = self.inner
        made = [self.on, *(v for a in self.after for v in a.after)]
        made += [pair[1] for pair in self.stacks if pair]
        made += [v for v, pair in zip(self.rows, self.stacks, strict=True) if not pair]
        made = [inner.emit("copy", v) for v in made]
        whole = without_dead(inner.finish({f"out{k}": v for k, v in enumerate(made)}))
        rest = [self.known[v] for v in self.captured]
        inputs = [self.round, *states, *rest]
        for value, constant in whole.constants.items():
            inputs.append(value)
            self.captured.append(self.outer.constant(constant, value.name, value.dtype))
        return whole.replace(
            inputs=tuple(inputs), input_names=tuple(v.name for v in inputs), constants={}
        )

    def emitted(self) -> tuple[list[Any], list[Value]]:
        """The loop outside: the states after it, and the rows."""
        build, first = self.outer, list(self.first)
        own, before = set(self.symbols), [pair and pair[0] for pair in self.stacks]
        for value in filter(None, before):
            shape: list[Expr | int] = [0 if s in own else s for s in value.shape]
            first.append(op(self.n, "full", shape=tuple(shape), value=0, of=value.dtype.name))
        states = [*self.states, *filter(None, before)]
        body, (limit, go) = self.graph(states), self.given
        length = self.length() if self.length and None in before else None
        _, *results = build.emit(
            "while_loop", limit, go, *first, *self.captured, body=str(body), states=len(states),
            symbols=tuple(s.name for s in self.symbols), extents=spoken_of(body), length=length,
        )  # fmt: skip
        last, rows, found = iter(results), iter(results[len(states) :]), list[Any]()
        for start in self.starts:
            found.append(start.held([next(last) for _ in start.parts]))
        return found, [next(last if value else rows) for value in before]
