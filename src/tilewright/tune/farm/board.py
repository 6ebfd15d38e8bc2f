"""A board: the runner of another machine, asked what a worker process is asked.

In: a line to a runner, a function's set-up, code. Out: samples, checked results, verdicts. The one
idea: what a worker decides in Python about results and who is faster is decided here, and the
runner only runs and times; a request has in it all that it needs but arrays and code, which are
sent once, by the names of what is in them.
"""

from __future__ import annotations

import hashlib
import math
import signal
import struct
import time
from collections.abc import Sequence
from random import Random
from typing import Any, Protocol

import numpy as np

from tilewright.runtime.abi import align
from tilewright.support import html
from tilewright.support.errors import CompileError, InputError
from tilewright.target.processors import architecture
from tilewright.target.target import Target
from tilewright.tune.arrays import Array, Arrays, as_memory, difference
from tilewright.tune.farm.device import Vanished
from tilewright.tune.launcher import Code, taker_image
from tilewright.tune.process import Ended, Late
from tilewright.tune.samples import MOST_SAMPLES, RACE, SequentialTest, Verdict, log_ratio
from tilewright.tune.stand import Duel
from tilewright.tune.worker import (
    COPIES,
    LEAST,
    LONGEST,
    ROUND,
    SAMPLE,
    SENTINEL,
    WARM,
    Setup,
    Timed,
)

VERSION = 1  # of what is said to a runner
PATIENCE = 30.0  # seconds beside a candidate's own until a board that says nothing has vanished
KEPT = 64  # codes that a runner keeps
IN_WORKSPACE = 1 << 63
DONE, SIGNAL, LATE = 0, 1, 2  # how a child of the runner ended


class Line(Protocol):
    """What leads to a runner."""

    def send(self, data: bytes) -> None:
        """Write to its input. Raises Vanished."""
        ...

    def receive(self, size: int, seconds: float) -> bytes:
        """So many bytes of its output. Raises Vanished, also where they do not come in time."""
        ...


class Ran:
    """What a runner said of candidates: the results that it did not know, whether something was
    written around a buffer, samples."""

    def __init__(self, reply: bytes, codes: int, results: int) -> None:
        self.hashes: list[int] = []
        self.changed: list[int] = []  # the number of the buffer from 1 on, or 0
        self.results: list[bytes] = []
        at = 0
        for _ in range(codes):
            name, changed, size = struct.unpack_from("<3Q", reply, at)
            at += 24
            if size not in (0, results) or at + size > len(reply):
                raise Vanished("its runner answered what nobody understands")
            self.hashes.append(name)
            self.changed.append(changed)
            self.results.append(reply[at : at + size])
            at += size
        (count,) = struct.unpack_from("<Q", reply, at)
        self.samples: tuple[float, ...] = struct.unpack_from(f"<{count}d", reply, at + 8)


