"""unroll_recurrences, of open length: which layers become rounds, and that these are the steps that
a known length has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.graph.rewriting import ops
from tilewright.driver.compile import compile_observed
from tilewright.graph import Builder, evaluate
from tilewright.graph.graph import Graph
from tilewright.graph.passes.unroll_recurrences import unroll_recurrences
from tilewright.ir.expr import Var

RNG = np.random.default_rng(11)
GATES = {"lstm": 4, "gru": 3, "rnn": 1}
N = Var("n")


def numbers(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


WEIGHTS = numbers(4 * 512, 512) / 16


def layer(build: Builder, op: str, steps: Any, hidden: int, starts: bool = False, **attrs: Any):
    """A layer of one sequence; `starts`: its first states are inputs, not zeros."""
    label = f"{len(build.inputs)}"
    gates = build.input(f"x{label}", "f32", (steps, 1, GATES[op] * hidden))
    states = [
        build.input(f"{name}{label}", "f32", (1, hidden))
        if starts
        else build.emit("full", shape=(1, hidden), value=0.0, of="f32")
        for name in ("h", "c")[: 1 + (op == "lstm")]
    ]
    weights = build.constant(WEIGHTS[: GATES[op] * hidden, :hidden])
    rest = [build.constant(WEIGHTS[0, :hidden])] if op == "gru" else []
    return build.emit(op, gates, weights, *rest, *states, **attrs)


def graph_of(op: str, steps: Any, hidden: int, **attrs: Any) -> Graph:
    build = Builder()
    return build.finish(list(layer(build, op, steps, hidden, **attrs)))


@pytest.mark.parametrize("op, hidden, starts, attrs", [
    ("lstm", 185, False, {}), ("lstm", 185, True, {"reverse": True}), ("gru", 210, False, {}),
    ("gru", 210, False, {"reset_after": False, "reverse": True}),
    ("rnn", 370, False, {"activation": "relu"}),
])  # fmt: skip
def test_rounds_are_the_steps_of_a_known_length(op, hidden, starts, attrs) -> None:
    """Bit for bit, on one thread and two."""
    graph = graph_of(op, N, hidden, starts=starts, **attrs)
    after = unroll_recurrences(graph)
    assert "while_loop" in ops(after) and op not in ops(after)
    runs = [compile_observed(graph, threads=t, cache=False) for t in (1, 2)]
    for steps in (0, 1, 3):
        given = [numbers(steps, 1, GATES[op] * hidden)]
        given += [numbers(1, hidden) for _ in graph.inputs[1:]]
        want = evaluate(graph, given)
        if steps:
            known = graph_of(op, steps, hidden, starts=starts, **attrs)
            unrolled = compile_observed(known, cache=False)(*given)
        for made in (evaluate(after, given), *(run(*given) for run in runs)):
            for a, b in zip(want, made, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
        for made in (run(*given) for run in runs if steps):
            assert all(np.array_equal(a, b) for a, b in zip(unrolled, made, strict=True))


def test_a_state_of_zeros_is_not_multiplied() -> None:
    def in_rounds(starts: bool) -> str:
        after = unroll_recurrences(graph_of("gru", N, 256, starts=starts))
        (loop,) = [n for n in after.nodes if n.op == "while_loop"]
        return loop["body"]

    assert "where" in in_rounds(False) and "where" not in in_rounds(True)


def test_long_sequences_are_rounds_and_small_steps_stay() -> None:
    assert "while_loop" in ops(unroll_recurrences(graph_of("lstm", 200, 256)))
    for attrs in ({"clip": 0.5}, {"activations": ("sigmoid", "relu", "tanh")}, {"hidden": 128}):
        graph = graph_of(**{"op": "lstm", "steps": N, "hidden": 256, **attrs})
        assert unroll_recurrences(graph) is graph


@pytest.mark.parametrize("steps", [2, N])
def test_what_stays_keeps_its_weights_in_panels(steps) -> None:
    """These have 131044 weights, and with the zeros that fill their panels more than are asked."""
    graph = graph_of("lstm", steps, 181)
    given = [numbers(2, 1, 4 * 181)]
    run = compile_observed(graph, cache=False)
    for a, b in zip(evaluate(graph, given), run(*given), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_two_of_moderate_size_run_beside_each_other_and_stay() -> None:
    for op, hidden, rounds in (("gru", 256, 0), ("lstm", 512, 2)):
        build = Builder()
        ways = [layer(build, op, N, hidden, reverse=reverse)[0] for reverse in (False, True)]
        assert ops(unroll_recurrences(build.finish(ways))).count("while_loop") == rounds
    build = Builder()
    first, _ = layer(build, "gru", N, 256)
    wide = build.emit("matmul", first, build.constant(numbers(256, 768)))
    weights, bias = build.constant(WEIGHTS[:768, :256]), build.constant(WEIGHTS[0, :256])
    second = build.emit("gru", wide, weights, bias, build.constant(np.zeros((1, 256), np.float32)))
    assert ops(unroll_recurrences(build.finish(list(second)))).count("while_loop") == 2


def test_what_a_condition_asks_for_stays() -> None:
    build = Builder()
    asked = build.input("asked", "bool", ())
    y, _ = layer(build, "gru", N, 256)
    other = build.emit("full", shape=(N, 1, 256), value=1.0, of="f32")
    graph = build.finish([build.emit("where", asked, y, other)])
    assert unroll_recurrences(graph) is graph
