"""Sources: the files that this package consists of, as they were when the process imported them.

In: a package's folder. Out: its Python files, and tables that these read, by name, time of change
and size. The one idea: what a compiler is follows from its files, and whether one of them is
another one now, the times say.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache

from tilewright.support.cache import make_key

KINDS = (".py", ".jsonl")  # of files that say what is compiled
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # this package's folder
SourceFile = tuple[str, int, int]  # name in the package's folder, time of change, bytes


@lru_cache(maxsize=1)
def imported() -> list[SourceFile]:
    """The files that this process has imported, as they were: a later change of them is not in
    it."""
    return source_files()


@lru_cache(maxsize=1)
def compiler() -> str:
    """What the compiler that this process has imported is known by."""
    return make_key(repr(imported()))


def source_files(root: str = ROOT) -> list[SourceFile]:
    """Those files in a package's folder, in order of their names."""
    return sorted(source_file(f.path[len(root) + 1 :], f.stat()) for f in found_files(root))


def source_file(name: str, status: os.stat_result) -> SourceFile:
    """A file by its name in the package's folder and by what changes with it."""
    return name.replace(os.sep, "/"), status.st_mtime_ns, status.st_size


def found_files(root: str) -> Iterator[os.DirEntry[str]]:
    """Those in a folder and in all folders below it."""
    waiting = [root]
    while waiting:
        with os.scandir(waiting.pop()) as listing:
            for entry in listing:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif entry.name.endswith(KINDS):
                    yield entry
