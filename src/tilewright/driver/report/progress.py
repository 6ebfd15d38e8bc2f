"""Progress of long work in the terminal; nothing is drawn where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tilewright.driver.stages import Stages


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


@contextmanager
def compiling(console: Console, what: str) -> Iterator[Stages]:
    """Stages to compile with; shows the one that is being worked on."""
    with _bar(console) as bar:
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
def counting(console: Console, what: str, total: int) -> Iterator[Progress]:
    """A bar of `total` steps: call `advance(n)` of what is given with the number done."""
    with _bar(console) as bar:
        bar.add_task(what, total=total)
        yield bar
