"""Memory that cannot be had: one error for it, whoever noticed.

Python's MemoryError and NumPy's, a system call that answers ENOMEM, and a thread that cannot start
become a `MemoryFault`, which says what was asked for and how much it was. What is about to call a
library that ends the process when memory runs out asks for `room` first.
"""

from __future__ import annotations

import errno
import mmap
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from tilewright.support.errors import MemoryFault

REMEDY = "free memory, raise the limit of the process (ulimit -v, a container's), or ask for less"


def exhausted(what: str, fault: BaseException, when: str = "") -> MemoryFault | None:
    """`fault` as a MemoryFault of `what` ("cannot run 'm'"), if it is about memory; one that is a
    MemoryFault already stays as it is."""
    if isinstance(fault, MemoryFault):
        return fault
    if not (
        isinstance(fault, MemoryError)
        or (isinstance(fault, OSError) and fault.errno == errno.ENOMEM)
        or (isinstance(fault, RuntimeError) and "start new thread" in str(fault))
        or (isinstance(fault, ImportError) and "failed to map segment" in str(fault))
    ):
        return None
    why = "out of memory" + (f" {when}" if when else "") + (f": {fault}" if str(fault) else "")
    return MemoryFault(what, why + _held(), remedy=REMEDY)


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
    except (MemoryError, OSError, RuntimeError, ImportError) as fault:
        told = exhausted(what, fault, when())
        if told is None or told is fault:
            raise
        raise told from fault


def room(nbytes: int, what: str) -> None:
    """Raise MemoryError now if the process cannot have `nbytes` more; none is used."""
    try:
        mmap.mmap(-1, nbytes).close()
    except OSError:
        raise MemoryError(f"{what} may need {nbytes >> 20} MB") from None
