"""One case in a process of its own: what happened to it, in one word.

The process is forked, so that everything already imported is there at no cost; it may take
SECONDS of processor time and grow by GROWTH bytes. Call this from a process without threads.

Processor time tells a case that never ends from one that waits for its turn on a busy machine; what
sleeps for ever uses none, so the clock ends it too, after WAITS times as long.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import selectors
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tilewright.support.errors import TilewrightError, UserFault

SECONDS = 10.0
WAITS = 6
GROWTH = 2 << 30
LONGEST_MESSAGE = 20_000  # characters: more is not a clear error

Kind = Literal["ok", "refused", "accepted", "exception", "crash", "hang", "memory"]
SOUND: tuple[Kind, ...] = ("ok", "refused")


@dataclass
class Verdict:
    """What happened; `detail` is the error's message, or for failures what names the fault."""

    kind: Kind
    detail: str = ""
    seconds: float = 0.0
    growth: int = 0

    @property
    def is_failure(self) -> bool:
        return self.kind not in SOUND


def judge(
    work: Callable[[], object], must_refuse: bool = False, seconds: float = SECONDS
) -> Verdict:
    """Do `work` in a forked process and say what came of it."""
    start = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            confess(work, writing, errors.fileno(), seconds)
        os.close(writing)
        answer = answer_within(reading, WAITS * seconds)
        os.close(reading)
        if answer is None:
            os.kill(child, signal.SIGKILL)
        _, status, usage = os.wait4(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # whatever it started and left behind
        verdict = verdict_of(answer, status, last_line(errors.fileno()))
    verdict.seconds = time.perf_counter() - start
    verdict.growth = max(0, usage.ru_maxrss * 1024 - resident())
    if verdict.kind == "ok" and must_refuse:
        return Verdict("accepted", "a broken file was accepted", verdict.seconds, verdict.growth)
    if verdict.growth > GROWTH:
        return Verdict(
            "memory", f"grew by {verdict.growth >> 20} MB", verdict.seconds, verdict.growth
        )
    return verdict


def confess(work: Callable[[], object], writing: int, errors: int, seconds: float) -> None:
    """In the child: limit itself, do the work, write the verdict, end without any clean-up."""
    os.setpgid(0, 0)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.dup2(errors, 2)
    limit = virtual() + GROWTH
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.setitimer(signal.ITIMER_PROF, seconds)  # SIGPROF ends the process
    try:
        work()
        verdict = Verdict("ok")
    except UserFault as fault:
        verdict = refusal(fault)
    except BaseException as fault:
        verdict = Verdict("exception", name_of(fault))
    os.write(writing, pickle.dumps(verdict)[:60_000])
    os._exit(0)


def refusal(fault: TilewrightError) -> Verdict:
    try:
        message = str(fault)
    except Exception as second:
        return Verdict("exception", f"while writing the message: {name_of(second)}")
    if not message.strip() or len(message) > LONGEST_MESSAGE:
        what = f"a message of {len(message)} characters"
        return Verdict("exception", f"{type(fault).__name__} at {place_of(fault)}: {what}")
    return Verdict("refused", message)


def name_of(fault: BaseException) -> str:
    """Type, the innermost place in our own package, and the message's first and last line."""
    lines = [line for line in str(fault).splitlines() if line.strip()] or [""]
    message = " ... ".join(line.strip()[:200] for line in (lines[0], *lines[1:][-1:]))
    return f"{type(fault).__name__} at {place_of(fault)}: {message}"


def place_of(fault: BaseException) -> str:
    frames = traceback.extract_tb(fault.__traceback__)
    ours = [frame for frame in frames if "/tilewright/" in frame.filename] or frames
    if not ours:
        return "?"
    short = ours[-1].filename.rsplit("/tilewright/", 1)[-1]
    return f"{short}:{ours[-1].lineno}"


def answer_within(reading: int, seconds: float) -> bytes | None:
    """All that the child writes; None when it has not ended in time."""
    end, parts = time.monotonic() + seconds, []
    with selectors.DefaultSelector() as ready:
        ready.register(reading, selectors.EVENT_READ)
        while True:
            left = end - time.monotonic()
            if left <= 0 or not ready.select(left):
                return None
            part = os.read(reading, 1 << 16)
            if not part:
                return b"".join(parts)
            parts.append(part)


def verdict_of(answer: bytes | None, status: int, last: str) -> Verdict:
    if answer is None:
        return Verdict("hang", "no end in time")
    if answer:
        return pickle.loads(answer)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF:
        return Verdict("hang", "no end in its time on the processor")
    if os.WIFSIGNALED(status):
        return Verdict("crash", f"{signal.Signals(os.WTERMSIG(status)).name}: {last}")
    return Verdict("crash", f"exit code {os.WEXITSTATUS(status)}: {last}")


def last_line(errors: int) -> str:
    size = os.fstat(errors).st_size
    text = os.pread(errors, 4096, max(0, size - 4096)).decode(errors="replace")
    return (text.strip().splitlines() or [""])[-1][:200]


def resident() -> int:
    return status_bytes("VmRSS")


def virtual() -> int:
    return status_bytes("VmSize")


def status_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


if sys.platform != "linux":
    raise ImportError("the fuzz check limits processes the way Linux does")
