"""The measurement: for each model and thread count all engines take turns in short timed slices.

What comes out is a `Result` per (model, threads, engine): every call's time, whether the outputs
agree with the reference, load time and memory; and the machine's own rates from the same minutes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import tilewright as tw
from benchmarks import work
from benchmarks.engines import REFERENCE, TUNED
from benchmarks.process import Process, WorkerError
from tests import zoo

ROUNDS = 10
TOLERANCE = 1e-4


@dataclass
class Result:
    """One engine on one model with one thread count; `failure` says why there are no times."""

    engine: str
    model: str
    threads: int
    times: list[float] = field(default_factory=list)
    error: float = math.nan
    load_seconds: float = math.nan
    peak_bytes: int = 0
    resident_bytes: int = 0
    failure: str = ""
    version: str = ""

    @property
    def is_correct(self) -> bool:
        return self.error <= TOLERANCE

    @property
    def minimum(self) -> float:
        return min(self.times, default=math.nan)

    @property
    def median(self) -> float:
        return statistics.median(self.times) if self.times else math.nan


@dataclass
class Rates:
    """The best rates the machine showed on a number of threads during the run."""

    flops: float = 0.0
    bandwidth: float = 0.0


@dataclass
class Measurement:
    """Everything one run of the benchmarks found."""

    results: list[Result] = field(default_factory=list)
    rates: dict[int, Rates] = field(default_factory=dict)
    works: dict[str, work.Work] = field(default_factory=dict)

    def result(self, model: str, threads: int, engine: str) -> Result | None:
        for entry in self.results:
            if (entry.model, entry.threads, entry.engine) == (model, threads, engine):
                return entry
        return None

    def version(self, engine: str) -> str:
        """That of the engine's package, where it lives."""
        known = [r.version for r in self.results if r.engine == engine and r.version]
        return known[0] if known else "(version unknown)"


@dataclass(frozen=True)
class Plan:
    """What to measure; `pythons` names another interpreter for engines that need their own;
    `tuning` is the seconds in which each model's schedules are searched before, 0 for none."""

    models: list[str]
    engines: list[str]
    threads: list[int]
    seconds: float
    batch: int = 1
    tuning: float = 0.0
    pythons: dict[str, str] = field(default_factory=dict)


def measure(plan: Plan, folder: Path, progress: Callable[[str], None]) -> Measurement:
    """Run the plan; `folder` holds inputs and reference outputs meanwhile.

    `progress` is told before each of `steps(plan)` steps what it is.
    """
    found = Measurement()
    for name in plan.models:
        model = zoo.model(name, plan.batch)
        progress(f"{name}: reference")
        found.works[name] = work.measure(model.onnx_path)
        np.savez(folder / "inputs.npz", **model.inputs(seed=1))
        write_reference(model, folder)
        for threads in plan.threads:
            rates = found.rates.setdefault(threads, Rates())
            found.results += measure_side_by_side(plan, model, threads, folder, rates, progress)
    return found


def steps(plan: Plan) -> int:
    tuned = TUNED in plan.engines and plan.tuning > 0
    return len(plan.models) * (1 + len(plan.threads) * (len(plan.engines) + ROUNDS + tuned))


def write_reference(model: zoo.Model, folder: Path) -> None:
    """The outputs that every engine must agree with, from a process of the reference engine."""
    with Process(threads=1) as process:
        process.ask("load", engine=REFERENCE, threads=1, **fields(model, folder))
        process.ask("save", path=str(folder / "outputs.npz"))


def fields(model: zoo.Model, folder: Path) -> dict[str, str | int]:
    return {
        "name": model.name,
        "batch": model.batch,
        "path": str(model.onnx_path),
        "inputs": str(folder / "inputs.npz"),
    }


def measure_side_by_side(
    plan: Plan,
    model: zoo.Model,
    threads: int,
    folder: Path,
    rates: Rates,
    progress: Callable[[str], None],
) -> list[Result]:
    """All engines loaded at once, each in its process; then rounds of slices in rotating order."""
    if TUNED in plan.engines and plan.tuning:
        progress(f"{model.name}, {threads} threads: tune for {plan.tuning:g} s")
        tw.tune(str(model.onnx_path), seconds=plan.tuning, threads=threads, database=True)
    results = [Result(engine, model.name, threads) for engine in plan.engines]
    processes = {e: Process(threads, plan.pythons.get(e)) for e in plan.engines}
    probe = Process(threads)
    try:
        for result in results:
            progress(f"{model.name}, {threads} threads: load {result.engine}")
            load(result, processes[result.engine], fields(model, folder), folder / "outputs.npz")
        for turn in range(ROUNDS):
            progress(f"{model.name}, {threads} threads: round {turn + 1} of {ROUNDS}")
            start = turn % len(results)
            for result in results[start:] + results[:start]:
                run_slice(result, processes[result.engine], plan.seconds / ROUNDS)
            seen = probe.ask("probe", threads=threads)
            rates.flops = max(rates.flops, seen["flops"])
            rates.bandwidth = max(rates.bandwidth, seen["bandwidth"])
    finally:
        for process in (*processes.values(), probe):
            process.close()
    return results


def load(result: Result, process: Process, subject: dict[str, str | int], expected: Path) -> None:
    try:
        loaded = process.ask("load", engine=result.engine, threads=result.threads, **subject)
        result.load_seconds, result.version = loaded["seconds"], loaded["version"]
        result.peak_bytes = loaded.get("peak", 0)
        result.error = process.ask("check", path=str(expected))["error"]
    except WorkerError as fault:
        result.failure = str(fault)


def run_slice(result: Result, process: Process, seconds: float) -> None:
    if result.failure:
        return
    try:
        ran = process.ask("run", seconds=seconds)
        result.times += ran["times"]
        result.resident_bytes = ran.get("resident", 0)
        result.peak_bytes = ran.get("peak", 0)
    except WorkerError as fault:
        result.failure = str(fault)
