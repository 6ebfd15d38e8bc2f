"""The commands about tuning: `tune` a model, and `records` of what was found.

In: a model, a budget, a database. Out: printed and recorded. As in `cli.py` the compiler is
imported where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright.driver.cli_options import FixedSizes, Json, Level, Model, Threads, Winograd
from tilewright.driver.report.terminal import console, say, show_json
from tilewright.support.files import check_folder

INTERRUPTED = 130  # the exit status after Ctrl-C
Records = Annotated[
    Path | None,
    typer.Option(
        "--database", help="Where tuning records what it finds; by default your own records."
    ),
]


def tune_command(
    model: Model,
    seconds: Annotated[float, typer.Option(help="What it takes, about.")] = 60.0,
    trials: Annotated[int | None, typer.Option(help="Measure at most so many candidates.")] = None,
    database: Records = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Write the tuned model, an artifact.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="Write one HTML page of how it went.")
    ] = None,
    target: Annotated[
        str, typer.Option("--target", help="The machine: one that this one, or a device, runs.")
    ] = "cpu",
    device: Annotated[
        list[str] | None,
        typer.Option(help="Who measures: ssh://user@host:port, ray, ray://host:port; repeatable."),
    ] = None,
    threads: Threads = None,
    size: FixedSizes = None,
    opt_level: Level = 3,
    winograd: Winograd = None,
    seed: Annotated[int, typer.Option(min=0, help="Of inputs and candidates.")] = 0,
    as_json: Json = False,
) -> None:
    """Search faster schedules for a model's kernels on this machine, and record them.

    Only what was shown to be faster, in turns with the default, is kept; the machine had better be
    idle. Ctrl-C ends the search and keeps what was found. Then `compile --database` uses it.
    """
    from tilewright.driver.export import export
    from tilewright.driver.report import records
    from tilewright.driver.report.inputs import read_sizes
    from tilewright.driver.tuning import tune

    for written in (out, report):
        if written is not None:
            check_folder(written)
    with _progress(Path(model).name) as progress:
        found = tune(
            model,
            target,
            devices=device or None,
            seconds=seconds,
            trials=trials,
            database=database or True,
            threads=threads,
            shapes=read_sizes(size or []),
            opt_level=opt_level,
            winograd=winograd,
            seed=seed,
            progress=progress,
        )
    path: Path | None = None
    if out is not None and found.executable is not None:
        path = found.executable.save(out)
    elif out is not None:  # it is for another machine
        given = {"threads": threads, "opt_level": opt_level, "winograd": winograd}
        shapes = read_sizes(size or [])
        path = export(model, out, target=target, shapes=shapes, database=database or True, **given)
    if report is not None:
        found.report(report)
    if as_json:
        told = records.tuning(found)
        files = {"artifact": path and str(path), "report": report and str(report)}
        show_json(records.document("tune", **told, **files))
    else:
        if found.tasks:
            console.print(found.table())
        say(found.total)
        if path is not None:
            say(f"{path}: the tuned model")
        if report is not None:
            say(f"{report}: how it went")
    if found.is_interrupted:
        raise typer.Exit(INTERRUPTED)


def records_command(
    database: Records = None,
    export: Annotated[
        Path | None, typer.Option(help="Write all records as text, a JSON object a line.")
    ] = None,
    champions: Annotated[
        bool, typer.Option("--champions", help="With --export: what won, without the trials.")
    ] = False,
    merge: Annotated[
        list[Path] | None,
        typer.Option(help="Take over what another machine exported, or another database."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what tuning has recorded; export it, or merge what others recorded."""
    from tilewright.driver.champions import database_path
    from tilewright.driver.report import records, tables
    from tilewright.tune.database import Database

    if champions and export is None:
        raise typer.BadParameter("it is a part of --export", param_hint="--champions")
    path = database_path(database or True)
    with Database(path) as opened:
        new = [(str(other), opened.merge(other)) for other in merge or []]
        if export is not None:
            opened.export(export, trials=not champions)
        stats = opened.stats()
    if as_json:
        told = records.stats(path, stats)
        merged = [{"file": name, "new": count} for name, count in new]
        show_json(
            records.document("records", **told, merged=merged, exported=export and str(export))
        )
        return
    for name, count in new:
        say(f"{name}: {count} new records")
    console.print(tables.stats_table(stats))
    say(f"{path}: {tables.bytes_text(stats.nbytes)}")
    if export is not None:
        say(f"{export}: the records as text")


@contextmanager
def _progress(name: str) -> Iterator[Callable[[float, str], None]]:
    """A bar on standard error: the part of the budget that is spent, and what for."""
    from tilewright.driver.report.progress import counting

    with counting(f"tuning {name}", 100) as bar:

        def tell(part: float, what: str) -> None:
            task: Any = bar.task_ids[0]
            bar.update(task, completed=100 * part, description=f"tuning {name}: {what}")

        yield tell
