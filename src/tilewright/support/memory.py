"""Memory that cannot be had: one error for it, whoever noticed.

Python's MemoryError and NumPy's, a system call that answers ENOMEM, and a thread that cannot start
become a `MemoryFault`, which says what was asked for and how much it was. What is about to call a
library that ends the process when memory runs out asks for `room` first.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from tilewright.support.errors import MemoryFault, TilewrightError

_SAID = ("start new thread", "failed to map segment", "Cannot allocate memory")
REMEDY = "free memory, raise the limit of the process (ulimit -v, a container's), or ask for less"


def exhausted(what: str, fault: BaseException, when: str = "") -> MemoryFault | None:
    """`fault` as a MemoryFault of `what` ("cannot run 'm'"), if it is about memory or came of what
    was; a MemoryFault stays as it is."""
    seen: BaseException | None = fault
    while seen is not None and not _is_memory(seen):
        seen = seen.__cause__ or seen.__context__
    if seen is None or isinstance(seen, MemoryFault):
        return seen
    told = str(seen).strip()
    why = "out of memory" + (f" {when}" if when else "") + (f": {told}" if told else "")
    return MemoryFault(what, why + _held(), remedy=REMEDY)


def _is_memory(fault: BaseException) -> bool:
    """Is it about memory, by its class or, of the system's and its loader's, by what it says?"""
    if isinstance(fault, OSError) and fault.errno == errno.ENOMEM:
        return True
    says = str(fault) if isinstance(fault, OSError | RuntimeError | ImportError) else ""
    return isinstance(fault, MemoryError) or any(words in says for words in _SAID)


def _held() -> str:
    """What the process has of the memory that it may have, as far as the system says so."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        lines = Path("/proc/self/limits").read_text().splitlines()
        most = next(line.split()[3] for line in lines if line.startswith("Max address space"))
    except (OSError, ValueError, StopIteration, MemoryError):
        return ""
    if not most.isdecimal():
        return ""
    return f" (the process has {pages * mmap.PAGESIZE >> 20} MB of {int(most) >> 20} MB)"


@contextmanager
def memory_told(what: str, when: Callable[[], str] = str) -> Generator[None]:
    """A block in which running out of memory raises a MemoryFault of `what`; `when` tells in which
    part of it."""
    try:
        yield
    except (MemoryError, OSError, RuntimeError, ImportError, TilewrightError) as fault:
        told = exhausted(what, fault, when())
        if told is None or told is fault:
            raise
        raise told from fault


@cache
def memory_limit(root: Path = Path("/")) -> int:
    """The bytes that the process may have: the machine's, or fewer where one of the control groups
    around it (a container's; of version 1 or 2) says so, read once. root: where the system's files
    are."""
    if not hasattr(os, "sysconf"):  # Windows, where the native runtime asks for itself
        return 1 << 46
    least = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return least
    for number, kinds, path in (line.split(":", 2) for line in groups if line.count(":") > 1):
        if kinds and "memory" not in kinds.split(","):
            continue
        base, name = root / "sys/fs/cgroup", "memory.max"
        if number != "0":
            base, name = base / "memory", "memory.limit_in_bytes"
        own = base / path.strip("/")
        for folder in (own, *own.parents[: len(own.parts) - len(base.parts)]):
            with suppress(OSError, ValueError):  # "max" is no limit
                least = min(least, int((folder / name).read_text()))
    return least


def give_back() -> None:
    """Return to the system what the C library keeps of freed memory, where it can be asked to: of
    arrays that were freed one by one it keeps as much as the largest had."""
    with suppress(OSError, TypeError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def room(nbytes: int, what: str) -> None:
    """Raise MemoryError now if the process cannot have `nbytes` more; none is used."""
    if nbytes > memory_limit():
        raise MemoryError(f"{what} may need {nbytes >> 20} MB")
    try:
        mmap.mmap(-1, nbytes).close()
    except OSError:
        raise MemoryError(f"{what} may need {nbytes >> 20} MB") from None
