"""One executable in many hands: copies, pickles, forks, profiles and threads, all at once."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal
import threading
from collections.abc import Callable

import numpy as np
import pytest

from tests.runtime.images import program, scale_program, symbolic_program
from tilewright.runtime import abi
from tilewright.runtime.profile import Roofline

MACHINE = Roofline(gflops=100.0, gbytes=10.0)
X = np.arange(1000, dtype=np.float32)


def right(exe, n: int) -> bool:
    return bool((exe(X[:n])[0] == 2 * X[:n] + 3).all())


def in_threads(count: int, work: Callable[[int], object]) -> None:
    failures: list[BaseException] = []

    def guarded(i: int) -> None:
        try:
            work(i)
        except BaseException as fault:
            failures.append(fault)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_a_copy_outlives_its_original(duplicate, loaded):
    exe = loaded(symbolic_program(), 2)
    assert right(exe, 10)
    copied = duplicate(exe)
    assert right(exe, 20) and right(copied, 10) and right(copied, 20)  # their shapes are apart
    kept = copied.artifact()
    before = bytes(kept)
    del exe
    gc.collect()
    for n in (1, 1000, 7):
        assert right(copied, n)
    assert copied.threads == 2 and copied.inputs[0].name == "x"
    del copied
    gc.collect()
    assert bytes(kept) == before


def test_copies_run_side_by_side(loaded):
    """Each waits until both are in a call: they could not if they took turns."""
    exe = loaded(
        program(
            "EXPORT int32_t run(tw_call *c) { volatile int32_t *flags = c->outputs[0];"
            "int32_t me = *(int32_t *)c->inputs[0]; flags[me] = 1; while (!flags[!me]) {}"
            "return 0; }",
            (abi.TensorInfo("me", "i32", ()),),
            (abi.TensorInfo("flags", "i32", (2,)),),
        )
    )
    flags, exes = np.zeros(2, np.int32), [exe, copy.copy(exe)]
    in_threads(2, lambda i: exes[i].run_into([flags], [np.int32(i)]))
    assert flags.tolist() == [1, 1]


def test_a_pickle_is_the_artifact(loaded):
    exe = loaded(symbolic_program(), 2)
    stored = pickle.dumps(exe)
    assert len(stored) < 2 * exe.artifact().nbytes
    again = pickle.loads(stored)
    del exe
    gc.collect()
    assert right(again, 100) and again.threads == 2


def test_bytes_that_are_written_to_later_change_nothing(loaded):
    from tilewright.runtime.executor import load

    content = np.frombuffer(loaded(symbolic_program()).artifact(), np.uint8)
    memory = np.empty(content.size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    aligned = memory[start : start + content.size]  # so that weights could be used as they lie
    aligned[:] = content
    exe = load(aligned)
    memory[:] = 0
    assert right(exe, 100)


def test_profiles_beside_calls(loaded):
    exe, x = loaded(scale_program(200_000), 2), np.ones(200_000, np.float32)
    done = threading.Event()

    def call() -> None:
        while not done.is_set():
            assert (exe(x)[0] == 5).all()

    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
    try:
        for _ in range(20):
            profile = exe.profile(x, seconds=0.01, machine=MACHINE)
            assert [k.launches for k in profile] == [1, 1]  # its own runs alone are counted
    finally:
        done.set()
        for caller in callers:
            caller.join()


def test_sixteen_threads_call_while_others_copy_profile_and_delete(loaded):
    exe = loaded(symbolic_program(), 2)

    def work(i: int) -> None:
        own = exe
        for k in range(15):
            n = 1 + (37 * i + k) % 1000
            if i % 4 == 1:
                own = copy.copy(own)
            elif i % 4 == 2 and k % 5 == 0:
                exe.profile(X[:n], seconds=0.0, machine=MACHINE)
            elif i % 4 == 3 and k % 5 == 0:
                own = pickle.loads(pickle.dumps(exe))
                gc.collect()
            assert right(own, n)

    in_threads(16, work)
    assert right(exe, 1000)


# ---- Forks ------------------------------------------------------------------------------------


def in_child(work: Callable[[], bool], seconds: int = 30) -> None:
    """Do it in a forked child, which is ended if it hangs."""
    child = os.fork()
    if not child:
        signal.alarm(seconds)
        good = False
        try:
            good = work()
        finally:
            os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0


SPIN = (
    "EXPORT int32_t run(tw_call *c) { volatile int32_t *flag = c->outputs[0];"
    "flag[0] = 1; while (!flag[1]) {} return 0; }"
)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_child_may_call_what_a_thread_of_the_parent_is_in(threads, loaded):
    exe = loaded(program(SPIN, (), (abi.TensorInfo("flag", "i32", (2,)),)), threads)
    flag = np.zeros(2, np.int32)
    runner = threading.Thread(target=exe.run_into, args=([flag], []))
    runner.start()
    while not flag[0]:
        pass

    def work() -> bool:
        own = np.array([0, 1], np.int32)
        exe.run_into([own], [])
        other = copy.copy(exe)
        other.run_into([own], [])
        return own[0] == 1 and exe.threads == threads

    try:
        in_child(work)
    finally:
        flag[1] = 1
        runner.join()


def test_forks_in_the_midst_of_calls(loaded):
    """Wherever the parent's threads are: in the lock, growing the arena, waking workers."""
    exes = [loaded(symbolic_program(), 2) for _ in range(2)]
    done = threading.Event()

    def call(i: int) -> None:
        k = i
        while not done.is_set():
            k += 1
            right(exes[k % 2], 1 + 97 * k % 1000)

    callers = [threading.Thread(target=call, args=(i,)) for i in range(4)]
    for caller in callers:
        caller.start()
    try:
        for k in range(15):
            in_child(lambda k=k: all(right(e, n) for e in exes for n in (1 + k, 1000, 3)))
    finally:
        done.set()
        for caller in callers:
            caller.join()


def test_a_child_has_threads_of_its_own(loaded):
    """Iterations of one region wait for each other: they end only where two threads are."""
    exe = loaded(
        program(
            "static void meet(void *const *f, void *scratch, int64_t begin, int64_t end)"
            "{ volatile int32_t *flags = f[0]; for (int64_t i = begin; i < end; i++)"
            "{ flags[i] = 1; while (!flags[!i]) {} } }"
            "EXPORT int32_t run(tw_call *c) { int32_t *y = c->outputs[0]; y[0] = y[1] = 0;"
            "void *frame[] = {y}; c->launch(c, 0, meet, frame, 2, 0); return 0; }",
            (),
            (abi.TensorInfo("flags", "i32", (2,)),),
        ),
        2,
    )
    assert exe()[0].tolist() == [1, 1]
    in_child(lambda: exe()[0].tolist() == [1, 1])
    assert exe()[0].tolist() == [1, 1]
