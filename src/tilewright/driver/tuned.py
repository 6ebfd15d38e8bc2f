"""What tuning says of itself: a row for each task, the model before and after, as text, HTML and a
page that shows how it went.

In: what became of the tasks, how calls of the model compare. Out: `Tuning`. Its table is as wide as
a page at most; nothing is computed here that the tuner does not know.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tilewright.driver.report.layout import Table, fold
from tilewright.driver.report.tables import numbers, words
from tilewright.driver.report.task_row import TaskRow
from tilewright.driver.report.tuning_page import tuning_page
from tilewright.runtime.executor import Executable
from tilewright.schedule.schedule import Schedule
from tilewright.support import html
from tilewright.support.files import writing
from tilewright.support.record import record

WIDTH = 100  # columns of what is printed


@record
class Tuning:
    """What `tilewright.tune` found.

    Attributes:
        name: of the model or function. target, threads: the machine's line, and for how many.
        tasks: a row for each.
        before, after: seconds of a call, untuned and as `executable` is now, timed in turns.
            Of a function: what its kernel takes. Equal where nothing is kept.
        decided: what came of it all, in words.
        seconds, trials: that were spent.
        is_interrupted: was it ended by Ctrl-C?
        executable: the model or function, compiled with what was kept; None where this machine does
            not run the target's code: `export(..., database=)` makes files of it.
        schedule: of a function: the one that won, or the default; None for a model.
    """

    name: str
    target: str
    threads: int
    tasks: tuple[TaskRow, ...]
    before: float
    after: float
    decided: str
    seconds: float
    trials: int
    is_interrupted: bool
    executable: Executable | None
    schedule: Schedule | None = None

    @property
    def ratio(self) -> float:
        """How many times as fast a call is."""
        return self.before / self.after if self.after > 0 else 1.0

    def table(self) -> Table:
        """The tasks, those first that take most of a call."""
        made = Table(
            f"tuning {self.name}",
            words("kernel"),
            numbers("launches", 2),
            *map(numbers, ("default µs", "tuned µs", "ratio")),
            numbers("trials", 3),
            words("what decided", 1),
        )
        for row in self.ordered():
            times = f"{1e6 * row.default:.1f}", f"{1e6 * row.tuned:.1f}", f"{row.ratio:.2f}"
            made.add_row(row.name, f"{row.launches:g}", *times, str(row.trials), row.decided)
        return made

    def ordered(self) -> list[TaskRow]:
        """The tasks, those first that take most of a call."""
        return sorted(self.tasks, key=lambda row: -row.launches * row.default)

    @property
    def total(self) -> str:
        """The last line: what a call takes, and what that took."""
        call = f"a call: {1e6 * self.before:.1f} µs before, {1e6 * self.after:.1f} µs after"
        on = html.counted(self.threads, "thread")
        ended = ", interrupted" if self.is_interrupted else ""
        spent = f"{html.counted(self.trials, 'trial')} in {self.seconds:.1f} s{ended}"
        return f"{call} ({self.ratio:.2f} times as fast) on {on}; {spent}; {self.decided}"

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write one HTML page, which needs nothing else: the fastest schedules against seconds,
        tasks before and after below the machine's roofs, and which decisions mattered. Finding out
        the roofs takes about half a second; those of a machine that is not here are left out.
        Returns the path. Raises WriteFault where it cannot be written."""
        target = Path(path)
        told = f"{self.target}. {self.total}"
        roofline = None if self.executable is None else self.executable.roofline()
        text = tuning_page(self.name, told, self.ordered(), self.seconds, roofline)
        with writing(target):
            target.write_text(text, encoding="utf-8")
        return target

    def __repr__(self) -> str:
        tasks = html.counted(len(self.tasks), "task")
        call = f"{1e6 * self.before:.1f} -> {1e6 * self.after:.1f} us a call"
        return f"<Tuning of {self.name}: {tasks}, {call}>"

    def __str__(self) -> str:
        lines = [line for line, _ in self.table().lines(WIDTH)] if self.tasks else []
        return "\n".join([*lines, *fold(self.total, WIDTH)])

    def _repr_html_(self) -> str:
        head = "kernel", "what decided", "launches", "default us", "tuned us", "ratio", "trials"
        rows: list[tuple[Any, ...]] = [
            (
                row.name,
                row.decided,
                f"{row.launches:g}",
                f"{1e6 * row.default:.1f}",
                f"{1e6 * row.tuned:.1f}",
                f"{row.ratio:.2f}",
                row.trials,
            )
            for row in self.ordered()
        ]
        listed = html.folded("tasks", html.table([head, *rows], left=2), len(rows))
        return html.block(f"Tuning {self.name}", self.total, listed)
