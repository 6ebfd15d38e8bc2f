"""A worker process as seen from outside: asked, waited for as long as it may take, started again.

In: requests. Out: answers, or `Ended` or `Late`. The one idea: after either, or an interrupt, the
process is gone, and the next request starts another, told what every one is told first: nothing
that somebody waits for is kept in a process that may crash. One that did not crash may go on with
other work, which saves the start of a Python.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from tilewright.support.interpreter import isolated
from tilewright.support.messages import receive, send

SERVE = "from tilewright.tune.worker import serve; serve(int(sys.argv[1]))"
IMPORTED = ("tilewright", "numpy", "ml_dtypes", "llvmlite", "typing_extensions")
ALONE = {"OPENBLAS_NUM_THREADS": "1"}  # NumPy's threads would spin beside what is timed
START = 120.0  # seconds for what has no candidate in it
LAST_WORDS = 2000  # bytes of what an ended process wrote to stderr


class Ended(Exception):
    """The process ended before it answered; the message says how."""


class Late(Exception):
    """It did not answer in time, and was ended."""


class Process:
    """One worker, once `work_on` has said on what."""

    def __init__(self) -> None:
        self._first: Any = None
        self._begin: Callable[[Process], None] = _nothing
        self._child: subprocess.Popen[bytes] | None = None
        self._said = -1
        self._is_closed = False

    @property
    def number(self) -> int:
        """The process's number in the system; 0 while there is none."""
        return self._child.pid if self._child else 0

    def work_on(self, first: Any, begin: Callable[[Process], None] | None = None) -> None:
        """What requests are about from now on. first: what each new process is sent; begin: asks
        what is to be asked of it before anything else."""
        if first is self._first:
            return
        self._first, self._begin = first, begin or _nothing
        if self._child is not None:
            try:
                self.ask(START, "work_on", first)
                self._begin(self)
            except BaseException:  # another process begins with the same
                self.end()
                raise

    def start(self) -> None:
        """Start it, if it is not there."""
        if self._child is not None:
            return
        if self._is_closed:
            raise Ended("its bench is closed")
        if not sys.executable:
            raise Ended("this Python is a part of another program: it can start no workers")
        self._said, path = tempfile.mkstemp()
        os.unlink(path)
        self._child = subprocess.Popen(
            [*isolated(SERVE, IMPORTED), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env=os.environ | ALONE,
            bufsize=0,
        )
        try:
            assert self._child.stdin is not None and self._child.stdout is not None
            send(_Whole(self._child.stdin.fileno()), self._first)
            receive(_Waiting(self._child.stdout.fileno(), START))  # it is there
            self._begin(self)
        except (OSError, EOFError):
            raise Ended(self._ended()) from None
        except BaseException:
            self.end()
            raise

    def ask(self, seconds: float, asked: str, *given: Any) -> Any:
        """The answer to a request. Raises Ended, Late after so many seconds (of its own: what
        starting takes comes on top), and what the worker raised."""
        self.start()
        child = self._child
        assert child is not None and child.stdin is not None and child.stdout is not None
        try:
            send(_Whole(child.stdin.fileno()), (asked, *given))
            answer, fault = receive(_Waiting(child.stdout.fileno(), seconds))
        except (OSError, EOFError):
            raise Ended(self._ended()) from None
        except BaseException:  # late, or interrupted: an answer may come yet, which nobody expects
            self.end()
            raise
        if fault is not None:
            raise fault
        return answer

    def _ended(self) -> str:
        """How it ended, in words, and its last ones."""
        assert self._child is not None
        code = self._child.wait()
        told = f"it ended with code {code}"
        if code < 0:
            with contextlib.suppress(ValueError):  # a number that has no name
                told = f"it was ended by {signal.Signals(-code).name}"
        size = os.fstat(self._said).st_size
        text = os.pread(self._said, LAST_WORDS, max(0, size - LAST_WORDS))
        lines = text.decode(errors="replace").strip().splitlines()
        self.end()
        return told + (f": {lines[-1]}" if lines else "")

    def close(self) -> None:
        """End it, and start no other, whoever still asks."""
        self._is_closed = True
        self.end()

    def end(self) -> None:
        """End it, whatever it does."""
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        os.close(self._said)


class Assigned:
    """A worker as somebody sees who shares it with others: whenever it is asked, it works on what
    this one is about. first, begin: see `Process.work_on`."""

    def __init__(
        self, process: Process, first: Any, begin: Callable[[Process], None] | None = None
    ) -> None:
        self.process, self._work = process, (first, begin)

    @property
    def number(self) -> int:
        """See `Process.number`."""
        return self.process.number

    def ask(self, seconds: float, asked: str, *given: Any) -> Any:
        """See `Process.ask`."""
        self.process.work_on(*self._work)
        return self.process.ask(seconds, asked, *given)

    def end(self) -> None:
        """See `Process.end`."""
        self.process.end()


def _nothing(process: Process) -> None:
    """What is asked first of a worker that needs nothing more."""


class _Whole:
    """Writes all that it is given to a pipe."""

    def __init__(self, file: int) -> None:
        self.file = file

    def write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self.file, left) :]

    def flush(self) -> None:
        """There is nothing to flush."""


class _Waiting:
    """Reads from a pipe, for so long."""

    def __init__(self, file: int, seconds: float) -> None:
        self.file, self.end = file, time.monotonic() + seconds

    def read(self, count: int) -> bytes:
        found = bytearray()
        with selectors.DefaultSelector() as ready:
            ready.register(self.file, selectors.EVENT_READ)
            while len(found) < count:
                if not ready.select(max(0.0, self.end - time.monotonic())):
                    raise Late("it did not answer in time")
                if not (data := os.read(self.file, count - len(found))):
                    break
                found += data
        return bytes(found)
