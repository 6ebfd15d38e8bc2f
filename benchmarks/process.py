"""A worker process as seen from outside: commands in, answers out, stopped when it is not asked.

An idle worker is held by SIGSTOP: thread pools that spin after a run cannot disturb the next one.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

LAST_WORDS = 4096  # bytes of stderr that are read when a process dies
ROOT = Path(__file__).parents[1]


class WorkerError(Exception):
    """An engine could not do what it was asked; the message is its own first line."""


class Process:
    """One worker; `ask` sends a command and waits for its answer."""

    def __init__(self, threads: int, python: str | None = None) -> None:
        self.resources = contextlib.ExitStack()
        self.stderr, path = tempfile.mkstemp()
        os.unlink(path)
        self.resources.callback(os.close, self.stderr)
        # A worker is killed, and cannot clean up what engines left in temporary files.
        own = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.folder = Path(self.resources.enter_context(own))
        count = str(threads)
        paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "TMPDIR": str(self.folder),
            "OMP_NUM_THREADS": count,
            "MKL_NUM_THREADS": count,
            "OPENBLAS_NUM_THREADS": count,
        }
        self.child = subprocess.Popen(
            [python or sys.executable, "-m", "benchmarks.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            cwd=ROOT,
            env=environment,
        )
        for stream in (self.child.stdin, self.child.stdout):
            assert stream is not None
            self.resources.enter_context(stream)

    def ask(self, do: str, timeout: float = 600.0, **fields: Any) -> dict[str, Any]:
        """The answer to one command; raises WorkerError if it fails, dies or takes too long."""
        assert self.child.stdin is not None and self.child.stdout is not None
        self.signal(signal.SIGCONT)
        try:
            self.child.stdin.write((json.dumps({"do": do, **fields}) + "\n").encode())
            self.child.stdin.flush()
        except BrokenPipeError:
            raise WorkerError(self.last_words("the process ended")) from None
        with selectors.DefaultSelector() as ready:
            ready.register(self.child.stdout, selectors.EVENT_READ)
            if not ready.select(timeout):
                self.close()
                raise WorkerError(f"no answer to '{do}' within {timeout:.0f} s")
        line = self.child.stdout.readline()
        if not line:
            raise WorkerError(self.last_words("the process ended"))
        self.signal(signal.SIGSTOP)
        answer = json.loads(line)
        if "failure" in answer:
            raise WorkerError(answer["failure"])
        return answer

    def signal(self, number: int) -> None:
        if self.child.poll() is None:
            self.child.send_signal(number)

    def last_words(self, what: str) -> str:
        """What happened and the last line that the process wrote to stderr."""
        code = self.child.wait()
        size = os.fstat(self.stderr).st_size
        text = os.pread(self.stderr, LAST_WORDS, max(0, size - LAST_WORDS))
        lines = text.decode(errors="replace").strip().splitlines()
        return f"{what} with code {code}" + (f": {lines[-1]}" if lines else "")

    def close(self) -> None:
        self.child.kill()
        self.child.wait()
        with contextlib.suppress(BrokenPipeError):  # what a dead worker did not read
            self.resources.close()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
