"""Loops whose rounds are large become rounds of the host program."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.rewriting import ops, rewritten
from tilewright.driver.compile import compile_observed
from tilewright.graph import Builder, evaluate
from tilewright.graph.graph import Graph
from tilewright.graph.passes.part_loops import part_loops
from tilewright.graph.passes.simplify_loops import simplify_loops

LARGE, SMALL = 256, 40
# steps, batch, the round that is the last, whether there is one at all
ENDS = (7, 1, 9, True), (7, 3, 2, True), (20, 1, 0, True), (5, 2, 9, False), (1, 17, 9, True)


def recurrence(hidden: int, asked: bool = False) -> Graph:
    """Rounds h = tanh(x[k] + h u), which also end where the first number of a row of `stop` is
    above `most`, and a row of each. asked: their results count only under a condition."""
    build, body = Builder("g"), Builder("body")
    length, batch = build.symbol("t"), build.symbol("n")
    weights = np.random.default_rng(3).standard_normal((hidden, hidden)) / hidden**0.5

    k, going = body.input("round", "i64", ()), body.input("going", "bool", ())
    h, x = body.input("h", "f32", (batch, hidden)), body.input("x", "f32", (length, batch, hidden))
    u, stop = body.input("u", "f32", (hidden, hidden)), body.input("stop", "f32", (length,))
    most = body.input("most", "f32", ())
    row = body.emit("gather", x, k, axis=0)
    new = body.emit("tanh", body.emit("add", row, body.emit("matmul", h, u)))
    on = body.emit("less_equal", body.emit("gather", stop, k, axis=0), most)
    values = [body.emit("logical_and", going, on), new, new, k]
    inside = body.finish({f"out{n}": body.emit("copy", v) for n, v in enumerate(values)})

    start, rows = build.input("h0", "f32", h.shape), build.input("x", "f32", x.shape)
    ends, go = build.input("stop", "f32", (length,)), build.input("go", "bool", ())
    count = build.emit("size_values", values=(length,), shape=())
    rounds, *made = build.emit(
        "loop", count, go, start, rows, build.constant(weights.astype(np.float32)), ends,
        build.constant(np.float32(1.5)), body=str(inside), states=1, length=length,
    )  # fmt: skip
    if asked:
        both = zip(made, (start, rows, build.emit("arange", length=length)), strict=True)
        made = [build.emit("where", go, a, b) for a, b in both]
    names = ["last", "all", "numbers"]
    results = dict(zip(names, made, strict=True))
    if not asked:
        results["rounds"] = rounds
    return build.finish({n: build.emit("copy", v) for n, v in results.items()})


def inputs(t: int, n: int, hidden: int, ends: int, go: bool = True) -> list[np.ndarray]:
    """ends: the round that is the last, if there are so many."""
    random = np.random.default_rng([t, n, ends])
    h, x = (random.standard_normal(s).astype(np.float32) for s in ((n, hidden), (t, n, hidden)))
    stop = random.uniform(-1, 1, t).astype(np.float32)
    stop[ends : ends + 1] = 2
    return [h, x, stop, np.array(go)]


def test_only_large_rounds_are_the_host_programs():
    assert "while_loop" in ops(rewritten(part_loops, recurrence(LARGE), tolerance=1e-5))
    small = recurrence(SMALL)
    assert part_loops(small) is small
    asked = recurrence(LARGE, asked=True)
    assert part_loops(asked) is asked


@pytest.mark.parametrize("threads", [1, 2])
def test_rows_are_zero_from_where_a_condition_ended_the_rounds(threads):
    graph = recurrence(LARGE)
    exe = compile_observed(graph, threads=threads, cache=False)
    for t, n, ends, go in ENDS:
        arrays = inputs(t, n, LARGE, ends, go)
        wanted = evaluate(graph, arrays)
        assert wanted[3] == (min(t, ends + 1) if go else 0)
        for got, want in zip(exe(*arrays), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_kernels_and_rounds_agree():
    graph = simplify_loops(recurrence(LARGE))
    for ends in (0, 3, 9):
        arrays = inputs(6, 2, LARGE, ends)
        for a, b in zip(evaluate(graph, arrays), evaluate(part_loops(graph), arrays), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
