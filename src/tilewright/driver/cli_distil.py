"""The command `distil`: what tuning won, as defaults for what was not tuned; and the way back.

In: a database, seconds. Out: printed, and noted in the log beside the database. As in `cli.py` the
compiler is imported where it is used.
"""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import typer

from tilewright.driver.cli_options import Json
from tilewright.driver.cli_tune import Records
from tilewright.driver.report.terminal import console, say, show_json
from tilewright.support.files import check_folder, writing


def distil_command(
    database: Records = None,
    seconds: Annotated[
        float, typer.Option(min=0.0, help="Measure what the records do not say, so long at most.")
    ] = 0.0,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Take the last accepted table back.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="The table that counts, and how it came about.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Write the table that counts, a row a line.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make rules of what tuning found, for functions that were not tuned.

    Rules count for who compiles with --database, from now on, if workloads that they were not made
    of gain by them. What was accepted and refused is noted in a file beside the records.
    """
    from tilewright.driver.champions import database_path
    from tilewright.driver.distilling import distil
    from tilewright.driver.report import records, tables
    from tilewright.tune.database import Database
    from tilewright.tune.learned_log import Log, beside

    if rollback and (seconds or show):
        raise typer.BadParameter("it is all that is done then", param_hint="--rollback")
    if out is not None:
        check_folder(out)
    path = database_path(database or True)
    log = Log(beside(path))
    judged = ()
    if rollback:
        entries = [log.roll_back()]
    elif show:
        entries = log.entries()
    else:
        with Database(path) as opened:
            made, entry = distil(opened, seconds)
        judged, entries = made.judged, [entry]
    table = log.table
    if out is not None:
        with writing(out):
            out.write_text("".join(table.lines()), encoding="utf-8")
    if as_json:
        told = records.distilled(log.path, table, entries, judged)
        show_json(records.document("distil", **told, table=out and str(out)))
        return
    for entry in entries:
        at = datetime.fromtimestamp(entry.at, timezone.utc)
        say(f"{at:%Y-%m-%d %H:%M}: {entry.decided}")
        for why in entry.why:
            say(f"  {why}")
    if len(table):
        console.print(tables.learned_table(table))
    say(f"{log.path}: {len(table)} rule{'s' * (len(table) != 1)}")
    if out is not None:
        say(f"{out}: the rules as text")
