"""A stand: where candidates of one function run, one at a time, beside its default.

In: code, on whatever runs it. Out: an `Outcome` for each, and of two a verdict. The one idea: times
are told apart from the machine's moods by looks at the default's kernel before and after; who asks
needs not know whether the machine is this one or another.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tilewright.support.errors import CompileError, TilewrightError
from tilewright.support.record import record
from tilewright.tune.launcher import Code
from tilewright.tune.load_gate import LoadGate
from tilewright.tune.process import START, Ended, Late
from tilewright.tune.samples import Verdict
from tilewright.tune.worker import Point, Timed

RECENT = 1.0  # seconds for which a look at how fast the machine is counts
STEADY, UNSTEADY = 1.03, 1.15  # how far they may differ: then that is noise; then times are useless
GRACE, MANY = 1.0, 200.0  # a candidate's time limit: seconds, and times the best so far
ATTEMPTS = 2  # for a candidate whose worker ended: it may have been killed for something else
CLOSE = 1.5  # times the best so far: who is that close is timed again where times were useless

Duel = tuple[Verdict, tuple[float, ...], tuple[float, ...]]  # a verdict, and samples of each


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


class Runner(Protocol):
    """What runs code: a worker process, or a board's stand-in for one. It is asked what `Worker`
    is: reference, sentinel, time, duel."""

    @property
    def number(self) -> int:
        """Not 0 while it is there; of a process its number."""
        ...

    def ask(self, seconds: float, asked: str, *given: Any) -> Any:
        """The answer; raises Ended and Late as `Process.ask` does."""
        ...

    def end(self) -> None:
        """End it; the next request starts another."""
        ...


class Stand:
    """What is known of how fast a machine runs the default, and how candidates do beside it.

    Args:
        runner: runs code.
        name: of the function, for messages.
        ready: waits until the machine is quiet.
    """

    def __init__(self, runner: Runner, name: str, ready: Callable[[], object]) -> None:
        self.runner, self.name, self.ready = runner, name, ready
        self.fastest = math.inf  # the default at its best
        self._default: Code | None = None
        self._now, self._looked = math.inf, -math.inf  # the default's last time, and when that was

    def begin(self, default: Code) -> float:
        """Take the default's code, and its result for the right one where none was given: the
        seconds of a call. Raises CompileError where it does not run."""
        self.surely("reference", default)
        self._default = default
        return self._look()

    def began(self, runner: Any) -> None:
        """What a new process that runs candidates is told."""
        if self._default is not None:
            runner.ask(START, "reference", self._default)

    def surely(self, asked: str, *given: Any) -> Any:
        """The answer to what has nothing to do with a candidate. Raises CompileError."""
        why = ""
        for _ in range(ATTEMPTS + 1):
            try:
                return self.runner.ask(START, asked, *given)
            except (Ended, Late) as fault:
                why = str(fault)
        raise no_default(self.name, why)

    def measure(self, codes: Mapping[str, Code], best: float, limit: float) -> dict[str, Outcome]:
        """Time candidates, by the digests of their code: again, those that are close to the best,
        where the machine was not as fast before as after. best: seconds of the best so far; limit:
        seconds for each."""
        found, is_steady = self._window(codes, best, limit)
        if not is_steady:
            close = CLOSE * min(best, *(o.best for o in found.values()))
            again = {d: codes[d] for d, o in found.items() if o.seconds and o.best < close}
            found |= self._window(again, best, limit)[0] if again else {}
        return found

    def _window(
        self, codes: Mapping[str, Code], best: float, limit: float
    ) -> tuple[dict[str, Outcome], bool]:
        """Time candidates one after another; was the machine as fast before as after?"""
        self.ready()
        if time.monotonic() - self._looked > RECENT:
            self._look()
        before = self._now
        ran: dict[str, Timed] = {}
        for digest, code in codes.items():
            drift = self._now / self.fastest
            ran[digest] = self._timed(code, best * drift, limit)
            best = min(best, min(ran[digest].seconds, default=math.inf) / drift)
        after = self._look()
        drift = max(1.0, math.sqrt(before * after) / self.fastest)
        drift = drift if drift > STEADY else 1.0
        outcomes = {d: Outcome(t.status, t.seconds, 0.0, t.why, drift) for d, t in ran.items()}
        return outcomes, max(before, after) < UNSTEADY * min(before, after)

    def _timed(self, code: Code, best: float, limit: float) -> Timed:
        """What comes of running code, whatever becomes of the worker."""
        why, limit = "", min(limit, GRACE + MANY * best)
        for _ in range(ATTEMPTS):
            try:
                self._start()
                timed: Timed = self.runner.ask(limit, "time", code, best)
                if timed.status == "wrong":  # it may have written to anything there
                    self.runner.end()
                return timed
            except Late:
                return Timed("late", (), f"running it takes more than {limit:.3g} s")
            except Ended as fault:
                why = f"while it ran, {fault}"
            except TilewrightError as fault:
                return Timed("failed", (), str(fault))
        return Timed("crashed", (), why)

    def _start(self) -> None:
        """Have a worker, so that what one takes to start counts for no candidate."""
        if not self.runner.number:
            self.surely("sentinel")

    def _look(self) -> float:
        """How fast the machine is: seconds of the default's kernel."""
        self._now, self._looked = self.surely("sentinel"), time.monotonic()
        self.fastest = min(self.fastest, self._now)
        return self._now

    def duel(
        self, codes: tuple[Code, Code], seconds: float, p: float, turns: int, limit: float
    ) -> Duel:
        """Two candidates in turns, for so many seconds or until that is certain; see `Bench`.
        limit: seconds that it may take longer. turns: decides whose turn is first."""
        why = ""
        for _ in range(ATTEMPTS):
            try:
                self._start()
                self.ready()
                return self.runner.ask(seconds + limit, "duel", codes, seconds, p, turns)
            except Ended as fault:
                why = str(fault)
            except Late as fault:
                why = str(fault)
                break
            except TilewrightError as fault:
                why = str(fault)
                break
        return Verdict(math.nan, 0.0, math.inf, "", why=why), (), ()


def no_default(name: str, why: str) -> CompileError:
    """The error of a function whose default schedule cannot be compiled or run."""
    return CompileError(f"cannot measure '{name}'", f"its default schedule does not run: {why}")


def gated(runner: Callable[[], Sequence[int]], threads: int) -> Callable[[], object]:
    """A stand's `ready` on this machine. runner: numbers of the processes that are our own."""
    gate = LoadGate(threads)
    return lambda: gate.wait(runner())
