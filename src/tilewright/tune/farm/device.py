"""A device: a machine that measures compiled candidates, one at a time.

In: a function's set-up with its default's code, then batches of code. Out: an `Outcome` for each,
verdicts of two. The one idea: a device does what a bench does once code is there, so whoever gives
these five methods is one; it is never asked for two things at once, and answers or raises
`Vanished`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tilewright.support.record import record
from tilewright.target.processors import architecture
from tilewright.target.target import Target, target
from tilewright.tune.launcher import Code
from tilewright.tune.process import Assigned, Process
from tilewright.tune.stand import Duel, Outcome, Stand, gated
from tilewright.tune.worker import Setup

MISSING = "pip install 'tilewright[farm]'"  # where a library is not there


class Vanished(Exception):
    """A device is not there, or no more: what it had in hand is for another. The message says what
    happened."""


@record
class Function:
    """What is measured: how arrays are made, and the code that all else is compared with. key: the
    same for what is the same."""

    key: str
    setup: Setup
    default: Code


class Device(Protocol):
    """A machine that measures candidates. name: for people, and different from others'."""

    name: str

    def open(self, machine: Target, threads: int) -> None:
        """Be ready to run a machine's code on so many threads; again after it vanished. Raises
        InputError for a machine that cannot or may not be used, Vanished for one that is not
        there."""
        ...

    def begin(self, function: Function) -> float:
        """Measure candidates of this function from now on: the seconds of its default. Raises
        CompileError where that does not run."""
        ...

    def measure(self, codes: Mapping[str, Code], best: float, limit: float) -> dict[str, Outcome]:
        """The outcomes of candidates, by the digests of their code. best: seconds of the best so
        far, who is far behind needs few samples; limit: seconds that each may take."""
        ...

    def duel(
        self, codes: tuple[Code, Code], seconds: float, p: float, turns: int, limit: float
    ) -> Duel:
        """Two candidates in turns: see `Stand.duel`."""
        ...

    def close(self) -> None:
        """Let the machine go, whatever it does."""
        ...


class StandDevice:
    """What devices share that have a stand on this side; `begin` makes it."""

    _stand: Stand | None = None

    def measure(self, codes: Mapping[str, Code], best: float, limit: float) -> dict[str, Outcome]:
        """See `Device`."""
        assert self._stand is not None
        return self._stand.measure(codes, best, limit)

    def duel(
        self, codes: tuple[Code, Code], seconds: float, p: float, turns: int, limit: float
    ) -> Duel:
        """See `Device`."""
        assert self._stand is not None
        return self._stand.duel(codes, seconds, p, turns, limit)


class WorkerDevice(StandDevice):
    """A device on the machine where this process runs: a worker process of its own."""

    def __init__(self, name: str = "this machine") -> None:
        self.name = name
        self._threads = 1
        self._process: Process | None = None

    def open(self, machine: Target, threads: int) -> None:
        """See `Device`."""
        self._threads = threads

    def begin(self, function: Function) -> float:
        """See `Device`."""
        self._process = process = self._process or Process()
        stands: list[Stand] = []
        runner = Assigned(process, function.setup, lambda it: stands[0].began(it))
        ready = gated(lambda: [process.number] if process.number else [], self._threads)
        stands.append(Stand(runner, function.setup.func.name, ready))
        self._stand = stands[0]
        return self._stand.begin(function.default)

    def close(self) -> None:
        """See `Device`."""
        if self._process is not None:
            self._process.close()
        self._process = self._stand = None


def missing_here(wanted: Target) -> str:
    """Why this machine cannot run another's code, in words; "" where it can."""
    here = target("cpu")
    if architecture(wanted.triple) != architecture(here.triple):
        return f"it is {architecture(here.triple)}"
    lacking = sorted(wanted.features - here.features)
    return f"it lacks {', '.join(lacking)}" if lacking else ""
