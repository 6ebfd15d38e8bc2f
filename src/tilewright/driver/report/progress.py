"""Progress of long work on standard error; nothing is drawn where that is no terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tilewright.driver.report.terminal import errors
from tilewright.driver.stages import Stages


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    )


@contextmanager
def compiling(what: str) -> Iterator[Stages]:
    """Stages to compile with; shows the one that is being worked on."""
    with _bar() as bar:
        task = bar.add_task(f"compiling {what}", total=None)

        def tell(stage: str, done: int, total: int) -> None:
            bar.update(
                task,
                description=f"compiling {what}: {stage}",
                completed=done,
                total=total or None,
            )

        yield Stages(progress=tell)


@contextmanager
def counting(what: str, total: int) -> Iterator[Progress]:
    """A bar of `total` steps: call `advance(n)` of what is given with the number done."""
    with _bar() as bar:
        bar.add_task(what, total=total)
        yield bar
