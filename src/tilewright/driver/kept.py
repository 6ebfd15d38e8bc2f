"""Opening a compiled model that the cache has.

In: the file. Out: the executable. One that has operators of other packages (`tilewright.operator`)
counts only as long as these are what they were: the cache's key knows the model and this compiler.
"""

from __future__ import annotations

from pathlib import Path

from tilewright.runtime.executor import Executable

NOTE = "operators"  # in a manifest: the names of those operators, and what each was known by


def open_kept(path: Path, threads: int) -> Executable:
    """The executable. Raises ValueError if an operator in it is another one now, or gone."""
    made = Executable(path, threads)
    told = made.manifest.notes.get(NOTE)
    if told:
        from tilewright.graph.plugins import digests

        if digests(told) != told:
            raise ValueError("operators of other packages have changed")
    return made
