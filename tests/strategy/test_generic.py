"""The generic schedule: what every function gets whose family's strategy is refused a step. It is
in vectors, on threads and right, and the function says that it fell back, and why."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import inprocess
from tilewright.ir.expr import Var
from tilewright.ir.stmt import For
from tilewright.ir.walk import statements
from tilewright.schedule.locate import find_loop
from tilewright.strategy import select
from tilewright.strategy.cpu import families
from tilewright.strategy.roles import ROLES
from tilewright.strategy.space import decisions
from tilewright.support.errors import ScheduleError
from tilewright.target.target import target

CPU = target("cpu")
RNG = np.random.default_rng(7)


def refused(*_):
    raise ScheduleError("cannot unroll loop 'p'", "its extent is not a constant")


def matmul(n, k, m):
    a, b = te.placeholder((n, k), "f32", "a"), te.placeholder((k, m), "f32", "b")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], r), name="c")
    d = te.compute((n, m), lambda i, j: te.maximum(c[i, j], 0.0) + 1.0, name="d")
    return te.func("matmul", [a, b], [d]), lambda a, b: np.maximum(a @ b, 0) + 1


def softmax(n, m):
    a = te.placeholder((n, m), "f32", "a")
    r, q = te.reduce_axis((0, m), "r"), te.reduce_axis((0, m), "q")
    top = te.compute((n,), lambda i: te.max(a[i, r], r), name="top")
    e = te.compute((n, m), lambda i, j: te.exp(a[i, j] - top[i]), name="e")
    s = te.compute((n,), lambda i: te.sum(e[i, q], q), name="s")
    out = te.compute((n, m), lambda i, j: e[i, j] / s[i], name="out")

    def reference(a):
        e = np.exp(a - a.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    return te.func("softmax", [a], [out]), reference


def window(n, m):
    """A sum over a window of an odd shape, transposed."""
    a = te.placeholder((n, m), "f32", "a")
    p, q = te.reduce_axis((0, 3), "p"), te.reduce_axis((0, 2), "q")
    out = te.compute(
        (m - 1, n - 2), lambda i, j: te.sum(a[j + p, i + q], (p, q)), name="out"
    )  # fmt: skip

    def reference(a):
        views = np.lib.stride_tricks.sliding_window_view(a, (3, 2))
        return views.sum((2, 3)).T

    return te.func("window", [a], [out]), reference


N, M = Var("n"), Var("m")
CASES = {
    "matmul": (lambda: matmul(37, 65, 50), [(37, 65), (65, 50)], {}),
    "open matmul": (lambda: matmul(N - 2, 33, M), [(35, 33), (33, 45)], {"n": 37, "m": 45}),
    "softmax": (lambda: softmax(40, 33), [(40, 33)], {}),
    "open softmax": (lambda: softmax(N, M * 2), [(19, 78)], {"n": 19, "m": 39}),
    "window": (lambda: window(60, 70), [(60, 70)], {}),
    "open window": (lambda: window(N, M), [(21, 35)], {"n": 21, "m": 35}),
}


@pytest.mark.parametrize("size", [33, "w"])
def test_numbers_of_a_channel_do_not_lie_across_its_vectors(size):
    """Each image of a channel is walked by itself, not many at a time."""
    width = te.var(size) if isinstance(size, str) else size
    x = te.placeholder((64, width), "f32", "x")
    g = te.placeholder((64, 1), "f32", "g")
    y = te.compute((64, width), lambda c, i: x[c, i] * g[c, 0], name="y")
    func = select.default(te.func("scaled", [x, g], [y]), CPU, 1, strict=True).func
    assert not [s for s in statements(func.body) if isinstance(s, For) and s.kind == "unroll"]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_a_refused_strategy_falls_back(name, threads, monkeypatch):
    refusing = replace(families.CPU, families=dict.fromkeys(ROLES, refused))
    monkeypatch.setattr(select, "strategies_of", lambda kind: refusing)
    make, shapes, sizes = CASES[name]
    func, reference = make()
    arrays = [RNG.standard_normal(s).astype(np.float32) for s in shapes]
    made = select.default(func, CPU, threads)
    told = select.fallback(func, CPU, threads, decisions(made))
    assert told == "the generic schedule, cannot unroll loop 'p': its extent is not a constant"
    want = reference(*[a.astype(np.float64) for a in arrays])
    out = np.full(want.shape, np.nan, np.float32)
    inprocess.load(made.func, CPU)(*arrays, out, symbols=sizes)
    np.testing.assert_allclose(out, want, rtol=0, atol=3e-6 * np.abs(want).max())
    kinds = {s.kind for s in statements(made.func.body) if isinstance(s, For)}
    assert "vectorize" in kinds


def test_it_runs_on_all_threads(monkeypatch):
    refusing = replace(families.CPU, families=dict.fromkeys(ROLES, refused))
    monkeypatch.setattr(select, "strategies_of", lambda kind: refusing)
    for func, _ in (matmul(256, 64, 256), softmax(512, 512), window(512, 512)):
        made = select.default(func, CPU, 2)
        blocks = made.blocks()
        outer = {made.loops(name)[0] for name in blocks}
        kinds = {n: find_loop(made.func, n).kind for n in outer}
        assert set(kinds.values()) == {"parallel"}, kinds


def test_rows_of_open_length_are_walked_along_memory():
    """The last axis of an elementwise block is the vectors', whatever its size."""
    n, m = Var("n"), Var("m")
    a, b = te.placeholder((n, m), "f32", "a"), te.placeholder((n,), "f32", "b")
    made = te.compute((n, m), lambda i, j: a[i, j] - b[i], name="c")
    scheduled = select.default(te.func("c", [a, b], [made]), CPU)
    *_, lane = scheduled.loops("c")
    assert find_loop(scheduled.func, lane).kind == "vectorize" and lane.startswith("j")
