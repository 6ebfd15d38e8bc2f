"""Searches and where their candidates come from, on a bench that measures nothing: a candidate
takes what the test says."""

from __future__ import annotations

import math
import zlib
from random import Random

import pytest

from tests.tune.functions import product
from tilewright import te
from tilewright.strategy import space
from tilewright.strategy.rules import rule, unregister
from tilewright.strategy.select import FAMILY, SKETCH, default
from tilewright.strategy.sketch.tiles import plan
from tilewright.strategy.space import decisions, point
from tilewright.support.errors import InputError, ScheduleError
from tilewright.target.target import target
from tilewright.tune.database import Database
from tilewright.tune.measure import Final, Outcome
from tilewright.tune.records import Champion
from tilewright.tune.samples import Verdict
from tilewright.tune.search import Search, tune_function
from tilewright.tune.sources import Bandit, Family, Suggested
from tilewright.tune.workload import workload

CPU = target("cpu")


class Imagined:
    """A bench whose candidates take what `seconds` says of their points; None is the default."""

    lanes = 1

    def __init__(self, seconds, interrupt_after=math.inf, func=None):
        self.seconds, self.measured, self.interrupt_after = seconds, [], interrupt_after
        self.func = func or product(32, 48, 40)

    def measure(self, points, done, *, partial):
        assert partial
        for n, p in enumerate(points):
            if len(self.measured) >= self.interrupt_after:
                raise KeyboardInterrupt
            try:
                whole = decisions(space.partial(self.func, CPU, 1, p))
            except ScheduleError as fault:
                done(n, Outcome("refused", why=str(fault)))
                continue
            self.measured.append(whole)
            took = self.seconds(whole)
            status, seconds = ("timed", (took,)) if math.isfinite(took) else ("wrong", ())
            done(n, Outcome(status, seconds, 0.01, point=whole))

    def finals(self, points, seconds):
        own = self.seconds(None)
        timed = [(self.seconds(p), p) for p in points]
        found = [
            Final(p, Outcome("timed", (t,)), Verdict(t / own, t / own, t / own, "b" * (t < own)))
            for t, p in sorted(timed, key=lambda pair: pair[0])
        ]
        default = Final(None, Outcome("timed", (own,)), Verdict(1.0, 1.0, 1.0, ""))
        faster = [f for f in found if f.verdict.decided]
        return [*faster, default, *[f for f in found if f not in faster]]


def scattered(p):
    """Seconds that differ from point to point; the default's are 1."""
    return 1.0 if p is None else 0.5 + zlib.crc32(repr(sorted(p.items())).encode()) / 2**32


def searched(bench, steps=12, database=None, seed=0):
    search = Search(bench.func, CPU, 1, bench, database, seed)
    for _ in range(steps):
        if not search.step():
            break
    return search


def test_a_search_keeps_the_fastest_that_it_measured():
    bench = Imagined(scattered)
    search = searched(bench)
    found = search.finish(1.0)
    fastest = min(bench.measured, key=scattered)
    assert found.champion.point == fastest
    assert found.champion.seconds == scattered(fastest)
    assert found.champion.ratio == pytest.approx(1 / scattered(fastest))
    assert found.trials == len(bench.measured) > 20
    point(search.func, CPU, 1, found.champion.point)  # it names a schedule by itself


@pytest.mark.parametrize(("seconds", "count"), [(0.1, 1), (0.5, 1), (1.25, 3), (8.0, 4)])
def test_few_seconds_are_for_few_finalists(seconds, count, monkeypatch):
    bench, asked = Imagined(lambda p: 1.0 if p is None else 0.5), []
    finals = bench.finals
    monkeypatch.setattr(
        bench, "finals", lambda points, s: asked.append(points) or finals(points, s)
    )
    searched(bench, steps=2).finish(seconds)
    assert [len(points) for points in asked] == [count]


def test_nothing_that_is_slower_than_the_default_wins():
    found = searched(Imagined(lambda p: 1.0 if p is None else 1.01)).finish(1.0)
    assert found.is_default
    assert found.champion.point == decisions(default(product(32, 48, 40), CPU, 1))
    assert found.champion.seconds == found.default == 1.0


def test_no_candidate_is_measured_twice_and_both_sources_are_asked():
    bench = Imagined(scattered)
    searched(bench, steps=30)
    told = [tuple(sorted(p.items())) for p in bench.measured]
    assert len(told) == len({*told})
    assert {p["strategy"] for p in bench.measured} == {FAMILY, SKETCH}


def test_candidates_that_do_not_run_are_left_behind():
    bench = Imagined(lambda p: math.inf if p and p["strategy"] == SKETCH else scattered(p))
    found = searched(bench, steps=20).finish(1.0)
    assert found.champion.point["strategy"] == FAMILY


