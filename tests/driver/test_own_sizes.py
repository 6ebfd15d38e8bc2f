"""Kernels of open sizes: names of their own, one kernel for all equal ones, the same results."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import te
from tilewright.driver import compile as compile_
from tilewright.driver import own_sizes as module
from tilewright.driver import program
from tilewright.driver.compile import _func, compile_observed, kernel_jobs, prepare
from tilewright.driver.kernels import KernelPool
from tilewright.driver.observe import Watch
from tilewright.driver.own_sizes import own_sizes
from tilewright.graph import sizes
from tilewright.graph.builder import Builder
from tilewright.graph.evaluate import evaluate
from tilewright.ir.expr import Var, maximum, minimum
from tilewright.target.target import target

MACHINE = target("cpu -mcpu=haswell")


def pyramid(levels: int = 3):
    """Convolutions of half the size each, and between them two that keep it."""
    build = Builder("pyramid")
    n, h, w = (build.symbol(s) for s in ("n", "h", "w"))
    y = build.input("x", "f32", (n, 16, h, w))
    draw = np.random.default_rng(2).standard_normal
    for _ in range(levels):
        for stride in (2, 1):
            weights = build.constant((draw((16, 16, 3, 3)) / 12).astype(np.float32))
            y = build.emit("conv", y, weights, pads=((1, 1), (1, 1)), strides=(stride, stride))
            y = build.emit("relu", y)
    flat = build.emit("reshape", y, shape=(n, 16, y.shape[2] * y.shape[3]))
    return build.finish({"y": build.emit("softmax", flat, axis=2)})


def test_fixed_sizes_are_not_looked_for(monkeypatch):
    monkeypatch.setattr(module, "visit", lambda root: pytest.fail("it was looked at"))
    x = te.placeholder((4, 5), "f32", "x")
    func = te.func("f", [x], [te.compute((4, 5), lambda i, j: x[i, j] + 1.0, name="y")])
    assert own_sizes(func) == (func, {})


def test_the_work_of_kernels_that_are_one_is_counted_once(monkeypatch):
    seen = []
    monkeypatch.setattr(program, "flops", lambda f: seen.append(f) or sizes.size(0))
    build = Builder("equal")
    y = build.input("x", "f32", (4, 64))
    for _ in range(3):
        y = build.emit("softmax", y, axis=1)
    exe = compile_observed(build.finish({"y": y}), cache=False, pool=KernelPool(1))
    assert len(exe.manifest.kernels) == 3
    assert len(seen) == 1


def test_kernels_of_other_levels_are_one():
    counts = []
    for levels in (3, 5):
        _, funcs, own, unique, jobs = kernel_jobs(
            prepare(pyramid(levels), MACHINE, 3), MACHINE, 1, Watch()
        )
        assert len(funcs) == len(own) and len(unique) == len(jobs)
        counts.append(len(jobs))
    assert counts[0] == counts[1]


def test_joins_of_parts_of_unrelated_sizes_are_one():
    """So are the joins of joins: each part has one size, whatever that is the sum of."""
    counts = []
    for count in (16, 64):
        build = Builder("many")
        parts = [build.input(f"x{k}", "f32", (build.symbol(f"n{k}"), 2)) for k in range(count)]
        whole = build.finish({"y": build.emit("concat", *parts, axis=0)})
        _, funcs, _, _, jobs = kernel_jobs(prepare(whole, MACHINE, 3), MACHINE, 1, Watch())
        assert all(len([p for p in f.params if isinstance(p, Var)]) <= 4 for f in funcs)
        counts.append(len(jobs))
    assert counts[0] == counts[1]


def test_related_sizes_stay_related():
    _, funcs, own, _, _ = kernel_jobs(prepare(pyramid(), MACHINE, 3), MACHINE, 1, Watch())
    seen = set()
    for func, named in zip(funcs, own.values(), strict=True):
        symbols = {p for p in func.params if isinstance(p, Var)}
        assert set(named) <= symbols
        assert not set(sizes.symbols(named.values())) & symbols  # none by two names
        seen.add(tuple(sizes.text(s) for s in func.buffers[-1].shape[2:4]))
    assert ("(size0 + 1) // 2", "(size1 + 1) // 2") in seen
    told = {sizes.text(e) for named in own.values() for e in named.values()}
    assert "(h + 7) // 8 * ((w + 7) // 8)" in told


def test_what_is_needed_by_itself_keeps_its_name():
    build = Builder("m")
    h = build.symbol("h")
    x = build.input("x", "f32", (h, 4))
    half = sizes.size(h // 2)
    build.emit("slice", x, starts=(0, 0), shape=(half, 4))
    fused = prepare(build.finish([build.nodes[-1].output]), MACHINE, 3)
    _, (func,), own, _, _ = kernel_jobs(fused, MACHINE, 1, Watch())
    assert list(own.values()) == [{}] and Var("h") in func.params
    assert own_sizes(func) == (func, {})


def test_sizes_with_something_taken_away_count_from_there():
    build = Builder("m")
    h, w = (build.symbol(s) for s in "hw")
    y = build.input("x", "f32", (1, 16, h, (w + 1) // 2))
    weights = build.constant(np.ones((16, 16, 3, 3), np.float32))
    for _ in range(2):
        y = build.emit("relu", build.emit("conv", y, weights))
    fused = prepare(build.finish([y]), MACHINE, 3)
    _, _, own, _, jobs = kernel_jobs(fused, MACHINE, 1, Watch())
    told = {name: [sizes.text(s) for s in named.values()] for name, named in own.items()}
    first, second = (named for name, named in told.items() if "relu" in name)
    assert first == ["h - 2", "(w + 1) // 2 - 2"]
    assert second == ["h - 4", "(w + 1) // 2 - 4"]
    assert sum("relu" in job.func.name for job in jobs) == 1  # one kernel for both


def test_what_the_run_measures_is_not_counted_from_elsewhere():
    h = Var("h")
    func = te.func("f", [x := te.placeholder((h,), "f32", "x")], [
        te.compute((h - 4,), lambda i: x[i], name="y")
    ])  # fmt: skip
    assert own_sizes(func, {h}) == (func, {})
    counted, own = own_sizes(func)
    assert [sizes.text(s) for s in own.values()] == ["h - 4"]
    assert h not in counted.params


@pytest.mark.filterwarnings("error")  # of generic schedules and kernels on one thread
def test_what_a_slice_takes_has_a_name_beside_its_axis():
    build = Builder("m")
    n, t = (build.symbol(s) for s in "nt")
    x = build.input("x", "f32", (n, t, 8))
    some = build.emit("slice", x, starts=(0, 0, 0), shape=(n, minimum(t, sizes.size(5)), 8))
    draw = np.random.default_rng(4).standard_normal
    weights = build.constant(draw((8, 8)).astype(np.float32))
    graph = build.finish({"y": build.emit("matmul", some, weights), "z": build.emit("exp", some)})
    _, funcs, own, _, _ = kernel_jobs(prepare(graph, MACHINE, 3), MACHINE, 2, Watch())
    assert {sizes.text(s) for named in own.values() for s in named.values()} >= {
        "min(t - 5, 0) + 5"
    }
    assert all("min" not in sizes.text(s) for f in funcs for b in f.buffers for s in b.shape)
    run = compile_observed(graph, cache=False, pool=KernelPool(1), threads=2)
    for count in (0, 1, 4, 5, 6, 40):
        given = draw((3, count, 8)).astype(np.float32)
        for found, wanted in zip(run(given), evaluate(graph, [given]), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_kernels_of_all_but_one_know_that_there_is_one():
    """x[1:] - x[:-1] has max(n - 1, 0) elements: n - 1 wherever it has any."""
    build = Builder("m")
    n = build.symbol("n")
    x = build.input("x", "f32", (n,))
    rest = sizes.size(maximum(n - 1, sizes.size(0)))
    a, b = (build.emit("slice", x, starts=(k,), shape=(rest,)) for k in (1, 0))
    graph = build.finish({"d": build.emit("tanh", build.emit("sub", a, b))})
    _, funcs, own, _, _ = kernel_jobs(prepare(graph, MACHINE, 3), MACHINE, 1, Watch())
    assert all("min" not in sizes.text(s) for f in funcs for b in f.buffers for s in b.shape)
    assert all(module.SOME in named for named in own.values())
    run = compile_observed(graph, cache=False, pool=KernelPool(1))
    for count in (0, 1, 2, 40):
        given = np.random.default_rng(4).standard_normal(count).astype(np.float32)
        np.testing.assert_allclose(run(given)[0], np.tanh(np.diff(given)), rtol=1e-5, atol=1e-6)


def test_a_size_that_only_an_input_has_keeps_its_name():
    """Another size was given the name of one that no loop runs over."""
    build = Builder("m")
    n, h, w = (build.symbol(s) for s in "nhw")
    x = build.input("x", "f32", (n, 2, h, w))
    y = build.emit("max_pool", x, kernel=(3, 3), strides=(2, 2), pads=((0, 2), (0, 0)))
    y = build.emit("transpose", y, perm=(3, 1, 2, 0))
    y = build.emit("concat", y, y, axis=3)
    less = minimum(y.shape[2] - 2, sizes.size(0))
    one = sizes.size(less - minimum(less + 1, sizes.size(0)) + 1)
    shape = (y.shape[0], 1, one, y.shape[3])
    graph = build.finish({"y": build.emit("slice", y, starts=(0, 1, 1, 0), shape=shape)})
    _, funcs, _, _, _ = kernel_jobs(prepare(graph, MACHINE, 0), MACHINE, 1, Watch())
    assert all(len({p.name for p in f.params}) == len(f.params) for f in funcs)
    given = np.random.default_rng(4).standard_normal((2, 2, 9, 11)).astype(np.float32)
    run = compile_observed(graph, cache=False, pool=KernelPool(1))
    np.testing.assert_array_equal(run(given)[0], evaluate(graph, [given])[0])


def test_a_bound_that_stands_twice_in_a_size():
    """x[:, 2:-3] of pairs of rows, as a column twice: max(h - 5, 0) in each of the terms."""
    build = Builder("m")
    n, h = (build.symbol(s) for s in "nh")
    x = build.input("x", "i16", (n + 3, h))
    rest = sizes.size(maximum(h - 5, sizes.size(0)))
    y = build.emit("slice", x, starts=(0, 2), shape=(n + 3, rest))
    y = build.emit("reshape", y, shape=(sizes.size((n + 3) * rest),))
    graph = build.finish({"y": build.emit("concat", y, y, axis=0)})
    run = compile_observed(graph, cache=False, pool=KernelPool(1))
    for shape in ((4, 9), (7, 5), (5, 2)):
        given = np.random.default_rng(4).integers(-9, 9, shape).astype(np.int16)
        np.testing.assert_array_equal(run(given)[0], np.tile(given[:, 2:-3].ravel(), 2))


@pytest.fixture(scope="module")
def compiled():
    return compile_observed(pyramid(), cache=False, pool=KernelPool(1))


@pytest.mark.parametrize("shape", [(1, 16, 37, 50), (3, 16, 8, 9), (2, 16, 1, 3)])
def test_results(shape, compiled):
    x = np.random.default_rng(shape[2]).standard_normal(shape).astype(np.float32)
    (wanted,) = evaluate(pyramid(), [x], precise=True)
    np.testing.assert_allclose(compiled(x)[0], wanted, rtol=1e-4, atol=1e-6)
    kernels = compiled.manifest.kernels
    assert not any("size0" in str(k) for k in kernels)  # they are told in the model's symbols


def test_equal_layers_are_written_once(monkeypatch):
    written = []
    monkeypatch.setattr(compile_, "_func", lambda g: written.append(g) or _func(g))
    build = Builder("equal")
    y = build.input("x", "f32", (4, 64))
    for _ in range(3):
        y = build.emit("softmax", y, axis=1)
    fused = prepare(build.finish({"y": y}), MACHINE, 3)
    groups, funcs, _, unique, jobs = kernel_jobs(fused, MACHINE, 1, Watch())
    assert len(groups) == len(funcs) == 3
    assert len(unique) == len(jobs) == len(written) == 1
