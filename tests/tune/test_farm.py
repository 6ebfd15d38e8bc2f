"""The farm: who gets what, and what becomes of it when devices vanish."""

from __future__ import annotations

import heapq
from collections import Counter
from random import Random

import pytest

from benchmarks.tuning.devices import CPU, Dice, Simulated, code, function
from tilewright.support.errors import InputError
from tilewright.tune.farm import farm as farms
from tilewright.tune.farm.device import Vanished
from tilewright.tune.farm.farm import Deserted, Farm
from tilewright.tune.search import EACH

LIMIT = 10.0


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(farms, "PAUSE", 0.001)


def test_nothing_is_lost_or_counts_twice_where_devices_vanish(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One in five batches is lost, for ever: each device comes back."""
    monkeypatch.setattr(farms, "LOSSES", 1000)
    monkeypatch.setattr(farms, "FAILURES", 1000)
    dice = Dice(0.2, seed=3)
    devices = [Simulated(f"d{n}", dice) for n in range(8)]
    told: Counter[int] = Counter()
    with Farm(devices, CPU, 1) as farm:
        futures = [farm.measure(function(), code(n), LIMIT) for n in range(1000)]
        for n, future in enumerate(futures):
            future.add_done_callback(lambda f, n=n: told.update([n]))
        outcomes = [f.result(60) for f in futures]
    assert [o.best for o in outcomes] == [1.0 + n for n in range(1000)]
    assert told == Counter(range(1000))
    assert sum((d.ran for d in devices), Counter()) == Counter(range(1000))
    assert dice.count > 20 and not farm.retired


def test_a_device_that_stays_away_is_retired_and_others_go_on() -> None:
    gone = Simulated("gone", lambda numbers: "stays away")
    left = Simulated("left")
    with Farm([gone, left], CPU, 1) as farm:
        futures = [farm.measure(function(), code(n), LIMIT) for n in range(200)]
        assert [f.result(60).status for f in futures] == ["timed"] * 200
        assert gone.is_away and "no route" in farm.retired["gone"] and farm.lanes == 1
        (told,) = farm.news()
    assert "gone is used no more" in told and "1 is left" in told and not farm.news()


def test_when_all_are_gone_that_is_said_and_what_was_measured_is_kept() -> None:
    def fails(numbers: list[int]) -> str:
        return "stays away" if max(numbers) >= 50 else ""

    with Farm([Simulated("a", fails), Simulated("b", fails)], CPU, 1) as farm:
        futures = [farm.measure(function(), code(n), LIMIT) for n in range(100)]
        faults = [f.exception(60) for f in futures]
        with pytest.raises(Deserted, match="no device is left"):
            farm.measure(function(), code(0), LIMIT).result(60)
    assert faults[:40] == [None] * 40 and isinstance(faults[-1], Deserted)
    assert str(faults[-1]).count("there is no route to it") == 2


def test_a_candidate_that_takes_devices_with_it_is_told_so_and_they_are_not() -> None:
    devices = [Simulated(f"d{n}", lambda found: "vanishes" if 7 in found else "") for n in range(3)]
    with Farm(devices, CPU, 1) as farm:
        futures = [farm.measure(function(), code(n), LIMIT) for n in range(100)]
        statuses = [f.result(60).status for f in futures]
        assert statuses == ["crashed" if n == 7 else "timed" for n in range(100)]
        assert farm.lanes == 3


def test_times_of_a_slower_device_count_as_the_first_ones() -> None:
    with Farm([Simulated("a"), Simulated("b", speed=3.0)], CPU, 1) as farm:
        futures = [farm.measure(function(), code(n), LIMIT) for n in range(50)]
        ratios = {round(f.result(60).best / (1 + n), 6) for n, f in enumerate(futures)}
    assert len(ratios) == 1  # as fast as on either, whoever was first


def test_who_cannot_be_used_is_refused_before_anything_is_measured() -> None:
    away = Simulated("away")
    away.is_away = True
    with pytest.raises(InputError, match=r"away: there is no route"), Farm([away], CPU, 1):
        pass
    with pytest.raises(InputError, match="no device is named"):
        Farm([], CPU, 1)

    class Other(Simulated):
        def open(self, machine, threads):
            raise InputError("cannot measure on other", "it is aarch64", remedy="name another")

    with pytest.raises(InputError, match="it is aarch64"), Farm([Other("other")], CPU, 1):
        pass


def test_a_device_that_fails_otherwise_fails_its_candidates() -> None:
    class Broken(Simulated):
        def begin(self, function):
            raise ZeroDivisionError("of its own")

    with Farm([Broken("broken")], CPU, 1) as farm:
        assert isinstance(farm.measure(function(), code(1), LIMIT).exception(60), ZeroDivisionError)


def test_a_duel_goes_to_another_device_when_one_vanishes() -> None:
    class Once(Simulated):
        def duel(self, codes, seconds, p, turns, limit):
            if not self.ran:
                self.ran.update([1])
                raise Vanished("the line was cut")
            return super().duel(codes, seconds, p, turns, limit)

    with Farm([Once("a")], CPU, 1) as farm:
        verdict, _, _ = farm.duel(function(), (code(1), code(2)), 1.0, 0.01, 0, LIMIT).result(60)
    assert verdict.ratio == 1.0


@pytest.mark.parametrize("each", [EACH, 3 * EACH])
def test_thirty_two_devices_are_busy(each: int) -> None:
    """By a clock of their own: candidates take 50 to 200 ms, a look at the machine 10 ms."""
    rng, count = Random(each), 32
    farm = Farm([Simulated(f"d{n}") for n in range(count)], CPU, 1)
    for n in range(each * count):
        farm.measure(function(), code(n), LIMIT)
    clock, busy = [(0.0, n) for n in range(count)], 0.0
    while farm._queue:
        now, device = heapq.heappop(clock)
        took = [rng.uniform(0.05, 0.2) for _ in farm._take()]
        busy += sum(took)
        heapq.heappush(clock, (now + 0.01 + sum(took), device))
    assert busy / (count * max(now for now, _ in clock)) >= 0.8
