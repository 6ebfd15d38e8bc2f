"""Files mapped into memory, read-only, whose pages can be given back.

What was read through a mapping stays with the process until somebody else needs the memory. Whoever
has read much that is not needed soon says so; what is read again comes from the system's cache.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import re
import weakref
from collections.abc import Iterator
from pathlib import Path

_living: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


def map_file(file: int, offset: int = 0, length: int = 0) -> memoryview:
    """`length` bytes of an open file from `offset` on; 0: all. The file must be as long. Raises
    OSError, ValueError."""
    skipped = offset % mmap.ALLOCATIONGRANULARITY
    kept = length and length + skipped
    made = mmap.mmap(file, kept, access=mmap.ACCESS_READ, offset=offset - skipped)
    _living.add(made)
    return memoryview(made)[skipped:]


def release_pages() -> None:
    """Give the pages of all mapped files back; their content stays what it is."""
    for one in list(_living):
        if not one.closed and hasattr(mmap, "MADV_DONTNEED"):
            with contextlib.suppress(OSError, ValueError):  # closed meanwhile
                one.madvise(mmap.MADV_DONTNEED)


def release_library(name: str) -> int:
    """Give back the pages of a loaded shared library that hold what its file does: its code and its
    constants, not what was relocated or written. The next use of them reads them again. name: a
    part of the library's path. Returns the bytes of these areas: 0 where the system does not tell.
    """
    given = 0
    with contextlib.suppress(OSError, AttributeError):
        madvise = ctypes.CDLL(None, use_errno=True).madvise
        for start, end in _unchanged(name):
            if madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED):
                continue
            given += end - start
    return given


def _unchanged(name: str) -> Iterator[tuple[int, int]]:
    """The addresses of areas that map a file of this name, are not writable, and of which no page
    is the process's own (as Linux has it; raises OSError elsewhere)."""
    text = Path("/proc/self/smaps").read_text()
    for area in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", text, flags=re.MULTILINE):
        head, _, about = area.partition("\n")
        if name in head and head.split()[1][:2] == "r-" and re.search(r"Anonymous: +0 kB", about):
            start, end = head.split()[0].split("-")
            yield int(start, 16), int(end, 16)
