"""Files mapped into memory, read-only, whose pages can be given back.

What was read through a mapping stays with the process until somebody else needs the memory. Whoever
has read much that is not needed soon says so; what is read again comes from the system's cache.
"""

from __future__ import annotations

import contextlib
import mmap
import weakref

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
