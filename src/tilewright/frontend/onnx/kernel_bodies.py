"""The body of a loop in a kernel: a graph of its own.

In: what translates a round. Out: the graph, which takes (round, condition, *states, *captured), and
the `loop` that runs it. A recurrence keeps the types of its states. What the run measures inside a
round therefore has one of two ends: a size that a state's shape tells (each round is checked), or
one with a bound, where tensors take the bound's room and the true sizes come out beside them. A
sequence that only grows is no state: what each round adds to it comes out as rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.arith.simplify import Facts
from tilewright.frontend.onnx import data_dependent, ragged
from tilewright.frontend.onnx.bodies import Inside
from tilewright.frontend.onnx.data_dependent import op
from tilewright.frontend.onnx.registry import NodeContext, Refusal
from tilewright.graph import sizes
from tilewright.graph.bounds import Bounds, are_within
from tilewright.graph.builder import Edit, without_dead
from tilewright.graph.graph import Graph, Node, Value
from tilewright.graph.operator import BROADCAST, OPERATORS
from tilewright.graph.ops.loop import unseen
from tilewright.graph.requirements import required_by, sizes_of_values
from tilewright.ir.expr import Expr, Var, as_int, maximum
from tilewright.ir.walk import substitute
from tilewright.support.record import record


@record
class Growing:
    """Inside a body, the sequence of state `at`, and what this round has put behind it."""

    at: int
    added: tuple[Value, ...] = ()

    @property
    def type_text(self) -> str:
        """For messages."""
        return "sequence that grows"


def may_be_one(a: Expr, b: Expr) -> bool:
    """Does it depend on the inputs whether two sizes are the same? k + m and k, or k and half of
    it, are so by chance."""
    if as_int(a - b) is not None:
        return False
    of_a, of_b = (set(sizes.symbols([size])) for size in (a, b))
    if of_a.isdisjoint(of_b):
        return True
    return of_a != of_b and not all(isinstance(f, Var) for f in sizes.factors(a - b))


class Body(Inside):
    """The body of a loop in a kernel as a graph of its own; its constants become inputs, too."""

    in_kernel = True

    def __init__(self, n: NodeContext, given: list[Value]) -> None:
        super().__init__(n, given[:2])
        self.is_steady = False  # does its condition always hold?
        self.asked: dict[Expr, str] = {}  # what a round needs not to be negative → what to say
        self.checks: list[tuple[Value, Bounds, str]] = []  # a round's extreme indices, their bounds
        names = ["round", "go", *(f"state{k}" for k in range(len(given) - 2))]
        self.inputs = [
            self.inner.input(name, v.dtype, v.shape) for name, v in zip(names, given, strict=True)
        ]
        self.bounds: dict[Var, Expr] = {}  # the room that a size which a round measures may take
        self.sizes: dict[Var, Expr] = {}  # of those: what stands for them in the body
        self.exact: set[Var] = set()  # of those: what a state's shape tells
        self.columns: list[list[Var]] = []  # of those: which stand in each of the last rows
        self.stacked = 0  # rows that the loop itself gives
        self.first_check = 0  # the first row that tells indices
        self.added: dict[int, int] = {}  # rows that each growing sequence gets
        self.shapes: list[tuple[Expr, ...]] = []  # of a round's rows, as the round measures them

    def check(self, numbers: Value, bounds: Bounds, what: str, only: Value | None) -> None:
        """Note a check of indices that are inside: each round tells the least and the greatest of
        them (or 0, which no operator forbids), and what it told is checked after the loop."""
        inner = self.inner
        if are_within(inner, numbers, bounds, None if only else what):
            return
        for k, pair in enumerate(bounds):
            column = numbers
            if len(bounds) > 1:
                starts, shape = (0,) * (numbers.rank - 1), numbers.shape[:-1]
                column = inner.emit("slice", numbers, starts=(*starts, k), shape=(*shape, 1))
            ends = []
            for reduce, limit in (("reduce_min", "minimum"), ("reduce_max", "maximum")):
                end = inner.emit("reshape", column, shape=(column.elements,))
                end = inner.emit(reduce, end, axes=(0,), keepdims=True)
                end = inner.emit("cast", end, to="i64") if end.dtype.name != "i64" else end
                ends.append(inner.emit(limit, end, inner.constant([0], of="i64")))
            row = inner.emit("concat", *ends, axis=0)
            if only is not None:
                row = inner.emit("where", only, row, inner.constant([0, 0], of="i64"))
            self.checks.append((row, [pair], what))

    def bound(self, size: Expr, most: Expr) -> None:
        """Note that a data-dependent size is at most this."""
        if isinstance(size, Var):
            self.bounds.setdefault(size, most)

    def is_own(self, value: Any) -> bool:
        return isinstance(value, Growing) or super().is_own(value)

    def graph(self, round_: Callable[[list[Any]], Any], grows: list[int]) -> Graph:
        """The body, with what `round_` makes of its inputs, inside, as outputs: (condition,
        *states, *rows); what a round puts behind the
        sequences among the states (`grows`) and what it measures are further rows."""
        with self.translating():
            states: list[Any] = list(self.inputs[2:])
            for k in grows:
                states.insert(k, Growing(k))
            always = self.inner.constant(np.asarray(True))  # or there would be no such round
            made = round_([self.inputs[0], always, *states])
            if None in made:
                raise Refusal("its body leaves an output out")
            goes = self.inner.constants.get(made[0]) if isinstance(made[0], Value) else None
            self.is_steady = goes is not None and bool(goes.array.all())
            after = dict(enumerate(made[1 : 1 + len(states)]))
            for k, old in enumerate(states):
                after[k] = self.as_before(after[k], old, k)
            for k in grows:
                if not isinstance(after[k], Growing) or after[k].at != k:
                    raise Refusal(f"state {k} is a sequence that does more than grow")
            rows = list(made[1 + len(states) :])
            self.stacked = len(rows)
            for k in grows:
                added = after.pop(k).added
                self.added[k] = len(added)
                rows += added
            self.first_check = len(rows)
            asked = [made[0], *after.values(), *rows, *(row for row, _, _ in self.checks)]
            asked = [self.inner.emit("copy", self.own(v)) for v in asked]
            outputs = {f"out{k}": v for k, v in enumerate(asked)}
        whole = without_dead(self.inner.finish(outputs))
        self.shapes = [v.shape for v in whole.outputs[1 + len(after) :]]
        if whole.data_dependent:
            whole = self.resolved(whole, len(after))
        self.asked = self.requirements(whole)
        inputs = list(whole.inputs)
        for value, constant in whole.constants.items():
            inputs.append(value)
            self.captured.append(self.outer.constant(constant, value.name, value.dtype))
        names = [v.name for v in inputs]
        return whole.replace(
            inputs=tuple(inputs), input_names=tuple(names), constants={}, required=(),
            output_names=tuple(f"out{k}" for k in range(len(whole.outputs))),
        )  # fmt: skip

    def as_before(self, new: Any, old: Any, k: int) -> Any:
        """A state after a round under the sizes that it had before, where the model's inputs decide
        whether these are the same."""
        tensors = isinstance(new, Value) and isinstance(old, Value)
        if not tensors or new.rank != old.rank or new.shape == old.shape:
            return new
        apart = [(a, b) for a, b in zip(new.shape, old.shape, strict=True) if a != b]
        build, found = self.inner, self.outer.found
        if not all(may_be_one(a, b) and build.from_inputs((a, b)) for a, b in apart):
            return new
        if not found.isdisjoint(sizes.symbols([s for pair in apart for s in pair])):
            return new
        for a, b in apart:
            build.require_equal(a, b, f"the shape of state {k} after a round")
        return build.emit("view_as", self.own(new), shape=old.shape)

    def resolved(self, whole: Graph, states: int) -> Graph:
        """The body without `measure`: each size that it names has a number, or a bound."""
        symbols = {Var(s) for node in whole.nodes if node.op == "measure" for s in node["symbols"]}
        for old, new in zip(self.inputs[2:], whole.outputs[1 : 1 + states], strict=True):
            for have, size in zip(old.shape, new.shape, strict=False):
                if isinstance(size, Var) and size in symbols and size not in self.sizes:
                    self.sizes[size] = have
        self.exact = set(self.sizes)
        edit, made, told = Edit(whole), dict[Value, Value](), list[Value]()
        for node in whole.nodes:
            inputs = [made.get(v, v) for v in node.inputs]
            if node.op == "measure":
                self.resolve(node)
                told.append(inputs[0])
                made[node.output] = inputs[0]
                continue
            self.keeps_positions(node)
            results = edit.emit(node.op, *inputs, **{k: self.put(v) for k, v in node.attrs})
            results = (results,) if isinstance(results, Value) else results
            made.update(zip(node.outputs, results, strict=True))
        told = [edit.emit("copy", v) for v in told]
        outputs = [*(made.get(v, v) for v in whole.outputs), *told]
        names = [f"out{k}" for k in range(len(outputs))]
        inputs, constants = (edit.inputs, edit.input_names), edit.constants
        required = [(self.put(size), what) for size, what in whole.required]
        left = Graph(whole.name, inputs[0], outputs, constants, edit.nodes, inputs[1], names)
        return without_dead(left.replace(required=tuple(required)))

    def requirements(self, whole: Graph) -> dict[Expr, str]:
        """What the body's operators need of sizes, and what to say where that does not hold."""
        symbols = {s for n in whole.nodes for v in (*n.inputs, *n.outputs) for s in
                   sizes.symbols(v.shape)}  # fmt: skip
        known = Facts({s: self.outer.ranges.get(s.name, (0, None)) for s in symbols})
        asked = dict(whole.required)
        for size, what in sizes_of_values(whole.nodes, ()):
            asked.setdefault(size, what)
        for node in whole.nodes:
            asked |= dict(required_by(node, known))
        label = self.n.node.name or next(filter(None, self.n.node.output), "")
        return {size: f"{what} in {self.n.op} '{label}'" for size, what in asked.items()}

    def emit_loop(
        self, body: Graph, states: list[Value], length: Expr
    ) -> tuple[Value, list[Value], list[Value]]:
        """How many rounds there were, the last states, and what each of `length` rounds gave. What
        the rounds need of sizes is checked before the first one, if there is one."""
        build, (limit, go) = self.outer, self.given
        surely = sizes.is_never_more(sizes.size(1), length)
        for size, what in self.asked.items():
            needed = size if surely else sizes.size(maximum(size, sizes.size(0 - length)))
            if build.from_inputs([needed]):
                build.required.setdefault(needed, what)
            else:
                fits = [(sizes.size(0), sizes.size(data_dependent.FAR))]
                limit = self.n.importer.checked(build.size_vector(needed), fits, what, limit)
        if not surely:  # what is computed once is computed only then
            go = self.runs
        rounds, *results = build.emit(
            "loop", limit, go, *states, *self.captured, body=str(body), states=len(states),
            length=length, extents=unseen(body),
        )  # fmt: skip
        return rounds, results[: len(states)], [self.sized(v) for v in results[len(states) :]]

    def sized(self, row: Value) -> Value:
        """Rows under sizes that are none below 0 where there are no rounds to need them."""
        zero = sizes.size(0)
        shape = [s if sizes.is_never_more(zero, s) else sizes.size(maximum(s, zero))
                 for s in row.shape]  # fmt: skip
        return row if row.shape == tuple(shape) else op(self.n, "view_as", row, shape=tuple(shape))

    def resolve(self, node: Node) -> None:
        """Decide what stands for the sizes that a node measures."""
        own = [Var(s) for s in node["symbols"]]
        self.columns.append(own)
        for size in own:
            if size in self.sizes:
                continue
            most = as_int(self.put(self.bounds[size])) if size in self.bounds else None
            if most is None:
                why = f"{node['what']} in its body may change from round to round, without a bound"
                raise Refusal(why, "what a round computes needs sizes that are known before it")
            self.sizes[size] = sizes.size(most)

    def put(self, value: Any) -> Any:
        """An attribute or a size with what stands for data-dependent sizes."""
        if isinstance(value, tuple):
            return tuple(self.put(v) for v in value)
        return sizes.size(substitute(value, self.sizes)) if isinstance(value, Expr) else value

    def keeps_positions(self, node: Node) -> None:
        """Refuse a node whose result depends on room that a bound takes beyond the true size."""
        loose = self.sizes.keys() - self.exact
        touched = [v for v in node.inputs if loose & set(sizes.symbols(v.shape))]
        if not touched or OPERATORS[node.op].fusion is BROADCAST:
            return
        first = node.inputs[0]
        if node.op == "gather" and not loose & set(sizes.symbols([first.shape[node["axis"]]])):
            return
        if node.op in ("reshape", "view_as"):
            shapes = [[s for s in v.shape if as_int(s) != 1] for v in (first, node.output)]
            if shapes[0] == shapes[1]:
                return
        if node.op == "expand":
            return
        why = f"{node.op} of {touched[0].type_text}, a size that changes from round to round"
        raise Refusal(why, "what a round computes needs sizes that are known before it")

    def checked(self, states: list[Value], rows: list[Value]) -> tuple[list[Value], list[Value]]:
        """The loop's results; the run stops if a round had an index out of bounds or a size
        that does not fit."""
        states, rows = self.bounded(states, rows)
        if not self.columns:
            return states, rows
        n, first, holds = self.n, len(rows) - len(self.columns), None
        for row, own in zip(rows[first:], self.columns, strict=True):
            most = np.array([self.sizes[s] for s in own], object)
            limits = n.build.from_sizes(most, data_dependent.I64)
            is_exact = n.constant([s in self.exact for s in own], "bool")
            within = op(n, "logical_and", op(n, "greater_equal", row, 0),
                        op(n, "less_equal", row, limits))  # fmt: skip
            fits = op(n, "where", is_exact, op(n, "equal", row, limits), within)
            fits = op(n, "reduce_all", fits, axes=(0, 1))
            holds = fits if holds is None else op(n, "logical_and", holds, fits)
        assert holds is not None
        for row, shape in zip(rows[: self.stacked], self.shapes, strict=False):
            if set(sizes.symbols(shape)) - self.exact:
                raise Refusal(f"its rows {row.type_text} change their size from round to round")
        what = "the sizes that the rounds found"
        made = [[ragged.checked(n, holds, v, what) for v in vs] for vs in (states, rows[first:])]
        return made[0], [*rows[:first], *made[1]]

    def bounded(self, states: list[Value], rows: list[Value]) -> tuple[list[Value], list[Value]]:
        """The loop's results; the run stops if a round had an index out of bounds."""
        of, check = [*states, *rows], self.n.importer.checked
        for row, (_, bounds, what) in zip(rows[self.first_check :], self.checks, strict=False):
            pairs = [(self.put(least), self.put(most)) for least, most in bounds]
            of = [check(row, pairs, what, v) for v in of]
        return of[: len(states)], of[len(states) :]

    def true_shapes(self, rows: list[Value], own: range) -> list[Value]:
        """The shapes that the rounds gave to some of the rows: [rounds, axes] for each."""
        n, first = self.n, len(rows) - len(self.columns)
        count, found = rows[own[0]].shape[0] if own else None, []
        where = {s: (j, k) for j, row in enumerate(self.columns) for k, s in enumerate(row)}
        for k in own:
            columns = []
            for size in self.shapes[k]:
                if isinstance(size, Var) and size in where and size not in self.exact:
                    j, at = where[size]
                    column = op(n, "slice", rows[first + j], starts=(0, at),
                                shape=(rows[first + j].shape[0], 1))  # fmt: skip
                    columns.append(op(n, "view_as", column, shape=(count, 1)))
                    continue
                if set(sizes.symbols([size])) & (self.sizes.keys() - self.exact):
                    raise Refusal(f"an element of {rows[k].type_text} whose size is computed")
                number = op(n, "reshape", data_dependent.counted(n, self.put(size)), shape=(1, 1))
                columns.append(op(n, "expand", number, shape=(count, 1)))
            none = op(n, "full", shape=(count, 1), value=-1, of="i64")
            found.append(op(n, "concat", *columns, axis=1) if len(columns) > 1 else
                         columns[0] if columns else none)  # fmt: skip
        return found
