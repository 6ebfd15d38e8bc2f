"""One model from its file to its first output, in a process of its own: timed, then told as JSON.

    python -m benchmarks.first_run ENGINE FILE INPUTS.npz THREADS

What is imported before the engine is what every program has: Python and NumPy. `ended` is when the
output was there, by the clock that all processes share: what Python takes to end is nobody's.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engines import ENGINES, OURS
from benchmarks.subject import Call, Subject


def ours(path: str, threads: int) -> tuple[Call, dict[str, float]]:
    """Our call, from the cache or into it, and the seconds of each stage. Packages that are only
    needed to compile are loaded by `compile` itself, when nothing is in the cache."""
    import tilewright as tw

    made = tw.compile(path, threads=threads)
    return lambda arrays: made(*arrays), dict(made.compile_stages.seconds)


def measure(engine: str, path: str, inputs: str, threads: int) -> dict[str, Any]:
    with np.load(inputs) as file:
        arrays = [file[key] for key in file.files]
    start, stages = time.monotonic(), {}
    if engine == OURS:
        call, stages = ours(path, threads)
    else:
        call = ENGINES[engine].load(Subject("", 1, Path(path)), threads)
    made = time.monotonic()
    call(arrays)
    end = time.monotonic()
    own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, -1))
    return {
        "ended": end,
        "load": made - start,
        "run": end - made,
        "stages": stages,
        "cpu": own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime,
    }


if __name__ == "__main__":
    engine, path, inputs, threads = sys.argv[1:]
    try:
        told = measure(engine, path, inputs, int(threads))
    except Exception as fault:
        told = {"failure": f"{type(fault).__name__}: {str(fault).strip().splitlines()[0]}"}
    print(json.dumps(told))
