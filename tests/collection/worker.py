"""One model in a process of its own: `python -m tests.collection.worker check NAME` (or `time`).

Prints a JSON object a line for each thing that it finds, so that what is known before a crash is
told. Processor time and memory are limited.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

import tilewright as tw
from tests.collection import exact, packages, subject

SECONDS = 600  # of processor time
MEMORY = 10 << 30
SLICE = 0.25  # seconds a turn of a measurement
ROUNDS = 6
DISTURBED = 8  # runs of onnxruntime where there is no float64 to compare with


def main(task: str, name: str, threads: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    model = subject.read(name, packages.models()[name])
    theirs = reference(model, threads)
    {"check": check, "time": measure}[task](model, theirs, threads)


def tell(**found: object) -> None:
    print(json.dumps(found), flush=True)


def reference(model: subject.Subject, threads: int) -> Callable[[list], list]:
    session = exact.session(str(model.path), threads)
    return lambda arrays: session.run(None, exact.named(model, arrays))


def compiled(model: subject.Subject, fixed: bool, threads: int):
    shapes = model.shapes(model.sizes[0]) if fixed else None
    return tw.compile(str(model.path), shapes=shapes, threads=threads, cache=False)


def check(model: subject.Subject, theirs: Callable[[list], list], threads: int) -> None:
    """Compile at the first sizes, and once for all; compare wherever it runs."""
    ways = [("fixed", True, model.sizes[:1])]
    if len(model.sizes) > 1:
        ways.append(("open", False, model.sizes))
    for way, is_fixed, tried in ways:
        start = time.perf_counter()
        try:
            exe = compiled(model, is_fixed, threads)
        except tw.TilewrightError as fault:
            tell(way=way, fault=f"refused: {brief(fault)}")
            continue
        tell(way=way, seconds=time.perf_counter() - start)
        for number, sizes in enumerate(tried):
            arrays = model.arrays(sizes, exe.manifest.notes.get("likely", {}))
            label = way if is_fixed else f"{way} {number + 1}"
            expected = tables(theirs(arrays))
            try:
                found = tables(exe(*arrays))
            except tw.TilewrightError as fault:
                tell(way=label, fault=f"run refused: {brief(fault)}")
                continue
            fault = compare(model, arrays, found, expected)
            tell(way=label, error=error(found, expected), fault=fault)


def tables(outputs: list) -> list:
    """The outputs, where maps of the same keys in a row (`ZipMap`) are a table."""
    return [np.array([[*row.values()] for row in y]) if isinstance(y, list) else y for y in outputs]


def brief(fault: Exception) -> str:
    return " ".join(str(fault).split())[:400]


def compare(model: subject.Subject, arrays: list, found: list, expected: list) -> str:
    """What is wrong with `found`, or nothing."""
    for k, (a, b) in enumerate(zip(found, expected, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {k} is {a.dtype}{a.shape}, expected {b.dtype}{b.shape}"
    ours = error(found, expected)
    if ours <= exact.TOLERANCE:
        return ""
    told = ""
    try:
        truth = exact.outputs(model, arrays)
        apart, their_own = error(found, truth), error(expected, truth)
        told = f"({apart:.1e} from float64, onnxruntime {their_own:.1e})"
    except tw.TilewrightError:
        apart, their_own = ours, 0.0
    if apart > exact.TIMES * their_own:
        moved = max(error(exact.moved(model, arrays, k), expected) for k in range(DISTURBED))
        if ours > exact.TIMES * moved:
            return f"{ours:.1e} apart, onnxruntime by {moved:.1e} when last bits move {told}"
    return ""


def error(found: list, expected: list) -> float:
    """The largest difference over the largest value, of all outputs; NaN and infinity are equal to
    themselves."""
    worst = 0.0
    for a, b in zip(found, expected, strict=True):
        a, b = a.astype(np.float64), b.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        if same.all():
            continue
        finite = b[np.isfinite(b)]
        scale = max(float(np.abs(finite).max(initial=0.0)), 1e-6)
        apart = np.where(same, 0.0, np.abs(a - b))
        worst = max(worst, float(np.nan_to_num(apart, nan=np.inf).max()) / scale)
    return worst


def measure(model: subject.Subject, theirs: Callable[[list], list], threads: int) -> None:
    """Milliseconds of onnxruntime, of code for the first sizes, of code for all, by turns."""
    fixed = compiled(model, True, threads)
    arrays = model.arrays(model.sizes[0], fixed.manifest.notes.get("likely", {}))
    calls = {"theirs": lambda: theirs(arrays), "fixed": lambda: fixed(*arrays)}
    if len(model.sizes) > 1:
        anywhere = compiled(model, False, threads)
        calls["open"] = lambda: anywhere(*arrays)
    took: dict[str, list[float]] = {key: [] for key in calls}
    for _ in range(ROUNDS):
        for key, call in calls.items():
            call()
            took[key] += times(call)
    tell(threads=threads, **{k: 1e3 * min(v) for k, v in took.items()},
         medians={k: 1e3 * statistics.median(v) for k, v in took.items()})  # fmt: skip


def times(call: Callable[[], object]) -> list[float]:
    found, end = [], time.perf_counter() + SLICE
    while not found or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return found


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
