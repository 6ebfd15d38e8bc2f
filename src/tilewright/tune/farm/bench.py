"""The measurement service over a farm: points are compiled here, and run on its devices.

In: a function, a farm, points. Out: what `Bench` gives. The one idea: compiling and measuring go on
at the same time, since what is compiled here disturbs nothing that is timed there; a point's code
is on its way as soon as it is made.
"""

from __future__ import annotations

import itertools
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

from tilewright.ir.stmt import Func
from tilewright.support.errors import TilewrightError
from tilewright.target.processors import host_cores
from tilewright.target.target import Target
from tilewright.tune.farm.device import Function
from tilewright.tune.farm.farm import Deserted, Farm, FarmWarning
from tilewright.tune.launcher import Code
from tilewright.tune.measure import Bench
from tilewright.tune.process import Process
from tilewright.tune.stand import Duel, Outcome
from tilewright.tune.worker import Compiled, Point, Setup, Worker

LIMIT = 10.0  # seconds that a default may run
NUMBERS = itertools.count()  # of functions, so that no two have one key


class FarmBench(Bench):
    """Measures points of one function on the devices of a farm: see `Bench`, whose arguments the
    others are. workers: processes that compile; None: one for each core.

    Raises:
        CompileError: as `Bench` does; `Deserted` when no device is left.
    """

    def __init__(
        self,
        func: Func,
        machine: Target,
        threads: int,
        farm: Farm,
        *,
        workers: int | Sequence[Process] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(func, machine, threads, workers=workers or host_cores(), **more)
        self.farm = farm
        self._function: Function | None = None

    @property
    def lanes(self) -> int:
        """Devices that are left; one at least."""
        return max(1, self.farm.lanes)

    def _prepare(self) -> None:
        """Compile the default, and let a device run it."""
        default = self._compiled_default()
        self._function = Function(f"{self.func.name} {next(NUMBERS)}", self.setup, default)
        outcome = self._told(self.farm.measure(self._function, default, self.limit))
        self._seen[default.digest] = outcome

    def _told(self, future: Future[Any]) -> Any:
        """A future's result; warns of devices that were lost meanwhile."""
        try:
            return future.result()
        except BaseException:  # interrupted, or of no use any more: then others are, too
            self.farm.cancel()
            raise
        finally:
            self._warn()

    def _warn(self) -> None:
        for told in self.farm.news():
            warnings.warn(told, FarmWarning, stacklevel=4)

    def measure(
        self,
        points: Sequence[Point],
        done: Callable[[int, Outcome], None] = lambda n, outcome: None,
        *,
        partial: bool = False,
    ) -> list[Outcome]:
        """See `Bench.measure`; outcomes are told as they come, in any order."""
        events: SimpleQueue[tuple[int, Compiled] | tuple[str, Future[Outcome]]] = SimpleQueue()
        found: dict[int, Outcome] = {}
        waiting: dict[str, list[tuple[int, Compiled]]] = defaultdict(list)

        def stands(n: int, made: Compiled) -> None:
            found[n] = self._outcome(made)
            done(n, found[n])

        threads = self._compiling(points, partial, lambda n, made: events.put((n, made)))
        try:
            while len(found) < len(points):
                which, what = events.get()
                if isinstance(what, Compiled):
                    assert isinstance(which, int)
                    code = what.code
                    if code is not None:
                        self._keep(points[which] and what.point, code)
                    if code is None or code.digest in self._seen:
                        stands(which, what)
                        continue
                    waiting[code.digest].append((which, what))
                    if len(waiting[code.digest]) == 1:
                        self._ask(code, events)
                else:
                    assert isinstance(which, str)
                    self._seen[which] = what.result()
                    for n, made in waiting.pop(which):
                        stands(n, made)
        finally:
            self._is_stopped = True
            self.farm.cancel()
            for thread in threads:
                thread.join()
            self._warn()
        return [found[n] for n in range(len(points))]

    def _ask(self, code: Code, events: SimpleQueue[Any]) -> None:
        """Have a candidate measured; its future becomes an event."""
        assert self._function is not None
        future = self.farm.measure(self._function, code, self.limit)
        future.add_done_callback(lambda told: events.put((code.digest, told)))

    def _between(self, codes: tuple[Code, Code], seconds: float, p: float) -> Duel:
        return self._told(self._duelling(codes, seconds, p))

    def _duelling(self, codes: tuple[Code, Code], seconds: float, p: float) -> Future[Duel]:
        assert self._function is not None
        return self.farm.duel(self._function, codes, seconds, p, self._turns, self.limit)

    def _duels(self, points: Sequence[Point], seconds: float, p: float) -> list[Duel]:
        """All at the same time, as far as there are devices: so each has more seconds."""
        each = seconds * max(1, min(self.lanes, len(points)))
        asked: list[Future[Duel] | Duel] = []
        default, _ = self._code(None)
        for point in points:
            code, _ = self._code(point)
            if code is None or default is None:
                asked.append(self._duel(None, point, each, p))  # it says why
            else:
                self._turns += 1
                asked.append(self._duelling((default, code), each, p))
        return [self._told(one) if isinstance(one, Future) else one for one in asked]


def profiled(
    funcs: Sequence[Func], machine: Target, threads: int, farm: Farm, seed: int = 0
) -> list[Outcome]:
    """What the defaults of functions take on a farm; "failed" for what cannot be compiled or run.
    They are compiled in this process: they are no candidates. Raises `Deserted`."""
    asked: list[Future[Outcome] | Outcome] = []
    for func in funcs:
        setup = Setup(func, str(machine), threads, {}, None, False, seed)
        made = Worker(setup).compile(None)
        if made.code is None:
            asked.append(Outcome("failed", why=made.why))
        else:
            function = Function(f"{func.name} {next(NUMBERS)}", setup, made.code)
            asked.append(farm.measure(function, made.code, LIMIT))
    found: list[Outcome] = []
    for one in asked:
        try:
            found.append(one if isinstance(one, Outcome) else one.result())
        except Deserted:
            raise
        except TilewrightError as fault:
            found.append(Outcome("failed", why=str(fault).split("\n")[0]))
    return found
