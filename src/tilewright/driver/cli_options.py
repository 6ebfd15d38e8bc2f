"""The options of the command line: their types, their help, and how their texts are read.

In: words of a command. Out: values. Wrong usage is typer.BadParameter, a file's fault InputError.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Annotated

import typer

Model = Annotated[str, typer.Argument(help="An .onnx file.", metavar="MODEL")]
AnyModel = Annotated[str, typer.Argument(help="An .onnx file, or a compiled .tw.", metavar="MODEL")]
TargetOption = Annotated[
    str, typer.Option("--target", help="The machine, as `tilewright targets` lists them.")
]
TargetsOption = Annotated[
    list[str] | None,
    typer.Option("--target", help="The machine; several, widest first, for code for each of them."),
]
Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="Threads of one call; by default one for each core."),
]
Level = Annotated[
    int,
    typer.Option(
        "--opt-level",
        min=0,
        max=3,
        help="0: operator by operator; 1: graph passes and fusion; 2, 3: packed layouts, too.",
    ),
]
Sizes = Annotated[
    list[str] | None,
    typer.Option("--size", help="An open size, as in batch=4 (the least unless given)."),
]
FixedSizes = Annotated[
    list[str] | None,
    typer.Option("--size", help="An open size, as in height=320: compile for it alone."),
]
Given = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        help="An input's file, as in image=photo.png: .npy, .npz or an image; others are random.",
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object (docs/command_line.md), no tables.")
]
Winograd = Annotated[
    bool | None,
    typer.Option(
        "--winograd/--no-winograd",
        help="Whether 3x3 convolutions may be Winograd's: faster, less exact.",
        show_default="on",
    ),
]

Recorded = Annotated[
    str | None,
    typer.Option(
        "--database",
        help="Use the schedules that `tilewright tune` recorded there; 'own': in your own records.",
    ),
]


class Layout(str, Enum):
    """Where images have their channels."""

    nchw = "nchw"
    nhwc = "nhwc"


class Fit(str, Enum):
    """What to do with images of another size than the model's."""

    stretch = "stretch"
    crop = "crop"
    pad = "pad"


class Form(str, Enum):
    """The forms of a kernel."""

    te = "te"
    trace = "trace"
    schedule = "schedule"
    loops = "loops"
    flat = "flat"
    vector = "vector"
    llvm = "llvm"
    asm = "asm"


def recorded(database: str | None) -> str | bool | None:
    """What `tilewright.compile` takes as `database`."""
    return True if database == "own" else database


def numbers(option: str, text: str) -> list[int]:
    """Numbers in "1,2"."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise typer.BadParameter(f"'{text}' is no list such as 1,2", param_hint=option)
    return [int(word) for word in words]


def floats(option: str, text: str, nonzero: bool = False) -> tuple[float, ...]:
    """Numbers in "0.5" or "0.485,0.456,0.406"; none in an empty text."""
    try:
        found = tuple([float(word) for word in text.split(",")]) if text else ()
    except ValueError:
        found = (math.nan,)
    if not all(math.isfinite(n) and (n or not nonzero) for n in found):
        raise typer.BadParameter(f"'{text}' is no list such as 0.5,0.5,0.5", param_hint=option)
    return found
