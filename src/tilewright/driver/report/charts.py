"""A profile drawn: the roofline plot and the timeline of a run, as SVG.

In: a profile. Out: the text of one `<svg>` element each, styled by the classes "compute" and
"memory" (see `report.page`). A kernel's details are its `<title>`, which browsers show on hover.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from tilewright.runtime.profile import KernelTime, Profile, Roofline

WIDTH, HEIGHT, BAR = 900.0, 420.0, 70.0  # of a chart; of a timeline's bar
LEFT, RIGHT, TOP, BOTTOM = 60.0, 20.0, 24.0, 40.0  # around a chart's field
DECADES = 6  # below the peak that the plot shows at most; what is slower lies on its lower edge


def details(kernel: KernelTime) -> str:
    """One kernel in a few lines of text."""
    times = f", {kernel.launches:g} launches" if kernel.launches != 1 else ""
    shape = "x".join(map(str, kernel.shape))
    return (
        f"{kernel.name}: {' '.join(kernel.ops)} {shape}\n"
        f"{kernel.microseconds:.1f} us{times}\n"
        f"{kernel.gflops:.1f} GFLOP/s, {kernel.gbytes:.1f} GB/s, "
        f"{kernel.intensity:.2g} flop/byte\n"
        f"limit: {kernel.limit}, {kernel.roofline:.0f} % of it"
    )


class Scale:
    """Whole decades around some positive numbers, on a stretch of a chart."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self.low = math.floor(math.log10(min(values)))
        self.high = max(math.ceil(math.log10(max(values))), self.low + 1)
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        """Where a value stands; at an edge if it lies outside (0 and infinity do)."""
        power = math.log10(value) if 0 < value < math.inf else math.copysign(math.inf, value - 1)
        fraction = (power - self.low) / (self.high - self.low)
        return self.start + (self.end - self.start) * min(max(fraction, 0.0), 1.0)

    @property
    def decades(self) -> list[float]:
        """The powers of ten on it."""
        return [10.0**power for power in range(self.low, self.high + 1)]


def roofline_plot(profile: Profile) -> str:
    """Operations for each byte against GFLOP/s, both on scales of decades, under the machine's two
    roofs. A kernel is a dot, the larger the more of the time it takes; a kernel without operations
    is a ring on the left edge, as far under the roof there as its GB/s are under the machine's."""
    kernels = [k for k in profile.kernels if k.microseconds > 0]
    machine = profile.machine
    ridge = machine.gflops / machine.gbytes
    x = Scale(
        [ridge / 10, ridge * 10, *(k.intensity for k in kernels if 0 < k.intensity < math.inf)],
        LEFT,
        WIDTH - RIGHT,
    )
    rates = [k.gflops or k.gbytes * x.decades[0] for k in kernels]
    least = machine.gflops / 10**DECADES
    y = Scale(
        [machine.gflops, machine.gbytes * x.decades[0], *(max(rate, least) for rate in rates)],
        HEIGHT - BOTTOM,
        TOP,
    )
    longest = max((k.microseconds for k in kernels), default=1.0)
    dots = [
        _dot(k, x(k.intensity), y(rate), 3 + 11 * math.sqrt(k.microseconds / longest))
        for k, rate in sorted(zip(kernels, rates, strict=True), key=lambda p: -p[0].microseconds)
    ]
    return svg(HEIGHT, "the roofline plot", [*axes(x, y), *roofs(machine, x, y), *dots])


def _dot(kernel: KernelTime, x: float, y: float, radius: float) -> str:
    kind = kernel.limit if kernel.flops else f"{kernel.limit} ring"
    return (
        f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}">'
        f"<title>{escape(details(kernel))}</title></circle>"
    )


