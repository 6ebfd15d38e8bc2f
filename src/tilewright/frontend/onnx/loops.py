"""ONNX loops whose rounds the run counts: one kernel (`kernel_bodies.py`), or rounds of the host
program (`while_loops.py`).

In: a Loop or a Scan and its body. Out: the states after the last round, and the rows that the
rounds gave. Loop-invariant values are computed once, around the loop; a state that every round
passes on is read from there. A first round that makes other types of its states is peeled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilewright.frontend.onnx import data_dependent, ragged
from tilewright.frontend.onnx.bodies import outside
from tilewright.frontend.onnx.coded import constant_of
from tilewright.frontend.onnx.counted import Rounds
from tilewright.frontend.onnx.data_dependent import choose, measure, op
from tilewright.frontend.onnx.kernel_bodies import Body
from tilewright.frontend.onnx.messages import GraphProto, NodeProto
from tilewright.frontend.onnx.order import in_order, names_read
from tilewright.frontend.onnx.registry import NodeContext, Ragged, Refusal
from tilewright.frontend.onnx.while_loops import while_loop
from tilewright.graph import sizes
from tilewright.graph.builder import without_dead
from tilewright.graph.graph import Graph, Value
from tilewright.ir.expr import Expr

# Rounds of a loop that data alone ends: more than any machine runs.
ENDLESS = sizes.size(data_dependent.FAR)
RANDOM = {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli",
          "Multinomial"}  # fmt: skip


def loop_of_the_run(n: NodeContext, body: GraphProto) -> Any:
    """A loop whose rounds the run counts."""
    made = tried(n, lambda: native_loop(n, body))
    return made if isinstance(made, tuple) else after_the_first(n, body, made)


def after_the_first(n: NodeContext, body: GraphProto, refused: Exception) -> Any:
    """A loop whose first round is peeled: it makes other types of the states than they had
    before it, a row of a number that only stands for one. That there is a first round is known, or
    checked in the run. Raises `refused` where it changes no types."""
    given = [n.optional(k) for k in range(2, len(n.inputs))]
    scope, rest = computed_once(n, body)
    start = [n.constant(0, "i64"), n.constant(np.asarray(True)), *given]
    with within(n, scope):
        first = n.importer.attempt(lambda: n.importer.inline(rest, start))
    if not isinstance(first, tuple) or not any(map(is_retyped, given, first[1:])):
        raise refused
    on, *made = first
    limit, left = n.optional(0), None
    runs = op(n, "reshape", truth(n), shape=())
    if limit is not None:
        limit = op(n, "reshape", limit, shape=())
        left = op(n, "sub", limit, n.constant(1, limit.dtype))
        runs = op(n, "logical_and", runs, op(n, "greater", limit, 0))
    known = n.build.constants.get(runs)
    if known is None or not known.array.all():
        what = "a first round, without which its states have other types"
        made = [ragged.checked(n, runs, v, what) if isinstance(v, Value) else v for v in made]
    states = made[: len(given)]
    others = native_loop(n.standing_for("Loop", [left, on, *states], n.version), body, done=1)
    ones = [op(n, "reshape", row, shape=(1, *row.shape)) for row in made[len(given) :]]
    rows = zip(ones, others[len(given) :], strict=True)
    return (*others[: len(given)], *(n.apply("Concat", *pair, axis=0) for pair in rows))


def is_retyped(before: Any, after: Any) -> bool:
    """Has a round made a tensor of another rank or element type of this state?"""
    both = isinstance(before, Value) and isinstance(after, Value)
    return both and (before.dtype, before.rank) != (after.dtype, after.rank)


def native_loop(n: NodeContext, body: GraphProto, done: int = 0) -> Any:
    """Rounds that the run counts: in one kernel, or where that cannot be as a loop of the host
    program's. done: how many went before."""
    if same := passed_on(n, body):
        return without_states(n, body, same, done)
    made = tried(n, lambda: kernel_loop(n, body, done))
    if isinstance(made, tuple):
        return made
    limit = op(n, "reshape", n[0], shape=()) if n.optional(0) is not None else None
    go = op(n, "reshape", truth(n), shape=())
    given: list[Any] = [n.optional(k) for k in range(2, len(n.inputs))]
    states, rows = while_loop(
        n, limit, go, given, list(body.input)[2:], lambda values: translated(n, body, values, done),
        lambda: limit and most_rounds(n, limit, go),
    )  # fmt: skip
    return (*states, *rows)


def passed_on(n: NodeContext, body: GraphProto) -> list[int]:
    """The states that every round gives as it got them."""
    rounds, given = Rounds(n, body, {}), n.inputs[2:]
    return [k for k, state in enumerate(given) if state is not None and rounds.passes_on(k)]


