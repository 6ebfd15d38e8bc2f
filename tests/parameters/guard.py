"""Arrays that end, or begin, where a page begins that nobody may touch."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

PAGE = mmap.PAGESIZE
ROOM = 16 * PAGE  # of an array


class Guarded:
    """Memory between two pages that end a process which reads or writes them."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, ROOM + 2 * PAGE)
        self.bytes = np.frombuffer(self.memory, np.uint8)
        libc = ctypes.CDLL(None, use_errno=True)
        for at in (0, ROOM + PAGE):
            address = ctypes.c_void_p(self.bytes.ctypes.data + at)
            assert libc.mprotect(address, ctypes.c_size_t(PAGE), 0) == 0, ctypes.get_errno()

    def hold(self, array: np.ndarray, at_end: bool) -> np.ndarray:
        """A copy of the array in this memory, until the next one."""
        assert array.nbytes <= ROOM
        start = PAGE + (ROOM - array.nbytes if at_end else 0)
        held = self.bytes[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        held[...] = array
        return held
