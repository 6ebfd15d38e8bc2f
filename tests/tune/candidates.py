"""Random functions by random schedules of their spaces, run and compared: none may be wrong.

    python -m tests.tune.candidates [--count 100000] [--seed 1] [--threads 1,2] [--cpus native,…]
    python -m tests.tune.candidates --case 4711     # one function again, with its text

Of each function: rows of its sketch's plan, points of its family's strategy and of the generic one.
All run in child processes, between pages that nobody may touch, in shares of threads.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Annotated

import typer

from tests.tune.candidate_runs import Runs, Verdict, run_cases, told_case


def main(
    count: Annotated[int, typer.Option(help="candidates to run")] = 100_000,
    seed: Annotated[int, typer.Option(help="of all random choices")] = 1,
    threads: Annotated[str, typer.Option(help="comma-separated")] = "1,2",
    cpus: Annotated[str, typer.Option(help="comma-separated")] = "native,haswell,nehalem",
    first: Annotated[int, typer.Option(help="the function to begin with")] = 0,
    case: Annotated[int, typer.Option(help="only this function, and its text")] = -1,
    minutes: Annotated[float, typer.Option(help="end after so many; 0: when all are run")] = 0,
) -> None:
    """Run candidates; exit code 1 if one is wrong, crashes, hangs or fails but by ScheduleError."""
    runs = Runs(seed, tuple(map(int, threads.split(","))), tuple(cpus.split(",")))
    if case >= 0:
        print(told_case(runs, case))
        first, count = case, 1
    counts, began, functions = Counter[str](), time.perf_counter(), 0
    refused, failures = Counter[str](), list[Verdict]()
    for verdict in run_cases(runs, first):
        functions += 1
        counts += verdict.counts
        refused += verdict.refused
        if verdict.failures:
            failures.append(verdict)
            for failure in verdict.failures:
                print(f"case {verdict.number}: {failure}", flush=True)
        passed = time.perf_counter() - began
        if functions % 50 == 0:
            print(f"{functions} functions, {told(counts)}, {passed:.0f} s", flush=True)
        if counts["run"] >= count or 0 < 60 * minutes < passed or functions == count == 1:
            break
    print(f"{functions} functions: {told(counts)}; {len(failures)} with failures; {passed:.0f} s")
    for reason, times in refused.most_common():
        print(f"  refused {times} ({times / counts.total():.2%} of all): {reason}")
    sys.exit(bool(failures))


def told(counts: Counter[str]) -> str:
    return ", ".join(f"{n} {what}" for what, n in sorted(counts.items()))


if __name__ == "__main__":
    typer.run(main)
