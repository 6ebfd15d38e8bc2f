"""Which loops run in parallel: the fewest outer ones that give every thread enough iterations."""

from __future__ import annotations

import pytest

from tilewright import te
from tilewright.ir.expr import Var
from tilewright.ir.walk import free_vars
from tilewright.schedule.locate import find_loop
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.loops import fuse, iterations, parallel


@pytest.mark.parametrize(
    ("channels", "apart"), [(4, False), (8, True), (9, False), (16, True), (17, True), (40, True)]
)
def test_open_columns_keep_a_loop_where_there_are_enough_even_iterations(
    channels: int, apart: bool
) -> None:
    n, w = Var("n"), Var("w")
    A = te.placeholder((n, channels, w), name="A")
    B = te.compute((n, channels, w), lambda i, c, x: A[i, c, x] * 2.0, name="B")
    schedule = Schedule(te.func("double", [A], [B]))
    parallel(schedule, schedule.loops("B"), 2, "B.parallel")
    outer = find_loop(schedule.func, schedule.loops("B")[0])
    assert outer.kind == "parallel" and (w not in free_vars(outer.extent)) == apart


@pytest.mark.parametrize("channels", [1, 6, 40])
def test_a_batch_that_is_fused_with_channels_has_as_many_iterations_as_those(channels: int) -> None:
    n = Var("n")
    A = te.placeholder((n, channels, 35), name="A")
    B = te.compute((n, channels, 35), lambda i, c, x: A[i, c, x] * 2.0, name="B")
    schedule = Schedule(te.func("double", [A], [B]))
    fused = fuse(schedule, schedule.loops("B")[:2])
    assert iterations(schedule, [fused]) == channels
