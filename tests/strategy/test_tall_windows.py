"""Depthwise windows of one column whose rows come in steps: padding is skipped there too."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.graph.builder import Builder
from tilewright.graph.evaluate import evaluate


@pytest.mark.filterwarnings("error")  # of generic schedules
@pytest.mark.parametrize("rows", [4, 6])
def test_windows_of_one_column(rows: int) -> None:
    build = Builder("tall")
    draw = np.random.default_rng(rows).standard_normal
    x = build.input("x", "f32", (2, 20, 13, 9))
    w = build.constant(draw((20, 1, rows, 1)).astype(np.float32))
    y = build.emit("conv", x, w, pads=((rows - 1, 1), (0, 0)), groups=20)
    graph = build.finish({"y": y})
    given = draw((2, 20, 13, 9)).astype(np.float32)
    found = compile_observed(graph, cache=False, pool=KernelPool(1))(given)
    np.testing.assert_allclose(found[0], evaluate(graph, [given])[0], rtol=1e-4, atol=1e-5)
