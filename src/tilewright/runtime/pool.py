"""A pool of clones: calls from any thread, each on a clone that is free.

In: an executable. Out: a `Pool`, called like it; `submit` gives a future of `concurrent.futures`,
so that `as_completed`, `wait` and asyncio's `wrap_future` take it. Clones share code and weights;
each has an arena and threads of its own, so that none waits for another.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

from tilewright.runtime.executor import Executable
from tilewright.runtime.threads import default_threads, is_thread_count
from tilewright.support.errors import InputError
from tilewright.support.html import counted


class Pool:
    """Clones of an executable that work side by side; called like it, from any thread.

    As a context manager it shuts down at the end of the block. It pickles as the executable and the
    two numbers; a forked child has clones of its own, while futures of the parent end in the
    parent. docs/interfaces.md uses it in all its ways.

    Args:
        executable: an `Executable`, or what `compile(specialise=...)` gives.
        size: how many clones; None: as many as there are cores for.
        threads: of each clone. Many calls at once are served fastest by one each; more are for few
            calls that come one by one.

    Raises:
        InputError: `size` or `threads` is no such number, or `executable` is none.
    """

    def __init__(self, executable: Any, size: int | None = None, threads: int = 1) -> None:
        if size is None and is_thread_count(threads):
            size = max(1, default_threads() // threads)
        if type(size) is not int or size < 1:
            raise InputError("cannot make a pool", f"size is {size!r}, expected 1 or more clones")
        if not hasattr(executable, "clone"):
            kind = type(executable).__qualname__
            raise InputError("cannot make a pool", f"a {kind} is no executable")
        self.executable, self.size, self.threads = executable, size, threads
        self._clones: list[Executable] = [executable.clone(threads) for _ in range(size)]
        self._begin()
        _living.add(self)

    def _begin(self) -> None:
        """All clones are free, and no call was submitted."""
        self._free: SimpleQueue[Executable] = SimpleQueue()
        for clone in self._clones:
            self._free.put(clone)
        self._workers = ThreadPoolExecutor(self.size, thread_name_prefix="tilewright")

    def __call__(self, *arrays: Any, **named: Any) -> list[Any]:
        """As `Executable.__call__`, on a clone that is free, waiting for one if need be."""
        free = self._free
        clone = free.get()
        try:
            return clone(*arrays, **named)
        finally:
            free.put(clone)

    def submit(self, *arrays: Any, **named: Any) -> Future[list[Any]]:
        """Have the call made by a thread of the pool's. The arrays are read then: leave them as
        they are until the future is done.

        Returns:
            A future of `concurrent.futures`; its result is that of a call.

        Raises:
            RuntimeError: the pool was shut down.
        """
        return self._workers.submit(self, *arrays, **named)

    def map(self, *inputs: Iterable[Any]) -> Iterator[list[Any]]:
        """The outputs of a call for each of an iterable's elements, in order.

        Args:
            *inputs: an iterable for each input of the model. They may be endless: at most two calls
                for each clone are under way before the first result is taken.
        """
        waiting: deque[Future[list[Any]]] = deque()
        try:
            for arrays in zip(*inputs, strict=False):
                waiting.append(self.submit(*arrays))
                if len(waiting) == 2 * self.size:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads that `submit` and `map` use, as `concurrent.futures.Executor.shutdown`;
        the clones live as long as the pool."""
        self._workers.shutdown(wait, cancel_futures=cancel_futures)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def __reduce__(self) -> tuple[Any, ...]:
        return Pool, (self.executable, self.size, self.threads)

    def __repr__(self) -> str:
        clones, threads = counted(self.size, "clone"), counted(self.threads, "thread")
        return f"<Pool of {clones}, {threads} each, of {self.executable!r}>"


_living: weakref.WeakSet[Pool] = weakref.WeakSet()


def _enter_child() -> None:
    """After a fork: the threads that were in calls are the parent's, their clones are free here."""
    for pool in list(_living):
        pool._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_enter_child)
