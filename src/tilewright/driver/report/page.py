"""Profiles of a model as one HTML page that needs nothing else: no script, no style, no font.

In: the model's name, what it ran on, a profile for each number of threads. Out: the page's text,
well-formed XML as well: the roofline plot, the timeline and the table of the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tilewright.driver.report.charts import roofline_plot, timeline
from tilewright.runtime.profile import Profile

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem;
  color: #222; background: #fff }
svg { width: 100%; min-width: 40rem; height: auto }
svg text { font: 12px system-ui, sans-serif; fill: #555; stroke: none }
.grid { stroke: #e4e4e4 }
.roof { fill: none; stroke: #333; stroke-width: 2 }
.compute { fill: #d9730d; stroke: #8a4500 }
.memory { fill: #2a78b8; stroke: #124a78 }
circle { fill-opacity: .65 }
circle:hover, g:hover { fill-opacity: 1; stroke-width: 2 }
.ring { fill-opacity: .08 }
.room { fill-opacity: .22; stroke: #fff; stroke-width: .5 }
.full { stroke: none }
.between { fill: #ddd }
.course { fill: none; stroke: #2a78b8; stroke-width: 2 }
.kept { stroke: #d9730d; stroke-dasharray: 4 4 }
.move { stroke: #888 }
.effect { fill: #2a78b8 }
b.compute { color: #a85600 }
b.memory { color: #1c5f96 }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: 13px; min-width: 48rem }
th, td { padding: .15rem .6rem; border-bottom: 1px solid #e4e4e4; text-align: right }
th { border-bottom: 2px solid #999 }
th:nth-child(-n+3), td:nth-child(-n+3) { text-align: left; overflow-wrap: anywhere }
tr:hover { background: #f3f6fa }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #1c1e22 }
  svg text { fill: #aaa }
  .grid { stroke: #3a3d42 }
  .roof { stroke: #ccc }
  .compute { fill: #e88b2e; stroke: #f9c48c }
  .memory { fill: #4a9bdc; stroke: #9fd0f5 }
  .room { stroke: #1c1e22 }
  .between { fill: #4a4d52 }
  .course { stroke: #4a9bdc }
  .effect { fill: #4a9bdc }
  b.compute { color: #f2a65a }
  b.memory { color: #8ec5ee }
  th, td { border-color: #3a3d42 }
  tr:hover { background: #2a2d33 }
}
"""

PLOT = (
    "Each dot is a kernel, the larger the more of the time it takes; below the roofs is what the "
    "machine leaves unused. <b class='compute'>Orange</b> ones are limited by arithmetic, "
    "<b class='memory'>blue</b> ones by memory. Rings on the left edge compute nothing; their "
    "height is their fraction of the memory's rate. Data that is still in a cache lifts a dot "
    "above the slanted roof. Point at a dot for its details."
)
LINE = (
    "Each bar is a kernel with all its launches, in the program's order, as wide as its time. The "
    "full part is the time that the machine's limit allows, the pale part is lost; grey is between "
    "kernels."
)


def page(name: str, inputs: str, profiles: Sequence[Profile]) -> str:
    """The page. inputs: the names, dtypes and shapes of what the model was run on."""
    sections = "\n".join(_section(profile) for profile in profiles)
    return document(f"{name}: profile", name, f"Run on {inputs or 'no inputs'}.", sections)


def document(title: str, heading: str, told: str, sections: str) -> str:
    """A page that needs nothing else: its title, heading and first words as text, the rest as
    markup."""
    return f"""<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{escape(heading)}</h1>
<p>{escape(told)}</p>
{sections}
</body>
</html>
"""


def _section(profile: Profile) -> str:
    inside = sum(k.microseconds for k in profile.kernels)
    threads = f"{profile.threads} thread{'s' * (profile.threads > 1)}"
    return f"""<section>
<h2>{threads}: {profile.microseconds:.1f} us</h2>
<p>{len(profile.kernels)} kernels take {inside:.1f} us of it. On {threads} the machine reaches
{profile.machine.gflops:.0f} GFLOP/s (f32, in registers) and {profile.machine.gbytes:.1f} GB/s from
main memory.</p>
<h3>Roofline</h3>
<p>{PLOT}</p>
<div class="wide">
{roofline_plot(profile)}
</div>
<h3>One run</h3>
<p>{LINE}</p>
<div class="wide">
{timeline(profile)}
</div>
<h3>Kernels</h3>
<div class="wide">
{_table(profile)}
</div>
</section>"""


def _table(profile: Profile) -> str:
    head, *rows = profile.rows()
    cells = "".join(f"<th>{escape(word)}</th>" for word in (*head, "flop/byte", "% of time"))
    lines = [f"<tr>{cells}</tr>"]
    for kernel, row in zip(profile.kernels, rows, strict=True):
        percent = 100 * kernel.microseconds / (profile.microseconds or 1)
        more = (f"{kernel.intensity:.2g}", f"{percent:.1f}")
        lines.append(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in (*row, *more))}</tr>")
    return "<table>\n" + "\n".join(lines) + "\n</table>"