class Board:
    """A runner that is spoken to. It answers `ask` as a worker process does: see `stand.Runner`.

    Args:
        line: leads to the runner.
        machine: whose code it is to run; threads: on how many.
    """

    def __init__(self, line: Line, machine: Target, threads: int) -> None:
        self.line, self.machine, self.threads = line, machine, threads
        self._sent: dict[bytes, None] = {}  # names of codes, the last asked last
        self._held: set[bytes] = set()  # names of arrays
        self._takers: dict[int, tuple[bytes, int]] = {}  # by the buffers that they pass
        self._arrays: Arrays | None = None
        self._expected: dict[str, Array] = {}
        self._right: list[int] = []  # hashes of right results
        self._default: Code | None = None
        self._indices: dict[str, int] = {}

    @property
    def number(self) -> int:
        """There is always one: crashes end a child of the runner."""
        return 1

    def end(self) -> None:
        """Each candidate has a process of its own, which is gone."""

    # ---- Setting up -------------------------------------------------------------------------

    def check(self, name: str) -> None:
        """See whether the machine is one that the code is for. Raises InputError."""
        wanted = ",".join(sorted(self.machine.features))
        told = self._asked("H", wanted.encode(), PATIENCE).decode(errors="replace").split(" ")
        if len(told) < 4 or told[0] != str(VERSION):
            raise Vanished("its runner is of another version")
        lacking = told[3].strip(",").replace(",", ", ")
        asked = f"cannot measure code for '{self.machine}' on {name}"
        remedy = "name a device of the target's kind, or the device's own target"
        if told[1] != architecture(self.machine.triple):
            raise InputError(asked, f"it is {told[1]}", remedy=remedy)
        if lacking:
            raise InputError(asked, f"it lacks {lacking}", remedy=remedy)
        if int(told[2]) < self.threads:
            cores = html.counted(int(told[2]), "core")
            why = f"it has {cores}, and {self.threads} threads are to share the work"
            raise InputError(asked, why, remedy="give the number with threads=, --threads")

    def take(self, setup: Setup) -> None:
        """Make a function's arrays, here, and have them there."""
        arrays = Arrays(setup.func, setup.inputs, setup.seed)
        arrays.restore()
        buffers: tuple[Any, ...] = setup.func.buffers
        results = {b.name for b in arrays.results}
        flushed = self.machine.caches[-1].size * 3 // 2 if setup.cold and self.machine.caches else 0
        told, wanted = struct.pack("<3Q", self.threads, flushed, len(buffers)), set[bytes]()
        for b in buffers:
            data = arrays.memory[b.name].tobytes()
            name = _digest(data)
            self._blob(name, data, self._held)
            wanted.add(name)
            told += name + struct.pack("<Q", b.name in results)
        self._asked("F", told, PATIENCE)
        for name in self._held - wanted:
            self._send("D", name)
        self._held &= wanted
        self._indices = {b.name: n for n, b in enumerate(buffers)}
        self._arrays, self._setup, self._right = arrays, setup, []

    def _blob(self, name: bytes, data: bytes, held: Any) -> None:
        if name not in held:
            self._send("B", name + data)
            held.add(name)

    # ---- What a worker is asked -------------------------------------------------------------

    def ask(self, seconds: float, asked: str, *given: Any) -> Any:
        """See `Process.ask`."""
        return getattr(self, f"_{asked}")(seconds, *given)

    def _reference(self, seconds: float, code: Code) -> None:
        """Take the result of the default's code for the right one, where none was given."""
        assert self._arrays is not None
        self._right = []
        ran = self._run(seconds, [code], best=0.0)
        given = self._setup.expected
        if given is None:
            self._expected = self._results(ran.results[0])
            self._right = [ran.hashes[0]]
        else:
            self._expected = {b.name: as_memory(given[b.name], b) for b in self._arrays.results}
        self._default = code

    def _sentinel(self, seconds: float) -> float:
        assert self._default is not None
        return min(self._run(seconds, [self._default], most=SENTINEL).samples)

    def _time(self, seconds: float, code: Code, best: float) -> Timed:
        ran = self._run(seconds, [code], best=best)
        wrong = self._wrong(ran, 0)
        return Timed("wrong", (), wrong) if wrong else Timed("timed", ran.samples)

    def _duel(
        self, limit: float, codes: tuple[Code, Code], seconds: float, p: float, seed: int
    ) -> Duel:
        """Rounds until the next look of the test, each time in a fresh process."""
        test, rng = SequentialTest(p), Random(seed)
        samples: tuple[list[float], list[float]] = [], []
        left, end = seconds, time.monotonic() + seconds
        while not test.is_over and left > 0:
            turns = _turns(rng, test.wanted)
            ran = self._run(left + limit - seconds, codes, turns=turns, seconds=left)
            for n, (name, other) in enumerate(("ab", "ba")):
                if wrong := self._wrong(ran, n):
                    ratio = math.inf if name == "b" else 0.0
                    told = f"{name} is wrong: {wrong}"
                    return Verdict(ratio, ratio, ratio, other, why=told), (), ()
            for first in range(0, len(ran.samples), 4):
                for turn, took in zip(turns[first:], ran.samples[first : first + 4], strict=False):
                    samples[turn & 1].append(took)
                test.add(log_ratio(samples[0][-2:], samples[1][-2:]))
            left = end - time.monotonic()
        return test.verdict(), tuple(samples[0]), tuple(samples[1])

    def _wrong(self, ran: Ran, n: int) -> str:
        """What is wrong with a result, in words, or ""."""
        assert self._arrays is not None
        if ran.changed[n]:
            name = self._setup.func.buffers[ran.changed[n] - 1].name
            return f"it writes outside of buffer '{name}'"
        if ran.hashes[n] in self._right:
            return ""
        found = self._results(ran.results[n])
        for b in self._arrays.results:
            if told := difference(found[b.name], self._expected[b.name], b.dtype):
                return f"in '{b.name}' {told}"
        self._right.append(ran.hashes[n])
        return ""

    def _results(self, data: bytes) -> dict[str, Array]:
        """The results among the bytes of a run."""
        assert self._arrays is not None
        found, at = dict[str, Array](), 0
        names = {b.name for b in self._arrays.results}
        for b in self._setup.func.buffers:
            if b.name in names:
                like = self._arrays.memory[b.name]
                found[b.name] = np.frombuffer(data, like.dtype, like.size, at)
                at += like.nbytes
        return found

    # ---- Requests ---------------------------------------------------------------------------

    def _run(
        self,
        limit: float,
        codes: Sequence[Code],
        best: float = math.inf,
        most: int = MOST_SAMPLES,
        turns: bytes = b"",
        seconds: float = 0.0,
    ) -> Ran:
        """Run code in a process of its own. Raises Ended, Late, CompileError."""
        assert self._arrays is not None
        best = min(best, 1e300)
        plan = (limit, best, SAMPLE, WARM, LONGEST, ROUND, seconds, LEAST, most)
        races = [x for race in RACE for x in race]
        told = struct.pack(f"<{len(plan) + len(races)}d", *plan, *races)
        told += struct.pack(f"<{1 + len(self._right)}Q", len(self._right), *self._right)
        told += struct.pack("<2Q", len(codes), COPIES if turns else 1)
        told += b"".join(self._described(code) for code in codes)
        reply = self._asked("R", told + struct.pack("<Q", len(turns)) + turns, limit + PATIENCE)
        how, what = struct.unpack_from("<2Q", reply)
        if how == DONE:
            size = sum(self._arrays.memory[b.name].nbytes for b in self._arrays.results)
            return Ran(reply[16:], len(codes), size)
        if how == SIGNAL:
            names = {s.value: s.name for s in signal.Signals}
            raise Ended(f"it was ended by {names.get(what, f'signal {what}')}")
        if how == LATE:
            raise Late("it did not answer in time")
        raise CompileError("cannot run a candidate", "the board has not the memory or the threads")

    def _described(self, code: Code) -> bytes:
        """A candidate in a request; its code is sent, if it is not there."""
        places, used = dict(self._indices), 0
        for name, size in code.workspace:
            places[name] = IN_WORKSPACE | used
            used += align(size)
        name = _digest(code.image.bytes)
        if name in self._sent:
            self._sent.pop(name)
        else:
            self._send("B", name + code.image.bytes)
        self._sent[name] = None
        while len(self._sent) > KEPT:
            oldest = next(iter(self._sent))
            self._sent.pop(oldest)
            self._send("D", oldest)
        told = [name, struct.pack("<2Q", used, len(code.steps))]
        for step in code.steps:
            taker, offset = self._taker(len(step.buffers))
            numbers = offset, step.offset, step.extent, step.scratch_bytes, len(step.buffers)
            told += [taker, struct.pack("<5Q", *numbers)]
            told += [struct.pack("<Q", places[name]) for name in step.buffers]
        return b"".join(told)

    def _taker(self, count: int) -> tuple[bytes, int]:
        if count not in self._takers:
            image, offset = taker_image(self.machine, count)
            self._takers[count] = _digest(b"taker" + image.bytes), offset
            self._send("B", self._takers[count][0] + image.bytes)
        return self._takers[count]

    def _send(self, kind: str, data: bytes) -> None:
        self.line.send(struct.pack("<2Q", ord(kind), len(data)) + data)

    def _asked(self, kind: str, data: bytes, seconds: float) -> bytes:
        self._send(kind, data)
        (size,) = struct.unpack("<Q", self.line.receive(8, seconds))
        return self.line.receive(size, PATIENCE) if size else b""


def _turns(rng: Random, rounds: int) -> bytes:
    """Who runs: four bytes for each round, in either order, see `Worker.duel`. A byte says whose
    turn it is in its last bit, which copy of the code before it."""
    found = bytearray()
    for _ in range(rounds):
        pair = [rng.randrange(COPIES) for _ in range(2)]
        order = (0, 1, 1, 0) if rng.random() < 0.5 else (1, 0, 0, 1)
        found += bytes(side | pair[side] << 1 for side in order)
    return bytes(found)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
