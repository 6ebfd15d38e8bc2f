"""Sorting: by digits of whole numbers in the elements' order, a few times the result at once."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.driver.compile import compile_observed, kernel_jobs, prepare
from tilewright.driver.kernels import KernelPool
from tilewright.driver.observe import Watch
from tilewright.graph import OPERATORS, Builder
from tilewright.graph.graph import Graph
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import as_int
from tilewright.ir.stmt import Alloc, For
from tilewright.ir.walk import visit
from tilewright.target.target import target

HASWELL = target("cpu -mcpu=haswell")
POOL = KernelPool(1)


def sorted_rows(of: str, rows: int, length: int | str, k: int, largest: bool) -> Graph:
    build = Builder()
    size = build.symbol(length) if isinstance(length, str) else length
    x = build.input("x", of, (rows, size))
    values, indices = build.emit("top_k", x, k=k, largest=largest)
    return build.finish({"values": values, "indices": indices})


def awkward(of: str, length: int) -> np.ndarray:
    """Rows with equals, zeros of both signs, infinities, no numbers and the ends of the range."""
    rng, kind = np.random.default_rng(length), dtype(of)
    if kind.is_bool:
        return rng.random((3, length)) < 0.3
    if not kind.is_float:
        ends = np.iinfo(kind.numpy)
        wide = rng.integers(ends.min, ends.max, (3, length), kind.numpy, endpoint=True)
        return np.where(rng.random((3, length)) < 0.3, kind.numpy.type(ends.max), wide)
    x = np.round(rng.standard_normal((3, length)) * 20)
    for special in (0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf):
        x[:2][rng.random((2, length)) < 0.1] = special
    x[2] = np.arange(length)  # each comes before, or after, all that were there
    with np.errstate(all="ignore"):
        return x.astype(kind.numpy)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(
    "of", ["f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i64", "i8", "u64", "u16", "bool"]
)
def test_every_kind_of_element(of: str, largest: bool) -> None:
    """Some of many, and all: the same elements and indices, bit by bit."""
    for length, k in ((900, 40), (70, 70)):
        run = compile_observed(
            sorted_rows(of, 3, length, k, largest), threads=1, cache=False, pool=POOL
        )
        x = awkward(of, length)
        wanted = OPERATORS["top_k"].reference(x, k=k, axis=-1, largest=largest)
        for made, right in zip(run(x), wanted, strict=True):
            assert np.ascontiguousarray(made).tobytes() == np.ascontiguousarray(right).tobytes()


@pytest.mark.parametrize("length", ["n", 5000])
def test_a_few_times_the_result_lie_in_memory(length: str | int) -> None:
    *_, (job,) = kernel_jobs(
        prepare(sorted_rows("f32", 1, length, 100, True), HASWELL, 3), HASWELL, 1, Watch()
    )
    own = [n.buffer for n in visit(job.func.body) if isinstance(n, Alloc)]
    sizes = [as_int(b.shape[0]) for b in own if b.name.startswith("sort_")]
    assert sizes and None not in sizes and max(filter(None, sizes)) < 5000


@pytest.mark.parametrize(("rows", "length", "k"), [(3, 200, 200), (3, 200, 4), (1, 200, 200)])
def test_threads_share_the_lines(rows: int, length: int, k: int) -> None:
    """Each has memory of its own; one line alone is no parallel loop."""
    *_, (job,) = kernel_jobs(
        prepare(sorted_rows("f32", rows, length, k, True), HASWELL, 3), HASWELL, 2, Watch()
    )
    shared = [n for n in visit(job.func.body) if isinstance(n, For) and n.kind == "parallel"]
    assert len(shared) == (rows > 1)
    own = {n.buffer.name for loop in shared for n in visit(loop.body) if isinstance(n, Alloc)}
    assert ("sort_keys" in own) == (rows > 1 and k == length)


@pytest.mark.sampled
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("of", ["f32", "i32", "u32"])
@pytest.mark.parametrize(
    ("shape", "axis", "k"),
    [((17, 20), 1, 4), ((48, 9), 1, 6), ((3, 7, 11), 1, 3), ((5, 6, 40), 2, 12),
     ((1, 30, 50), 1, 1), ((64, 40), 1, 20)],
)  # fmt: skip
def test_short_lines_side_by_side(of, shape, axis, k, largest) -> None:
    """A lane for each: bit by bit what each alone gives, with equals and no numbers among them."""
    build = Builder()
    x = build.input("x", of, shape)
    values, indices = build.emit("top_k", x, k=k, axis=axis, largest=largest)
    graph = build.finish({"values": values, "indices": indices})
    given = np.resize(awkward(of, max(shape)), shape)
    wanted = OPERATORS["top_k"].reference(given, k=k, axis=axis, largest=largest)
    for threads in (1, 2):
        *_, (job,) = kernel_jobs(prepare(graph, HASWELL, 3), HASWELL, threads, Watch())
        assert any(isinstance(n, For) and n.kind == "vectorize" for n in visit(job.func.body))
        run = compile_observed(graph, threads=threads, cache=False, pool=POOL)
        for made, right in zip(run(given), wanted, strict=True):
            assert np.ascontiguousarray(made).tobytes() == np.ascontiguousarray(right).tobytes()


LENGTHS = [0, 1, 2, 7, 15, 16, 17, 33, 50, 64, 100, 300]


@pytest.mark.sampled
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("of", "largest"), [("f32", True), ("i32", False)])
@pytest.mark.parametrize("k", [1, 5, 12, 30])
@pytest.mark.parametrize("axis", [1, 2])
def test_any_number_of_lines_from_one_compilation(axis, k, of, largest, threads) -> None:
    """The run asks whether lines stand side by side: bit by bit what each alone gives."""
    build = Builder()
    x = build.input("x", of, (build.symbol("n"), build.symbol("h"), build.symbol("w")))
    values, indices = build.emit("top_k", x, k=k, axis=axis, largest=largest)
    run = compile_observed(
        build.finish({"values": values, "indices": indices}),
        threads=threads,
        cache=False,
        pool=POOL,
    )
    for length in (n for n in LENGTHS if n >= k):
        for n, lines in ((1, 1), (1, 15), (2, 8), (3, 7), (5, 10), (1, 16), (0, 5)):
            shape = (n, lines, length) if axis == 2 else (n, length, lines)
            given = np.resize(awkward(of, max(length, lines)), shape)
            wanted = OPERATORS["top_k"].reference(given, k=k, axis=axis, largest=largest)
            for made, right in zip(run(given), wanted, strict=True):
                assert np.ascontiguousarray(made).tobytes() == np.ascontiguousarray(right).tobytes()


def test_open_lines_have_lanes_and_code_for_one() -> None:
    """Both in one loop, which threads share; of one known line there is no code for several."""
    for rows, both in (("n", True), (1, False)):
        build = Builder()
        first = build.symbol(rows) if isinstance(rows, str) else rows
        x = build.input("x", "f32", (first, build.symbol("t")))
        graph = build.finish([build.emit("top_k", x, k=5)[0]])
        *_, (job,) = kernel_jobs(prepare(graph, HASWELL, 3), HASWELL, 2, Watch())
        loops = [n.kind for n in visit(job.func.body) if isinstance(n, For)]
        assert loops.count("parallel") == both and ("vectorize" in loops) == both
