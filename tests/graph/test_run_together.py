"""run_together: recurrences that do not wait for each other run at once; orders and memory."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.driver.compile import compile_graph
from tilewright.graph import Builder, evaluate, sizes
from tilewright.graph.builder import symbols_of
from tilewright.graph.graph import Value
from tilewright.graph.group import FusedGraph
from tilewright.graph.passes.fuse import fuse
from tilewright.graph.passes.plan_memory import plan_memory
from tilewright.graph.passes.run_together import run_together
from tilewright.ir.expr import Var
from tilewright.runtime.profile import Roofline
from tilewright.target.target import target

RNG = np.random.default_rng(5)
HIDDEN = 16


def weights(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32) / 4


def two_layers(op: str, lengths: bool = False):
    """Two layers of two directions over an open length."""
    build, gates = Builder(), {"lstm": 4, "gru": 3, "rnn": 1}[op]
    x = build.input("x", "f32", (Var("n"), 2, 8))
    ends = [build.input("ends", "i64", (2,))] if lengths else []
    start = build.constant(np.zeros((2, HIDDEN), np.float32))
    for _ in range(2):
        ways = []
        for reverse in (False, True):
            depth = 8 if x.name == "x" else 2 * HIDDEN
            w = build.constant(weights(depth, gates * HIDDEN))
            own = build.constant(weights(gates * HIDDEN, HIDDEN))
            state = {"lstm": [start, start], "rnn": [start]}.get(op)
            state = state or [build.constant(weights(HIDDEN)), start]
            parts = [build.emit("matmul", x, w), own, *state]
            if ends and op == "lstm":
                parts.append(build.constant(weights(3 * HIDDEN)))
            ways.append(build.emit(op, *parts, *ends, reverse=reverse)[0])
        x = build.emit("concat", *ways, axis=2)
    return build.finish({"y": build.emit("tanh", x)})


def two_loops():
    """Loops over the rows of x, each with its own matrix and end, that give a row a round; how many
    rows there were is measured, and a row of them, by number, is their sum."""
    build, body = Builder(), Builder("body")
    n, found = Var("n"), list[Value]()
    round_, _ = body.input("round", "i64", ()), body.input("go", "bool", ())
    h, x = body.input("h", "f32", (1, HIDDEN)), body.input("x", "f32", (n, 1, HIDDEN))
    u = body.input("u", "f32", (HIDDEN, HIDDEN))
    on, row = body.input("on", "bool", ()), body.emit("gather", x, round_, axis=0)
    new = body.emit("tanh", body.emit("add", row, body.emit("matmul", h, u)))
    inside = body.finish({f"out{k}": body.emit("copy", v) for k, v in enumerate((on, new, new))})
    x, at = build.input("x", "f32", (n, 1, HIDDEN)), build.input("at", "i64", ())
    yes = build.constant(np.asarray(True))
    start = build.constant(np.zeros((1, HIDDEN), np.float32))
    for k in range(2):
        rounds, _, rows = build.emit(
            "loop", build.input(f"limit{k}", "i64", ()), yes, start, x,
            build.constant(weights(HIDDEN, HIDDEN)), yes, body=str(inside), states=1, length=n,
        )  # fmt: skip
        size = Var(f"rounds{k}")
        build.emit("measure", rounds, symbols=(size.name,), what="rounds")
        rows = build.emit("slice", rows, starts=(0, 0, 0), shape=(size, 1, HIDDEN))
        most = sizes.size(size) - 1
        here = build.emit("check_bounds", at, at, least=(0,), most=(most,), what="the row")
        total = build.emit("reduce_sum", rows, axes=(0,), keepdims=False)
        found.append(build.emit("add", total, build.emit("gather", rows, here, axis=0)))
    return build.finish({"y": build.emit("add", *found)})


def is_in_order(fused: FusedGraph) -> bool:
    ready = {*fused.graph.inputs, *fused.graph.constants, *fused.graph.symbols}
    for n, group in enumerate(fused.groups):
        asked = {s for node in group.nodes for s in symbols_of(node)}
        if not ready.issuperset((*group.inputs, *(v for v, _ in group.demand), *asked)):
            return False
        ready.update(Var(s) for m in group.nodes if m.op == "measure" for s in m["symbols"])
        team = next((t for t in fused.together if n in t), range(n, n + 1))
        if n == team[-1]:
            ready.update(v for k in team for v in fused.groups[k].outputs)
    return True


@pytest.mark.parametrize("op", ["lstm", "gru", "rnn"])
def test_directions_stand_side_by_side(op):
    before = fuse(two_layers(op))
    after = run_together(before, 2)
    assert [len(team) for team in after.together] == [2, 2]
    assert {g.name for g in after.groups} == {g.name for g in before.groups}
    assert is_in_order(after)
    assert all(after.groups[n].anchor.op == op for team in after.together for n in team)
    assert run_together(before, 1) is before


def test_layers_that_wait_for_each_other_stay():
    build = Builder()
    x, start = build.input("x", "f32", (Var("n"), 1, 4)), build.input("h", "f32", (1, 4))
    for _ in range(3):
        x = build.emit("rnn", x, build.constant(weights(4, 4)), start)[0]
    fused = run_together(fuse(build.finish({"y": x})), 4)
    assert fused.together == () and is_in_order(fused)


def test_what_lives_while_a_team_runs_is_apart():
    fused = run_together(fuse(two_layers("lstm")), 2)
    extra = {g.name: 1000 for g in fused.groups if g.anchor.op == "lstm"}
    plan = plan_memory(fused, workspace=extra)
    known = plan.known({Var("n"): 7})
    for team in fused.together:
        taken: dict[object, tuple[int, int]] = {}  # by what it is: two must not be in one location
        for group in (fused.groups[n] for n in team):
            values = (*group.inputs, *group.outputs)
            spaces: dict[object, Any] = {v: (plan.locations[v], v.nbytes) for v in values}
            spaces[group.name] = plan.workspaces[group.name], sizes.size(1000)
            for of, (location, nbytes) in spaces.items():
                if location.space == "arena":
                    at, size = (sizes.at(s, known) for s in (location.at, nbytes))
                    taken[of] = at, at + size
        assert all(a[1] <= b[0] for a, b in pairwise(sorted(taken.values())))


def test_what_follows_measured_sizes_waits_behind_both_loops():
    graph = two_loops()
    fused = run_together(fuse(graph), 2)
    assert [len(team) for team in fused.together] == [2]
    assert is_in_order(fused)
    one, two = (tw.compile(graph, threads=n, cache=False) for n in (1, 2))
    x = RNG.standard_normal((9, 1, HIDDEN)).astype(np.float32)
    for at, *ends in ((0, 9, 4), (2, 3, 9), (3, 4, 5)):
        given = [x, np.asarray(at), *map(np.asarray, ends)]
        (a,), (b,) = one(*given), two(*given)
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, evaluate(graph, given)[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(tw.TilewrightError, match="the row: index 4 is not from 0 to 3"):
        two(x, np.asarray(4), np.asarray(4), np.asarray(9))


def host_texts(graph) -> list[str]:
    """The host programs for two threads."""
    seen: list[str] = []
    watching = [lambda step, _, after, __: seen.append(after) if step == "host" else None]
    compile_graph(graph, [target("cpu")], 2, observers=watching)
    return seen


def test_a_profile_counts_each_of_a_team():
    """Their time is parted by their work."""
    exe = tw.compile(two_layers("lstm"), threads=2, cache=False)
    x = RNG.standard_normal((9, 2, 8)).astype(np.float32)
    profile = exe.profile(x, seconds=0.0, machine=Roofline(1, 1))
    layers = [k for k in profile if k.ops == ("lstm",)]
    assert len(layers) == 4 and all(k.launches == 1 for k in layers)
    for a, b in (layers[:2], layers[2:]):
        assert a.microseconds > 0 and abs(a.microseconds - b.microseconds) < 0.01 * a.microseconds
    assert sum(k.microseconds for k in profile) < 1.01 * profile.microseconds


@pytest.mark.sampled
@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("op", ["lstm", "gru", "rnn"])
def test_threads_change_no_bit(op, lengths):
    graph = two_layers(op, lengths)
    assert any("@together" in text for text in host_texts(graph))
    one, two = (tw.compile(graph, threads=n, cache=False) for n in (1, 2))
    for steps in (1, 9, 40):
        given = [RNG.standard_normal((steps, 2, 8)).astype(np.float32)]
        given += [np.array([steps, max(1, steps - 3)])] if lengths else []
        expected = evaluate(graph, given)
        for _ in range(3):
            (a,), (b,) = one(*given), two(*given)
            np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, expected[0], rtol=1e-4, atol=1e-5)
