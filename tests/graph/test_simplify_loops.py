"""What the rounds of a loop need not compute."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.rewriting import random_inputs, rewritten
from tilewright.driver.compile import compile_observed
from tilewright.graph import Builder, evaluate
from tilewright.graph.graph import Graph, Node
from tilewright.graph.ops.loop import body_of
from tilewright.graph.passes.simplify_loops import simplify_loops

HIDDEN, WIDE = 40, 24


def recurrence(backwards: bool = False, by_data: bool = False, many: bool = False) -> Graph:
    """Rounds h = tanh(x[k] w + h u) over a length that only the run knows. Weights are a state that
    no round changes; a second state and a row are read by nobody. backwards: from the last row on;
    by_data: the row's number is data; many: the rows' table is a constant."""
    build, body = Builder("g"), Builder("body")
    length, batch = build.symbol("t"), build.symbol("n")
    state, table = (batch, HIDDEN), (50 if many else length, 2 if many else batch, WIDE)
    state = (2, HIDDEN) if many else state
    random = np.random.default_rng(3)

    def weights(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) / shape[-2] ** 0.5).astype(np.float32)

    round_ = body.input("round", "i64", ())
    body.input("go", "bool", ())
    k, h = body.input("k", "i64", ()), body.input("h", "f32", state)
    w, idle = body.input("w", "f32", (WIDE, HIDDEN)), body.input("idle", "f32", state)
    x, u = body.input("x", "f32", table), body.input("u", "f32", (HIDDEN, HIDDEN))
    one, last = body.input("one", "i64", ()), body.input("last", "i64", ())
    numbers = body.input("numbers", "i64", (length,))
    on = body.input("on", "bool", ())
    at = body.emit("sub", last, round_) if backwards else k
    at = body.emit("gather", numbers, at, axis=0) if by_data else at
    row = body.emit("gather", x, at, axis=0)
    sums = body.emit("add", body.emit("matmul", row, w), body.emit("matmul", h, u))
    new = body.emit("tanh", sums)
    more = body.emit("exp", idle)
    values = [on, body.emit("add", k, one), new, w, more, new, more]
    inside = body.finish({f"out{n}": body.emit("copy", v) for n, v in enumerate(values)})

    numbers_ = build.input("numbers", "i64", (length,))
    start = build.input("h0", "f32", state)
    rows = build.constant(weights(*table)) if many else build.input("x", "f32", table)
    count = build.emit("size_values", values=(length,), shape=())
    nought, step = build.constant(np.asarray(0)), build.constant(np.asarray(1))
    made = build.emit(
        "loop", count, build.constant(np.asarray(True)), nought, start,
        build.constant(weights(WIDE, HIDDEN)), start, rows, build.constant(weights(HIDDEN, HIDDEN)),
        step, build.emit("sub", count, step), numbers_, build.constant(np.asarray(True)),
        body=str(inside), states=4, length=length,
    )  # fmt: skip
    return build.finish({"last": made[2], "w": build.emit("copy", made[3]), "all": made[5]})


def loop_of(graph: Graph) -> tuple[Node, list[str]]:
    """The loop, and the operators of its body."""
    (found,) = [node for node in graph.nodes if node.op == "loop"]
    return found, [node.op for node in body_of(found["body"]).nodes]


@pytest.mark.parametrize("backwards", [False, True])
def test_rows_are_multiplied_before_the_loop(backwards):
    after = rewritten(simplify_loops, recurrence(backwards), tolerance=1e-5)
    _, inside = loop_of(after)
    assert inside.count("matmul") == 1
    assert [node.op for node in after.nodes].count("matmul") == 1


@pytest.mark.parametrize("kind", ["by_data", "many"])
def test_rows_that_no_round_may_ask_for_are_not(kind):
    _, inside = loop_of(rewritten(simplify_loops, recurrence(**{kind: True})))
    assert inside.count("matmul") == 2


def test_states_that_stay_and_those_that_nobody_reads_are_none():
    after = rewritten(simplify_loops, recurrence(), tolerance=1e-5)
    found, inside = loop_of(after)
    assert found["states"] == 2 and len(found.outputs) == 4 and "exp" not in inside


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_code_agrees_at_several_sizes(backwards, threads):
    graph = recurrence(backwards)
    exe = compile_observed(graph, threads=threads, cache=False)
    assert "fallbacks" not in exe.manifest.notes  # a step's product lies in register tiles
    for sizes in ({"t": 7, "n": 3}, {"t": 1, "n": 1}, {"t": 30, "n": 17}):
        arrays = random_inputs(graph, sizes)
        for got, wanted in zip(exe(*arrays), evaluate(graph, arrays), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
