"""The command: `python -m tests.differential --count 1000 --seed 1 [--case N] [--keep DIR]`.

Grows graphs, compiles and runs each in a process of its own, prints failures by their cause with
the smallest graph that shows them; exit code 1 when there is one. `--case N` runs one here.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.differential.draw import grow
from tests.differential.growth import Grown
from tests.differential.table import TABLE
from tests.differential.verdict import cause, run, smallest, verdict_on

DIFFERENCE = "exception, Difference"
SLOW = 20.0  # seconds


def text_of(graph: Grown) -> str:
    """A graph to read: inputs, small constants, nodes."""
    lines = [f"opset {graph.version}"]
    for v in graph.given:
        kind = "constant" if v.fixed else "input"
        shapes = " ".join(str(list(w.shape)) for w in v.worlds)
        small = (
            np.array2string(v.worlds[0], threshold=24).replace("\n", "")
            if v.worlds[0].size <= 24
            else ""
        )
        lines.append(f"{kind} {v.name}: {v.dtype.name} {shapes} {small}")
    for step in graph.steps:
        lines.append(onnx.printer.to_text(step.node))
    lines.append("return " + ", ".join(v.name for v in graph.outputs))
    return "\n".join(lines)


def keep_case(folder: Path, graph: Grown) -> None:
    """Write the model, its inputs and what is expected."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(graph.model(), folder / "model.onnx")
    arrays: dict[str, Any] = {v.name: v.worlds[0] for v in (*graph.inputs, *graph.outputs)}
    np.savez(folder / "arrays.npz", **arrays)


def main(
    count: Annotated[int, typer.Option(help="how many graphs")] = 200,
    seed: Annotated[int, typer.Option(help="of the graphs")] = 1,
    first: Annotated[int, typer.Option(help="the first graph's number")] = 0,
    case: Annotated[int | None, typer.Option(help="run this one here and show it")] = None,
    shrinks: Annotated[int, typer.Option(help="how many failures are made small")] = 20,
    keep: Annotated[Path | None, typer.Option(help="write the small graphs here")] = None,
) -> None:
    """Compile random graphs and compare them with the reference."""
    if case is not None:
        graph = grow(seed, case)
        print(text_of(graph))
        run(graph)
        print("agrees")
        return
    report = Report(shrinks, keep)
    columns = (TextColumn("graphs"), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with (
        Progress(*columns, console=console, auto_refresh=False) as bar,  # a refresh is a thread
        contextlib.suppress(KeyboardInterrupt),  # what was done so far is told
    ):
        task = bar.add_task("", total=count)
        for number in range(first, first + count):
            report.add(number, grow(seed, number))
            bar.update(task, advance=1, refresh=number % 20 == 0)
            if (number + 1) % 100 == 0:
                report.tell(number + 1)  # so that what is stopped can be gone on with: --first
    report.print()
    sys.exit(0 if not report.causes else 1)


class Report:
    """Counts verdicts; failures by their cause, the first of each made small and printed."""

    def __init__(self, shrinks: int, keep: Path | None) -> None:
        self.shrinks, self.keep = shrinks, keep
        self.kinds: Counter[str] = Counter()
        self.ops: Counter[str] = Counter()
        self.causes: dict[str, list[int]] = {}

    def add(self, number: int, graph: Grown) -> None:
        self.ops.update(s.node.op_type for s in graph.steps)
        verdict = verdict_on(graph)
        self.kinds[verdict.kind] += 1
        if verdict.seconds > SLOW:
            print(f"# graph {number} took {verdict.seconds:.0f} s", flush=True)
        if verdict.kind == "ok":
            return
        name = cause(verdict)
        is_difference = name.startswith(DIFFERENCE)
        if (is_difference or name not in self.causes) and self.shrinks:
            self.shrinks -= 1
            graph = smallest(graph, verdict)
        if is_difference:
            name = f"difference in {' '.join(s.node.op_type for s in graph.steps[:5])}"
        if name not in self.causes:
            told = verdict_on(graph).detail
            print(f"graph {number}: {told}\n{text_of(graph)}\n", flush=True)
            if self.keep is not None:
                keep_case(self.keep / str(number), graph)
        self.causes.setdefault(name, []).append(number)

    def tell(self, next_: int) -> None:
        counts = ", ".join(f"{n} {kind}" for kind, n in self.kinds.most_common())
        print(f"# up to {next_}: {counts}", flush=True)

    def print(self) -> None:
        for name, numbers in sorted(self.causes.items(), key=lambda entry: -len(entry[1])):
            print(f"{len(numbers):5} × {name}\n        graphs {', '.join(map(str, numbers[:12]))}")
        missing = sorted({e.op for e in TABLE} - set(self.ops))
        told = f", none of {missing}" if missing else ""
        print(f"{sum(self.ops.values())} operators of {len(self.ops)} kinds{told}")
        counts = ", ".join(f"{n} {kind}" for kind, n in self.kinds.most_common())
        print(f"{sum(self.kinds.values())} graphs: {counts}")


if __name__ == "__main__":
    typer.run(main)
