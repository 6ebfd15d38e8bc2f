"""The command: `python -m benchmarks.tuning.freeze [NAME …] --rows 440 --seconds 32`.

In: operators at several sizes. Out: the file of frozen tables. The one idea: a table is to hold
what any search may ask for: rows drawn by chance, which tell how rare good ones are, the prior's
best, and the way of a real search down to the best one.

All is timed in this process. A small kernel that stays the same is timed beside every row; where it
took longer, so did the row, which is timed again or, in the end, scaled.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks import machine
from benchmarks.kernel import Run, code, memory
from benchmarks.tuning.operators import OPERATORS
from benchmarks.tuning.tables import (
    DRAWN,
    FROZEN,
    SEARCHED,
    WEIGHED,
    Frozen,
    Table,
    Task,
    load,
    named,
    save,
)
from tilewright.ir.stmt import Func
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.select import SKETCH, default
from tilewright.strategy.sketch.plan import Plan, Rows
from tilewright.strategy.sketch.tiles import plan
from tilewright.strategy.space import partial
from tilewright.support.errors import CompileError, ScheduleError
from tilewright.target.target import Target, target
from tilewright.tune.explore import Descent, Explorer, History, Portfolio, Random
from tilewright.tune.records import this_build

SIZES: tuple[tuple[str, dict[str, int]], ...] = (
    ("matmul", {"m": 128, "n": 192, "k": 256}),
    ("matmul", {"m": 256, "n": 384, "k": 512}),
    ("matmul", {"m": 64, "n": 512, "k": 96}),
    ("matmul_transposed", {"m": 150, "n": 130, "k": 200}),
    ("contraction_4", {"outer": 16, "inner": 12}),
    ("contraction_5", {"a": 4, "b": 6, "c": 48, "d": 12, "e": 16, "f": 48}),
    ("outer_products", {"batch": 16, "samples": 96, "rows": 72, "columns": 88}),
    ("outer_products", {"batch": 4, "samples": 256, "rows": 128, "columns": 48}),
    ("bilinear_form", {"batch": 32, "forms": 64, "size": 48}),
    ("complex_product", {"m": 96, "n": 96, "k": 128}),
    ("masked_scores", {"heads": 8, "length": 192, "width": 64}),
    ("masked_scores", {"heads": 4, "length": 128, "width": 32}),
    ("grouped_gelu", {"batch": 128, "groups": 8, "inputs": 96, "results": 128}),
    ("grouped_conv_i8", {"groups": 4, "inputs": 16, "results": 16, "height": 48, "width": 48}),
    ("max_plus", {"m": 192, "n": 256, "k": 256}),
    ("max_plus", {"m": 96, "n": 128, "k": 192}),
    ("l1_distances", {"m": 256, "n": 256, "k": 96}),
    ("l1_distances", {"m": 100, "n": 384, "k": 64}),
    ("stencil_27", {"depth": 32, "height": 48, "width": 96}),
    ("stencil_27", {"depth": 16, "height": 64, "width": 64}),
    ("cost_volume", {"channels": 32, "height": 32, "width": 96, "disparities": 24}),
    ("five_point", {"height": 512, "width": 1024}),
    ("windowed_variance", {"rows": 32, "length": 2048, "window": 24}),
    ("bilateral", {"height": 96, "width": 128, "radius": 2}),
    ("argmax_product", {"m": 96, "n": 128, "k": 192}),
    ("nearest_point", {"queries": 192, "points": 512, "width": 12}),
    ("logsumexp", {"outer": 24, "middle": 96, "inner": 256}),
    ("sparse_rows", {"rows": 1024, "slots": 16, "table": 4096, "columns": 128}),
)
TURN = ((DRAWN, 6), (WEIGHED, 2), (SEARCHED, 5))  # rows of each origin in a turn
TRIED = 0.006  # seconds that a row is timed for
SLOW = 3.0  # times the best so far: such a row is timed no longer
AGAIN = 4  # times that a row is timed at most while the machine is slow
QUIET = 1.12  # times the sentinel's shortest: the machine is not slow
FINALISTS, ROUNDS = 24, 8  # of a task's best rows, that are timed in turns at its end


class Sentinel:
    """A kernel that stays the same; how much slower than ever the machine is, it tells."""

    def __init__(self, cpu: Target) -> None:
        func = OPERATORS["matmul"](m=48, n=64, k=64).func
        self.run = Run(code(default(func, cpu, 1).func, cpu), memory(func))
        self.shortest = min(self.run.seconds(0.02) for _ in range(5))

    def slowness(self) -> float:
        """1 where the machine is as fast as ever."""
        took = self.run.seconds(0.0001, 2)
        self.shortest = min(self.shortest, took)
        return took / self.shortest


@dataclass
class Measured:
    """A table in the making."""

    func: Func
    cpu: Target
    threads: int
    sentinel: Sentinel
    own: Plan
    best: float = float("inf")
    found: dict[bytes, list[Any]] = field(default_factory=dict)  # row, seconds, origin
    runs: list[tuple[float, bytes, Run]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.arrays = memory(self.func)

    def compiled(self, schedule: Schedule) -> Run:
        return Run(code(schedule.func, self.cpu), self.arrays)

    def take(self, row: Rows, origin: int) -> float:
        """Time a row; infinite where it is no schedule after all, which no table keeps."""
        try:
            point = {"strategy": SKETCH, **self.own.point(row)}
            run = self.compiled(partial(self.func, self.cpu, self.threads, point))
        except (ScheduleError, CompileError):
            return float("inf")
        took = self.timed(run)
        self.best = min(self.best, took)
        self.found[row.tobytes()] = [row, took, origin]
        self.runs = sorted([*self.runs, (took, row.tobytes(), run)], key=lambda r: r[:2])
        del self.runs[FINALISTS:]
        return took

    def timed(self, run: Run) -> float:
        """Seconds of a kernel on the machine as it is at its best."""
        shortest = float("inf")
        for _ in range(AGAIN):
            before = self.sentinel.slowness()
            took = run.seconds(0, 1)
            took = min(took, run.seconds(TRIED if took < SLOW * self.best else 0, 2))
            slow = max(1.0, (before + self.sentinel.slowness()) / 2)
            shortest = min(shortest, took / slow)
            if slow < QUIET:
                break
        return shortest

    def finals(self, own: Run) -> float:
        """Time the best rows and the default in turns, so that none is best by luck; gives what the
        default takes."""
        runs = {b"": own} | {key: run for _, key, run in self.runs}
        times = {key: list[float]() for key in runs}
        for _ in range(ROUNDS):
            for key, run in runs.items():
                times[key].append(self.timed(run))
        took = {
            key: float(np.median(np.sort(found)[: ROUNDS // 2])) for key, found in times.items()
        }
        for key in runs.keys() - {b""}:
            self.found[key][1] = took[key]
        return took[b""]


def frozen_task(
    operator: str, sizes: dict[str, int], rows: int, seconds: float, sentinel: Sentinel, cpu: Target
) -> Table:
    """The table of one task: so many rows, or as many as so many seconds allow."""
    func, threads, random = OPERATORS[operator](**sizes).func, 1, np.random.default_rng(7)
    own = plan(func, cpu, threads)
    if own is None:
        raise typer.BadParameter(f"no plan schedules '{operator}'")
    table, history = Measured(func, cpu, threads, sentinel, own), History(own)
    explorers: dict[int, Explorer] = {
        DRAWN: Random(own, random),
        WEIGHED: Portfolio(own, random),
        SEARCHED: Descent(own, random),
    }
    end = time.perf_counter() + seconds
    while len(table.found) < rows and time.perf_counter() < end:
        for origin, count in TURN:
            proposed = explorers[origin].propose(history, count)
            history.add(proposed, [table.take(row, origin) for row in proposed])
    took = table.finals(table.compiled(default(func, cpu, threads)))
    found = [*table.found.values()]
    task = Task(operator, sizes, named(own), took)
    return Table(
        task,
        np.stack([row for row, _, _ in found]),
        np.asarray([took for _, took, _ in found]),
        np.asarray([origin for _, _, origin in found]),
    )


def main(
    names: Annotated[list[str] | None, typer.Argument(help="operators; default: all")] = None,
    rows: Annotated[int, typer.Option(help="of each table")] = 440,
    seconds: Annotated[float, typer.Option(help="for each table, at most")] = 32.0,
    output: Annotated[Path, typer.Option(help="the file; tables of others stay in it")] = FROZEN,
) -> None:
    """Measure tables, and write each as soon as it is there."""
    cpu = target("cpu")
    about, sentinel, made = machine.describe(), Sentinel(cpu), this_build()
    build = f"{made.version}, LLVM {made.llvm}, {made.key[:12]}"
    kept = list(load(output).tables) if names and output.exists() else []
    for operator, sizes in SIZES:
        if names and operator not in names:
            continue
        table = frozen_task(operator, sizes, rows, seconds, sentinel, cpu)
        kept = [t for t in kept if t.task.name != table.task.name] + [table]
        save(Frozen(str(cpu), about["processor"], 1, build, tuple(kept)), output)
        print(
            f"{table.task.name}: {len(table.rows)} rows, best {table.seconds.min() * 1e6:.0f} µs, "
            f"median {np.median(table.seconds) * 1e6:.0f}, default {table.task.default * 1e6:.0f}",
            file=sys.stderr,
            flush=True,
        )


if __name__ == "__main__":
    typer.run(main)
