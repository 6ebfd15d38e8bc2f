"""The command: `python -m benchmarks --models resnet18,dqn --threads 1,2 --output table.md`."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import kernels, machine, pages, report
from benchmarks.engines import ENGINES, TUNED
from benchmarks.measure import Plan, measure, steps
from tests import zoo

DEFAULT = [name for name in zoo.names() if not name.startswith(("light_", "filled_"))]


def chosen(text: str, known: list[str], what: str) -> list[str]:
    """The names in a comma-separated list, each checked."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"no {what} '{name}'; there are {', '.join(known)}")
    return names


def main(
    models: Annotated[str, typer.Option(help="comma-separated; default: all but light files")] = "",
    engines: Annotated[str, typer.Option(help="comma-separated; default: all installed")] = "",
    threads: Annotated[str, typer.Option(help="comma-separated thread counts")] = "1,2",
    seconds: Annotated[float, typer.Option(help="timed seconds per model, engine, threads")] = 2.0,
    batch: Annotated[int, typer.Option(help="batch size")] = 1,
    tuning: Annotated[
        float, typer.Option(help="seconds to tune each model, and a column of what that brought")
    ] = 0.0,
    python: Annotated[
        list[str] | None, typer.Option(help="ENGINE=PATH: that engine's own interpreter")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="markdown file; JSON beside it")] = None,
    others: Annotated[
        bool, typer.Option("--others", help="instead of the models: sixty more architectures")
    ] = False,
    distinct: Annotated[
        bool, typer.Option("--kernels", help="instead, our kernels one by one; see kernels.py")
    ] = False,
) -> None:
    """Measure engines side by side, or our kernels one by one, and print the table."""
    pythons = dict(entry.split("=", 1) for entry in python or [])
    installed = [name for name in ENGINES if ENGINES[name].is_installed or name in pythons]
    listed = [name for name in installed if name != TUNED or tuning > 0]
    default = list(zoo.OTHERS) if others else DEFAULT
    plan = Plan(
        models=chosen(models, [*zoo.names(), *zoo.OTHERS], "model") or default,
        engines=chosen(engines, list(ENGINES), "engine") or listed,
        threads=[int(count) for count in threads.split(",")],
        seconds=seconds,
        batch=batch,
        tuning=tuning,
        pythons=pythons,
    )
    about = machine.describe()
    if distinct:
        with told(len(plan.models) * len(plan.threads)) as progress:
            text = kernels.write(plan, about, kernels.read(output), progress)
    else:
        with tempfile.TemporaryDirectory() as folder, told(steps(plan)) as progress:
            if TUNED in plan.engines and tuning > 0:  # records of this run alone
                os.environ["TILEWRIGHT_DATABASE"] = str(Path(folder) / "records.db")
            found = measure(plan, Path(folder), progress)
        text = report.page(plan, found, about, others)
        if output is not None:
            document = report.document(plan, found, about)
            output.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
    print(text)
    if output is not None:
        pages.write(output, text)


@contextmanager
def told(total: int) -> Iterator[Callable[[str], None]]:
    """A bar of `total` steps, each told by its description; plain lines where there is no
    terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("start", total=total)

        def progress(step: str) -> None:
            bar.update(task, advance=1, description=step)
            if not console.is_terminal:
                console.print(step)

        yield progress


if __name__ == "__main__":
    typer.run(main)
