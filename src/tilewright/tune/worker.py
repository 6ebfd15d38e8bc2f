"""A worker process: compiles candidates, and runs them where a crash costs one candidate only.

In: requests over a pipe, each a method of `Worker` and its arguments. Out: for each an answer. The
one idea: who asks has all that is known and may end this process at any time; what is kept here
(arrays, the default's code and result) the next worker makes again from the same seed.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from random import Random

import numpy as np

from tilewright.ir.stmt import Func
from tilewright.schedule.schedule import Schedule, replay
from tilewright.schedule.trace import Plain, Trace
from tilewright.strategy.select import default
from tilewright.strategy.space import decisions
from tilewright.strategy.space import partial as completed
from tilewright.strategy.space import point as schedule_of
from tilewright.support.collector import collector_paused
from tilewright.support.errors import InternalFault, UserFault
from tilewright.support.messages import end_with, receive, send
from tilewright.support.record import record
from tilewright.target.processors import host_caches
from tilewright.target.target import target
from tilewright.tune.arrays import Array, Arrays, as_memory
from tilewright.tune.launcher import Code, Launcher, Loaded, code_of, text_of
from tilewright.tune.samples import (
    MOST_SAMPLES,
    SequentialTest,
    Verdict,
    is_beaten,
    log_ratio,
)

SAMPLE = 50e-6  # seconds of one sample at least: calls shorter than that are repeated
WARM = 3e-3  # seconds of calls before the first sample: vector units wake up, clocks rise
LONGEST = 0.05  # seconds for the samples of one candidate, once there are LEAST
LEAST = 3
SENTINEL = 7  # samples of the default's kernel at most
COPIES = 4  # of code in a duel, so that a good address in memory is not taken for good code
MORE = 4.0  # seconds over its time that a duel has for the least number of rounds
ROUND = 100e-6  # seconds of one of the four samples of a round of a duel, at least
Point = Mapping[str, Plain] | None


@record
class Setup:
    """What a worker works on. inputs, expected: arrays by the names of buffers; cold: caches are
    emptied before each call."""

    func: Func
    machine: str
    threads: int
    inputs: dict[str, Array]
    expected: dict[str, Array] | None
    cold: bool
    seed: int


@record
class Compiled:
    """What came of compiling a point. status: "" where there is code, "refused" or "failed", and
    why; seconds: what it took; point: with all that was decided, where it could be scheduled."""

    status: str
    code: Code | None
    seconds: float
    why: str = ""
    point: Point = None


@record
class Timed:
    """What came of running code. status: "timed", or "wrong" and why; seconds: samples."""

    status: str
    seconds: tuple[float, ...]
    why: str = ""


class Worker:
    """What a worker process can be asked."""

    def __init__(self, setup: Setup) -> None:
        self.cores = _cores()
        self.launcher: Launcher | None = None  # until something is to run
        self.work_on(setup)

    def work_on(self, setup: Setup) -> None:
        """Forget all candidates, and begin with those of another function."""
        if self.launcher and (str(self.machine), self.setup.threads) != (
            setup.machine,
            setup.threads,
        ):
            self.launcher.close()
            self.launcher = None
        self.setup, self.machine = setup, target(setup.machine)
        self.arrays: Arrays | None = None  # until something is to run
        self.expected: dict[str, Array] = {}
        self.sentinel_kernel: Loaded | None = None
        self.known: dict[str, Code] = {}  # the last candidates', by the text they were made from
        largest = host_caches()[-1][0] if setup.cold else 0
        self.flushed = np.zeros(largest * 3 // 2, np.uint8)

    # ---- Compiling --------------------------------------------------------------------------

    @collector_paused()
    def compile(self, point: Point | Trace, partial: bool = False) -> Compiled:
        """The code of a point, or of what a trace does; of None, of the default. partial: what the
        point leaves out is its strategy's pick."""
        began, code, whole = time.perf_counter(), None, None
        status = why = ""
        try:
            made = self._scheduled(point, partial)
            whole = decisions(made)
            code = self._code(made)
        except UserFault as fault:
            status, why = "refused", f"{fault.what}: {fault.why}"
        except Exception as fault:
            status, why = "failed", f"{type(fault).__name__}: {str(fault)[:2000]}"
        return Compiled(status, code, time.perf_counter() - began, why, whole)

    def _scheduled(self, point: Point | Trace, partial: bool) -> Schedule:
        s = self.setup
        if point is None:
            return default(s.func, self.machine, s.threads)
        if isinstance(point, Trace):
            return replay(s.func, point)
        return (completed if partial else schedule_of)(s.func, self.machine, s.threads, point)

    def _code(self, made: Schedule) -> Code:
        emitted = text_of(made.func, self.machine)
        if emitted.text not in self.known:
            if len(self.known) >= MOST_KNOWN:
                self.known.pop(next(iter(self.known)))
            self.known[emitted.text] = code_of(emitted, self.machine)
        return self.known[emitted.text]

    # ---- Running ----------------------------------------------------------------------------

    def reference(self, code: Code) -> None:
        """Take the result of the default's code for the right one, where the caller gave none, and
        its time for how fast the machine is. Raises what the launcher does."""
        s = self.setup
        if self.launcher is None:
            self.launcher = Launcher(self.machine, s.threads)
        if self.arrays is None:
            self.arrays = Arrays(s.func, s.inputs, s.seed)
        loaded = self.launcher.load(code, self.arrays.memory)
        self.arrays.restore()
        self.launcher.seconds(loaded)
        if s.expected is None:
            self.expected = self.arrays.outcome()
        else:
            self.expected = _expected(self.arrays, s.expected)
        self.sentinel_kernel = loaded

    def sentinel(self) -> float:
        """Seconds of the default's kernel, as the machine is now."""
        assert self.sentinel_kernel is not None
        self._pin()
        calls = self._calls(self._warm(self.sentinel_kernel), SAMPLE)
        samples, end = list[float](), time.perf_counter() + LONGEST
        while len(samples) < SENTINEL and (len(samples) < LEAST or time.perf_counter() < end):
            samples.append(self._sample(self.sentinel_kernel, calls))
        self._unpin()
        return min(samples)

    def time(self, code: Code, best: float) -> Timed:
        """Check the code's result and time it. best: seconds of the best so far; who is far behind
        is given few samples."""
        loaded, wrong = self._checked(code)
        if wrong:
            return Timed("wrong", (), wrong)
        self._pin()
        samples = [self._warm(loaded)]
        end = time.perf_counter() + LONGEST
        if not is_beaten(samples, best):
            calls, samples = self._calls(samples[0], SAMPLE), list[float]()
            while len(samples) < MOST_SAMPLES and not (samples and is_beaten(samples, best)):
                samples.append(self._sample(loaded, calls))
                if len(samples) >= LEAST and time.perf_counter() > end:
                    break
        self._unpin()
        return Timed("timed", tuple(samples))

    def duel(
        self, codes: tuple[Code, Code], seconds: float, p: float, seed: int
    ) -> tuple[Verdict, tuple[float, ...], tuple[float, ...]]:
        """Two candidates in turns, for so long or until one wins: the verdict, and samples of
        each."""
        assert self.launcher is not None and self.arrays is not None
        copies: tuple[list[Loaded], list[Loaded]] = [], []
        for name, other, code, side in zip("ab", "ba", codes, copies, strict=True):
            loaded, wrong = self._checked(code)
            if wrong:
                ratio = math.inf if name == "b" else 0.0
                told = f"{name} is wrong: {wrong}"
                return Verdict(ratio, ratio, ratio, other, why=told), (), ()
            more = range(COPIES - 1)
            side += [loaded, *(self.launcher.load(code, self.arrays.memory) for _ in more)]
        test, rng = SequentialTest(p), Random(seed)
        samples: tuple[list[float], list[float]] = [], []
        self._pin()
        # As many of either: the first call of a sample takes longer, until all threads are awake.
        calls = self._calls(min(self._warm(side[0]) for side in copies), ROUND)
        end = time.perf_counter() + seconds
        while not test.is_over and time.perf_counter() < end + MORE * test.is_short:
            pair = [rng.choice(side) for side in copies]
            # In either order the second sample of a side is as far from the middle as its first, so
            # that a drift cancels; which order it is is drawn, for what one leaves to the other.
            order = (0, 1, 1, 0) if rng.random() < 0.5 else (1, 0, 0, 1)
            for side in order:
                samples[side].append(self._sample(pair[side], calls))
            if test.add(log_ratio(samples[0][-2:], samples[1][-2:])):
                self._unpin()  # a core that others took since may be left
                self._pin()
        self._unpin()
        return test.verdict(), tuple(samples[0]), tuple(samples[1])

    def _checked(self, code: Code) -> tuple[Loaded, str]:
        """Code after one run, and what was wrong with that."""
        assert self.launcher is not None and self.arrays is not None
        loaded = self.launcher.load(code, self.arrays.memory)
        self.arrays.restore()
        self.launcher.seconds(loaded)
        return loaded, self.arrays.wrong(self.expected)

    def _warm(self, loaded: Loaded) -> float:
        """The shortest of some calls: the first take up to three times as long as the others."""
        end, found = time.perf_counter() + WARM, self._sample(loaded, 1)
        while time.perf_counter() < end:
            calls = 1 if self.setup.cold else self._calls(found, WARM / 8)
            found = min(found, self._sample(loaded, calls))
        return found

    def _calls(self, once: float, least: float) -> int:
        """How many calls make a sample of at least so many seconds."""
        return 1 if self.setup.cold else max(1, math.ceil(least / once))

    def _sample(self, loaded: Loaded, calls: int) -> float:
        """Seconds of a call; where they are to be cold, after the caches were filled with other
        things: those of the core that calls, and the one that all have."""
        assert self.launcher is not None
        if self.setup.cold:
            self.flushed += 1
        elif calls > 1:
            self.launcher.seconds(loaded)  # finds what another kernel left, and wakes the threads
        return self.launcher.seconds(loaded, calls)

    def _pin(self) -> None:
        """Stay on the core where the system put this process, if one thread is all there is."""
        core = _core() if self.setup.threads == 1 else -1
        if core in self.cores:
            os.sched_setaffinity(0, {core})

    def _unpin(self) -> None:
        if self.setup.threads == 1 and self.cores:
            os.sched_setaffinity(0, self.cores)