def test_a_search_ends_where_a_space_does():
    x = te.placeholder((64,), "f32", "x")
    func = te.func("f", [x], [te.compute((64,), lambda i: x[i] * 2.0, name="y")])
    bench = Imagined(scattered, func=func)
    search = Search(func, CPU, 1, bench)
    while search.step():
        assert len(bench.measured) < 500
    assert bench.measured
    search.finish(1.0)


def test_two_searches_of_one_seed_measure_the_same():
    a, b = Imagined(scattered), Imagined(scattered)
    searched(a, 6, seed=3)
    searched(b, 6, seed=3)
    assert a.measured == b.measured


def test_an_interrupt_keeps_what_was_measured(tmp_path):
    with Database(tmp_path / "records.db") as database:
        bench = Imagined(scattered, interrupt_after=9)
        search = Search(product(32, 48, 40), CPU, 1, bench, database)
        with pytest.raises(KeyboardInterrupt):
            while search.step():
                pass
        assert search.trials == 9
        assert len(database.trials()) == 9
        assert search.finish(1.0).champion.point == min(bench.measured, key=scattered)


def test_a_champion_is_tried_first_the_next_time(tmp_path):
    func = product(32, 48, 40)
    with Database(tmp_path / "records.db") as database:
        first = searched(Imagined(scattered), database=database).finish(1.0)
        assert database.champion(workload(func), CPU, 1).point == first.champion.point
        bench = Imagined(scattered)
        searched(bench, steps=1, database=database)
        assert bench.measured[0] == first.champion.point


def test_what_won_at_other_sizes_is_tried_where_it_is_legal(tmp_path):
    near = product(32, 48, 44)
    own = plan(near, CPU, 1)
    wanted = {"strategy": SKETCH, **own.point(own.pick)}
    with Database(tmp_path / "records.db") as database:
        champion = Champion(wanted, 0.1, 2.0, 1.9, 2.1, verified=True)
        database.crown(workload(near), CPU, 1, champion)
        bench = Imagined(scattered)
        searched(bench, steps=2, database=database)
    assert wanted.items() <= bench.measured[0].items()


@pytest.mark.parametrize(("seconds", "trials"), [(0, None), (-1, None), (math.nan, 3), (1, 0)])
def test_a_budget_that_is_none_is_refused(seconds, trials):
    with pytest.raises(InputError, match="measures nothing"):
        tune_function(product(8, 8, 8), CPU, 1, seconds=seconds, trials=trials)


def test_a_few_trials_on_the_machine():
    found = tune_function(product(32, 48, 40), CPU, 1, seconds=60, trials=7)
    assert found.trials == 7
    assert found.default > 0
    assert found.champion.ratio >= 1.0
    assert found.champion.verified


def test_a_bandit_asks_who_improves():
    good, bad = Suggested([]), Suggested([])
    good.name, bad.name = "good", "bad"
    bandit = Bandit([bad, good])
    assert {s.name for s in bandit.order()} == {"good", "bad"}
    asked = {"good": 0, "bad": 0}
    for _ in range(40):
        first = bandit.order()[0]
        asked[first.name] += 1
        bandit.told(first, [first is good, False, False])
    assert asked["good"] > 2 * asked["bad"] > 0


def test_a_family_proposes_its_neighbours_first():
    func = product(32, 48, 40)
    own = decisions(default(func, CPU, 1))
    proposed = Family(func, CPU, 1, Random(0)).propose(4)
    for p in proposed:
        order = list(p)
        first = next(n for n in order if p[n] != own.get(n))
        assert all(p[n] == own[n] for n in order[: order.index(first)])
    assert len({tuple(sorted(p.items())) for p in proposed}) == len(proposed)


def test_rules_of_users_are_searched_like_the_rest(tmp_path):
    @rule
    def by_rows(schedule, machine, threads):
        schedule.decide("C.rows", 4, (1, 2, 4, 8))

    try:
        with Database(tmp_path / "records.db") as database:
            bench = Imagined(lambda p: 0.1 * p["C.rows"] if p and "C.rows" in p else scattered(p))
            search = searched(bench, database=database)
            assert bench.measured[0] == {"strategy": "by_rows", "C.rows": 4}
            found = search.finish(1.0)
            assert found.champion.point == {"strategy": "by_rows", "C.rows": 1}
            of_rule = [p for p in bench.measured if p["strategy"] == "by_rows"]
            assert len(of_rule) == 4  # each once
            known = database.champion(search.workload, CPU, 1)
            assert known is not None and known.point == found.champion.point
    finally:
        unregister("by_rows")
