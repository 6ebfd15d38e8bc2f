"""The command: `python -m benchmarks.tuning [NAME …] --threads 1 --seconds 2 --output table.md`.

In: names of operators, all by default. Out: a table, and its numbers as JSON beside the file.
"""

from __future__ import annotations

import datetime
import importlib
import json
import os
import secrets
import sys
import warnings
from math import exp, log
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import machine, pages
from benchmarks.tuning.compare import Row, compare, judged
from benchmarks.tuning.operators import OPERATORS
from benchmarks.tuning.rates import Meter
from tilewright.target.target import target

LIBRARIES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
WARM = 5  # turns of the rates' kernels before the first operator
HEAD = ["operator", "limit", "at least", "default", "of it", "tuned", "of it", "gain", "NumPy",
        "PyTorch"]  # fmt: skip
PAGE = """# Operators that no strategy was written for

Written by `python -m benchmarks.tuning`: {threads} thread{s}, µs, minima of calls in turns; results
agreed with the references. "at least" is what the machine's own rates allow for the operator's
steps ("compute") or bytes ("memory"), see `benchmarks/tuning/rates.py`. PyTorch is `torch.compile`,
or eager where that failed (*).

{about}; {date}.

{rates}

"""


def main(
    names: Annotated[list[str] | None, typer.Argument(help="default: all")] = None,
    threads: Annotated[int, typer.Option(help="of all that is measured")] = 1,
    seconds: Annotated[float, typer.Option(help="timed for each operator")] = 1.0,
    tuning: Annotated[float, typer.Option(help="to search a schedule for each operator")] = 0.0,
    torch: Annotated[bool, typer.Option(help="compare with PyTorch, if it is installed")] = True,
    output: Annotated[Path | None, typer.Option(help="markdown file; JSON beside it")] = None,
) -> None:
    """Check and measure the operators and print the table."""
    for name in names or []:
        if name not in OPERATORS:
            raise typer.BadParameter(f"no operator '{name}'; there are {', '.join(OPERATORS)}")
    limit_libraries(threads)
    cpu, module, seed = target("cpu"), pytorch(threads) if torch else None, secrets.randbits(32)
    meter = Meter(cpu, threads)
    for _ in range(WARM):
        meter.turn()
    found: list[Row] = []
    for name in names or OPERATORS:
        row = compare(
            OPERATORS[name](), cpu, threads, seconds, meter, tuning=tuning, torch=module, seed=seed
        )
        found.append(row)
        print(" | ".join(cells(row)), file=sys.stderr, flush=True)
    rates = meter.rates()  # those of all minutes
    rows = [judged(OPERATORS[row.operator](), row.found, rates) for row in found]
    text = page(rows, threads, rates.describe())
    print(text)
    if output is not None:
        pages.write(output, text)
        document = {"threads": threads, "seed": seed, "machine": machine.describe(),
                    "rates": {"steps": rates.steps, "bytes": rates.bytes},
                    "rows": [row.document() for row in rows]}  # fmt: skip
        output.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")


def limit_libraries(threads: int) -> None:
    """Start this process again if libraries would take another number of threads: they read it
    when they are loaded."""
    wanted = dict.fromkeys(LIBRARIES, str(threads))
    if any(os.environ.get(name) != count for name, count in wanted.items()):
        os.execve(sys.executable, sys.orig_argv, os.environ | wanted)


def pytorch(threads: int) -> Any:
    """The module torch for so many threads; None where there is none."""
    try:
        module = importlib.import_module("torch")
    except ImportError:
        return None
    warnings.simplefilter("ignore")
    module.set_num_threads(threads)
    return module


def cells(row: Row) -> list[str]:
    """A row of the table as text."""

    def microseconds(*names: str) -> str:
        times = [row.found[name].minimum for name in names if name in row.found]
        return f"{times[0] * 1e6:.0f}" if times else ""

    def percent(name: str) -> str:
        part = row.part(name)
        return "" if part is None else f"{part:.0%}"

    gain = ""
    if "tuned" in row.found:
        gain = f"{row.found['default'].minimum / row.found['tuned'].minimum:.2f}"
    eager = "*" * ("torch" in row.found)
    return [
        row.operator, row.limit, f"{row.attainable * 1e6:.0f}", microseconds("default"),
        percent("default"), microseconds("tuned"), percent("tuned"), gain, microseconds("numpy"),
        microseconds("compiled", "torch") + eager,
    ]  # fmt: skip


def mean(values: list[float]) -> float:
    """The geometric mean."""
    return exp(sum(map(log, values)) / len(values))


def table(lines: list[list[str]]) -> str:
    """Cells as markdown."""
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def page(rows: list[Row], threads: int, rates: str) -> str:
    """The page: what it was measured on, the table, and its means."""
    about = machine.describe()
    head = PAGE.format(
        threads=threads,
        s="s" * (threads > 1),
        about=f"{about['processor']}, {' '.join(about['instruction_sets'])}; load "
        f"{about['load_at_start']}",
        date=datetime.date.today().isoformat(),
        rates="\n".join(f"- {line}" for line in rates.splitlines()),
    )
    lines = []
    for name in ("default", "tuned"):
        parts = [part for row in rows if (part := row.part(name)) is not None]
        if parts:
            lines.append(
                f"{name}: geometric mean {mean(parts):.0%} of the attainable rate, "
                f"{sum(p >= 0.8 for p in parts)} of {len(parts)} at 80 % or more, "
                f"least {min(parts):.0%}."
            )
    return (
        head
        + table([HEAD, ["---"] * len(HEAD), *map(cells, rows)])
        + "\n"
        + "\n".join(lines)
        + "\n"
    )


if __name__ == "__main__":
    typer.run(main)
