"""Pools whose windows are taken along one axis after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.graph import OPERATORS, Builder
from tilewright.graph.graph import Graph
from tilewright.graph.passes.pipeline import optimise

POOL = KernelPool(1)
# Space, attributes: how many pools there are then
CASES: dict[str, tuple[tuple[int, ...], dict[str, Any], int]] = {
    "large": ((11, 9), {"kernel": (5, 7), "pads": ((2, 2), (3, 3))}, 2),
    "steps": ((23, 21), {"kernel": (7, 9), "strides": (2, 1), "pads": ((3, 0), (0, 4))}, 2),
    "dilated": ((30, 44), {"kernel": (5, 5), "dilations": (2, 3)}, 2),
    "rounded up": ((21, 21), {"kernel": (8, 8), "strides": (2, 2), "ceil_mode": True}, 2),
    "three axes": ((8, 9, 10), {"kernel": (3, 5, 4), "pads": ((1, 1), (2, 2), (1, 2))}, 3),
    "three axes, one of single pixels": ((4, 19, 20), {"kernel": (1, 5, 5)}, 2),
    "an axis of steps alone": ((20, 22, 11), {"kernel": (7, 7, 1), "strides": (1, 1, 3)}, 3),
    "small": ((12, 12), {"kernel": (3, 3)}, 1),
    "side by side": ((20, 20), {"kernel": (5, 5), "strides": (5, 5)}, 1),
    "nearly the whole image": ((12, 12), {"kernel": (11, 11)}, 1),
    "along one axis": ((12, 12), {"kernel": (1, 9)}, 1),
}  # fmt: skip


def pooled(op: str, case: str, batch: int | None = 2, **more: Any) -> Graph:
    space, attrs, _ = CASES[case]
    build = Builder("g")
    x = build.input("x", "f32", (build.symbol("n") if batch is None else batch, 5, *space))
    return build.finish({"y": build.emit(op, x, **attrs, **more)})


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("op", ["max_pool", "avg_pool"])
def test_how_many_pools(op, case):
    made = optimise(pooled(op, case))
    assert [node.op for node in made.nodes].count(op) == CASES[case][-1]


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("batch", [2, None])
@pytest.mark.parametrize("op", ["max_pool", "avg_pool", "avg_pool with its edge"])
def test_the_result(op, batch, case):
    op, *edge = op.split(" ", 1)
    graph = pooled(op, case, batch, **{"count_pads": True} if edge else {})
    x = np.random.default_rng(5).standard_normal((2, 5, *CASES[case][0]), np.float32)
    wanted = OPERATORS[op].reference(x.astype(np.float64), **dict(graph.nodes[0].attrs))
    found = compile_observed(graph, cache=False, pool=POOL)(x)[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_whole_numbers_have_no_mean_of_means():
    build = Builder("g")
    x = build.input("x", "i32", (1, 3, 12, 12))
    graph = build.finish({"y": build.emit("avg_pool", x, kernel=(7, 7))})
    assert [node.op for node in optimise(graph).nodes] == ["avg_pool"]
