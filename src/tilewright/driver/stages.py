"""The stages of a compilation: how long each took, and how far it is.

In: blocks of work under a name. Out: seconds by name, and calls of whoever shows progress.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.support.logs import DEBUG, INFO, is_logged, log

Observer = Callable[[str, Any, Any, float], None]  # step, program before, after, seconds
Progress = Callable[[str, int, int], None]  # stage, parts done, parts in all (0: not known)


def _silent(stage: str, done: int, total: int) -> None:
    """The progress of who does not look."""


class Stages:
    """Seconds that each stage of a compilation took, in order.

    A name with a slash ("kernels/lower") is a part of the stage before the slash, and is not
    counted again; the parts of "kernels" are sums over all threads and worker processes, of what
    `clock` says there.
    """

    def __init__(
        self, progress: Progress = _silent, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.progress, self.clock = progress, clock
        self.seconds: dict[str, float] = {}
        self.notes: dict[str, str] = {}  # what there is to say of a stage, by its name
        self.at = ""  # the stage that began last
        self._inside = 0.0  # seconds of stages that began inside the running one

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Count a block's time to a stage; what stages inside it take is theirs alone."""
        if self.at != name:
            self.progress(name, 0, 0)
        self.at = name
        self.seconds.setdefault(name, 0.0)  # in the order that they begin
        outside, self._inside = self._inside, 0.0
        start = self.clock()
        yield
        took = self.clock() - start
        self.add(name, took - self._inside)
        self._inside = outside + took

    def add(self, name: str, seconds: float) -> None:
        """Count `seconds` to a stage or part."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def observe(self, stage: str) -> Observer:
        """An observer that counts each step as a part of `stage`."""
        return lambda name, before, after, seconds: self.add(f"{stage}/{name}", seconds)

    def when(self) -> str:
        """For messages: in which stage a compilation is."""
        return f"in stage '{self.at}' of compiling" if self.at else ""

    @property
    def total(self) -> float:
        """Seconds of all stages."""
        return sum(s for name, s in self.seconds.items() if "/" not in name)

    def tell(self, what: str) -> None:
        """The end of a compilation, to the logger `tilewright.compile`: the time of all (INFO), and
        before it of each stage (DEBUG)."""
        if is_logged(DEBUG, "compile"):
            for depth, name, seconds in self.rows()[:-1]:
                if depth == 0:
                    note = self.note(depth, name)
                    log(DEBUG, "compile", "%s: %.1f ms%s", name, seconds * 1e3, note)
        log(INFO, "compile", "%s in %.1f ms", what, self.total * 1e3)

    def rows(self) -> list[tuple[int, str, float]]:
        """(depth, name, seconds) of each stage, its parts below it, and the total."""
        rows: list[tuple[int, str, float]] = []

        def add(name: str) -> None:
            rows.append((name.count("/"), name.rpartition("/")[2], self.seconds[name]))
            for part in self.seconds:
                if part.rpartition("/")[0] == name:
                    add(part)

        for name in self.seconds:
            if "/" not in name:
                add(name)
        return [*rows, (0, "total", self.total)]

    def __str__(self) -> str:
        return "\n".join(
            f"{'    ' * depth + name:<28}{seconds * 1e3:9.1f} ms{self.note(depth, name)}"
            for depth, name, seconds in self.rows()
        )

    def note(self, depth: int, name: str) -> str:
        """What there is to say in a row, after a space and in brackets; else nothing."""
        return f"  ({self.notes[name]})" if depth == 0 and name in self.notes else ""


def asked(source: Any) -> str:
    """For messages: what cannot be done with a source."""
    return f"cannot compile {named(source)}"


def named(source: Any) -> str:
    """For messages: a source as the user gave it."""
    if isinstance(source, str | os.PathLike):
        return f"'{os.fspath(source)}'"
    return "these bytes" if isinstance(source, bytes) else f"this {type(source).__name__}"
