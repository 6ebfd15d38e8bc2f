"""HTML for notebooks: small parts of a page, without scripts, that any page may hold.

In: text and rows of cells. Out: markup in which every text is escaped, well-formed XML as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

FOLDED_FROM = 24  # rows or lines that are shown only when opened
MOST_LINES = 2000  # of a program
_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})
_CELL = "padding:.1em .6em;text-align:{};border-bottom:1px solid #8884;vertical-align:top"


def escaped(text: object) -> str:
    """Text as it may stand in a page, or in the quotes of an attribute; what XML forbids is shown
    as a sign of its own."""
    shown = "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in str(text))
    return shown.translate(_ESCAPED)


def table(rows: Iterable[Sequence[object]], left: int = 1) -> str:
    """Rows of cells, the heading first; the first `left` columns are text, the others numbers."""
    lines = list[str]()
    for number, row in enumerate(rows):
        tag = "td" if number else "th"
        cells = list[str]()
        for column, cell in enumerate(row):
            style = _CELL.format("left" if column < left else "right")
            cells.append(f'<{tag} style="{style}">{escaped(cell)}</{tag}>')
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return '<table style="border-collapse:collapse">' + "\n".join(lines) + "</table>"


def preformatted(text: str) -> str:
    """Lines of a program; those in the middle of a very long one are left out."""
    lines = text.rstrip().split("\n")
    if len(lines) > MOST_LINES:
        left_out = len(lines) - MOST_LINES
        half = MOST_LINES // 2
        lines[half : half + left_out] = [f"… {counted(left_out, 'line')} left out …"]
    return f'<pre style="margin:0;overflow-x:auto">{escaped(chr(10).join(lines))}</pre>'


def folded(title: str, content: str, length: int) -> str:
    """Content below its title, closed at first if it is long (rows or lines)."""
    opened = ' open="open"' if length < FOLDED_FROM else ""
    summary = f"<summary>{escaped(title)}</summary>"
    return f'<details style="margin-top:.4em"{opened}>{summary}{content}</details>'


def block(title: str, subtitle: str, *parts: str) -> str:
    """The whole representation of an object."""
    told = f"<b>{escaped(title)}</b> <span>{escaped(subtitle)}</span>"
    head = f'<div style="margin-bottom:.4em">{told}</div>'
    return f'<div style="font-size:90%">{head}{"".join(parts)}</div>'


def counted(count: int, what: str) -> str:
    """As in "1 kernel", "2 kernels"."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def size(nbytes: int) -> str:
    """Bytes in the largest unit of which there is one."""
    for unit, limit in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if nbytes >= limit:
            return f"{nbytes / limit:.1f} {unit}"
    return counted(nbytes, "byte")
