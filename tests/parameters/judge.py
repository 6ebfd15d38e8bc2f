"""Running draws: in a child process, whose end does not end the check."""

from __future__ import annotations

import mmap
import os
import pickle
import resource
import signal
import struct
import tempfile
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tilewright as tw
from tests.parameters.guard import Guarded
from tests.parameters.subjects import Free, Refused, Subject
from tilewright.support.errors import InputError, TilewrightError

SECONDS = 120  # that a run may take
MEMORY = 512 << 20  # bytes that a child may take beside what it has


class Failure(NamedTuple):
    """What went wrong: in which draw of a subject, and how."""

    subject: str
    seed: int
    number: int
    why: str


def drawn(subject: Subject, seed: int, number: int) -> tuple[np.random.Generator, Any]:
    random = np.random.default_rng([seed, number])
    return random, subject.draw(random)


def judged(subject: Subject, exe: Any, seed: int, number: int, slots: list[Guarded]) -> str:
    """What is wrong with one run; empty if nothing is."""
    random, arrays = drawn(subject, seed, number)
    given = [slot.hold(a, bool(random.integers(2))) for slot, a in zip(slots, arrays, strict=False)]
    want: Any = None
    try:
        want = subject.want(*arrays)
    except Refused:
        want = Refused
    except Free:
        want = Free
    shown = ", ".join(f"{np.array2string(a, threshold=20)}" for a in arrays)
    try:
        got = exe(*given)
    except InputError as fault:
        return (
            ""
            if want is Refused or want is Free
            else f"refused ({fault.why}), though valid: {shown}"
        )
    except TilewrightError as fault:
        out_of_memory = "out of memory" in str(fault)
        return "" if out_of_memory and want is Free else f"{type(fault).__name__} {fault}: {shown}"
    except MemoryError:
        return "" if want is Free else f"no memory: {shown}"
    if want is Free:
        return ""
    if want is Refused:
        return f"gave {[g.shape for g in got]}, though it means nothing: {shown}"
    for one, other in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
        if one.shape != np.shape(other):
            return f"gave shape {one.shape}, not {np.shape(other)}: {shown}"
        if not np.allclose(one, other, rtol=1e-4, atol=1e-4, equal_nan=True):
            return f"gave {one}, not {other}: {shown}"
    return ""


def compiled(subject: Subject, opt_level: int = 3) -> Any:
    return tw.compile(subject.model(), cache=False, threads=1, opt_level=opt_level)


def run_draws(subject: Subject, exe: Any, seed: int, first: int, count: int) -> list[Failure]:
    """Judge draws in children: where one ends, the next goes on behind the draw that ended it."""
    found: list[Failure] = []
    at, end = first, first + count
    shared = mmap.mmap(-1, 8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "failures"
        while at < end:
            child = os.fork()
            if child == 0:
                _work(subject, exe, seed, at, end, shared, path)
            _, status = os.waitpid(child, 0)
            if path.exists():
                found += pickle.loads(path.read_bytes())
                path.unlink()
            if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status) == 0:
                break
            (number,) = struct.unpack("q", shared[:8])
            signalled = os.WIFSIGNALED(status)
            how = signal.Signals(os.WTERMSIG(status)).name if signalled else "an exit"
            arrays = drawn(subject, seed, number)[1]
            found.append(Failure(subject.name, seed, number, f"CRASH: {how}: {arrays}"))
            at = number + 1
    return found


def _work(
    subject: Subject, exe: Any, seed: int, first: int, end: int, shared: mmap.mmap, path: Path
) -> None:
    """In the child: judge draws, write down what is wrong, and end."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    code = 1
    try:
        slots = [Guarded() for _ in subject.inputs]
        failures: list[Failure] = []
        for number in range(first, end):
            shared[:8] = struct.pack("q", number)
            signal.alarm(SECONDS)
            try:
                why = judged(subject, exe, seed, number, slots)
            except Exception:
                why = traceback.format_exc()[-1500:]
            if why:
                failures.append(Failure(subject.name, seed, number, why))
                path.write_bytes(pickle.dumps(failures))
        code = 0
    finally:
        os._exit(code)
