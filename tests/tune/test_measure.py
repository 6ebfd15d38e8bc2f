"""The measurement service on a real kernel, and with what candidates and the system do to it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from tests.schedule.programs import matmul
from tilewright import te
from tilewright.ir.stmt import Func
from tilewright.strategy.space import decisions, sample
from tilewright.strategy.space import point as schedule_of
from tilewright.support.errors import CompileError, InputError, ScheduleError
from tilewright.target.target import target
from tilewright.tune.arrays import Arrays, difference, index_limits
from tilewright.tune.measure import Bench, Outcome
from tilewright.tune.process import Process
from tilewright.tune.samples import LEAST_ROUNDS
from tilewright.tune.worker import Point

CPU = target("cpu")
PRODUCT = matmul(24, 32, 20)
FUNC = PRODUCT.func


def some(func: Func, count: int, threads: int = 1) -> list[Point]:
    """Random points of a function's space, no two the same."""
    rng, found = Random(1), dict[str, Point]()
    for _ in range(100):
        try:
            point = decisions(sample(func, CPU, threads, rng))
        except ScheduleError:
            continue
        found[str(point)] = point
        if len(found) == count:
            break
    return list(found.values())


POINTS = some(FUNC, 10)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench(FUNC, CPU, 1) as made:
        yield made


def statuses(outcomes: list[Outcome]) -> list[str]:
    return [o.status for o in outcomes]


def test_points_are_timed_in_their_order(bench: Bench) -> None:
    told: list[tuple[int, Outcome]] = []
    found = bench.measure([None, *POINTS], lambda n, outcome: told.append((n, outcome)))
    assert told == list(enumerate(found))
    assert statuses(found) == ["timed"] * (1 + len(POINTS)), [o.why for o in found]
    assert all(o.seconds and min(o.seconds) > 0 and o.compiled > 0 for o in found)
    assert found[0].best < 1e-3  # 0.03 MFLOP


def test_a_point_that_is_refused_costs_itself(bench: Bench) -> None:
    legal = POINTS[0]
    assert legal is not None
    missing, unknown = dict(list(legal.items())[:-1]), {**legal, "nothing.of_the_kind": 1}
    illegal = {**legal, next(k for k in legal if k.endswith("tile_n")): -3}
    found = bench.measure([missing, legal, unknown, illegal])
    assert statuses(found) == ["refused", "timed", "refused", "refused"]
    assert "leaves it out" in found[0].why and "nothing.of_the_kind" in found[2].why
    assert found[0].best == float("inf")


def test_the_same_code_has_one_outcome(bench: Bench) -> None:
    first, second = bench.measure([POINTS[1], POINTS[1]])
    assert first.seconds == second.seconds


def test_two_that_are_the_same_have_no_winner(bench: Bench) -> None:
    verdict = bench.duel(None, None, 0.1)
    assert verdict.low <= verdict.ratio <= verdict.high
    assert verdict.rounds > 0 and not verdict.why


def test_a_duel_without_time_has_rounds_enough_to_tell(bench: Bench) -> None:
    assert bench.duel(None, POINTS[0], 1e-6).rounds == LEAST_ROUNDS


def test_who_cannot_run_loses_a_duel(bench: Bench) -> None:
    assert bench.duel(None, {"x": 1}, 0.1).decided == "a"
    verdict = bench.duel({"x": 1}, None, 0.1)
    assert verdict.decided == "b" and verdict.why.startswith("a: ")


def test_finals_name_a_winner_and_have_the_default(bench: Bench) -> None:
    finals = bench.finals([None, *POINTS[:2], POINTS[0], {"x": 1}], 0.4)
    assert len(finals) == 4  # two, one that cannot run, the default
    assert [f.point for f in finals].count(None) == 1
    winner = finals[0]
    assert winner.point is None or winner.verdict.decided == "b"
    assert finals[-1].point in ({"x": 1}, None)


