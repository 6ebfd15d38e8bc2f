"""Loops that the host program runs, as nodes of a graph."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.driver.compile import compile_observed
from tilewright.graph import Builder, evaluate, parse, sizes
from tilewright.graph.builder import without_dead
from tilewright.graph.passes.pipeline import optimise
from tilewright.ir.expr import Var
from tilewright.support.errors import CompileError

DOUBLED = """\
def body(t: i64[()], x: f32[m], by: f32[n]):
    twice: f32[2 * m] = concat(x, x, axis=0)
    sum: f32[()] = reduce_sum(by)
    more: f32[2 * m] = mul(twice, sum)
    on: bool[()] = equal(t, t)
    return {'on': on, 'more': more}
"""


def graph_of(body: str = DOUBLED):
    """x doubled while fewer than `limit` rounds were run."""
    build = Builder("g")
    limit, go = build.input("limit", "i64", ()), build.input("go", "bool", ())
    x, by = build.input("x", "f32", (3,)), build.input("by", "f32", (Var("n"),))
    build.symbol("m")
    count, last = build.emit("while_loop", limit, go, x, by, body=body, states=1, symbols=("m",))
    return build.finish({"count": count, "last": last}), last


def test_its_symbols_are_the_sizes_of_the_last_states() -> None:
    graph, last = graph_of()
    assert last.shape == (Var("m"),) and graph.data_dependent == (Var("m"),)
    assert parse(str(graph)) == graph
    run = compile_observed(graph, cache=False, opt_level=0)
    for limit, go in ((0, True), (1, True), (3, True), (3, False)):
        x, by = np.arange(3, dtype=np.float32), np.array([1, 0.5], np.float32)
        rounds = limit if go else 0
        want = np.tile(x, 2**rounds) * np.float32(1.5) ** rounds
        for made in (evaluate(graph, [np.array(limit), np.array(go), x, by]),
                     run(np.array(limit), np.array(go), x, by)):  # fmt: skip
            assert made[0].tolist() == [rounds]
            np.testing.assert_allclose(made[1], want)


def test_it_stays_where_only_its_sizes_are_asked_for() -> None:
    graph, last = graph_of()
    build = Builder("sizes")
    build.inputs, build.input_names = [*graph.inputs], [*graph.input_names]
    build.nodes = [*graph.nodes]
    build.symbol("m")
    size = build.emit("size_values", values=(Var("m") * 2,), shape=(1,), of="i64")
    asked = without_dead(build.finish({"size": size}))
    assert [n.op for n in asked.nodes] == ["while_loop", "size_values"]
    given = [np.array(2), np.array(True), np.zeros(3, np.float32), np.ones(1, np.float32)]
    assert evaluate(optimise(asked), given)[0].tolist() == [24]
    assert compile_observed(asked, cache=False)(*given)[0].tolist() == [24]
    assert last in graph.outputs


SQUARED = """\
def body(t: i64[()], h: f32[24, 24]):
    on: bool[()] = equal(t, t)
    new: f32[24, 24] = matmul(h, h)
    return {'on': on, 'new': new}
"""


def test_after_no_rounds_a_state_is_what_it_began_as() -> None:
    """Its memory is not free for what is made between the loop and what reads the state."""
    build = Builder("g")
    limit, go = build.input("limit", "i64", ()), build.input("go", "bool", ())
    x, w = (build.input(name, "f32", (24, 24)) for name in "xw")
    first = build.emit("matmul", x, w)
    _, last = build.emit("while_loop", limit, go, first, body=SQUARED, states=1, symbols=())
    behind = w
    for _ in range(3):
        behind = build.emit("matmul", behind, w)
    graph = build.finish({"y": build.emit("matmul", behind, last)})
    run = compile_observed(graph, cache=False)
    rng = np.random.default_rng()
    for rounds in (0, 1, 2):
        arrays = [rng.standard_normal((24, 24)).astype(np.float32) / 5 for _ in range(2)]
        given = [np.array(rounds), np.array(True), *arrays]
        np.testing.assert_allclose(run(*given)[0], evaluate(graph, given)[0], rtol=1e-4, atol=1e-5)


ROWS = """\
def body(t: i64[()], h: f32[2], x: f32[n]):
    on: bool[()] = equal(t, t)
    at: f32[()] = gather(x, t)
    new: f32[2] = add(h, at)
    row: f32[2] = mul(new, new)
    return {'on': on, 'new': new, 'row': row}
"""


@pytest.mark.parametrize("reverse", [False, True])
def test_rows_stand_one_after_the_other(reverse: bool) -> None:
    build, n = Builder("g"), Var("n")
    x, h = build.input("x", "f32", (n,)), build.input("h", "f32", (2,))
    limit = build.emit("size_values", values=(n,), shape=(), of="i64")
    _, last, rows = build.emit(
        "while_loop", limit, build.constant(np.asarray(True)), h, x,
        body=ROWS, states=1, symbols=(), length=n, reverse=reverse,
    )  # fmt: skip
    assert rows.shape == (n, sizes.size(2))
    total = build.emit("reduce_sum", rows, axes=(0,), keepdims=False)
    graph = build.finish({"rows": rows, "last": last, "total": total})
    assert parse(str(graph)) == graph
    run = compile_observed(graph, cache=False)
    for count in (0, 1, 5):
        given = np.arange(count, dtype=np.float32) + 1, np.array([0, 1], np.float32)
        sums = given[1] + np.cumsum(given[0])[:, None]
        want = [(sums**2)[:: -1 if reverse else 1], [given[1], *sums][-1], (sums**2).sum(0)]
        for made in (evaluate(graph, given), run(*given)):
            for a, b in zip(made, want, strict=True):
                np.testing.assert_allclose(a, b)


@pytest.mark.parametrize(
    "body, why",
    [
        (DOUBLED
         .replace("'on': on", "'on': sum"), "gives no condition"),
        (DOUBLED
         .replace("'more': more", "'more': sum"), "state 0 changes its type"),
        (DOUBLED
         .replace("by: f32[n]", "by: f64[n]").replace("sum: f32", "sum: f64")
         .replace("mul(twice, sum)", "mul(twice, twice)"), "inputs are not those of its body"),
        (DOUBLED
         .replace("'more': more", "'more': more, 'row': sum"), "other values than it has states"),
    ],
)  # fmt: skip
def test_what_it_needs_of_its_body(body: str, why: str) -> None:
    with pytest.raises(CompileError, match=why):
        graph_of(body)
