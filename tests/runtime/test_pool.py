"""Clones and pools: one model called from everywhere at once, each call on a clone that is free."""

from __future__ import annotations

import asyncio
import copy
import itertools
import multiprocessing
import os
import pickle
import threading
from concurrent.futures import (
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    as_completed,
    wait,
)

import numpy as np
import pytest

import tilewright as tw
from tests.runtime.images import program, scale_program, symbolic_program
from tests.runtime.test_sharing import in_child, in_threads, right
from tilewright.runtime import abi

X = np.arange(1000, dtype=np.float32)


def inputs(count: int) -> list[np.ndarray]:
    """Arrays of all lengths, each another."""
    return [X[i % 7 : i % 7 + 1 + 37 * i % 900] for i in range(count)]


def is_right(x: np.ndarray, result: list[np.ndarray]) -> bool:
    return bool((result[0] == 2 * x + 3).all()) and result[0].shape == x.shape


# ---- Clones -----------------------------------------------------------------------------------


def test_a_clone_shares_code_and_weights(loaded):
    exe = loaded(symbolic_program(), 2)
    clone, wider = exe.clone(), exe.clone(threads=3)
    assert (exe.threads, clone.threads, wider.threads) == (2, 2, 3)
    for made in (clone, wider, copy.deepcopy(clone)):
        shared = np.frombuffer(made.artifact(), np.uint8).ctypes.data
        assert shared == np.frombuffer(exe.artifact(), np.uint8).ctypes.data
        assert right(made, 100)
    with pytest.raises(tw.InputError, match="threads is 0"):
        exe.clone(threads=0)


MEET = (  # each waits until both are in a call: they could not if they took turns
    "EXPORT int32_t run(tw_call *c) { volatile int32_t *flags = *(int32_t **)c->inputs[0];"
    "int32_t me = *(int32_t *)c->inputs[1]; flags[me] = 1; while (!flags[!me]) {}"
    "*(int32_t *)c->outputs[0] = me; return 0; }"
)


@pytest.fixture
def meeting(loaded):
    """A model whose calls 0 and 1 end only if they run at once."""
    number = abi.TensorInfo("me", "i32", ())
    address = abi.TensorInfo("flags", "i64", ())
    return loaded(program(MEET, (address, number), (abi.TensorInfo("who", "i32", ()),)))


def test_calls_of_a_pool_run_side_by_side(meeting):
    flags = np.zeros(2, np.int32)
    with tw.Pool(meeting, 2) as pool:
        calls = [pool.submit(flags.ctypes.data, me) for me in (0, 1)]
        assert [call.result(30)[0] for call in calls] == [0, 1]
    flags[:] = 0
    in_threads(2, lambda me: pool(flags.ctypes.data, me))


# ---- A pool as a user has it ------------------------------------------------------------------


def test_calls_futures_and_maps(loaded):
    exe, given = loaded(symbolic_program(), 2), inputs(40)
    with tw.Pool(exe, 3) as pool:
        assert is_right(given[0], pool(given[0])) and is_right(given[1], pool(x=given[1]))
        futures: dict[Future, np.ndarray] = {pool.submit(x): x for x in given}
        for future in as_completed(futures, timeout=60):
            assert is_right(futures[future], future.result())
        done, waiting = wait([pool.submit({"x": x}) for x in given], timeout=60)
        assert len(done) == len(given) and not waiting
        for x, result in zip(given, pool.map(given), strict=True):
            assert is_right(x, result)
    assert "Pool of 3 clones" in repr(pool) and "1 thread each" in repr(pool)
    with pytest.raises(RuntimeError, match="shutdown"):
        pool.submit(given[0])


def test_a_map_reads_a_few_calls_ahead(loaded):
    """Over an endless source."""
    read = []

    def endless():
        for i in itertools.count():
            read.append(i)
            yield X[: 1 + i % 50]

    with tw.Pool(loaded(symbolic_program()), 2) as pool:
        results = pool.map(endless())
        for i in range(20):
            assert is_right(X[: 1 + i % 50], next(results))
        results.close()
    assert len(read) <= 20 + 2 * 2


