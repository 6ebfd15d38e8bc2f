"""Trees are walked no longer than to their leaves, and ask for NaN only in rows that have one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.cases import TREES
from tilewright.driver.compile import compile_observed, kernel_jobs, prepare
from tilewright.driver.kernels import KernelPool
from tilewright.driver.observe import Watch
from tilewright.graph import OPERATORS, Builder
from tilewright.graph.graph import Graph
from tilewright.graph.ops.trees import GROUP, MISSING
from tilewright.ir.expr import Binary, BinaryOp
from tilewright.ir.stmt import For, If
from tilewright.ir.walk import visit
from tilewright.target.target import target

HASWELL = target("cpu -mcpu=haswell")


def chain(length: int) -> list[np.ndarray]:
    """Trees that are chains: each node leads to a leaf if its feature is small, or to the next."""
    at = np.arange(2 * length + 1)
    is_inner = (at % 2 == 0) & (at < 2 * length)
    codes = np.where(is_inner & (at % 4 == 2), MISSING, 0)
    nodes = np.stack([codes, np.where(is_inner, at + 1, at - 1)], 1).astype(np.int32)
    splits = np.where(is_inner, 0, np.nan).astype(np.float32)
    return [nodes, splits, np.zeros(GROUP, np.int32), np.array([length], np.int32)]


def walked(rows: int, tables: list[np.ndarray], rules: tuple[int, ...]) -> Graph:
    build = Builder()
    x = build.input("x", "f32", (rows, 2))
    held = [build.constant(t) for t in tables]
    return build.finish({"leaf": build.emit("tree_leaves", x, *held, rules=rules)})


def test_walks_end_at_leaves_and_plain_rows_ask_for_no_nan() -> None:
    *_, (job,) = kernel_jobs(prepare(walked(9, chain(6), (0, MISSING)), HASWELL, 3), HASWELL, 1,
                             Watch())  # fmt: skip
    steps = [n for n in visit(job.func.body) if isinstance(n, For) and isinstance(n.body, If)]
    asked = [
        any(isinstance(n, Binary) and n.op is BinaryOp.ne and n.a == n.b for n in visit(loop))
        for loop in steps
    ]
    assert asked == [False, True]


@pytest.mark.parametrize("tables", [TREES, chain(6)], ids=["trees", "chain"])
def test_rows_with_and_without_nan(tables: list[np.ndarray]) -> None:
    rules = tuple(np.unique(tables[0][:, 0] % 16).tolist())
    run = compile_observed(walked(70, tables, rules), threads=1, cache=False, pool=KernelPool(1))
    x = np.random.default_rng(3).standard_normal((70, 2)).astype(np.float32)
    x[::7, 0] = x[3::5, 1] = np.nan
    wanted = OPERATORS["tree_leaves"].reference(x, *tables, rules=rules)
    np.testing.assert_array_equal(run(x)[0], wanted)
