"""A run of tuning drawn: the fastest schedule against seconds, and tasks that move on the roofline.

In: seconds and what was the fastest by then; tasks before and after. Out: the text of one `<svg>`
element each, styled by the classes "course", "kept" and "move" (see `report.page`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import pairwise

from tilewright.driver.report.charts import (
    BOTTOM,
    DECADES,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Scale,
    axes,
    line,
    roofs,
    svg,
    words_at,
)
from tilewright.runtime.profile import Roofline
from tilewright.support.record import record

LOW = 160.0  # pixels of a chart of seconds
TICKS = 5
Course = Sequence[tuple[float, float]]  # after so many seconds, what the fastest takes


@record
class Move:
    """A task on the roofline. flops, nbytes: of a launch; before, after: its seconds; share: of a
    call's time."""

    name: str
    flops: int
    nbytes: int
    before: float
    after: float
    share: float


def course_chart(course: Course, before: float, kept: float, seconds: float, what: str) -> str:
    """What the fastest so far takes, in steps that never rise, from `before` on; `kept` is what
    counts in the end."""
    steps = [(0.0, before)]
    for at, took in course:
        if took < steps[-1][1]:
            steps.append((at, took))
    last = max(seconds, steps[-1][0]) or 1.0
    values = [kept, *(took for _, took in steps)]
    low, high = min(values), max(values)
    margin = 0.08 * (high - low) or 0.05 * high or 1.0

    def x(at: float) -> float:
        return LEFT + (WIDTH - RIGHT - LEFT) * at / last

    def y(took: float) -> float:
        return TOP + (LOW - BOTTOM - TOP) * (high + margin - took) / (high - low + 2 * margin)

    points = [f"{x(0):.1f},{y(before):.1f}"]
    for (_, held), (at, took) in pairwise(steps):
        points += [f"{x(at):.1f},{y(held):.1f}", f"{x(at):.1f},{y(took):.1f}"]
    points.append(f"{x(last):.1f},{y(steps[-1][1]):.1f}")
    parts = [
        line(LEFT, LOW - BOTTOM, WIDTH - RIGHT, LOW - BOTTOM),
        *(words_at(x(last * n / TICKS), LOW - BOTTOM + 16, f"{last * n / TICKS:.3g}", "middle")
          for n in range(TICKS + 1)),
        words_at((LEFT + WIDTH - RIGHT) / 2, LOW - 6, "seconds of tuning", "middle"),
        *(words_at(LEFT - 6, y(took) + 4, f"{1e6 * took:.4g}", "end") for took in {low, high}),
        words_at(8, 14, f"µs of {what}"),
        f'<line class="kept" x1="{LEFT:.1f}" y1="{y(kept):.1f}" x2="{WIDTH - RIGHT:.1f}" '
        f'y2="{y(kept):.1f}"><title>kept: {1e6 * kept:.4g} µs</title></line>',
        f'<polyline class="course" points="{" ".join(points)}"/>',
    ]  # fmt: skip
    return svg(LOW, f"the fastest {what} against seconds", parts)


def roofline_moves(moves: Sequence[Move], machine: Roofline) -> str:
    """Operations for each byte against GFLOP/s under the machine's roofs: of each task a ring for
    the default and a dot for what was kept, the larger the more of a call it takes."""
    counted = [m for m in moves if m.flops and m.nbytes and m.before > 0 and m.after > 0]
    ridge = machine.gflops / machine.gbytes
    intensities = [m.flops / m.nbytes for m in counted]
    x = Scale([ridge / 10, ridge * 10, *intensities], LEFT, WIDTH - RIGHT)
    least = machine.gflops / 10**DECADES
    rates = [max(m.flops / s * 1e-9, least) for m in counted for s in (m.before, m.after)]
    y = Scale([machine.gflops, machine.gbytes * x.decades[0], *rates], HEIGHT - BOTTOM, TOP)
    dots: list[str] = []
    for m in sorted(counted, key=lambda m: -m.share):
        at = x(m.flops / m.nbytes)
        was, now = (y(m.flops / s * 1e-9) for s in (m.before, m.after))
        kind, size = machine.limit(m.flops, m.nbytes), 3 + 11 * math.sqrt(min(1.0, m.share))
        title = f"<title>{escape(_details(m, machine))}</title>"
        dots += [
            f'<line class="move" x1="{at:.1f}" y1="{was:.1f}" x2="{at:.1f}" y2="{now:.1f}"/>',
            f'<circle class="{kind} ring" cx="{at:.1f}" cy="{was:.1f}" r="{size:.1f}">{title}'
            "</circle>",
            f'<circle class="{kind}" cx="{at:.1f}" cy="{now:.1f}" r="{size:.1f}">{title}</circle>',
        ]
    return svg(HEIGHT, "tasks before and after", [*axes(x, y), *roofs(machine, x, y), *dots])


def _details(m: Move, machine: Roofline) -> str:
    """A task in a few lines of text."""
    percent = [100 * machine.seconds(m.flops, m.nbytes) / s for s in (m.before, m.after)]
    return (
        f"{m.name}: {m.before / m.after:.2f} times as fast\n"
        f"{1e6 * m.before:.1f} to {1e6 * m.after:.1f} us a launch\n"
        f"{m.flops / m.before * 1e-9:.1f} to {m.flops / m.after * 1e-9:.1f} GFLOP/s, "
        f"{m.flops / m.nbytes:.2g} flop/byte\n"
        f"limit: {machine.limit(m.flops, m.nbytes)}, {percent[0]:.0f} to {percent[1]:.0f} % of it"
    )