def test_without_a_winner_the_default_is_first(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = bench._duel, []

    def once(a: Point, b: Point, seconds: float, p: float):
        """It beats the default at first, and never again."""
        verdict, ours, theirs = real(a, b, seconds, p)
        asked.append(b)
        decided = "b" if len(asked) == 1 else ""
        return type(verdict)(0.5, 0.4, 0.6, decided), ours, theirs

    monkeypatch.setattr(bench, "_duel", once)
    finals = bench.finals(POINTS[:1], 0.2)
    assert asked == [POINTS[0]] * 2 and [f.point for f in finals] == [None, POINTS[0]]


def test_a_wrong_result_is_told() -> None:
    expected = {"E": np.full((24, 32), 2.0, np.float32)}
    with Bench(FUNC, CPU, 1, expected=expected) as bench:
        found = bench.measure([None, POINTS[0]])
        assert statuses(found) == ["wrong", "wrong"] and "'E'" in found[0].why
        assert bench.duel(None, None, 0.1).why.startswith("a is wrong")


def test_the_callers_inputs_and_results_are_taken() -> None:
    inputs = dict(zip("ABD", PRODUCT.draw(np.random.default_rng(3)), strict=True))
    expected = {"E": PRODUCT.reference(*inputs.values())[0].astype(np.float32)}
    with Bench(FUNC, CPU, 1, inputs=inputs, expected=expected, cold=True) as bench:
        assert statuses(bench.measure([None, POINTS[0]])) == ["timed", "timed"]


def test_two_threads_give_the_same_results() -> None:
    product = matmul(120, 96, 64)
    inputs = dict(zip("ABD", product.draw(np.random.default_rng(3)), strict=True))
    expected = {"E": product.reference(*inputs.values())[0].astype(np.float32)}
    with Bench(product.func, CPU, 2, inputs=inputs, expected=expected, workers=2) as bench:
        found = bench.measure([None, *some(product.func, 5, threads=2)])
        assert statuses(found) == ["timed"] * 6
        assert any(s.extent > 1 for s in bench._codes[None].steps)  # something to do for both
        if os.path.exists("/proc/self/task"):  # it, who ends it, and the second thread
            assert len(os.listdir(f"/proc/{bench.processes[0]}/task")) == 3


def test_who_takes_too_long_is_late_and_the_next_is_not() -> None:
    with Bench(FUNC, CPU, 1) as bench:
        number = bench.processes[0]
        bench.limit = 1e-6
        [late] = bench.measure(POINTS[:1])
        assert late.status == "late" and "more than" in late.why
        bench.limit = 10.0
        [timed] = bench.measure(POINTS[:1])
        assert timed.status == "timed" and bench.processes[0] != number


def test_killed_workers_lose_nothing() -> None:
    with Bench(FUNC, CPU, 1, workers=2) as bench:
        over, killed = threading.Event(), list[int]()

        def kill() -> None:
            while not over.wait(0.05) and len(killed) < 2:
                for number in bench.processes[: 2 - len(killed)]:
                    os.kill(number, signal.SIGKILL)
                    killed.append(number)

        killer = threading.Thread(target=kill)
        killer.start()
        found = bench.measure([None, *POINTS])
        over.set()
        killer.join()
        assert killed
        assert statuses(found) == ["timed"] * (1 + len(POINTS)), [o.why for o in found]


def test_a_candidate_that_crashes_costs_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    with Bench(FUNC, CPU, 1) as bench:
        real = bench._processes[0].ask

        def ask(seconds: float, asked: str, *given):
            """Ends the worker whenever it is to run the third point."""
            if asked == "time" and given[0] == bench._codes.get(key):
                os.kill(bench.processes[0], signal.SIGSEGV)
                time.sleep(0.05)
            return real(seconds, asked, *given)

        point = POINTS[2]
        assert point is not None
        key = tuple(sorted(point.items()))
        monkeypatch.setattr(bench._processes[0], "ask", ask)
        found = bench.measure(POINTS[:4])
        assert statuses(found) == ["timed", "timed", "crashed", "timed"]
        assert "SIGSEGV" in found[2].why


def test_workers_go_on_with_the_next_bench_and_back() -> None:
    other = matmul(20, 24, 40)
    process = Process()
    try:
        with (
            Bench(FUNC, CPU, 1, workers=[process]) as one,
            Bench(other.func, CPU, 1, workers=[process]) as two,
        ):
            number = process.number
            for bench, func in ((two, other.func), (one, FUNC), (two, other.func)):
                found = bench.measure([None, *some(func, 3)])
                assert statuses(found) == ["timed"] * 4, [o.why for o in found]
            assert one.processes == two.processes == [number] != [0]
        os.kill(number, signal.SIGKILL)  # who comes then is told whose it is
        found = one.measure([POINTS[5]])
        assert statuses(found) == ["timed"] and process.number not in (0, number)
    finally:
        process.close()


def test_what_a_point_leaves_out_is_picked_and_told(bench: Bench) -> None:
    whole = POINTS[3]
    assert whole is not None
    [found] = bench.measure([dict(list(whole.items())[:-1])], partial=True)
    assert found.status == "timed" and found.point is not None
    assert {*found.point} == {*whole} and schedule_of(FUNC, CPU, 1, found.point)


def test_workers_end_with_the_bench() -> None:
    with Bench(FUNC, CPU, 1, workers=2) as bench:
        bench.measure(POINTS[:2])
        numbers = bench.processes
    assert len(numbers) == 2 and not bench.processes
    for number in numbers:
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)


