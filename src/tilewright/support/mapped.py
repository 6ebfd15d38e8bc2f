"""Files mapped into memory, read-only, whose pages can be given back.

What was read through a mapping stays with the process until somebody else needs the memory. Whoever
has read much that is not needed soon says so; what is read again comes from the system's cache.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import struct
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path

LOAD, WRITABLE = 1, 2  # of an ELF segment: its kind, its flag

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


def release_libraries(*names: str) -> int:
    """Give back the pages of loaded shared libraries that hold what their files do: their code and
    their constants, not what was relocated or written. The next use of them reads them again from
    the system's cache. names: parts of the libraries' paths. Returns the bytes of these areas: 0
    where the system does not tell.
    """
    given = 0
    with contextlib.suppress(OSError, AttributeError, struct.error, ValueError):
        madvise = ctypes.CDLL(None, use_errno=True).madvise
        for start, end in _unchanged(names):
            if madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED):
                continue
            given += end - start
    return given


def _unchanged(names: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The addresses of areas that map libraries of these names and that their files declare
    read-only (as Linux has it; raises OSError elsewhere). Where relocated constants lie, which are
    read-only too by now, they do not."""
    mapped: dict[str, list[tuple[int, int]]] = {}  # by path, in order of addresses
    for line in Path("/proc/self/maps").read_text().splitlines():
        area, access, *_, path = line.split(maxsplit=5)
        if access[0] == "r" and any(name in path for name in names):
            start, end = (int(n, 16) for n in area.split("-"))
            mapped.setdefault(path, []).append((start, end))
    for path, areas in mapped.items():
        first = areas[0][0]
        kept = [(first + start, first + end) for start, end in _read_only(Path(path))]
        for start, end in areas:
            if any(low <= start and end <= high for low, high in kept):
                yield start, end


def _read_only(library: Path) -> list[tuple[int, int]]:
    """Pages of an ELF library that are loaded and never written: from and to which byte, counted
    from the first that is loaded."""
    with library.open("rb") as file:
        head = file.read(64)
        if head[:6] != b"\x7fELF\x02\x01":  # 64 bits, little-endian
            return []
        (at,), (size, count) = (
            struct.unpack_from("<Q", head, 32),
            struct.unpack_from("<HH", head, 54),
        )
        file.seek(at)
        table = file.read(size * count)
    segments = [struct.unpack_from("<IIQQQQ", table, n * size) for n in range(count)]
    loaded = [(flags, at, nbytes) for kind, flags, _, at, _, nbytes in segments if kind == LOAD]
    page = mmap.PAGESIZE
    first = min((at for _, at, _ in loaded), default=0) // page
    return [
        ((at // page - first) * page, (-(-(at + nbytes) // page) - first) * page)
        for flags, at, nbytes in loaded
        if not flags & WRITABLE
    ]