MOST_KNOWN = 64  # compiled texts that a worker keeps


def _cores() -> set[int]:
    """The cores that this process may use; none where the system does not say."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()


def _core() -> int:
    """The core that this thread runs on; -1 where nobody says so."""
    try:
        return int(ctypes.CDLL(None).sched_getcpu())
    except (OSError, AttributeError, TypeError):
        return -1


def _expected(arrays: Arrays, given: Mapping[str, Array]) -> dict[str, Array]:
    """The caller's results, as memory."""
    return {b.name: as_memory(given[b.name], b) for b in arrays.results}


def serve(parent: int) -> None:
    """Answer until there are no more requests, or the process of this number is gone. The first
    message is a `Setup`, answered by None once all is ready, further ones a method's name and
    arguments; an answer is a pair, of what the method gave, or None and what it raised."""
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started it is told, and ends it
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not disturb the answers
    requests = sys.stdin.buffer
    try:
        worker = Worker(receive(requests))
        send(answers, None)
        while True:
            asked, *given = receive(requests)
            try:
                answer = getattr(worker, asked)(*given), None
            except Exception as fault:
                answer = None, _portable(fault)
            send(answers, answer)
    except EOFError:
        return


def _portable(fault: Exception) -> Exception:
    """A fault that can be sent: a user's with its words, else its text."""
    if isinstance(fault, UserFault):
        return type(fault)(fault.what, fault.why, remedy=fault.remedy)
    return InternalFault(f"a tuning worker failed: {type(fault).__name__}: {fault}")
