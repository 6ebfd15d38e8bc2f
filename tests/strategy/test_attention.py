"""Attention in tiles: beside NumPy in float64, and with no memory as large as the scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.strategy.random_shapes import in_float64
from tilewright.arith.simplify import simplify
from tilewright.driver.compile import compile_observed, kernel_jobs, prepare
from tilewright.driver.kernels import KernelPool, compile_kernel
from tilewright.driver.observe import Watch
from tilewright.graph import Builder, Graph
from tilewright.graph.graph import Value
from tilewright.ir.expr import Var, as_int, const
from tilewright.ir.stmt import Alloc, For, Func
from tilewright.ir.walk import statements, substitute
from tilewright.lower.pipeline import lower
from tilewright.strategy.roles import family
from tilewright.strategy.select import default
from tilewright.target.target import target

POOL = KernelPool(1)  # compiles in this process
SIZES = (2, 3, 7, 13, 17, 31, 63, 65)


def attention(
    lead: tuple[Any, ...], queries: Any, keys: Any, depth: int, width: int, of: str = "f32",
    hidden: np.ndarray[Any, Any] | None = None, guarded: bool = False,
) -> Graph:  # fmt: skip
    """softmax(q kᵀ / √depth, with what is `hidden` at -inf) v; `guarded`: NaN weights are 0."""
    build = Builder("attention")
    lead, queries, keys = tuple(map(size, lead)), size(queries), size(keys)
    shapes = {"q": (*lead, queries, depth), "k": (*lead, keys, depth), "v": (*lead, keys, width)}
    q, k, v = (build.input(name, of, shape) for name, shape in shapes.items())
    x: Value = build.emit("matmul", q, k, transpose_b=True)
    x = build.emit("mul", x, build.constant(depth**-0.5, of=of))
    if hidden is not None:
        x = build.emit("where", build.constant(hidden), build.constant(-np.inf, of=of), x)
    weights = build.emit("softmax", x, axis=-1)
    if guarded:
        zero = build.constant(0.0, of=of)
        weights = build.emit("where", build.emit("isnan", weights), zero, weights)
    return build.finish({"y": build.emit("matmul", weights, v)})


def size(n: Any) -> Any:
    return Builder().symbol(n) if isinstance(n, str) else n


def kernel(graph: Graph, machine: str = "cpu", threads: int = 1) -> Func:
    """The one kernel of two products and what is between them, as it was written."""
    described = target(machine)
    *_, jobs = kernel_jobs(prepare(graph, described, 3), described, threads, Watch())
    (found,) = [job.func for job in jobs if family(job.func) == "attention"]
    return found


def check(graph: Graph, *arrays: Any, threads: int = 1, tolerance: float = 2e-5) -> None:
    default(kernel(graph, threads=threads), target("cpu"), threads, strict=True)
    (found,) = compile_observed(graph, threads=threads, cache=False, pool=POOL)(*arrays)
    expected = in_float64(graph, list(arrays))
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.astype(np.float64), expected, tolerance, tolerance)


def drawn(graph: Graph, **sizes: int) -> list[np.ndarray[Any, Any]]:
    random = np.random.default_rng()
    shapes = [
        [sizes[n.name] if isinstance(n, Var) else as_int(n) for n in v.shape] for v in graph.inputs
    ]
    return [
        random.standard_normal(shape).astype(v.dtype.numpy)
        for v, shape in zip(graph.inputs, shapes, strict=True)
    ]


@pytest.mark.parametrize("n", range(8))
def test_odd_sizes(n: int) -> None:
    random = np.random.default_rng()
    queries, keys, depth, width = random.choice(SIZES, 4).tolist()
    depth = min(depth, queries)
    hidden = np.tri(queries, keys, dtype=bool) == 0 if n % 2 else None
    graph = attention((2, 3)[n % 3 :], queries, keys, depth, width, hidden=hidden)
    check(graph, *drawn(graph), threads=1 + n % 3)


def test_rows_that_are_hidden_whole_and_guarded_are_zero() -> None:
    hidden = np.zeros((20, 33), bool)
    hidden[7] = hidden[19] = True
    graph = attention((3,), 20, 33, 16, 24, hidden=hidden, guarded=True)
    arrays = drawn(graph)
    check(graph, *arrays)
    (found,) = compile_observed(graph, threads=1, cache=False, pool=POOL)(*arrays)
    assert not found[:, [7, 19]].any() and np.isfinite(found).all()


@pytest.mark.parametrize("threads", (1, 2, 3))
def test_several_tiles_with_a_rest(threads: int) -> None:
    graph = attention((2,), 1021, 1300, 16, 16)  # a prime number of queries, too many for one tile
    check(graph, *drawn(graph), threads=threads)


@pytest.mark.parametrize("of", ("f16", "bf16"))
def test_half_precision(of: str) -> None:
    graph = attention((2, 2), 48, 65, 32, 32, of)
    check(graph, *drawn(graph), tolerance=0.02 if of == "f16" else 0.1)


def test_open_batch_and_number_of_queries() -> None:
    graph = attention(("n", 2), "t", 40, 16, 24)
    for n, t in ((1, 1), (3, 50), (2, 1030)):
        check(graph, *drawn(graph, n=n, t=t), threads=2)


LENGTHS = (1, 2, 7, 16, 33, 197, 600)


@pytest.mark.sampled
@pytest.mark.parametrize("case", ("heads", "batch", "many heads", "biases", "some queries"))
@pytest.mark.parametrize("threads", (1, 2))
def test_open_number_of_keys(case: str, threads: int) -> None:
    graph = {
        "heads": attention(("n", 4), "t", "t", 8, 8),
        "batch": attention(("n",), "t", "t", 40, 24),
        "many heads": attention((67,), "t", "t", 8, 16),
        "biases": biased("n", 3, "t", 16),
        "some queries": attention((2,), 100, "t", 16, 8),
    }[case]
    default(kernel(graph, threads=threads), target("cpu"), threads, strict=True)
    run = compile_observed(graph, threads=threads, cache=False, pool=POOL)
    for t in LENGTHS:
        arrays = drawn(graph, n=1 + t % 3, t=t)
        (found,) = run(*arrays)
        expected = in_float64(graph, arrays)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found.astype(np.float64), expected, 2e-5, 2e-5)


def biased(batch: str, heads: int, rows: str, depth: int) -> Graph:
    """Scores with a bias of each head and pair of rows, and a mask of each row of a batch."""
    build = Builder("biased")
    n, t = size(batch), size(rows)
    q, k, v = (build.input(name, "f32", (n, heads, t, depth)) for name in "qkv")
    x: Value = build.emit("matmul", q, k, transpose_b=True)
    x = build.emit("add", x, build.input("bias", "f32", (heads, t, t)))
    x = build.emit("add", x, build.input("mask", "f32", (n, 1, 1, t)))
    weights = build.emit("softmax", x, axis=-1)
    return build.finish({"y": build.emit("matmul", weights, v)})


@pytest.mark.parametrize("lead", (("n", 3), ("n",), (12,)))
def test_an_open_number_of_keys_gives_the_same_bits_for_any_threads(lead: tuple[Any, ...]) -> None:
    graph = attention(lead, "t", "t", 24, 40)
    runs = [compile_observed(graph, threads=n, cache=False, pool=POOL) for n in (1, 2, 3)]
    for t in LENGTHS:
        arrays = drawn(graph, n=2, t=t)
        one, *others = (run(*arrays)[0] for run in runs)
        for other in others:
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.parametrize("lead", ((12,), ("n", 4), (64, 12)))
def test_scores_of_an_open_number_of_keys_are_nowhere_in_memory(
    lead: tuple[Any, ...], threads: int
) -> None:
    machine = target("cpu -mcpu=x86-64-v4")
    func = kernel(attention(lead, "t", "t", 64, 64), str(machine), threads)
    lowered = lower(default(func, machine, threads, strict=True).func, machine)
    known = {p: const(4 if p.name == "n" else 2048) for p in func.params if isinstance(p, Var)}
    elements = [
        as_int(simplify(substitute(s.buffer.shape[0], known)))
        for s in statements(lowered.body)
        if isinstance(s, Alloc)
    ]
    assert None not in elements
    heads = 4 * 4 if "n" in lead else int(np.prod(lead))
    assert sum(n or 0 for n in elements) <= heads * 2048 * 2048 // 16


def test_rows_of_an_open_number_of_scores_lie_an_odd_number_of_cache_lines_apart() -> None:
    func = default(kernel(attention((2,), "t", "t", 8, 8)), target("cpu"), 1, strict=True).func
    apart = [
        s.buffer.strides[-2]
        for s in statements(func.body)
        if isinstance(s, Alloc) and s.buffer.strides is not None
    ]
    assert len(apart) == 2  # the scores and the weights
    for stride in apart:
        for t in (1, 33, 1000, 5120):
            elements = as_int(simplify(substitute(stride, {Var("t"): const(t)})))
            assert elements is not None and t <= elements < t + 32 and elements % 32 == 16


@pytest.mark.parametrize("threads", (1, 2))
def test_the_scores_are_nowhere_in_memory(threads: int) -> None:
    graph = attention((12,), 512, 512, 64, 64)
    machine = target("cpu -mcpu=x86-64-v4")
    func = kernel(graph, str(machine), threads)
    lowered = lower(default(func, machine, threads, strict=True).func, machine)
    sizes = [
        as_int(s.buffer.shape[0]) or 0 for s in statements(lowered.body) if isinstance(s, Alloc)
    ]
    assert max(sizes) * 4 <= machine.cache(1).size // 4


@pytest.mark.parametrize("machine", ("x86-64-v2", "x86-64-v3", "x86-64-v4", "cortex-a76"))
def test_other_machines_compile(machine: str) -> None:
    described = f"cpu -mcpu={machine}"
    graph = attention((2,), 65, 77, 40, 24)
    *_, jobs = kernel_jobs(prepare(graph, target(described), 3), target(described), 2, Watch())
    for job in jobs:
        default(job.func, target(described), 2, strict=True)
        assert compile_kernel(job).code


@pytest.mark.parametrize("of", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("width", [15, 17, 33])
def test_nothing_is_written_beyond_the_result(of: str, width: int) -> None:
    """One column is left over by vectors of 4, 8 or 16: its rows end where memory may."""
    graph = attention((2,), 40, 33, 16, width, of)
    run = compile_observed(graph, threads=1, cache=False, pool=POOL)
    count, dtype = 2 * 40 * width, graph.outputs[0].dtype
    around = np.full(dtype.nbytes(count) + 256, 0xAB, np.uint8)
    start = -around.ctypes.data % 64 + 64
    inside = around[start : start + dtype.nbytes(count)]
    run.run_into([inside.view(dtype.numpy).reshape(2, 40, width)], drawn(graph))
    outside = np.concatenate([around[:start], around[start + len(inside) :]])
    assert (inside != 0xAB).any() and (outside == 0xAB).all()


@pytest.mark.parametrize("lead", [(12,), (1, 12), (2, 3)])
def test_an_open_number_of_queries_runs_on_several_threads(lead: tuple[int, ...]) -> None:
    for keys in (17, 1500):
        func = kernel(attention(lead, "t", keys, 64, 64), threads=2)
        scheduled = default(func, target("cpu"), 2, strict=True).func
        assert any(isinstance(s, For) and s.kind == "parallel" for s in statements(scheduled.body))


def test_weights_that_are_multiplied_with_themselves_are_not_made_in_tiles() -> None:
    build = Builder("attention")
    q, k = build.input("q", "f32", (2, 65, 16)), build.input("k", "f32", (2, 65, 16))
    scores = build.emit("matmul", q, k, transpose_b=True)
    weights = build.emit("softmax", scores, axis=-1)
    graph = build.finish({"y": build.emit("matmul", weights, weights)})
    described = target("cpu")
    *_, jobs = kernel_jobs(prepare(graph, described, 3), described, 2, Watch())
    assert "attention" not in [family(job.func) for job in jobs]
    arrays = drawn(graph)
    (found,) = compile_observed(graph, threads=2, cache=False, pool=POOL)(*arrays)
    np.testing.assert_allclose(found, in_float64(graph, arrays), 2e-5, 2e-5)
