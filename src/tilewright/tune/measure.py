"""The measurement service: points of one function, timed on one machine, and told apart.

In: a function of known sizes, a machine, points of its space. Out: an `Outcome` for each; a
`Verdict` of two; finals, which a challenger wins only by beating the default. The one idea: the
first times are for finding candidates, cheap and raced against the best so far; what is decided is
decided by pairs in turns, with samples that nobody was chosen by. A candidate that is refused, is
wrong, crashes or hangs costs itself.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock, Thread
from typing import Any, NamedTuple

from tilewright.backend.backend import native_of
from tilewright.ir.stmt import Func
from tilewright.schedule.trace import Trace
from tilewright.strategy.rules import rule_of
from tilewright.strategy.space import partial as completed
from tilewright.strategy.space import point as schedule_of
from tilewright.support.errors import ScheduleError
from tilewright.target.target import Target
from tilewright.tune.arrays import Array, elements
from tilewright.tune.launcher import Code
from tilewright.tune.process import Assigned, Ended, Late, Process
from tilewright.tune.samples import P, Verdict
from tilewright.tune.stand import ATTEMPTS, Duel, Outcome, Stand, gated, no_default
from tilewright.tune.worker import Compiled, Point, Setup

WINDOW = 8  # candidates between two looks at how fast the machine is
KEPT = 64  # compiled candidates
CONFIRMED = 2  # who may try to win finals, best first
Arrays = Mapping[str, Array]


class Final(NamedTuple):
    """A finalist: what it took and how it did against the default, beside it."""

    point: Point
    outcome: Outcome
    verdict: Verdict


class Bench:
    """Measures points of one function on one machine: a context manager.

    Args:
        func: the function, in stage "blocks", of known sizes.
        machine: what is compiled for; this machine must run it.
        threads: how many share out the parallel loops; one is pinned to a core.
        inputs: arrays by the names of buffers; others are random, seeded and legal.
        expected: the right results by the names of buffers; None: the default's.
        workers: processes that compile, or how many; nothing is compiled while something is timed.
            Whoever gives them closes them, and another bench may work with them afterwards.
        limit: seconds that compiling a candidate may take, and running it.
        cold: empty the caches before each call.
        seed: of the arrays, and of whose turn is first.

    Raises:
        CompileError: the sizes are symbolic, nothing here runs such machines' code, or the default
            schedule cannot be compiled or run.
        InputError: an array does not fit its buffer.
        ArtifactError: this machine cannot run code for that one.
    """

    def __init__(
        self,
        func: Func,
        machine: Target,
        threads: int,
        *,
        inputs: Arrays | None = None,
        expected: Arrays | None = None,
        workers: int | Sequence[Process] = 1,
        limit: float = 10.0,
        cold: bool = False,
        seed: int = 0,
    ) -> None:
        native_of(machine, f"cannot measure '{func.name}'")
        for buffer in func.buffers:
            elements(buffer)
        self.func, self.machine, self.threads, self.limit = func, machine, threads, limit
        given = None if expected is None else dict(expected)
        self.setup = Setup(func, str(machine), threads, dict(inputs or {}), given, cold, seed)
        self._own = [Process() for _ in range(workers)] if isinstance(workers, int) else []
        self._processes = [
            Assigned(process, self.setup, None if n else self._begin)
            for n, process in enumerate(self._own if isinstance(workers, int) else workers)
        ]
        self._stand = Stand(self._processes[0], func.name, gated(lambda: self.processes, threads))
        self._codes: dict[Any, Code] = {}
        self._seen: dict[str, Outcome] = {}  # by what the code does
        self._turns = seed
        self._best = math.inf  # of all candidates
        self._is_stopped = False  # whether nothing more is to be compiled

    def __enter__(self) -> Bench:
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers that are its own."""
        for process in self._own:
            process.close()

    @property
    def processes(self) -> list[int]:
        """The numbers of the workers' processes; the first one runs candidates."""
        return [p.number for p in self._processes if p.number]

    @property
    def lanes(self) -> int:
        """Machines that run candidates at the same time."""
        return 1

    def _prepare(self) -> None:
        """Compile the default, and let the first worker run it."""
        self._best = self._stand.begin(self._compiled_default())

    def _compiled_default(self) -> Code:
        first = self._stand.surely("compile", None)
        if first.code is None:
            raise no_default(self.func.name, first.why)
        self._keep(None, first.code)
        return first.code

    def _begin(self, process: Process) -> None:
        """What a new first worker is told."""
        self._stand.began(process)

    # ---- Many -------------------------------------------------------------------------------

    def measure(
        self,
        points: Sequence[Point],
        done: Callable[[int, Outcome], None] = lambda n, outcome: None,
        *,
        partial: bool = False,
    ) -> list[Outcome]:
        """The outcomes of points, in their order; None is the default schedule. partial: what a
        point leaves out is its strategy's pick, and no fault.

        Who is far behind the best so far after one sample gets no more; points of the same code
        have one outcome. done: told each outcome as soon as it stands, so that an interrupt loses
        a window at most.
        """
        found: list[Outcome] = []
        for first in range(0, len(points), WINDOW):
            window = points[first : first + WINDOW]
            made = self._compile(window, partial)
            for outcome in self._times(window, made):
                done(len(found), outcome)
                found.append(outcome)
        return found

    def _compile(self, points: Sequence[Point], partial: bool) -> list[Compiled]:
        """Compile points on all workers."""
        made = [Compiled("failed", None, 0.0)] * len(points)
        if len(self._processes) == 1:
            return [self._compiled(self._processes[0], p, partial) for p in points]
        for thread in self._compiling(points, partial, made.__setitem__):
            thread.join()
        return made

    def _compiling(
        self, points: Sequence[Point], partial: bool, told: Callable[[int, Compiled], None]
    ) -> list[Thread]:
        """Threads that compile points, one for each worker, and tell what came of each."""
        left, lock = iter(range(len(points))), Lock()

        def numbers() -> Iterator[int]:
            while True:
                with lock:
                    n = next(left, None)
                if n is None or self._is_stopped:
                    return
                yield n

        def work(process: Assigned) -> None:
            for n in numbers():
                told(n, self._compiled(process, points[n], partial))

        self._is_stopped = False
        threads = [Thread(target=work, args=(p,), daemon=True) for p in self._processes]
        for thread in threads:
            thread.start()
        return threads

    def _compiled(self, process: Assigned, point: Point, partial: bool = False) -> Compiled:
        """What comes of compiling a point, whatever becomes of the worker."""
        began, why = time.perf_counter(), ""
        try:
            asked = self._followed(point, partial)
        except ScheduleError as fault:
            seconds = time.perf_counter() - began
            return Compiled("refused", None, seconds, f"{fault.what}: {fault.why}")
        for _ in range(ATTEMPTS):
            try:
                return process.ask(self.limit, "compile", asked, partial)
            except Late:
                told = f"compiling it takes more than {self.limit:g} s"
                return Compiled("late", None, time.perf_counter() - began, told)
            except Ended as fault:
                why = f"while it was compiled, {fault}"
        return Compiled("crashed", None, time.perf_counter() - began, why)

    def _followed(self, point: Point, partial: bool) -> Point | Trace:
        """A point as a worker follows it: where it is a rule's, which only this process has, by
        the steps that this takes. Raises ScheduleError."""
        if point is None or rule_of(point) is None:
            return point
        made = (completed if partial else schedule_of)(self.func, self.machine, self.threads, point)
        return made.trace

    def _times(self, points: Sequence[Point], made: Sequence[Compiled]) -> list[Outcome]:
        """Run what was compiled, between two looks at the machine; again, where those differ."""
        codes: dict[str, Code] = {}
        for point, one in zip(points, made, strict=True):
            if one.code is not None:
                self._keep(point and one.point, one.code)
                codes[one.code.digest] = one.code
        new = {d: code for d, code in codes.items() if d not in self._seen}
        if new:
            found = self._stand.measure(new, self._best, self.limit)
            self._seen |= found
            self._best = min(self._best, *(o.best for o in found.values()))
        return [self._outcome(one) for one in made]

    def _outcome(self, made: Compiled) -> Outcome:
        """A point's outcome: that of its code, if there is any."""
        if made.code is None:
            return Outcome(made.status, (), made.seconds, made.why, point=made.point)
        ran = self._seen[made.code.digest]
        return Outcome(ran.status, ran.seconds, made.seconds, ran.why, ran.drift, made.point)

    # ---- Two --------------------------------------------------------------------------------

    def duel(self, a: Point, b: Point, seconds: float, p: float = P) -> Verdict:
        """Which of two points is faster, by calls in turns in one process: for so many seconds, or
        until that is certain. p: the chance of a winner where both are equally fast. Who cannot be
        compiled, or is wrong, loses."""
        return self._duel(a, b, seconds, p)[0]

    def _duel(self, a: Point, b: Point, seconds: float, p: float) -> Duel:
        codes: list[Code] = []
        for name, other, point in (("a", "b", a), ("b", "a", b)):
            code, why = self._code(point)
            if code is None:
                ratio = math.inf if name == "b" else 0.0
                return Verdict(ratio, ratio, ratio, other, why=f"{name}: {why}"), (), ()
            codes.append(code)
        self._turns += 1
        return self._between((codes[0], codes[1]), seconds, p)

    def _between(self, codes: tuple[Code, Code], seconds: float, p: float) -> Duel:
        """What comes of a duel of code."""
        return self._stand.duel(codes, seconds, p, self._turns, self.limit)

    def finals(self, points: Sequence[Point], seconds: float) -> list[Final]:
        """Finalists, the winner first, then by what they take; the default is among them.

        Each is beside the default for its part of the seconds. The best that beat it does so again
        with new samples, since the first ones are what it was chosen by; if it cannot, the next
        may try. Where none does, the default wins.
        """
        rivals = list({_key(p): p for p in points if p is not None}.values())
        each = seconds / (len(rivals) + CONFIRMED)
        own: tuple[float, ...] = ()
        found: list[Final] = []
        duels = self._duels(rivals, each, P / max(1, len(rivals)))
        for point, (verdict, ours, theirs) in zip(rivals, duels, strict=True):
            own += ours
            status = "timed" if theirs else "failed"
            found.append(Final(point, Outcome(status, theirs, why=verdict.why), verdict))
        found.sort(key=lambda f: math.inf if math.isnan(f.verdict.ratio) else f.verdict.ratio)
        default = Final(None, Outcome("timed", own), Verdict(1.0, 1.0, 1.0, ""))
        for n, final in enumerate([f for f in found if f.verdict.decided == "b"][:CONFIRMED]):
            verdict, _, theirs = self._duel(None, final.point, each, P)
            confirmed = Final(final.point, Outcome("timed", theirs), verdict)
            found[n] = confirmed
            if verdict.decided == "b":
                return [confirmed, *found[:n], *found[n + 1 :], default]
        return [default, *found]

    def _duels(self, points: Sequence[Point], seconds: float, p: float) -> list[Duel]:
        """Each beside the default, for so many seconds."""
        return [self._duel(None, point, seconds, p) for point in points]

    # ---- Code -------------------------------------------------------------------------------

    def _code(self, point: Point) -> tuple[Code | None, str]:
        """A point's code, or why there is none."""
        known = self._codes.get(_key(point))
        if known is not None:
            return known, ""
        made = self._compiled(self._processes[0], point)
        if made.code is not None:
            self._keep(point, made.code)
        return made.code, made.why

    def _keep(self, point: Point, code: Code) -> None:
        while len(self._codes) >= KEPT:
            self._codes.pop(next(k for k in self._codes if k is not None))
        self._codes[_key(point)] = code


def _key(point: Point) -> Any:
    """A point as a key."""
    return None if point is None else tuple(sorted(point.items()))
