"""Run cases and print a table: model, batch, frontend, error, arena ratio, compile seconds.

    python -m tests.e2e --all
    python -m tests.e2e [NAME ...] [--batch N] [--frontend onnx|torch] [--threads N]

Ends with exit code 1 if a case fails; each failure is shown with its cause.
"""

from __future__ import annotations

import argparse
import gc
import sys
import traceback

from rich.console import Console
from rich.table import Table

from tests.e2e.cases import Case, cases, judge

PATTERN = "{:<28} {:>5}  {:<6} {:>9} {:>8} {:>9}  {}"


def main() -> int:
    chosen, threads = arguments()
    console = Console()
    table = Table("model", "batch", "frontend", "max error", "arena", "compile s", "verdict")
    failures: dict[Case, str] = {}
    for number, case in enumerate(chosen, 1):
        row = [case.name, str(case.batch), case.frontend]
        try:
            figures = judge(case, threads)
            row += [f"{figures.error:.1e}", f"{figures.arena:.3f}", f"{figures.compile:.1f}"]
            fault = "; ".join(figures.faults)
        except Exception:  # one broken model must not end the run
            row += ["", "", ""]
            fault = traceback.format_exc()
        if fault:
            failures[case] = fault
        row.append(fault.strip().splitlines()[-1][:60] if fault else "ok")
        table.add_row(*row)
        print(f"{number}/{len(chosen)}", PATTERN.format(*row), flush=True)
        gc.collect()
    console.print(table)
    for case, fault in failures.items():
        console.print(f"\n{case}\n{fault}", markup=False)
    console.print(f"{len(chosen) - len(failures)} of {len(chosen)} cases agree")
    return bool(failures)


def arguments() -> tuple[list[Case], int | None]:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e")
    parser.add_argument("names", nargs="*", help="models of the zoo")
    parser.add_argument("--all", action="store_true", help="every model")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--frontend", choices=("onnx", "torch"))
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    if not given.names and not given.all:
        parser.error("name models, or say --all")
    known = {case.name for case in cases()}
    for name in given.names:
        if name not in known:
            parser.error(f"no model '{name}'; there are {', '.join(sorted(known))}")
    chosen = [
        case
        for case in cases()
        if (given.all or case.name in given.names)
        and given.batch in (None, case.batch)
        and given.frontend in (None, case.frontend)
    ]
    return chosen, given.threads


if __name__ == "__main__":
    sys.exit(main())
