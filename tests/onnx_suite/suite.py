"""Running the suite: every test of `onnx.backend.test` by name, and what became of it.

The suite's own runner makes the models, feeds them and compares, with its own tolerances; here it
only gets our backend. A test fails with a cause: the first line that says why, without what differs
from test to test.
"""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from onnx.backend.test import BackendTest

from tilewright.driver.kernels import KernelPool
from tilewright.driver.onnx_backend import TilewrightBackend
from tilewright.support.errors import TilewrightError

PATIENCE = 60.0  # seconds that one test may take


class Outcome(NamedTuple):
    """What became of one test. fault: empty, or why it failed."""

    name: str
    fault: str
    seconds: float
    trace: str = ""


class SuiteBackend(TilewrightBackend):
    """Our backend with kernels compiled in this process: the suite's models are small."""

    pool = KernelPool(1)


@cache
def tests() -> dict[str, Callable[[], None]]:
    """Every test of the suite for the CPU, by its name without the device."""
    found: dict[str, Callable[[], None]] = {}
    for case in BackendTest(SuiteBackend).test_cases.values():
        for name in dir(case):
            if name.startswith("test_") and name.endswith("_cpu"):
                found[name.removesuffix("_cpu")] = getattr(case(name), name)
    return found


def judge(name: str) -> Outcome:
    """Run one test."""
    start = time.perf_counter()
    fault = trace = ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tests()[name]()
    except Exception as error:  # whatever happens is the outcome
        fault, trace = cause_of(error), traceback.format_exc()
    return Outcome(name, fault, time.perf_counter() - start, trace)


def cause_of(error: Exception) -> str:
    """One line that says why a test failed."""
    if isinstance(error, TilewrightError):
        why = getattr(error, "why", "") or str(error)
        where = getattr(error, "where", "").strip().splitlines()
        if "operators are not supported" in why:
            why = "no translator for " + ", ".join(line.split(" (")[0] for line in where)
        what = getattr(error, "what", "")
        return " ".join(f"{what}: {why}".split())[:240]
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    shown = "; ".join(lines[:3])[:160]
    return (
        f"{'wrong result' if isinstance(error, AssertionError) else type(error).__name__}: {shown}"
    )


def judge_all(names: Sequence[str], workers: int | None = None) -> Iterator[Outcome]:
    """The outcomes of tests as they are ready, on all cores."""
    workers = workers or len(os.sched_getaffinity(0))
    if workers == 1:
        yield from map(judge, names)
        return
    # A process that does nothing but compile small models: one thread each.
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        yield from pool.imap_unordered(judge, names, chunksize=8)
