"""Where the bench takes tuned schedules from."""

from __future__ import annotations

from tilewright.ir.stmt import Func
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.space import point
from tilewright.target.target import Target
from tilewright.tune.search import tune_function


def tuned(func: Func, target: Target, threads: int, seconds: float) -> Schedule | None:
    """The best schedule of `func` that a search of so many seconds finds, the default where nothing
    beats it; nothing is known from earlier searches."""
    found = tune_function(func, target, threads, seconds=seconds)
    return point(func, target, threads, found.champion.point)
