"""Lanes that read fewer elements than there are lanes, no power of two: edges of narrow images."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.graph.builder import Builder


@pytest.mark.parametrize("width", [3, 5, 7])
def test_edges_of_narrow_rows(width: int) -> None:
    """Of three elements in four lanes, stored several times, LLVM ended the process."""
    build = Builder("edges")
    x = build.input("x", "f32", (3, 1, 2, width))
    y = build.emit("pad", x, before=(0, 0, 1, 0), after=(0, 0, 3, 1), mode="edge")
    given = np.random.default_rng(width).standard_normal((3, 1, 2, width)).astype(np.float32)
    run = compile_observed(build.finish({"y": y}), cache=False, pool=KernelPool(1))
    wanted = np.pad(given, ((0, 0), (0, 0), (1, 3), (0, 1)), mode="edge")
    np.testing.assert_array_equal(run(given)[0], wanted)
