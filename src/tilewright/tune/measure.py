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
from tilewright.support.errors import CompileError, ScheduleError, TilewrightError
from tilewright.support.record import record
from tilewright.target.target import Target
from tilewright.tune.arrays import Array, elements
from tilewright.tune.launcher import Code
from tilewright.tune.load_gate import LoadGate
from tilewright.tune.process import START, Ended, Late, Process
from tilewright.tune.samples import P, Verdict
from tilewright.tune.worker import Compiled, Point, Setup, Timed

WINDOW = 8  # candidates between two looks at how fast the machine is
RECENT = 1.0  # seconds for which such a look counts
STEADY, UNSTEADY = 1.03, 1.15  # how far they may differ: then that is noise; then times are useless
GRACE, MANY = 1.0, 200.0  # a candidate's time limit: seconds, and times the best so far
ATTEMPTS = 2  # for a candidate whose worker ended: it may have been killed for something else
KEPT = 64  # compiled candidates
CONFIRMED = 2  # who may try to win finals, best first
Arrays = Mapping[str, Array]


@record
class Outcome:
    """Of one candidate.

    status: "timed", "refused" (a primitive or a limit does: no error), "wrong", "crashed", "late"
    (over its time limit) or "failed". seconds: raw samples of the call alone; compiled: seconds of
    scheduling, lowering, emitting and LLVM; drift: by which factor the machine was slower meanwhile
    than at its best; point: with all that its strategy decided, where it could be scheduled.
    """

    status: str
    seconds: tuple[float, ...] = ()
    compiled: float = 0.0
    why: str = ""
    drift: float = 1.0
    point: Point = None

    @property
    def best(self) -> float:
        """Its time: the least sample on the machine at its best; infinite where there is none."""
        return min(self.seconds, default=math.inf) / self.drift


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
        self._setup = Setup(func, str(machine), threads, dict(inputs or {}), given, cold, seed)
        self._own = [Process() for _ in range(workers)] if isinstance(workers, int) else []
        self._processes = self._own if isinstance(workers, int) else list(workers)
        self._gate = LoadGate(threads)
        self._codes: dict[Any, Code] = {}
        self._seen: dict[str, Outcome] = {}  # by what the code does
        self._turns = seed
        self._default: Code | None = None
        self._best = self._fastest = math.inf  # of all candidates; of the default
        self._now, self._looked = math.inf, -math.inf  # the default's last time, and when that was

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

    def _prepare(self) -> None:
        """Compile the default, and let the first worker run it."""
        first = self._surely("compile", None)
        if first.code is None:
            raise self._no_default(first.why)
        self._keep(None, first.code)
        self._surely("reference", first.code)
        self._default = first.code
        self._look()
        self._best = self._fastest

    def _begin(self, process: Process) -> None:
        """What a new first worker is told."""
        if self._default is not None:
            process.ask(START, "reference", self._default)

    def _ask(self, process: Process, seconds: float, asked: str, *given: Any) -> Any:
        """What a worker answers, of this bench's function. Raises as `Process.ask` does."""
        self._take(process)
        return process.ask(seconds, asked, *given)

    def _take(self, process: Process) -> None:
        """Let a worker work for this bench, whatever it did before."""
        process.work_on(self._setup, self._begin if process is self._processes[0] else None)

    def _no_default(self, why: str) -> CompileError:
        return CompileError(
            f"cannot measure '{self.func.name}'", f"its default schedule does not run: {why}"
        )

    def _surely(self, asked: str, *given: Any) -> Any:
        """The first worker's answer to what has nothing to do with a candidate."""
        why = ""
        for _ in range(ATTEMPTS + 1):
            try:
                return self._ask(self._processes[0], START, asked, *given)
            except (Ended, Late) as fault:
                why = str(fault)
        raise self._no_default(why)

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
        left, lock = iter(range(len(points))), Lock()

        def numbers() -> Iterator[int]:
            while True:
                with lock:
                    n = next(left, None)
                if n is None:
                    return
                yield n

        def work(process: Process) -> None:
            for n in numbers():
                made[n] = self._compiled(process, points[n], partial)

        threads = [Thread(target=work, args=(p,), daemon=True) for p in self._processes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return made

    def _compiled(self, process: Process, point: Point, partial: bool = False) -> Compiled:
        """What comes of compiling a point, whatever becomes of the worker."""
        began, why = time.perf_counter(), ""
        try:
            asked = self._followed(point, partial)
        except ScheduleError as fault:
            seconds = time.perf_counter() - began
            return Compiled("refused", None, seconds, f"{fault.what}: {fault.why}")
        for _ in range(ATTEMPTS):
            try:
                return self._ask(process, self.limit, "compile", asked, partial)
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
            found, steady = self._window(new)
            if not steady:
                limit = 1.5 * min(self._best, *(o.best for o in found.values()))
                again = {d: new[d] for d, o in found.items() if o.seconds and o.best < limit}
                found |= self._window(again)[0] if again else {}
            self._seen |= found
            self._best = min(self._best, *(o.best for o in found.values()))
        return [self._outcome(one) for one in made]

    def _outcome(self, made: Compiled) -> Outcome:
        """A point's outcome: that of its code, if there is any."""
        if made.code is None:
            return Outcome(made.status, (), made.seconds, made.why, point=made.point)
        ran = self._seen[made.code.digest]
        return Outcome(ran.status, ran.seconds, made.seconds, ran.why, ran.drift, made.point)

    def _window(self, codes: Mapping[str, Code]) -> tuple[dict[str, Outcome], bool]:
        """Time candidates one after another; was the machine as fast before as after?"""
        self._gate.wait(self.processes)
        if time.monotonic() - self._looked > RECENT:
            self._look()
        before, best = self._now, self._best
        ran: dict[str, Timed] = {}
        for digest, code in codes.items():
            drift = self._now / self._fastest
            ran[digest] = self._timed(code, best * drift)
            best = min(best, min(ran[digest].seconds, default=math.inf) / drift)
        after = self._look()
        drift = max(1.0, math.sqrt(before * after) / self._fastest)
        drift = drift if drift > STEADY else 1.0
        outcomes = {d: Outcome(t.status, t.seconds, 0.0, t.why, drift) for d, t in ran.items()}
        return outcomes, max(before, after) < UNSTEADY * min(before, after)

    def _timed(self, code: Code, best: float) -> Timed:
        """What comes of running code, whatever becomes of the worker."""
        why, limit = "", min(self.limit, GRACE + MANY * best)
        for _ in range(ATTEMPTS):
            try:
                self._start()
                timed: Timed = self._ask(self._processes[0], limit, "time", code, best)
                if timed.status == "wrong":  # it may have written to anything there
                    self._processes[0].end()
                return timed
            except Late:
                return Timed("late", (), f"running it takes more than {limit:.3g} s")
            except Ended as fault:
                why = f"while it ran, {fault}"
            except TilewrightError as fault:
                return Timed("failed", (), str(fault))
        return Timed("crashed", (), why)

    def _start(self) -> None:
        """Have a first worker, so that what one takes to start counts for no candidate."""
        self._take(self._processes[0])
        if not self._processes[0].number:
            self._surely("sentinel")

    def _look(self) -> float:
        """How fast the machine is: seconds of the default's kernel."""
        self._now, self._looked = self._surely("sentinel"), time.monotonic()
        self._fastest = min(self._fastest, self._now)
        return self._now

    # ---- Two --------------------------------------------------------------------------------

    def duel(self, a: Point, b: Point, seconds: float, p: float = P) -> Verdict:
        """Which of two points is faster, by calls in turns in one process: for so many seconds, or
        until that is certain. p: the chance of a winner where both are equally fast. Who cannot be
        compiled, or is wrong, loses."""
        return self._duel(a, b, seconds, p)[0]

    def _duel(
        self, a: Point, b: Point, seconds: float, p: float
    ) -> tuple[Verdict, tuple[float, ...], tuple[float, ...]]:
        codes: list[Code] = []
        for name, other, point in (("a", "b", a), ("b", "a", b)):
            code, why = self._code(point)
            if code is None:
                ratio = math.inf if name == "b" else 0.0
                return Verdict(ratio, ratio, ratio, other, why=f"{name}: {why}"), (), ()
            codes.append(code)
        self._turns += 1
        why = ""
        for _ in range(ATTEMPTS):
            try:
                self._start()
                self._gate.wait(self.processes)
                limit = seconds + self.limit
                asked = tuple(codes), seconds, p, self._turns
                return self._ask(self._processes[0], limit, "duel", *asked)
            except Ended as fault:
                why = str(fault)
            except Late as fault:
                why = str(fault)
                break
            except TilewrightError as fault:
                why = str(fault)
                break
        return Verdict(math.nan, 0.0, math.inf, "", why=why), (), ()

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
        for point in rivals:
            verdict, ours, theirs = self._duel(None, point, each, P / len(rivals))
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
