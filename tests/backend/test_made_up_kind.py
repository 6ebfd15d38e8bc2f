"""A kind of machine is a line of `KINDS`, and what the line names: here one that nobody has, all of
it in this file. Whole models are compiled for it, and run."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.backend.backend import Backend, Native, backend_of
from tilewright.codegen.inprocess import load
from tilewright.codegen.llvm import emit
from tilewright.codegen.llvm_compile import compile_assembly, compile_object
from tilewright.driver.compile import compile_observed, prepare
from tilewright.driver.kernels import Job, KernelPool, write
from tilewright.graph import Builder, Graph, evaluate
from tilewright.ir.stmt import Func
from tilewright.ir.verify import verify
from tilewright.lower.compact_buffers import compact_buffers
from tilewright.lower.flatten import flatten
from tilewright.lower.legalize_vectors import legalize_vectors
from tilewright.lower.pipeline import Pass, simplify
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.roles import ROLES
from tilewright.strategy.select import NoStrategy, Strategies
from tilewright.support.errors import ScheduleError
from tilewright.target.processors import host
from tilewright.target.target import KINDS, Kind, Scope, Target, target

# 1. The machine: a processor without vectors, whose caches nobody knows.


def describe(text: str, kind: str, options: dict[str, str]) -> Target:
    _, triple, _ = host()
    return Target(
        kind=kind,
        options=tuple(sorted(options.items())),
        triple=triple,
        cpu="generic",
        scopes=(Scope("global"), Scope("local", 64 << 10)),
    )


# 2. Its strategies: loops as they stand, the outermost one of each block on all threads.


def in_loops(schedule: Schedule, target: Target, threads: int) -> None:
    for name in schedule.blocks() if threads > 1 else ():
        for outer in schedule.loops(name)[:1]:
            with suppress(ScheduleError):  # it reduces
                schedule.parallel(outer)


STRATEGIES = Strategies(families=dict.fromkeys(set(ROLES) - {"attention"}, in_loops))


# 3. Its layouts: four channels beside each other, and no algorithm but the plain ones.


class Layouts:
    def lanes(self, of):
        return 4

    def blocks(self, of):
        return (4,)

    def block(self, channels, of):
        return 4

    def step(self, channels, block):
        return block

    def group_cycles(self, results, same_input, depth, moved, of):
        return results * depth

    def is_along_rows(self, sources, results, steps, width, groups, *, is_packed, edge, of):
        return results < 4

    def winograd_edge(self, rows, width, sources, padded, results, block, axes, planes, of):
        return 0

    def is_across(self, rows, width, vectors, block):
        return False

    def saves_steps(self, sources, taps, strides):
        return False

    def stays_near(self, nbytes):
        return False

    def is_packed_product(self, rows, depth, columns, *, is_known, transpose_a, transpose_b, of):
        return is_known

    def panels(self, vectors):
        return (1, 2)

    def panel(self, rows, vectors, depth, of):
        return 2


# 4. Its passes and its code: a few passes, LLVM.

PASSES = (
    Pass("compact_buffers", lambda func, machine: compact_buffers(func), "blocks", "loops"),
    Pass("flatten", lambda func, machine: flatten(func), "loops", "flat"),
    Pass("simplify", lambda func, machine: simplify(func), "flat", "flat"),
    Pass("legalize_vectors", legalize_vectors, "flat", "vector"),
)
BACKEND = Backend(
    kind="abacus",
    emit=emit,
    pipeline=PASSES,
    assembly=compile_assembly,
    native=Native(emit, compile_object, lambda machine: Layouts(), load),
)


@pytest.fixture
def abacus(monkeypatch) -> Target:
    """The machine. This is the line."""
    line = Kind(describe, ("beads",), f"{__name__}:STRATEGIES", f"{__name__}:BACKEND")
    monkeypatch.setitem(KINDS, "abacus", line)
    return target("abacus -beads=10")


def model() -> Graph:
    """An image classifier: every layout decision is in it."""
    build, draw = Builder("model"), np.random.default_rng(5)

    def weights(*shape):
        return build.constant((draw.standard_normal(shape) / 6).astype(np.float32))

    around: dict[str, Any] = {"pads": ((1, 1), (1, 1))}
    x = build.input("x", "f32", (1, 3, 13, 15))
    y = build.emit("conv", x, weights(24, 3, 3, 3), weights(24), strides=(2, 2), **around)
    y = start = build.emit("relu", y)
    y = build.emit("conv", y, weights(24, 1, 3, 3), groups=24, **around)
    y = build.emit("conv", y, weights(24, 4, 3, 3), groups=6, **around)
    y = build.emit("add", build.emit("conv", y, weights(24, 24, 3, 3), **around), start)
    y = build.emit("max_pool", build.emit("relu", y), kernel=(2, 2))
    y = build.emit("reduce_mean", y, axes=(2, 3), keepdims=True)
    y = build.emit("matmul", build.emit("reshape", y, shape=(1, 24)), weights(24, 10))
    return build.finish({"y": build.emit("softmax", y, axis=-1)})


@pytest.mark.parametrize("threads", [1, 2])
def test_a_whole_model_runs(abacus: Target, threads: int) -> None:
    graph = model()
    with KernelPool(2) as pool:  # compile workers would not know of this file
        made = compile_observed(graph, abacus, threads=threads, cache=False, pool=pool)
    x = np.random.default_rng(6).standard_normal((1, 3, 13, 15)).astype(np.float32)
    (want,), (got,) = evaluate(graph, [x]), made(x)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
    assert made.manifest.notes["targets"] == [str(abacus)] == ["abacus -beads=10"]


def test_layouts_strategies_and_passes_are_its_own(abacus: Target) -> None:
    made = prepare(model(), abacus, 3).graph
    assert {n["block"] for n in made.nodes if n.op == "pack_channels"} <= {4}
    assert {"conv_packed", "depthwise_packed", "dense_packed"} <= {n.op for n in made.nodes}
    seen: list[str] = []
    one = write(Job(sums(), str(abacus), 1), [lambda step, *_: seen.append(step)])
    assert seen == ["te", "schedule", *(p.name for p in PASSES), "emit"]
    assert not re.search(r"<\d+ x float>", one.emitted.text)


def sums() -> Func:
    x = te.placeholder((37, 50), name="x")
    k = te.reduce_axis(50, "k")
    return te.func("sums", [x], [te.compute((37,), lambda i: te.sum(x[i, k], k), name="y")])


def test_single_functions_run(abacus: Target) -> None:
    x = np.random.default_rng(7).standard_normal((37, 50)).astype(np.float32)
    np.testing.assert_allclose(tw.build(sums(), abacus)(x)[0], x.sum(1), rtol=1e-4, atol=1e-5)
    assert "sums" in backend_of(abacus).code(sums(), abacus, verify).text


def test_what_it_has_no_strategy_for_is_told(abacus: Target) -> None:
    build = Builder("attention")
    q, k, v = (build.input(name, "f32", (1, 2, 40, 16)) for name in "qkv")
    weights = build.emit("softmax", build.emit("matmul", q, k, transpose_b=True), axis=-1)
    graph = build.finish({"y": build.emit("matmul", weights, v)})
    told = "for 'abacus': there is no strategy for the role 'attention'"
    with pytest.raises(NoStrategy, match=told), KernelPool(2) as pool:
        compile_observed(graph, abacus, threads=1, cache=False, pool=pool)
