"""Where the command line writes: results to standard output, all else to standard error.

In: tables, program text, JSON. Out: what fits the terminal's width; in a pipe or a file nothing is
folded or left out, unless COLUMNS says how wide it is.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from rich.console import Console
from rich.syntax import Syntax

from tilewright.driver.report.layout import fold, printable

ENDLESS = 1_000_000  # columns of what is no terminal
CONTINUED = 8  # spaces before what is left of a line of program text


def _console(stderr: bool) -> Console:
    made = Console(stderr=stderr, highlight=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = ENDLESS
    return made


console, errors = _console(stderr=False), _console(stderr=True)


def say(text: str, style: str = "") -> None:
    """A line of text, folded where numbers stay whole."""
    for line in fold(printable(text), console.width):
        console.print(line, style=style, markup=False, soft_wrap=True)


def show_code(text: str, language: str) -> None:
    """A program's text; elsewhere than on a terminal, as it is."""
    if console.is_terminal:
        console.print(Syntax(text, language, background_color="default", word_wrap=True))
    else:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")


def show_text(text: str) -> None:
    """Lines that a person reads and a program may: folded on a terminal, or as COLUMNS says."""
    for line in text.rstrip("\n").split("\n"):
        for part in fold(line, console.width, CONTINUED):
            console.print(part, markup=False, soft_wrap=True)


def show_json(record: Any) -> None:
    """A record as JSON: numbers that it has not (NaN, infinities) are null."""
    sys.stdout.write(json.dumps(_finite(record), indent=2) + "\n")


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {str(name): _finite(one) for name, one in value.items()}  # pyright: ignore
        case list() | tuple():
            return [_finite(one) for one in value]  # pyright: ignore
        case float():
            return value if abs(value) < float("inf") else None
        case _:
            return value
