"""What can be seen of a compilation: the time of each stage, and the program between any two steps.

In: steps as they happen, each a name with the program before and after it. Out: what the knobs ask
for: numbered text files (DUMP), programs on standard error (PRINT), changes (DIFF), checks
(VERIFY), times (TIME). The one idea: passes know nothing of it; a compilation calls its observers,
and a `Watch` is plain data, so that it travels to the processes that compile kernels.
"""

from __future__ import annotations

import difflib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilewright.ir.stmt import Func
from tilewright.ir.text import print_func
from tilewright.lower.pipeline import PIPELINE
from tilewright.support import knobs
from tilewright.support.errors import TilewrightError, UserFault, VerifyError
from tilewright.support.record import record

KERNEL_STEPS = ("te", "schedule", *(p.name for p in PIPELINE), "emit", "assembly")
_SUFFIX = {"emit": ".ll", "host": ".ll", "assembly": ".s"}


def model_steps() -> tuple[str, ...]:
    """The steps of a model; those of each kernel are `KERNEL_STEPS`."""
    from tilewright.graph.passes import pipeline  # compile workers need no graphs

    parts = pipeline.PIPELINE, pipeline.LAST
    passes, last = (tuple(name for name, _ in steps) for steps in parts)
    layouts = "widen_convolutions", "one_row", "choose_layouts"
    return ("import", *passes, *layouts, *last, "fuse", "plan_memory", "host")


@record
class Watch:
    """What to show of the programs on their way. folder: for files."""

    folder: Path | None = None
    show: tuple[str, str] | None = None  # ("before" or "after", a step or "*")
    verify: bool = False
    diff: bool = False

    @property
    def is_on(self) -> bool:
        """Does it look at programs (so that none may come from the cache)?"""
        return self != Watch()

    def named(self, model: str) -> Watch:
        """The same for one compilation: its files in a new folder of the model's name."""
        return self if self.folder is None else replace(self, folder=_claim(self.folder, model))

    def variant(self, number: int) -> Watch:
        """The same for the kernels of a further code variant: their files in a folder of its
        own."""
        if self.folder is None:
            return self
        return replace(self, folder=self.folder / f"variant-{number}")

    def trail(self, kernel: str = "") -> Trail:
        """The observer of one program: the model's, or a kernel's."""
        return Trail(self, kernel)


def watch() -> Watch:
    """What the knobs ask to see. Raises UserFault for a step that is not one."""
    show = knobs.PRINT.read()
    steps = (*model_steps(), *KERNEL_STEPS)
    if show is not None and show[1] != "*" and show[1] not in steps:
        raise UserFault(
            f"cannot print {show[0]} '{show[1]}'",
            "there is no such step",
            remedy=f"the steps are {', '.join(dict.fromkeys(steps))}, and * for all",
        )
    return Watch(knobs.DUMP.read(), show, knobs.VERIFY.read(), knobs.DIFF.read())


def _claim(parent: Path, name: str) -> Path:
    """A new folder called `name`, or name-2, name-3 … where others have been before."""
    number = 1
    while True:
        folder = parent / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            number += 1
        except OSError as fault:
            raise UserFault(
                f"cannot write to TILEWRIGHT_DUMP={parent}", str(fault), remedy="name a folder"
            ) from fault


class Trail:
    """The way of one program: shows each step as its `Watch` says."""

    def __init__(self, watch: Watch, kernel: str) -> None:
        self.watch, self.kernel, self.number = watch, kernel, 0

    def __call__(self, name: str, before: Any, after: Any, seconds: float) -> None:
        seen = self.watch
        if seen.folder is not None and after is not before:
            folder = seen.folder / self.kernel
            folder.mkdir(parents=True, exist_ok=True)
            file = f"{self.number:02}_{name.replace(' ', '_')}{_SUFFIX.get(name, '.txt')}"
            (folder / file).write_text(text_of(after))
        self.number += 1
        if seen.show is not None and seen.show[1] in (name, "*"):
            program = before if seen.show[0] == "before" else after
            if program is not None:
                self.tell(f"{seen.show[0]} {name}", text_of(program))
        if seen.diff and after is not before and type(after) is type(before):
            self.tell(f"changed by {name}", changes(text_of(before), text_of(after)))
        if seen.verify and not self.kernel and after is not before:
            verify_graph(after, name)

    def tell(self, what: str, text: str) -> None:
        """One message on standard error, whole: other processes write there, too."""
        about = f" ({self.kernel})" if self.kernel else ""
        sys.stderr.write(f"# {what}{about}\n{text.rstrip()}\n\n")
        sys.stderr.flush()


def text_of(program: Any) -> str:
    """A program in any form as text."""
    if isinstance(program, Func):
        return print_func(program)
    return str(program() if callable(program) else program)


def changes(before: str, after: str) -> str:
    """The lines that differ, with two lines around them."""
    lines = difflib.unified_diff(before.split("\n"), after.split("\n"), lineterm="", n=2)
    return "\n".join(list(lines)[2:]) or "(nothing in its text)"


def verify_graph(graph: Any, after: str) -> None:
    """Check a graph by its text: names, order of definition and every operator's type rule. Other
    objects pass. Raises VerifyError."""
    from tilewright.graph.graph import Graph
    from tilewright.graph.parse import parse

    if not isinstance(graph, Graph):
        return
    try:
        same = parse(str(graph)) == graph
    except TilewrightError as fault:
        raise VerifyError(f"the graph is not well formed after {after}: {fault}") from fault
    if not same:
        raise VerifyError(f"the graph after {after} is not what its text says:\n\n{graph}")
