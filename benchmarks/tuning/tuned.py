"""Where the bench takes tuned schedules from."""

from __future__ import annotations

from tilewright.ir.stmt import Func
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target


def tuned(func: Func, target: Target, threads: int, seconds: float) -> Schedule | None:
    """The best schedule of `func` that a search of so many seconds finds; None: there is no search
    yet, and the table's column stays empty."""
    return None
