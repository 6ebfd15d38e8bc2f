"""Long sums: their error beside float64 does not grow with their length, whatever the schedule."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.driver.compile import compile_observed, kernel_jobs, prepare
from tilewright.driver.kernels import KernelPool
from tilewright.driver.observe import Watch
from tilewright.graph import OPERATORS, Builder
from tilewright.graph.graph import Graph
from tilewright.ir.stmt import For
from tilewright.ir.walk import blocks, free_vars, visit
from tilewright.schedule.primitives.cascade_reduction import sum_of
from tilewright.strategy.chains import LONGEST, part_of
from tilewright.strategy.select import default
from tilewright.target.target import target

POOL = KernelPool(1)
AVX512 = target("cpu -mcpu=skylake-avx512")
AFEW = 1e-6  # of a few roundings: one sum after another has tens of times as much here

# operator, shape (a name is an open size), attributes; sizes that open ones have in the run
CASES: list[tuple[str, tuple[int | str, ...], dict[str, object]]] = [
    ("reduce_sum", (3_000_000,), {"axes": (0,)}),
    ("reduce_sum", ("n",), {"axes": (0,)}),
    ("reduce_sum", (2_000_003,), {"axes": (0,)}),
    ("reduce_mean", (1, 2, 112, 112, 16), {"axes": (2, 3)}),
    ("reduce_mean", (1, 2, "h", "w", 16), {"axes": (2, 3)}),
    ("reduce_mean", (2, 5, 300, 300), {"axes": (2, 3)}),
    ("reduce_mean", (2, 5, "h", "w"), {"axes": (2, 3)}),
    ("reduce_sum", (40_000, 64), {"axes": (0,)}),
    ("reduce_sum", ("m", 64), {"axes": (0,)}),
    ("reduce_sum", ("m", 7), {"axes": (0,), "keepdims": True}),
    ("reduce_sum", (37, 1009, 5), {"axes": (0, 1)}),
    ("softmax", (1, 20_000, 48), {"axis": 1}),
    ("softmax", (1, "m", 48), {"axis": 1}),
    ("softmax", (2, 60_000), {"axis": -1}),
    ("avg_pool", (1, 16, 130, 130), {"kernel": (128, 128)}),
]
SIZES = {"n": 1_234_567, "m": 40_000, "h": 201, "w": 183}


def graph(op: str, shape: tuple[int | str, ...], attrs: dict[str, object]) -> Graph:
    build = Builder("g")
    x = build.input("x", "f32", [build.symbol(s) if isinstance(s, str) else s for s in shape])
    return build.finish({"y": build.emit(op, x, **attrs)})


@pytest.mark.parametrize(("op", "shape", "attrs"), CASES, ids=str)
def test_beside_float64(op, shape, attrs):
    sizes = [SIZES[s] if isinstance(s, str) else s for s in shape]
    x = np.random.default_rng(7).random(sizes, np.float32) + np.float32(0.1)
    made = graph(op, shape, attrs)
    wanted = OPERATORS[op].reference(x.astype(np.float64), **dict(made.nodes[0].attrs))
    found = compile_observed(made, cache=False, pool=POOL, threads=2)(x)[0]
    assert (np.abs(found - wanted) <= AFEW * np.abs(wanted)).all()


def test_blocks_keep_each_chain_short():
    """Counted in the schedules themselves: no block adds more than twice LONGEST numbers to one
    accumulator between two loops that are its own."""
    for op, shape, attrs in CASES:
        if any(isinstance(s, str) for s in shape):
            continue
        *_, jobs = kernel_jobs(prepare(graph(op, shape, attrs), AVX512, 3, []), AVX512, 1, Watch())
        for job in jobs:
            func = default(job.func, AVX512, 1, strict=True).func
            nests = [n for n in visit(func.body) if isinstance(n, For)]
            for block in blocks(func.body):
                if sum_of(block) is None:
                    continue
                bound = [free_vars(a.value) for a in block.axes if a.kind == "reduce"]
                own = {v for used in bound for v in used}
                (target_,) = {r.buffer.name for r in block.writes}
                inside = [f for f in nests if f.var in own and holds(f, block.name, target_)]
                count = 1
                for f in inside:
                    count *= f.extent.value
                assert count <= 2 * LONGEST, (op, shape, block.name, count)


def holds(loop: For, block: str, accumulator: str) -> bool:
    """Does the loop hold the block, but not where its accumulator begins?"""
    names = {b.name: b for b in blocks(loop.body)}
    begins = any(
        accumulator in {r.buffer.name for r in b.writes} and not b.reads for b in names.values()
    )
    return block in names and not begins


@pytest.mark.parametrize("count", [129, 977, 12544, 15625, 312500])
def test_parts_are_even_where_they_can_be(count):
    size = part_of(count, 128)
    assert 64 <= size < 256
    assert count % size == 0 or not any(count % d == 0 for d in range(64, 256))


@pytest.mark.parametrize("depth", [600, 4608, 20_000])
def test_deep_products(depth):
    rng = np.random.default_rng(1)
    x, w = (rng.random(s, np.float32) for s in ((5, depth), (depth, 40)))
    build = Builder("g")
    made = build.finish(
        {"y": build.emit("matmul", build.input("x", "f32", (5, depth)), build.constant(w))}
    )
    wanted = x.astype(np.float64) @ w.astype(np.float64)
    found = compile_observed(made, cache=False, pool=POOL, threads=1)(x)[0]
    assert (np.abs(found - wanted) <= 2 * AFEW * wanted).all()
