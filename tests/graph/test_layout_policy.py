"""What a graph's passes decide can be decided otherwise: another graph, the same results."""

from __future__ import annotations

import io
import random
from collections.abc import Callable

import numpy as np
import pytest

from tests.graph.rewriting import ops, random_inputs, rewritten
from tilewright.driver.compile import compile_graph
from tilewright.driver.kernels import KernelPool
from tilewright.graph import Builder, Graph, evaluate
from tilewright.graph.layout_policy import Decisions
from tilewright.graph.passes.choose_layouts import choose_layouts
from tilewright.graph.passes.fuse import fuse
from tilewright.graph.passes.sought_layouts import channels_of
from tilewright.runtime.artifact import write_artifact
from tilewright.runtime.executor import Executable
from tilewright.strategy.cpu.layouts import Layouts
from tilewright.support.errors import CompileError
from tilewright.target.costs import HALVES
from tilewright.target.target import target

POLICY = Layouts(64, costs=HALVES)


class Model:
    """A graph in the making, with weights at hand."""

    def __init__(self, *shape: int) -> None:
        self.build, self.random = Builder("model"), np.random.default_rng(4)
        self.value = self.build.input("x", "f32", shape)

    def weights(self, *shape: int):
        scale = np.prod(shape[1:]) ** -0.5
        return self.build.constant((self.random.standard_normal(shape) * scale).astype(np.float32))

    def apply(self, op: str, *others, **attrs) -> Model:
        self.value = self.build.emit(op, self.value, *others, **attrs)
        return self

    def conv(self, co: int, kernel: int = 3, groups: int = 1, strides=(1, 1)) -> Model:
        ci = channels_of(self.value)
        around = ((kernel // 2,) * 2,) * 2
        w = self.weights(co, ci // groups, kernel, kernel)
        return self.apply("conv", w, self.weights(co), pads=around, groups=groups, strides=strides)

    def finish(self) -> Graph:
        return self.build.finish({"y": self.value})


def residual() -> Graph:
    m = Model(1, 3, 14, 14).conv(24, strides=(2, 2)).apply("relu")
    start = m.value
    m.conv(24).apply("relu").conv(24).apply("add", start).apply("max_pool", kernel=(2, 2))
    other = m.build.emit("conv", m.value, m.weights(20, 24, 1, 1))
    m.conv(12)
    m.value = m.build.emit("concat", m.value, other, axis=1)
    return m.conv(17, 1).finish()


def in_groups() -> Graph:
    m = Model(2, 32, 9, 11).conv(32, groups=32).conv(48, 1).conv(48, groups=6).apply("relu")
    return m.conv(36, groups=12).conv(40, 3, 2).finish()


def transposed() -> Graph:
    m = Model(1, 20, 6, 7).conv(48)
    w = m.weights(48, 24, 3, 3)
    m.apply("conv_transpose", w, strides=(2, 2), pads=((1, 0), (1, 0)), groups=1).apply("relu")
    w = m.weights(24, 1, 2, 2)
    return m.apply("conv_transpose", w, strides=(2, 2), groups=24).conv(5, 1).finish()


def products() -> Graph:
    m = Model(70, 40)
    m.apply("matmul", m.weights(40, 90)).apply("gelu")
    gram = m.build.emit("matmul", m.value, m.value, transpose_b=True)
    m.apply("matmul", m.weights(33, 90), transpose_b=True)
    m.value = m.build.emit("matmul", gram, m.value, transpose_a=True)
    return m.finish()


def recurrent() -> Graph:
    m = Model(4, 3, 30)
    m.apply("matmul", m.weights(30, 4 * 34))
    zeros = m.build.constant(np.zeros((3, 34), np.float32))
    made = m.build.emit("lstm", m.value, m.weights(4 * 34, 34), zeros, zeros)
    m.value = made[0]
    return m.apply("matmul", m.weights(34, 10)).finish()


def volume() -> Graph:
    m = Model(1, 16, 4, 6, 7)
    around = ((1, 1),) * 3
    m.apply("conv", m.weights(32, 16, 3, 3, 3), pads=around).apply("relu")
    return m.apply("conv", m.weights(16, 32, 1, 1, 1)).finish()


MODELS = {f.__name__: f for f in (residual, in_groups, transposed, products, recurrent, volume)}


def compiled(graph: Graph, decisions: Decisions) -> Executable:
    """The model for this machine, with other answers."""
    with KernelPool(1) as pool:
        program = compile_graph(graph, [target("cpu")], 1, pool=pool, decisions=decisions)
    file = io.BytesIO()
    write_artifact(program, file)
    return Executable(file.getvalue(), 1)


def at_random(seed: int) -> Decisions:
    numbers = random.Random(seed)
    return Decisions(lambda name, own, legal: numbers.choice(legal))


@pytest.mark.parametrize("name", MODELS)
def test_random_answers_give_the_same_results(name: str) -> None:
    graph, seen = MODELS[name](), set[tuple[str, ...]]()
    for seed in range(25):

        def run(g: Graph, seed: int = seed) -> Graph:
            return choose_layouts(g, POLICY, decisions=at_random(seed))

        made = run(graph)
        arrays = random_inputs(graph)
        for a, b in zip(evaluate(graph, arrays), evaluate(made, arrays), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=2e-4 * np.abs(a).max())
        seen.add((*ops(made),))
    assert len(seen) > 3


@pytest.mark.parametrize("name", MODELS)
def test_random_answers_compile_and_run(name: str, draws: Callable[[int], int]) -> None:
    graph = MODELS[name]()
    arrays = random_inputs(graph)
    (want,) = evaluate(graph, arrays)
    for seed in range(draws(6)):
        decisions = at_random(100 + seed)
        (got,) = compiled(graph, decisions)(*arrays)
        assert decisions.taken
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-4 * np.abs(want).max())


@pytest.mark.parametrize("name", MODELS)
def test_what_was_decided_gives_the_same_graph(name: str) -> None:
    graph = MODELS[name]()
    own = Decisions()
    assert choose_layouts(graph, POLICY, decisions=own) == choose_layouts(graph, POLICY)
    assert own.taken
    found = at_random(7)
    made = choose_layouts(graph, POLICY, decisions=found)
    again = Decisions(lambda name, pick, legal: found.taken[name])
    assert choose_layouts(graph, POLICY, decisions=again) == made
    assert again.taken == found.taken


def test_the_names_and_values_of_decisions() -> None:
    legal: dict[str, tuple] = {}

    def see(name, own, values):
        legal[name] = values
        return own

    m = Model(1, 32, 8, 8).conv(32)
    choose_layouts(m.finish(), POLICY, decisions=Decisions(see))
    assert legal == {
        "x.layout": (16, 8),
        "conv.layout": (16, 8),
        "conv.algorithm": ("plain", "packed", "winograd 2", "winograd 4"),
    }
    legal.clear()
    choose_layouts(m.finish(), POLICY, winograd=False, decisions=Decisions(see))
    assert legal["conv.algorithm"] == ("plain", "packed")


def test_an_illegal_value_is_refused() -> None:
    graph = Model(1, 32, 8, 8).conv(32).finish()
    answers = {"conv.algorithm": "winograd 3"}
    with pytest.raises(CompileError) as caught:
        choose = Decisions(lambda name, own, legal: answers.get(name, own))
        choose_layouts(graph, POLICY, decisions=choose)
    assert str(caught.value) == (
        "cannot set decision 'conv.algorithm' to 'winograd 3': it is not among the values that are "
        "legal there\n  it may be one of 'plain', 'packed', 'winograd 2', 'winograd 4'"
    )


def test_the_policy_is_asked() -> None:
    """Another machine, another graph: one that wants small blocks and no Winograd."""

    class Small(Layouts):
        def block(self, channels, of):
            return 8

        def winograd_edge(self, *args, **named):
            return 0

    made = rewritten(lambda g: choose_layouts(g, Small(64)), residual(), 1e-3)
    assert "winograd_packed" not in ops(made) and "conv_packed" in ops(made)
    assert {n["block"] for n in made.nodes if n.op == "pack_channels"} <= {8}


def attention() -> Graph:
    m = Model(2, 24, 16)
    q, k, v = (m.build.emit("matmul", m.value, m.weights(16, 16)) for _ in "qkv")
    m.value = m.build.emit("matmul", q, k, transpose_b=True)
    m.apply("softmax", axis=-1)
    m.value = m.build.emit("matmul", m.value, v)
    return m.apply("relu").finish()


def softmax() -> Graph:
    m = Model(6, 40)
    return m.apply("gelu").apply("softmax", axis=-1).apply("neg").finish()


@pytest.mark.parametrize("make", [residual, products, attention, softmax])
def test_all_that_is_fused_may_be_cut(make) -> None:
    """The kernels are then single operators, and compute the same."""
    graph = make()

    def cut(name, own, legal):
        return False if name.endswith((".fused", ".attention")) else own

    own, decisions = fuse(graph), Decisions(cut)
    cuts = fuse(graph, decisions=decisions)
    assert any(len(g.nodes) > 1 for g in own.groups)
    assert all(len(g.nodes) == 1 for g in cuts.groups)
    assert "so it was decided" in str(cuts)
    assert set(decisions.taken.values()) == {False}
    arrays = random_inputs(graph)
    (want,) = evaluate(graph, arrays)
    got = compiled(graph, Decisions(cut))(*arrays)[0]
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-4 * np.abs(want).max())
