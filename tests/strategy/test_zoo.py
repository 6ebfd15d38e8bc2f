"""Every kernel of every model of the zoo gets its family's schedule: none is left as written."""

from __future__ import annotations

import pytest

from tests import zoo
from tilewright.driver.compile import kernel_jobs, prepare
from tilewright.driver.observe import Watch
from tilewright.frontend.onnx import import_onnx
from tilewright.strategy.select import default
from tilewright.support.errors import ScheduleError
from tilewright.target.target import target

TARGETS = ("cpu -mcpu=haswell", "cpu -mcpu=skylake-avx512")
SETTINGS = [(text, threads) for threads in (1, 2, 3) for text in TARGETS]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "name"), [*enumerate(zoo.names())], ids=zoo.names())
def test_no_kernel_is_left_unscheduled(number: int, name: str, turn) -> None:
    graph = import_onnx(zoo.model(name, 1).onnx_path)
    faults = []
    for text, threads in turn(SETTINGS, number):
        machine = target(text)
        fused = prepare(graph, machine, opt_level=3)
        *_, jobs = kernel_jobs(fused, machine, threads, Watch())
        for job in jobs:
            try:
                default(job.func, machine, threads, strict=True)
            except ScheduleError as fault:
                faults.append(f"{text}, {threads} threads, {job.func.name}: {fault}")
    assert not faults, "\n\n".join(faults[:3]) + f"\n{len(faults)} in all"
