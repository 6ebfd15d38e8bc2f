"""Reductions of open axes inside axes of a known size: scheduled, none takes the generic one."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.graph.builder import Builder
from tilewright.support.errors import ScheduleWarning


@pytest.mark.parametrize("axes", [(1, 2), (0, 1, 2)])
def test_an_open_axis_inside_a_known_one(axes: tuple[int, ...]) -> None:
    """What is around an open loop is not written out in its place."""
    build = Builder("m")
    n, h, w = (build.symbol(s) for s in "nhw")
    x = build.input("x", "f32", (n, 3, h, w))
    graph = build.finish({"y": build.emit("reduce_max", x, axes=axes)})
    with warnings.catch_warnings():
        warnings.simplefilter("error", ScheduleWarning)
        run = compile_observed(graph, cache=False, pool=KernelPool(1))
    for shape in ((2, 3, 7, 19), (1, 3, 1, 1), (3, 3, 33, 16)):
        given = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
        np.testing.assert_array_equal(run(given)[0], given.max(axes))
