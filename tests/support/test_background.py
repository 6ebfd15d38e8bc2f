"""Results come in order, few of them early; faults come where they are taken, threads end."""

import threading
import time
from functools import partial

import pytest

from tilewright.support.background import in_background


def test_results_come_in_the_order_of_their_jobs():
    def late(i):
        time.sleep(0.01 * (i == 0))
        return i

    with in_background([partial(late, i) for i in range(20)], 3, 4) as found:
        assert list(found) == list(range(20))


def test_few_results_wait():
    started = []
    with in_background((partial(started.append, i) for i in range(10)), 2, 3) as found:
        for taken, _ in enumerate(found, 1):
            assert len(started) <= taken + 3
    assert sorted(started) == list(range(10))


def test_who_waits_does_what_nobody_has_begun():
    started, here = threading.Event(), threading.get_ident()

    def first():
        started.set()
        assert done.wait(10)  # the only other thread is here until the second is done

    done, by = threading.Event(), []

    def second():
        by.append(threading.get_ident())
        done.set()

    with in_background([first, second], 1, 2) as found:
        assert started.wait(10)
        list(found)
    assert by == [here]


def test_a_fault_is_raised_where_its_result_is_taken():
    before = threading.active_count()
    with in_background([lambda: 1, lambda: 1 // 0, lambda: 3], 2, 3) as found:
        assert next(found) == 1
        with pytest.raises(ZeroDivisionError):
            next(found)
    assert threading.active_count() == before


def test_threads_end_with_a_block_that_fails():
    before = threading.active_count()
    with pytest.raises(KeyError), in_background([lambda: 1] * 9, 2, 2):
        raise KeyError
    assert threading.active_count() == before


def test_where_no_thread_can_be_started_who_takes_results_makes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with in_background([partial(pow, n, 2) for n in range(5)], threads=2, most=2) as results:
        assert [*results] == [0, 1, 4, 9, 16]