def roofs(machine: Roofline, x: Scale, y: Scale) -> list[str]:
    """Main memory's rate rises with the intensity until the arithmetic units are the limit."""
    ridge = machine.gflops / machine.gbytes
    left, right = x.decades[0], x.decades[-1]
    corners = [(left, left * machine.gbytes), (ridge, machine.gflops), (right, machine.gflops)]
    points = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in corners)
    (x0, y0), (x1, y1) = ((x(a), y(b)) for a, b in corners[:2])
    slope = math.degrees(math.atan2(y1 - y0, x1 - x0))
    return [
        f'<polyline class="roof" points="{points}"/>',
        words_at(x(right) - 4, y(machine.gflops) - 6, f"{machine.gflops:.0f} GFLOP/s", "end"),
        f'<g transform="translate({x0:.1f} {y0:.1f}) rotate({slope:.1f})">'
        + words_at(10, -6, f"{machine.gbytes:.1f} GB/s from main memory")
        + "</g>",
    ]


def axes(x: Scale, y: Scale) -> list[str]:
    """The grid of decades, with what it counts."""
    lines: list[str] = []
    for value in x.decades:
        lines.append(line(x(value), TOP, x(value), HEIGHT - BOTTOM))
        lines.append(words_at(x(value), HEIGHT - BOTTOM + 16, f"{value:g}", "middle"))
    for value in y.decades:
        lines.append(line(LEFT, y(value), WIDTH - RIGHT, y(value)))
        lines.append(words_at(LEFT - 6, y(value) + 4, f"{value:g}", "end"))
    lines.append(words_at((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, "flop / byte", "middle"))
    lines.append(words_at(8, 14, "GFLOP/s"))
    return lines


def timeline(profile: Profile) -> str:
    """One run from left to right: a bar for each kernel in the program's order, as wide as its
    part of the time, filled up to its % of the roofline; last, the time between kernels."""
    inside = sum(k.microseconds for k in profile.kernels)
    total = max(profile.microseconds, inside) or 1.0
    scale = (WIDTH - LEFT - RIGHT) / total
    parts: list[str] = []
    at = 0.0
    for k in profile.kernels:
        parts.append(_bar(k, LEFT + at * scale, k.microseconds * scale))
        at += k.microseconds
    title = f"<title>between kernels: {total - inside:.1f} us</title>"
    parts.append(_rect("between", LEFT + at * scale, TOP, (total - inside) * scale, BAR, title))
    for quarter in range(5):
        x = LEFT + (WIDTH - LEFT - RIGHT) * quarter / 4
        parts.append(line(x, TOP + BAR, x, TOP + BAR + 5))
        anchor = "end" if quarter == 4 else "middle"
        parts.append(words_at(x, TOP + BAR + 18, f"{total * quarter / 4:.0f} us", anchor))
    return svg(TOP + BAR + BOTTOM, "the timeline of a run", parts)


def _bar(kernel: KernelTime, x: float, width: float) -> str:
    full = BAR * min(kernel.roofline, 100.0) / 100
    letters = int(width / 7)  # of this font that fit
    label = kernel.name if len(kernel.name) <= letters else kernel.name[: letters - 1] + "…"
    return (
        f'<g class="{kernel.limit}"><title>{escape(details(kernel))}</title>'
        + _rect("room", x, TOP, width, BAR)
        + _rect("full", x, TOP + BAR - full, width, full)
        + (words_at(x + 3, TOP - 6, label) if letters >= 4 else "")
        + "</g>"
    )


def _rect(kind: str, x: float, y: float, width: float, height: float, inner: str = "") -> str:
    return (
        f'<rect class="{kind}" x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" '
        f'height="{height:.2f}">{inner}</rect>'
    )


def line(x1: float, y1: float, x2: float, y2: float) -> str:
    """A line of the grid."""
    return f'<line class="grid" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def words_at(x: float, y: float, text: str, anchor: str = "start") -> str:
    """Words that begin, lie in the middle or end there."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def svg(height: float, label: str, parts: Sequence[str]) -> str:
    """The chart that these parts make."""
    inner = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height:g}" '
        f'role="img" aria-label="{escape(label)}">\n{inner}\n</svg>'
    )
