"""A run of tuning as one HTML page that needs nothing else: no script, no style, no font.

In: what tuning found, the machine's peaks. Out: the page's text, well-formed XML as well: a call
against seconds, the roofline before and after, the tasks, and of each that was tried its course and
which decisions mattered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from tilewright.driver.report.courses import Move, course_chart, roofline_moves
from tilewright.driver.report.page import document
from tilewright.driver.report.task_row import TaskRow
from tilewright.runtime.profile import Roofline

SHOWN = 12  # tasks with a chart of their own
LISTED = 6  # decisions of a task

CALL = (
    "What the kernels of a call take together, by the fastest candidate of each that was timed so "
    "far. The dashed line is what was kept: only who was faster in turns with the default counts."
)
MOVES = (
    "Of each task, a ring for the compiler's own schedule and a dot for the one that was kept, the "
    "larger the more of a call's time it takes. Point at one for its details."
)
MATTERED = (
    "What part of the variance of log time the decision's values explain among the trials; "
    "its value in the fastest one; how many times as long the fastest takes that decides "
    "otherwise. It is said of the candidates that the search chose to try."
)


def tuning_page(
    name: str, told: str, rows: Sequence[TaskRow], seconds: float, machine: Roofline | None
) -> str:
    """The page. told: what came of it all; rows: in the order in which they are shown; seconds: of
    the run; machine: its roofs, None for one that is not here."""
    tried = [row for row in rows if row.course]
    parts = [
        f"<h2>A call</h2>\n<p>{escape(CALL)}</p>",
        _wide(_call(rows, seconds)),
    ]
    if machine is not None:
        parts.append(f"<h2>Roofline</h2>\n<p>{escape(MOVES)}</p>")
        parts.append(_wide(roofline_moves(_moves(rows), machine)))
    parts += ["<h2>Tasks</h2>", _wide(_tasks(rows))]
    if tried:
        parts.append(f"<h2>What mattered</h2>\n<p>{escape(MATTERED)}</p>")
    parts += [_task(row, seconds) for row in tried[:SHOWN]]
    return document(f"{name}: tuning", f"Tuning {name}", told, "\n".join(parts))


def _wide(inner: str) -> str:
    return f'<div class="wide">\n{inner}\n</div>'


def _call(rows: Sequence[TaskRow], seconds: float) -> str:
    """All tasks together, as each of them had a faster candidate."""
    now = {row.name: row.default for row in rows}
    launches = {row.name: row.launches for row in rows}
    before = sum(row.launches * row.default for row in rows)
    total, course = before, list[tuple[float, float]]()
    events = sorted((at, row.name, took) for row in rows for at, took in row.course)
    for at, name, took in events:
        if took < now[name]:
            total -= launches[name] * (now[name] - took)
            now[name] = took
            course.append((at, total))
    kept = sum(row.launches * row.tuned for row in rows)
    return course_chart(course, before, kept, seconds, "a call's kernels")


def _moves(rows: Sequence[TaskRow]) -> list[Move]:
    whole = sum(row.launches * row.default for row in rows) or 1.0
    return [
        Move(r.name, r.flops, r.nbytes, r.default, r.tuned, r.launches * r.default / whole)
        for r in rows
    ]


def _tasks(rows: Sequence[TaskRow]) -> str:
    head = "kernel", "what decided", "launches", "default us", "tuned us", "ratio", "trials"
    cells = [
        (row.name, row.decided, f"{row.launches:g}", f"{1e6 * row.default:.1f}",
         f"{1e6 * row.tuned:.1f}", f"{row.ratio:.2f}", str(row.trials))
        for row in rows
    ]  # fmt: skip
    return _table(head, cells)


def _task(row: TaskRow, seconds: float) -> str:
    """One task: its course, and its decisions."""
    parts = [
        f"<section>\n<h3>{escape(row.name)}</h3>\n<p>{escape(row.decided)}</p>",
        _wide(course_chart(row.course, row.default, row.tuned, seconds, "a launch")),
    ]
    if row.effects:
        head = "decision", "best", "", "explains", "otherwise", "trials"
        cells = [
            (e.decision, str(e.best), "", f"{100 * e.share:.0f} %", _times(e.otherwise),
             str(e.trials))
            for e in row.effects[:LISTED]
        ]  # fmt: skip
        parts.append(_wide(_table(head, cells)))
    return "\n".join([*parts, "</section>"])


def _times(ratio: float) -> str:
    return f"{ratio:.2f}" if math.isfinite(ratio) else "–"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["<tr>" + "".join(f"<th>{escape(word)}</th>" for word in head) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in rows]
    return "<table>\n" + "\n".join(lines) + "\n</table>"