def without_states(n: NodeContext, body: GraphProto, same: list[int], done: int) -> Any:
    """A loop some of whose states are the same in every round: what a body reads from around it,
    so that what follows from them alone is computed once."""
    given = n.inputs[2:]
    left = [k for k in range(len(given)) if k not in same]
    reduced = GraphProto()
    reduced.CopyFrom(body)
    for k in reversed(same):
        del reduced.input[2 + k], reduced.output[1 + k]
    inputs = [n.optional(0), n.optional(1), *(given[k] for k in left)]
    with within(n, {body.input[2 + k].name: given[k] for k in same}):
        made = native_loop(n.standing_for("Loop", inputs, n.version), reduced, done)
    states: list[Any] = list(given)
    for k, value in zip(left, made, strict=False):
        states[k] = value
    return (*states, *made[len(left) :])


def kernel_loop(n: NodeContext, body: GraphProto, done: int) -> Any:
    """Rounds in one kernel: at most the trip count, while the condition holds."""
    trips, is_nested = trip_count(n, body), n.importer.in_kernel
    endless = trips is None
    if endless:
        trips = n.constant(data_dependent.FAR, "i64")
    given: list[Any] = [n.optional(k) for k in range(2, len(n.inputs))]
    grows = [k for k, v in enumerate(given) if ragged.is_sequence(v)]
    states = [n[k + 2] for k in range(len(given)) if k not in grows]
    limit, go = (n.build.emit("reshape", v, shape=()) if v.rank else v for v in (trips, truth(n)))
    inside = Body(n, [limit, go, *states])
    made = inside.graph(lambda values: translated(n, body, values, done), grows)
    if endless and inside.is_steady:
        raise Refusal("nothing ends it: it has no trip count, and its condition always holds")
    length = None if endless else most_rounds(n, limit, go)
    if length is None:
        count, *after = inside.emit_loop(without_rows(made, len(states)), states, ENDLESS)
        if len(made.outputs) == 1 + len(states):
            return tuple(after[0])
        if is_nested:
            raise Refusal(
                "each round of the loop around it may run it another number of times, and what its"
                " own rounds give would change its size"
            )
        # How many there are is known: they are run again for what each of them gives.
        limit = op(n, "reshape", count, shape=())
        inside.given = [limit, go]
        length = measure(n, count, "the rounds")[0]
    rounds, states, rows = inside.emit_loop(made, states, length)
    if rows and not (inside.is_steady and go in n.build.constants):
        (count,) = measure(n, rounds, "the rounds")
        if n.importer.in_kernel:
            n.importer.body.bound(count, length)
        for k, row in enumerate(rows):
            starts, shape = (0,) * row.rank, (count, *row.shape[1:])
            rows[k] = n.build.emit("slice", row, starts=starts, shape=shape)
    states, rows = inside.checked(states, rows)
    start = inside.stacked
    for at in grows:
        added = rows[start : start + inside.added[at]]
        shapes = inside.true_shapes(rows, range(start, start + inside.added[at]))
        start += inside.added[at]
        states.insert(at, grown(n, given[at], added, shapes))
    return (*states, *rows[: inside.stacked])


def most_rounds(n: NodeContext, limit: Value, go: Value) -> Expr | None:
    """How often a loop runs at most, as a size; None in a body each of whose rounds may run it
    another number of times."""
    if n.importer.in_kernel and n.build.sizes_in(limit) is None:
        around = n.importer.body.outside(limit)
        if around is None:
            return None
        with outside(n):
            return most_rounds(n, around, n.constant(np.asarray(True)))
    bound = op(n, "maximum", op(n, "reshape", limit, shape=(1,)), 0)
    known = n.build.constants.get(go)
    if known is None or not known.array.all():  # the kernel computes none in vain
        bound = choose(n, go, bound, 0)
    return measure(n, bound, "the trip count")[0]


def without_rows(body: Graph, states: int) -> Graph:
    """A body that gives the condition and the states alone."""
    count = 1 + states
    kept = body.replace(outputs=body.outputs[:count], output_names=body.output_names[:count])
    return without_dead(kept)


def trip_count(n: NodeContext, body: GraphProto) -> Value | None:
    """How often a loop runs at most; None if data alone ends it. A count beyond every size says no
    more than none."""
    given = n.optional(0) and n[0]
    known = given and n.build.constants.get(given)
    if given is not None and (known is None or known.array.reshape(-1)[0] < data_dependent.FAR):
        return given
    return Rounds(n, body, computed_once(n, body)[0]).bound()


def truth(n: NodeContext) -> Value:
    """The condition before the first round."""
    return n[1] if n.optional(1) is not None else n.constant(np.asarray(True))


def grown(n: NodeContext, old: Any, rows: list[Value], shapes: list[Value]) -> Any:
    """A sequence with what the rounds put behind it: one row [rounds, …] for each element that a
    round adds, and their true shapes [rounds, axes]."""
    if not rows:
        return old
    if len({(r.dtype, r.shape) for r in rows}) > 1:
        raise Refusal(
            "its rounds put elements of unlike shapes behind a sequence, several at a time"
        )
    data, true = (
        parts[0] if len(parts) == 1 else side_by_side(n, parts) for parts in (rows, shapes)
    )
    count, own, kept = data.shape[0], data.shape[1:], None
    for d, size in enumerate(own):
        line: list[Any] = [1] * (len(own) + 1)
        line[d + 1] = size
        position = op(n, "reshape", op(n, "arange", length=size), shape=tuple(line))
        most = op(n, "slice", true, starts=(0, d), shape=(count, 1))
        fits = op(n, "less", position, op(n, "reshape", most, shape=(count, *[1] * len(own))))
        kept = fits if kept is None else op(n, "logical_and", kept, fits)
    flat = op(n, "reshape", data, shape=(data.elements,))
    if kept is not None:
        mask = op(n, "reshape", kept, shape=(data.elements,))
        flat = op(n, "gather", flat, data_dependent.nonzero_indices(n, mask), axis=0)
    new = Ragged(flat, true, len(own))
    return ragged.joined(n, ragged.ragged(n, old, flat.dtype), new)


