"""Tables that fit the terminal and never cut a number.

In: columns of text. Out: lines of at most the width that there is. The one idea: a cell folds where
a reader would (after spaces, `_`, `/`, the x of a shape), never inside a number; where folding to
a few letters is not enough, whole columns are left out, the least important first, and a last line
says which.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

from tilewright.support.record import record

NARROWEST = 20  # letters to which cells fold before columns are left out,
SMALLEST = 8  # and where what is left does not fit either
GAP = 2  # spaces between columns, and before the first
_PARTS = re.compile(r".*?(?:[\s_/|,;:]+|(?<=\d)x(?=\d)|$)")
_UNITS = re.compile(r"[+-]?\d[\d.]*(?:e[+-]?\d+)?|.")


@record
class Column:
    """A column. drop: the larger, the sooner it is left out; 0: it stays."""

    name: str
    drop: int = 0
    is_number: bool = False


class Table:
    """A title, columns and rows of text."""

    def __init__(self, title: str, *columns: Column) -> None:
        self.title, self.columns = title, columns
        self.rows: list[tuple[list[str], str]] = []  # cells and style

    def add_row(self, *cells: str, style: str = "") -> None:
        """A row: a text for each column."""
        if len(cells) != len(self.columns):
            raise ValueError(f"{len(cells)} cells for {len(self.columns)} columns")
        self.rows.append(([printable(cell) for cell in cells], style))

    def lines(self, width: int) -> Iterator[tuple[str, str]]:
        """The table in lines of at most `width`, each with its style."""
        kept = list(range(len(self.columns)))
        widths = list[int]()
        for narrowest in (NARROWEST, SMALLEST):
            least = {n: self._least(n, narrowest) for n in kept}
            kept = self._kept(least, width)
            widths = self._widths(kept, least, width)
            if sum(widths) + GAP * len(widths) <= width:
                break
        yield from ((line, "bold") for line in fold(printable(self.title), width))
        yield "", ""
        heads = [self.columns[n].name for n in kept]
        yield from ((line, "bold") for line in self._row(heads, kept, widths))
        yield " " + "─" * (sum(widths) + GAP * len(widths) - 1), ""
        for cells, style in self.rows:
            for line in self._row([cells[n] for n in kept], kept, widths):
                yield line, style
        left_out = [c.name for n, c in enumerate(self.columns) if n not in kept]
        if left_out:
            told = f"(at {width} columns without: {', '.join(left_out)})"
            yield from (("  " + line, "dim") for line in fold(told, width - 2))
        yield "", ""

    def _kept(self, least: Mapping[int, int], width: int) -> list[int]:
        """The columns that fit when they fold as far as they may."""
        kept = list(least)
        while sum(least[n] + GAP for n in kept) > width:
            droppable = [n for n in kept if self.columns[n].drop]
            if not droppable:
                break
            kept.remove(max(droppable, key=lambda n: self.columns[n].drop))
        return kept

    def _least(self, n: int, narrowest: int) -> int:
        """To how many letters a column may fold."""
        least = max([cell_len(part.rstrip()) for part in parts_of(self.columns[n].name)])
        for cell in self._cells(n):
            for part in parts_of(cell):
                size = cell_len(part.rstrip())
                if size > narrowest:
                    size = max(narrowest, *map(len, _UNITS.findall(part)))
                least = max(least, size)
        return max(least, min(narrowest, self._natural(n)))

    def _natural(self, n: int) -> int:
        return max(map(cell_len, [self.columns[n].name, *self._cells(n)]))

    def _cells(self, n: int) -> list[str]:
        return [cells[n] for cells, _ in self.rows]

    def _widths(self, kept: Sequence[int], least: Mapping[int, int], width: int) -> list[int]:
        """Each column's width: what it folds to, and equal parts of what is left as far as it has
        use for them."""
        found = dict(least)
        room = max(0, width - sum(least[n] + GAP for n in kept))
        wanting = sorted((self._natural(n) - least[n], n) for n in kept)
        for at, (more, n) in enumerate(wanting):
            given = min(more, room // (len(wanting) - at))
            found[n] += given
            room -= given
        return [found[n] for n in kept]

    def _row(
        self, cells: Sequence[str], kept: Sequence[int], widths: Sequence[int]
    ) -> Iterator[str]:
        folded = [fold(cell, width) for cell, width in zip(cells, widths, strict=True)]
        for at in range(max(map(len, folded), default=0)):
            line = ""
            for n, parts, width in zip(kept, folded, widths, strict=True):
                part = parts[at] if at < len(parts) else ""
                space = " " * (width - cell_len(part))
                line += " " * GAP + (space + part if self.columns[n].is_number else part + space)
            yield line.rstrip()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        for line, style in self.lines(options.max_width):
            yield Text(line, style=style, no_wrap=True, overflow="ignore")


def printable(text: str) -> str:
    """The text in one line without what would steer a terminal: names come from files."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def parts_of(text: str) -> list[str]:
    """The parts of a text between which a line may end."""
    return [part for part in _PARTS.findall(text) if part]


def fold(text: str, width: int, indent: int = 0) -> list[str]:
    """The text in lines of at most `width`, all but the first indented. Only a number that is
    longer makes a line longer."""
    lines, line = list[str](), ""
    for part in parts_of(text):
        if cell_len(line + part.rstrip()) <= width:
            line += part
            continue
        units = [part]
        if cell_len(part.rstrip()) > width - indent:
            units = _UNITS.findall(part)
        for unit in units:
            if line.strip() and cell_len(line + unit.rstrip()) > width:
                lines.append(line.rstrip())
                line = " " * indent
            line += unit
    return [*lines, line.rstrip()]
