"""One engine in one process: commands come as JSON lines on stdin, answers go as JSON lines out.

    load  {engine, name, batch, path, threads, inputs}   → {seconds, version, peak, resident}
    save  {path}          the outputs of one call, written for others to be checked against
    check {path}          → {error}: largest |difference| over largest |value| of the file's outputs
    run   {seconds}       → {times, resident}: one untimed call, then timed ones
    probe {threads}       → {flops, bandwidth} of the machine

Whatever an engine prints goes to stderr; a command that fails answers {"failure": message}.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engines import ENGINES, Call, Subject

MOST_TIMES = 20_000


class Worker:
    """The loaded call and its inputs, between commands."""

    def __init__(self) -> None:
        self.call: Call
        self.inputs: list[np.ndarray]
        self.probes: dict[int, Any] = {}

    def load(
        self, engine: str, name: str, batch: int, path: str, threads: int, inputs: str
    ) -> dict[str, Any]:
        with np.load(inputs) as file:
            self.inputs = [file[key] for key in file.files]
        start = time.perf_counter()
        self.call = ENGINES[engine].load(Subject(name, batch, Path(path)), threads)
        self.call(self.inputs)
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "version": ENGINES[engine].version, **memory()}

    def save(self, path: str) -> dict[str, Any]:
        np.savez(path, *self.call(self.inputs))
        return {}

    def check(self, path: str) -> dict[str, Any]:
        found = self.call(self.inputs)
        with np.load(path) as file:
            expected = [file[key] for key in file.files]
        if [x.shape for x in found] != [x.shape for x in expected]:
            raise ValueError(
                f"shapes {[x.shape for x in found]}, expected {[x.shape for x in expected]}"
            )
        errors = [
            np.abs(a - b).max() / np.abs(b).max() for a, b in zip(found, expected, strict=True)
        ]
        return {"error": float(max(errors))}

    def run(self, seconds: float) -> dict[str, Any]:
        self.call(self.inputs)
        times: list[float] = []
        end = time.perf_counter() + seconds
        while len(times) < MOST_TIMES:
            start = time.perf_counter()
            self.call(self.inputs)
            stop = time.perf_counter()
            times.append(stop - start)
            if stop >= end:
                break
        return {"times": times, **memory()}

    def probe(self, threads: int) -> dict[str, Any]:
        from benchmarks.probe import Probe

        if threads not in self.probes:
            self.probes[threads] = Probe(threads)
        probe = self.probes[threads]
        return {"flops": probe.flops(), "bandwidth": probe.bandwidth()}


def memory() -> dict[str, int]:
    """Peak and present resident bytes of this process; nothing where /proc is not there."""
    status = Path("/proc/self/status")
    if not status.exists():
        return {}
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    kilobytes = {"peak": lines["VmHWM"], "resident": lines["VmRSS"]}
    return {key: int(value.split()[0]) * 1024 for key, value in kilobytes.items()}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker = Worker()
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(worker, command.pop("do"))(**command)
        except Exception as fault:
            traceback.print_exc()
            first = (str(fault).strip().splitlines() or [""])[0]
            answer = {"failure": f"{type(fault).__name__}: {first}"}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
