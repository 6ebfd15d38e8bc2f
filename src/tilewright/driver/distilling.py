"""Distilling: from the records of tuning to the next default, and back.

In: a database of tuning, seconds. Out: what a challenger brings, and whether it counts from now on.
The one idea: the records propose; what they do not know of a proposal is timed, if there are
seconds for it, beside the default.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from tilewright.strategy.learned import Row, Table, shipped
from tilewright.support.errors import TilewrightError
from tilewright.tune.database import Database
from tilewright.tune.distil import Challenger, examined
from tilewright.tune.examples import FAILED, Example, examples
from tilewright.tune.learned_log import Entry, Log, beside
from tilewright.tune.measure import Bench
from tilewright.tune.records import OK, Trial
from tilewright.tune.workload import workload

EACH = 4.0  # seconds that measuring one schedule beside the default takes at most


def distil(
    database: Database, seconds: float = 0.0, told: Callable[[str], None] = lambda what: None
) -> tuple[Challenger, Entry]:
    """Make a challenger of what the database knows, and let it count from now on for who compiles
    by that database, as far as the records show that it is better. seconds: what may be spent on
    timing what they do not say. told: what is timed. Raises RecordsFault."""
    log = Log(beside(database.path))
    end = time.monotonic() + seconds

    def measure(example: Example, row: Row) -> None:
        left = end - time.monotonic()
        if left > 0:
            told(f"{row}, on {example.key}")
            with suppress(TilewrightError):  # it stays unknown
                _timed(database, example, row, min(EACH, left))

    known = examples(database)
    made = examined(known, log.table.over(shipped()), database.build.version, measure)
    own = Table(row for row in made.table if row not in shipped().rows)  # those count anyhow
    made = replace(made, table=own)
    return made, log.judge(made, database.build.version)


def _timed(database: Database, example: Example, row: Row, seconds: float) -> None:
    """Note what a row brings a workload, beside the default, and record what was timed."""
    point = example.followed(row)
    with Bench(example.func, example.machine, example.threads) as bench:
        outcomes = bench.measure([example.default, point])
        verdict = bench.duel(example.default, point, seconds)
    trials = [
        Trial(p, o.seconds, OK if o.status == "timed" else o.status, o.compiled)
        for p, o in zip((example.default, point), outcomes, strict=True)
    ]
    database.add(workload(example.func), example.machine, example.threads, trials)
    ratio = verdict.ratio if math.isfinite(verdict.ratio) else 1 / FAILED
    example.note(point, 1 / max(ratio, 1e-3))
