"""Paired measurement: several ways to compute the same thing, timed in turns.

In: calls without arguments. Out: the times of each, by rounds. The one idea: a machine's speed
drifts, so calls are compared within a round of short slices that takes turns, never across.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.runtime.formats import values_of
from tilewright.support.errors import CompileError

ROUNDS = 10
SETTLE = 0.005  # seconds: threads that another engine left spinning go to sleep
OURS = "tilewright"


@dataclass
class Times:
    """Seconds of each call, round by round."""

    rounds: list[list[float]] = field(default_factory=list[list[float]])

    @property
    def minimum(self) -> float:
        return min(min(r) for r in self.rounds)

    @property
    def median(self) -> float:
        return statistics.median(t for r in self.rounds for t in r)

    def over(self, other: Times) -> float:
        """These times over those of `other`: the median of the rounds' ratios of medians."""
        pairs = zip(self.rounds, other.rounds, strict=True)
        return statistics.median(statistics.median(a) / statistics.median(b) for a, b in pairs)


def take_turns(
    calls: Mapping[str, Callable[[], Any]],
    seconds: float,
    rounds: int = ROUNDS,
    progress: Callable[[int], None] = lambda done: None,
) -> dict[str, Times]:
    """Time each call for about `seconds`, in `rounds` slices; slow calls in fewer, at least three.
    The first call of a slice is not counted. `progress` is told the rounds that are done."""
    found = {name: Times() for name in calls}
    names = list(calls)
    end = time.perf_counter() + 2 * seconds * len(names)
    for turn in range(rounds):
        if turn >= 3 and time.perf_counter() > end:
            break
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            found[name].rounds.append(_slice(calls[name], seconds / rounds))
        progress(turn + 1)
    return found


def _slice(call: Callable[[], Any], seconds: float) -> list[float]:
    time.sleep(SETTLE)
    call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times


def difference(got: Sequence[Any], expected: Sequence[Any]) -> float:
    """The largest error of any output, relative to that output's largest value."""
    worst = 0.0
    for a, b in zip(got, expected, strict=True):
        x, y = values_of(a), values_of(b)
        if x.shape != y.shape:
            return float("inf")
        if x.dtype.kind in "OSU" or y.dtype.kind in "OSU":  # strings
            worst = worst if (x == y).all() else float("inf")
            continue
        x, y = x.astype(np.float64), y.astype(np.float64)
        if x.size:
            scale = float(np.max(np.abs(y))) or 1.0
            worst = max(worst, float(np.max(np.abs(x - y))) / scale)
    return worst


# ---- Other engines --------------------------------------------------------------------------

Call = Callable[[Sequence[Any]], list[Any]]


def onnxruntime(path: str, threads: int) -> Call:
    """A session of ONNX Runtime: arrays in the model's order → arrays."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    return lambda arrays: list(session.run(None, dict(zip(names, arrays, strict=True))))


def openvino(path: str, threads: int) -> Call:
    """A request of OpenVINO, in f32: arrays in the model's order → arrays."""
    import openvino as ov  # pyright: ignore[reportMissingImports]  (a peer: extra "bench" only)

    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = ov.Core().compile_model(path, "CPU", settings)
    request = compiled.create_infer_request()
    count = len(compiled.outputs)

    def call(arrays: Sequence[Any]) -> list[Any]:
        found = request.infer(list(arrays), share_inputs=True, share_outputs=True)
        return [found[n] for n in range(count)]

    return call


ENGINES: dict[str, Callable[[str, int], Call]] = {"onnxruntime": onnxruntime, "openvino": openvino}


def engine(name: str, path: str, threads: int) -> Call:
    """Another engine's call for an ONNX file. Raises CompileError where it is not installed or
    does not take the file."""
    try:
        return ENGINES[name](path, threads)
    except ModuleNotFoundError as fault:
        raise CompileError(
            f"cannot compare with {name}",
            f"the package '{fault.name}' is not installed",
            remedy=f"pip install {name}",
        ) from None
    except Exception as fault:
        raise CompileError(
            f"cannot compare with {name}", f"it refuses the model: {fault}"
        ) from None
