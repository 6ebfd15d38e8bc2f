"""Random graphs agree with the reference; the check itself finds what is wrong."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.differential import verdict
from tests.differential.comparison import Difference, agrees, compare
from tests.differential.draw import grow
from tests.differential.growth import F32, Growth
from tests.differential.reference import NodeReference, Unsound
from tests.differential.shrink import shrink
from tests.differential.verdict import run, verdict_on

SEED = 20261121


def failures(numbers: range) -> list[str]:
    found = []
    for number in numbers:
        told = verdict_on(grow(SEED, number))
        if told.kind != "ok":
            found.append(f"graph {number}: {told.kind} {told.detail[:300]}")
    return found


def test_random_graphs_agree(draws: Callable[[int], int]) -> None:
    assert not failures(range(draws(24)))


@pytest.mark.slow
@pytest.mark.parametrize("first", [24, 124, 224])
def test_many_random_graphs_agree(first: int, draws: Callable[[int], int]) -> None:
    assert not failures(range(first, first + draws(100)))


def test_graphs_are_reproducible() -> None:
    first, again = grow(SEED, 3), grow(SEED, 3)
    assert first.model().SerializeToString() == again.model().SerializeToString()
    for a, b in zip(first.outputs, again.outputs, strict=True):
        np.testing.assert_array_equal(a.worlds[0], b.worlds[0])


def chain() -> Growth:
    g = Growth(np.random.default_rng(1), 18)
    x = g.fresh(F32, g_dims(g, 3, 4), fixed=False)
    for op in ("Sigmoid", "Exp", "Tanh", "Softplus"):
        (x,) = g.apply(op, x)
    return g


def g_dims(g: Growth, *sizes: int) -> tuple[tuple[int, ...], ...]:
    return tuple(g.same(s) for s in sizes)


def test_a_wrong_result_is_found() -> None:
    graph = chain().finish()
    ours = graph.outputs[0].worlds[0].copy()
    compare(graph, 0, [ours])
    ours[1, 2] *= 1 + 1e-4
    with pytest.raises(Difference, match=r"\[1, 2\].* 1 of 12 differ"):
        compare(graph, 0, [ours])
    with pytest.raises(Difference, match="float64"):
        compare(graph, 0, [ours.astype(np.float64)])


def test_what_hangs_on_the_last_bit_is_no_difference() -> None:
    g = Growth(np.random.default_rng(1), 18)
    x = g.given([np.array([1 / 3, 0.7], np.float32)], False)
    (third,) = g.apply("Mul", x, g.constant(3.0, F32))
    (low,) = g.apply("Floor", third, exact=True)
    graph = g.finish()
    assert low in graph.outputs
    expected = low.worlds[0]
    flipped = expected.copy()
    flipped[0] = 1 - flipped[0]
    compare(graph, 0, [flipped if v is low else v.worlds[0] for v in graph.outputs])
    flipped[1] += 1  # 2.1 is far from a whole number
    with pytest.raises(Difference):
        compare(graph, 0, [flipped if v is low else v.worlds[0] for v in graph.outputs])


def test_numbers_that_are_none_agree() -> None:
    a = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    b = np.array([np.nan, np.inf, np.inf, np.nan], np.float32)
    assert agrees(a, b, np.zeros(4)).tolist() == [True, True, False, False]


def test_a_crash_is_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict, "run", lambda graph: os.kill(os.getpid(), signal.SIGKILL))
    assert verdict_on(chain().finish()).kind == "crash"


def test_a_failing_graph_is_made_small() -> None:
    g = chain()
    (bad,) = g.apply("Cos", g.values[-1])
    for op in ("Sin", "Abs", "Neg"):
        g.apply(op, bad)
    small = shrink(g.finish(), lambda graph: any(s.node.op_type == "Cos" for s in graph.steps))
    assert [s.node.op_type for s in small.steps] == ["Cos"]
    assert [v.name for v in small.inputs] == [g.steps[3].outputs[0].name]
    run(small)


def test_erf_of_f64_is_exact() -> None:
    node = helper.make_node("Erf", ["x"], ["y"])
    x = np.linspace(-3, 3, 31)
    (y,) = NodeReference(node, [("x", x.dtype, [31])], [], 18)({"x": x})
    np.testing.assert_array_equal(y, [math.erf(v) for v in x])


def test_branches_whose_recurrence_clips_are_not_left_to_the_evaluator() -> None:
    """onnxruntime has no HardSigmoid of f64; the evaluator, which has, does not clip."""
    gru = helper.make_node("GRU", ["x", "w", "r"], ["", "h"], hidden_size=2, clip=0.5)
    slope = helper.make_node("HardSigmoid", ["z"], ["s"])
    results = [helper.make_tensor_value_info("h", 1, None)]
    branch = helper.make_graph([slope, gru], "branch", [], results)
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    shapes: dict[str, list[int | None]] = {"x": [1, 1, 2], "w": [1, 6, 2], "r": [1, 6, 2]}
    inputs: Any = [(name, np.dtype(np.float32), shape) for name, shape in shapes.items()]
    inputs += [("z", np.dtype(np.float64), []), ("c", np.dtype(bool), [])]
    with pytest.raises(Unsound, match="refuses"):
        NodeReference(node, inputs, [], 12)
