"""Compiling leaves the collector hardly a cycle: a closure that names itself keeps what it saw."""

from __future__ import annotations

import gc
from types import FunctionType

from tests.driver.conftest import DIGITS
from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool


def test_closures_are_gone_when_they_have_done_their_work() -> None:
    compile_observed(DIGITS, cache=False, pool=KernelPool(1))  # what is kept once is kept
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        compile_observed(DIGITS, cache=False, pool=KernelPool(1))
        gc.collect()
        functions = [o.__qualname__ for o in gc.garbage if isinstance(o, FunctionType)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    # of te programs, whose tensors and operators know each other, the definitions may be left
    found = [name for name in functions if not name.endswith("packed")]
    assert not found