def test_what_cannot_be_measured_is_refused_in_words() -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    func = te.func("f", [a], [te.compute((n,), lambda i: a[i] + 1.0, name="B")])
    with pytest.raises(CompileError, match="symbolic"):
        Bench(func, CPU, 1)
    with pytest.raises(CompileError, match="functions that run here are built for CPUs"):
        Bench(FUNC, target("cuda"), 1)
    with (
        pytest.raises(InputError, match="its buffers are"),
        Bench(FUNC, CPU, 1, inputs={"nothing": np.zeros(3, np.float32)}),
    ):
        pass


def test_indices_are_legal_and_other_integers_are_not_zero() -> None:
    a = te.placeholder((6, 4), name="A")
    at, by = te.placeholder((50,), "i32", name="at"), te.placeholder((50,), "i32", name="by")
    c = te.compute((50, 4), lambda i, j: a[at[i], j] + te.cast(by[i], "f32"), name="C")
    func = te.func("gather", [a, at, by], [c])
    assert index_limits(func) == {"at": 6}
    memory = Arrays(func, {}).memory
    assert memory["at"].min() >= 0 and 0 < memory["at"].max() < 6
    assert (memory["by"] != 0).all()
    with Bench(func, CPU, 1) as bench:
        assert statuses(bench.measure([None])) == ["timed"]


def test_what_is_not_written_or_written_outside_is_wrong() -> None:
    arrays = Arrays(FUNC, {})
    result = arrays.memory["E"]
    result[:] = 1.0
    expected = arrays.outcome()
    assert arrays.wrong(expected) == ""
    arrays.restore()
    assert np.isnan(result).all() and "undefined" in arrays.wrong(expected)
    result[:] = 1.0
    assert result.base is not None
    beyond = np.lib.stride_tricks.as_strided(result, (result.size + 1,), result.strides)
    beyond[-1] = 3.0
    assert arrays.wrong(expected) == "it writes outside of buffer 'E'"


def test_floats_may_differ_a_little_and_integers_may_not() -> None:
    f32, i32 = FUNC.buffers[0].dtype, te.placeholder((1,), "i32", name="x").dtype
    ones, some = np.ones(4, np.float32), np.arange(4, dtype=np.int32)
    assert difference(ones + 5e-5, ones, f32) == ""
    assert "differ by" in difference(ones + 2e-4, ones, f32)
    assert "undefined" in difference(ones * np.nan, ones, f32)
    assert difference(ones * np.inf, ones * np.inf, f32) == ""
    assert "1 of 4" in difference(np.array([0, 1, 2, 4], np.int32), some, i32)
