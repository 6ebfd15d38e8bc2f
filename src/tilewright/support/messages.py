"""Messages between a process and its workers, over pipes.

In: values that pickle. Out: the same values on the other side, each after its length in bytes. Both
sides trust each other: they are one program, and a worker ends with whoever started it.
"""

from __future__ import annotations

import os
import pickle
import struct
import time
from typing import Any, Protocol

PATIENCE = 0.5  # seconds between a worker's looks at whether it is still wanted


class Writer(Protocol):
    """What messages are written to: a file open for bytes."""

    def write(self, data: bytes, /) -> Any: ...
    def flush(self) -> Any: ...


class Reader(Protocol):
    """What they are read from. It gives less than was asked for only at its end."""

    def read(self, count: int, /) -> bytes: ...


def send(pipe: Writer, value: Any) -> None:
    """Write a message."""
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(struct.pack("<Q", len(data)) + data)
    pipe.flush()


def receive(pipe: Reader) -> Any:
    """The next message. Raises EOFError where the other side has ended."""
    header = pipe.read(8)
    if len(header) < 8:
        raise EOFError("no answer")
    (size,) = struct.unpack("<Q", header)
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError("half an answer")
    return pickle.loads(data)


def end_with(parent: int) -> None:
    """End this process when its parent is gone, even in the middle of a long job."""
    while os.getppid() == parent:
        time.sleep(PATIENCE)
    os._exit(1)