def test_a_call_that_is_refused_leaves_its_clone(loaded):
    with tw.Pool(loaded(symbolic_program()), 1) as pool:
        for _ in range(3):
            with pytest.raises(tw.InputError, match="dtype is float64"):
                pool(np.zeros(3))
            with pytest.raises(tw.InputError, match="dtype is float64"):
                pool.submit(np.zeros(3)).result(30)
        assert is_right(X, pool(X))


def test_its_size(loaded, monkeypatch):
    exe = loaded(symbolic_program())
    monkeypatch.setenv("TILEWRIGHT_THREADS", "5")
    assert tw.Pool(exe).size == 5 and tw.Pool(exe, threads=2).size == 2
    assert tw.Pool(exe, threads=7).size == 1
    for size in (0, -1, 1.5, True, "two"):
        with pytest.raises(tw.InputError, match="expected 1 or more clones"):
            tw.Pool(exe, size)
    for threads in (0, None, "two"):
        with pytest.raises(tw.InputError):
            tw.Pool(exe, threads=threads)


def test_in_asyncio(loaded):
    given = inputs(50)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        futures = [asyncio.wrap_future(pool.submit(x)) for x in given]
        others = [loop.run_in_executor(None, pool, x) for x in given]
        for x, result in zip(given + given, await asyncio.gather(*futures, *others), strict=True):
            assert is_right(x, result)

    with tw.Pool(loaded(symbolic_program()), 2) as pool:
        asyncio.run(asyncio.wait_for(main(), 60))


def test_a_pool_pickles(loaded):
    pool = tw.Pool(loaded(symbolic_program()), 2, threads=2)
    again = pickle.loads(pickle.dumps(pool))
    assert (again.size, again.threads) == (2, 2) and is_right(X, again(X))


# ---- Threads, processes and asyncio at once ---------------------------------------------------

_mine: tw.Pool | None = None  # a child's


def _start(pool: tw.Pool) -> None:
    global _mine
    _mine = pool


def _calls(first: int, count: int) -> int:
    """In a child: how many calls were wrong."""
    assert _mine is not None
    given = inputs(first + count)[first:]
    return sum(not is_right(x, r) for x, r in zip(given, _mine.map(given), strict=True))


def _everywhere(pool: tw.Pool, calls: int, method: str) -> None:
    given, wrong = inputs(calls), []

    def thread(k: int) -> None:
        for x in given[k::4]:
            if not is_right(x, pool(x)):
                wrong.append(x.size)

    async def main() -> None:
        for at in range(0, calls, 50):
            part = given[at : at + 50]
            futures = [asyncio.wrap_future(pool.submit(x)) for x in part]
            for x, result in zip(part, await asyncio.gather(*futures), strict=True):
                if not is_right(x, result):
                    wrong.append(x.size)

    context = multiprocessing.get_context(method)
    with (
        ThreadPoolExecutor(5) as threads,
        ProcessPoolExecutor(2, context, _start, (pool,)) as processes,
    ):
        begun = [threads.submit(thread, k) for k in range(4)]
        begun.append(threads.submit(asyncio.run, main()))
        children = [processes.submit(_calls, k * calls // 4, calls // 4) for k in range(4)]
        for future in begun:
            future.result(300)
        assert [child.result(300) for child in children] == [0, 0, 0, 0]
    assert not wrong


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_threads_processes_and_asyncio_at_once(method, loaded):
    with tw.Pool(loaded(symbolic_program()), 2) as pool:
        _everywhere(pool, 100, method)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_thousand_calls_of_each(method, threads, loaded):
    with tw.Pool(loaded(symbolic_program()), 3, threads) as pool:
        for _ in range(3):
            _everywhere(pool, 1000, method)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_children_of_a_pool_that_is_in_use(loaded):
    """Wherever the parent's threads are in the pool, and whichever clones they have."""
    pool, done = tw.Pool(loaded(scale_program()), 2, threads=2), threading.Event()

    def call() -> None:
        while not done.is_set():
            assert (pool(X)[0] == 2 * X + 3).all()
            assert (pool.submit(X).result()[0] == 2 * X + 3).all()

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    try:
        for _ in range(10):
            in_child(lambda: all((r[0] == 2 * X + 3).all() for r in (*pool.map([X] * 6), pool(X))))
    finally:
        done.set()
        for caller in callers:
            caller.join()