def side_by_side(n: NodeContext, parts: list[Value]) -> Value:
    """Rows of several tensors, those of one round next to each other."""
    count, *rest = parts[0].shape
    parts = [op(n, "reshape", p, shape=(count, 1, *rest)) for p in parts]
    y = op(n, "concat", *parts, axis=1)
    return op(n, "reshape", y, shape=(sizes.size(count * len(parts)), *rest))


def translated(
    n: NodeContext, body: GraphProto, given: list[Value], done: int = 0
) -> tuple[Any, ...]:
    """A body's outputs inside; what is the same in every round is computed once, outside. done:
    rounds before the first of these."""
    own = n.importer.body
    if done:
        given = [op(n, "add", given[0], n.constant(done, "i64")), *given[1:]]
    with outside(n), n.build.taken(own.runs):
        scope, rest = computed_once(n, body)
    with within(n, scope):
        return n.importer.inline(rest, given)


def computed_once(n: NodeContext, body: GraphProto) -> tuple[dict[str, Any], GraphProto]:
    """The loop-invariant values of a body, by name, and the rest of it."""
    importer, (same, rest) = n.importer, parted(body)
    scope: dict[str, Any] = {}
    for tensor in body.initializer:
        scope[tensor.name] = constant_of(importer.build, tensor, importer.folder)
    scope.update((s.values.name, importer.dense(s)) for s in body.sparse_initializer)
    importer.run(scope, same, [])
    return scope, rest


@contextmanager
def within(n: NodeContext, scope: dict[str, Any]) -> Iterator[None]:
    """Names that bodies translated here see."""
    n.importer.scopes.append(scope)
    try:
        yield
    finally:
        n.importer.scopes.pop()


def parted(body: GraphProto) -> tuple[list[NodeProto], GraphProto]:
    """The nodes that neither follow from the body's inputs nor draw at random, and the rest."""
    varying = {e.name for e in body.input}
    same, rest = [], GraphProto(input=body.input, output=body.output)
    for node in in_order(body.node):
        if node.op_type in RANDOM or not varying.isdisjoint(names_read(node)):
            varying.update(node.output)
            rest.node.append(node)
        else:
            same.append(node)
    return same, rest


def length_of(inputs: list[Value], axes: list[int]) -> Expr:
    """How many steps a scan has."""
    lengths = {x.shape[a] for x, a in zip(inputs, axes, strict=True)}
    if len(lengths) != 1:
        raise Refusal("its number of steps must be the same for all inputs")
    return lengths.pop()


def native_scan(
    n: NodeContext, states: list[Value], inputs: list[Value], axes: list[int], backwards: Any
) -> tuple[list[Value], list[Value]]:
    """As a native loop: the states after the last step, and what each gave, along a first axis."""
    length, body = length_of(inputs, axes), n.graph("body")
    limit, go = size_of(n, length), n.constant(np.asarray(True))

    def step(given: list[Value]) -> tuple[Any, ...]:
        emit, own, (index, on) = n.build.emit, n.importer.body.own, given[:2]
        rows = []
        for x, a, back in zip(inputs, axes, backwards, strict=True):
            last = emit("sub", own(limit), n.constant(1, "i64")) if back else None
            at = index if last is None else emit("sub", last, index)
            rows.append(emit("gather", own(x), at, axis=a))
        return on, *translated(n, body, [*given[2:], *rows])

    def in_kernel() -> tuple[list[Value], list[Value]]:
        inside = Body(n, [limit, go, *states])
        _, last, rows = inside.emit_loop(inside.graph(step, []), states, length)
        last, rows = inside.checked(last, rows)
        return last, rows[: inside.stacked]

    made = tried(n, in_kernel)
    if isinstance(made, tuple):
        return made
    told = list(body.input)[: len(states)]
    return while_loop(n, limit, go, states, told, step, lambda: length)


def tried(n: NodeContext, in_kernel: Callable[[], Any]) -> Any:
    """What a loop in a kernel gives, or what refuses it; inside of another that is raised."""
    required = dict(n.build.required)
    made = n.importer.attempt(in_kernel)
    if isinstance(made, tuple):
        return made
    if n.importer.in_kernel:
        raise made
    n.build.required = required
    return made


def size_of(n: NodeContext, size: Expr) -> Value:
    """A size as an i64 scalar."""
    made = np.empty((), object)
    made[()] = size
    return n.build.from_sizes(made, data_dependent.I64)
