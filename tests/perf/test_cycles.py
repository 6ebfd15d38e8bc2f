"""Compiling leaves the collector hardly a cycle: a closure that names itself keeps what it saw."""

from __future__ import annotations

import gc
from types import FunctionType

from tests.driver.conftest import DIGITS
from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.driver.source import open_source

MANY = 50  # collections; with one for every object there are thousands


def test_closures_are_gone_when_they_have_done_their_work() -> None:
    compile_observed(DIGITS, cache=False, pool=KernelPool(1))  # what is kept once is kept
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        compile_observed(DIGITS, cache=False, pool=KernelPool(1))
        gc.collect()
        functions = [o for o in gc.garbage if isinstance(o, FunctionType)]
        ours = [f.__qualname__ for f in functions if str(f.__module__).startswith("tilewright")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    # of te programs, whose tensors and operators know each other, the definitions may be left
    found = [name for name in ours if not name.endswith("packed")]
    assert not found


def test_the_collector_waits_while_a_model_is_read() -> None:
    ran: list[str] = []

    def note(phase: str, about: dict[str, int]) -> None:
        ran.append(phase)

    usual, source = gc.get_threshold(), open_source(DIGITS)
    gc.collect()
    gc.callbacks.append(note)
    gc.set_threshold(1)
    try:
        ran.clear()
        source.graph()
        found = ran.count("start")
    finally:
        gc.set_threshold(*usual)
        gc.callbacks.remove(note)
    assert found < MANY
