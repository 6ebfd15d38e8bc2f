"""Who touched what since when: memory that notices conflicting accesses, and threads in lockstep.

In: the generators of a grid's threads. Out: the memory effects of running them, or RaceError. The
one idea: threads run one after the other between barriers; an access conflicts if another thread of
the same phase (or of another block of the same grid) touched the location and one of the two wrote.
A parallel loop is a grid of one-thread blocks without barriers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Sequence
from typing import Any

from tilewright.support.errors import TilewrightError

Agent = tuple[int, tuple[int, ...], int, tuple[int, ...]]  # grid, block, phase, thread


class RaceError(TilewrightError):
    """Threads touch one location with no barrier in between, or not all of them reach a barrier."""


class Clock:
    """Who runs now. `agent` is None outside of grids, where nothing can race."""

    def __init__(self) -> None:
        self.agent: Agent | None = None
        self.grids = 0

    def iterations(self, start: int, stop: int) -> Generator[int, None, None]:
        """The values of a parallel loop, each an agent of its own (unless inside an agent)."""
        if self.agent is not None:
            yield from range(start, stop)
            return
        self.grids += 1
        for i in range(start, stop):
            self.agent = (self.grids, (i,), 0, ())
            yield i
        self.agent = None

    def launch(self, entry: Callable[..., Any], grid: Sequence[int], block: Sequence[int]) -> None:
        """Run the generators `entry(*block index, *thread index, shared)` of all threads."""
        self.grids += 1
        for b in itertools.product(*map(range, grid)):
            shared: dict[Any, Any] = {}
            threads = {
                t: entry(*b, *t, Shared(shared)) for t in itertools.product(*map(range, block))
            }
            phase = 0
            while threads:
                self.phase(threads, (self.grids, b, phase))
                phase += 1
        self.agent = None

    def phase(self, threads: dict[Any, Any], now: tuple[int, tuple[int, ...], int]) -> None:
        """Run each thread to its next barrier; forget all of them if they have ended.

        A thread that fails may have read what another was about to write: then the race is told.
        """
        reached: dict[Any, Any] = {}
        fault: TilewrightError | None = None
        for t, generator in threads.items():
            self.agent = (*now, t)
            try:
                reached[t] = next(generator, None)
            except RaceError:
                raise
            except TilewrightError as e:
                fault = fault or e
        if fault is not None:
            raise fault
        first = next(iter(reached))
        for t, barrier in reached.items():
            if barrier != reached[first]:
                one, other = _at(reached[first]), _at(barrier)
                raise RaceError(f"thread {first} {one}, thread {t} {other}, in block {now[1]}")
        if reached[first] is None:
            threads.clear()


def _at(barrier: int | None) -> str:
    return "ends" if barrier is None else f"waits at barrier {barrier}"


class Shared:
    """A block's shared allocations as one thread meets them: its n-th is everyone's n-th.

    An allocation in a loop is the same memory each time, whose contents are undefined again.
    """

    def __init__(self, block: dict[Any, tuple[list[Any], dict[int, int], Any]]) -> None:
        self.block, self.met = block, dict[Any, int]()

    def __call__(self, site: Any, make: Callable[[], list[Any]]) -> Meeting:
        if site not in self.block:
            memory: list[Any] = make()
            self.block[site] = memory, {}, next(iter(memory), None)
        self.met[site] = self.met.get(site, 0) + 1
        memory, stored, nothing = self.block[site]
        return Meeting(memory, stored, nothing, self.met[site])


class Meeting:
    """Shared memory as threads see it that met its allocation `count` times."""

    __slots__ = ("count", "memory", "nothing", "stored")

    def __init__(self, memory: list[Any], stored: dict[int, int], nothing: Any, count: int) -> None:
        self.memory, self.stored, self.nothing, self.count = memory, stored, nothing, count

    def __len__(self) -> int:
        return len(self.memory)

    def __getitem__(self, location: int) -> Any:
        value = self.memory[location]
        return value if self.stored.get(location) == self.count else self.nothing

    def __setitem__(self, location: int, value: Any) -> None:
        self.memory[location] = value
        self.stored[location] = self.count


class Tracked(list[Any]):
    """Memory that remembers, for each location, the last writer and the readers since."""

    def __init__(self, values: Any, name: str, strides: Sequence[int], clock: Clock) -> None:
        super().__init__(values)
        self.name, self.strides, self.clock = name, strides, clock
        self.writer: dict[int, Agent] = {}
        self.readers: dict[int, dict[Any, Agent]] = {}

    def __getitem__(self, location: Any) -> Any:
        me = self.clock.agent
        if me is not None:
            writer = self.writer.get(location)
            if writer is not None and _conflict(writer, me):
                self.race(location, writer, "wrote", me, "reads")
            readers = self.readers.setdefault(location, {})
            readers[me[1], me[3]] = me
        return super().__getitem__(location)

    def __setitem__(self, location: Any, value: Any) -> None:
        me = self.clock.agent
        if me is not None:
            writer = self.writer.get(location)
            if writer is not None and _conflict(writer, me):
                self.race(location, writer, "wrote", me, "writes")
            for reader in self.readers.pop(location, {}).values():
                if _conflict(reader, me):
                    self.race(location, reader, "read", me, "writes")
            self.writer[location] = me
        super().__setitem__(location, value)

    def race(self, location: int, first: Agent, did: str, me: Agent, does: str) -> None:
        index: list[str] = []
        for stride in self.strides:
            index.append(str(location // stride))
            location %= stride
        raise RaceError(
            f"{_who(me)} {does} {self.name}[{', '.join(index)}], which {_who(first)} {did}"
            " without a barrier in between"
        )


def _conflict(a: Agent, b: Agent) -> bool:
    """Whether nothing orders the accesses of `a` and `b`."""
    return a[0] == b[0] and (a[1] != b[1] or (a[2] == b[2] and a[3] != b[3]))


def _who(agent: Agent) -> str:
    _, block, _, thread = agent
    if not thread:
        return f"iteration {block[0]}"
    return f"thread {thread} of block {block}"
