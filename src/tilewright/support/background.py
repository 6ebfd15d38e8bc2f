"""Work done in the background: by other threads, before whoever takes its results, in order.

In: functions. Out: what they return, one by one. The standard library's executors bring logging and
futures, which take longer to import than loading a compiled model.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


class _Task(Generic[T]):
    """A function, and what came of it once `done` is free."""

    def __init__(self, make: Callable[[], T]) -> None:
        self.make = make
        self.done = threading.Lock()
        self.done.acquire()
        self.fault: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self.make()
        except BaseException as fault:
            self.fault = fault
        self.done.release()

    def wait(self) -> T:
        self.done.acquire()
        if self.fault is not None:
            raise self.fault
        return self.result


@contextmanager
def in_background(
    jobs: Iterable[Callable[[], T]], threads: int, most: int
) -> Generator[Generator[T, None, None], None, None]:
    """The results of `jobs` in their order, as an iterator. So many threads do them from now on,
    `most` before one is taken, and who takes one that is not there does others meanwhile; the
    threads end with the block. Taking a result raises what its job raised."""
    waiting = iter(jobs)
    tasks: SimpleQueue[_Task[T] | None] = SimpleQueue()
    begun: deque[_Task[T]] = deque()

    def begin(count: int) -> None:
        for job in islice(waiting, count):
            begun.append(_Task(job))
            tasks.put(begun[-1])

    def work() -> None:
        while (task := tasks.get()) is not None:
            task.run()
            del task  # with what it made

    def results() -> Generator[T, None, None]:
        while begun:
            while begun[0].done.locked() and not tasks.empty():
                with suppress(Empty):  # another one took it
                    other = tasks.get_nowait()
                    assert other is not None
                    other.run()
                    del other
            result = begun.popleft().wait()
            begin(1)
            yield result
            del result

    workers: list[threading.Thread] = []
    try:
        begin(most)
        for _ in range(threads):
            worker = threading.Thread(target=work, daemon=True)
            with suppress(RuntimeError):  # there is no memory for one: who takes results does it
                worker.start()
                workers.append(worker)
        yield results()
    finally:
        for _ in workers:
            tasks.put(None)
        for worker in workers:
            worker.join()
