"""Which task has the next turn, and what a campaign keeps whatever happens in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.tune.functions import norm, product, renamed, scaled
from tilewright.strategy import space
from tilewright.strategy.space import decisions
from tilewright.support.errors import CompileError
from tilewright.target.target import target
from tilewright.tune import tasks
from tilewright.tune.database import Database
from tilewright.tune.ledger import Ledger, RecordsWarning
from tilewright.tune.measure import Final, Outcome
from tilewright.tune.records import Champion
from tilewright.tune.samples import Verdict
from tilewright.tune.tasks import Campaign, Standing, Task, chosen, merged
from tilewright.tune.workload import workload

CPU = target("cpu")
SECONDS = 1e-3  # what a fake default takes


class FakeBench:
    """Times that are said, not taken: each candidate takes `factor` of the default's time; `fault`
    is raised by the measurement of that number."""

    factor = 0.5
    lanes = 1
    fault: tuple[int, BaseException] | None = None
    workers: ClassVar[list[Any]] = []

    def __init__(
        self, func: Any, machine: Any, threads: int, *, workers: list[Any], seed: int
    ) -> None:
        self.asked, self.measured = (func, machine, threads), 0
        self.workers.append(workers)

    def __enter__(self) -> FakeBench:
        if self.asked[0].name == "broken":
            raise CompileError("cannot measure 'broken'", "its default schedule does not run")
        return self

    def measure(
        self,
        points: Sequence[Any],
        done: Callable[[int, Outcome], None] = lambda n, o: None,
        *,
        partial: bool = False,
    ) -> list[Outcome]:
        found: list[Outcome] = []
        for n, point in enumerate(points):
            if self.fault is not None and point is not None:
                self.measured += 1
                if self.measured == self.fault[0]:
                    raise self.fault[1]
            took = SECONDS if point is None else self.factor * SECONDS
            whole = None if point is None else decisions(space.partial(*self.asked, point))
            found.append(Outcome("timed", (took,), point=whole))
            done(n, found[-1])
        return found

    def finals(self, points: Sequence[Any], seconds: float) -> list[Final]:
        own = Final(None, Outcome("timed", (SECONDS,)), Verdict(1.0, 1.0, 1.0, ""))
        if self.factor >= 1 or not points:
            return [own]
        f = self.factor
        verdict = Verdict(f, 0.9 * f, 1.1 * f, "b", 20)
        return [Final(points[0], Outcome("timed", (f * SECONDS,)), verdict), own]


@pytest.fixture(autouse=True)
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeBench]]:
    class Fresh(FakeBench):
        workers: ClassVar[list[Any]] = []

    monkeypatch.setattr(tasks, "Bench", Fresh)
    yield Fresh
    assert not any(w.number for workers in Fresh.workers for w in workers)  # all have ended


# ---- Whose turn it is ---------------------------------------------------------------------------


def standing(seconds: float, launches: float = 1, bound: float = 0.0, size: int = 8) -> Standing:
    return Standing(Task(f"scaled{size}", scaled(size), launches, seconds, bound))


def test_functions_of_one_workload_are_one_task() -> None:
    other = renamed(product(), 3)
    found = merged([Task("a", product(), 2, 3.0), Task("b", norm(), 1), Task("c", other, 1, 6.0)])
    assert [(t.name, t.launches, t.seconds) for t in found] == [("a", 3, 4.0), ("b", 1, 1.0)]


def test_who_takes_most_and_is_farthest_from_its_bound_comes_first() -> None:
    often, long = standing(1e-3, 9), standing(2e-3, size=9)
    assert chosen([long, often], 2.0) is often
    near, far = standing(1e-3, 9, bound=0.9e-3), standing(5e-3, bound=1e-3, size=9)
    assert chosen([near, far], 2.0) is far


def test_each_of_note_has_a_turn_before_anyone_has_a_second() -> None:
    big, small, tiny = standing(1.0), standing(0.05, size=9), standing(1e-4, size=10)
    big.best = 0.5
    big.note(1.0, 2.0)  # however much it gained
    assert chosen([big, small, tiny], 2.0) is small
    small.note(0.05, 2.0)
    assert chosen([big, small, tiny], 2.0) is big


def test_what_brings_nothing_is_asked_less_and_less() -> None:
    one = standing(1.0)
    hopes = [one.expected(2.0)]
    for _ in range(4):
        one.note(one.best, 2.0)
        hopes.append(one.expected(2.0))
    assert hopes == sorted(hopes, reverse=True) and hopes[-1] < hopes[0] / 20
    one.best = 0.8
    one.note(1.0, 2.0)
    assert one.expected(2.0) > hopes[1]  # it improved


def test_what_the_database_knows_comes_last_and_who_is_over_never() -> None:
    won = Champion({}, 0.5, 2.0, 1.9, 2.1)
    known = Standing(Task("known", scaled(8), 1, 10.0), won)
    new = standing(0.5, size=9)
    assert chosen([known, new], 2.0) is new
    new.is_over = True
    assert chosen([known, new], 2.0) is known
    known.is_over = True
    assert chosen([known, new], 2.0) is None
    assert chosen([], 2.0) is None


# ---- Campaigns ----------------------------------------------------------------------------------

SOME = [Task("product", product(), 2), Task("norm", norm(24, 64)), Task("scaled", scaled())]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Database(tmp_path / "records.db") as opened:
        yield Ledger(opened)


def test_a_campaign_finds_champions_and_records_them(ledger: Ledger, bench: Any) -> None:
    campaign = Campaign(SOME, CPU, 1, ledger)
    seen: list[str] = []
    campaign.run(60.0, 36, lambda s: seen.append(s.task.name))
    found = campaign.found()
    assert campaign.trials == sum(f.trials for f in found) <= 36
    assert {*seen} == {t.name for t in SOME} and not campaign.is_interrupted
    for f in found:
        assert f.is_better and f.champion is not None and f.tuned == f.default / 2
        assert "beat the default" in f.decided and "1.82 to 2.22" in f.decided
        kept = ledger.database.champion(workload(f.task.func), CPU, 1)  # type: ignore[union-attr]
        assert kept is not None and kept.point == f.champion.point and kept.verified


def test_all_tasks_have_the_same_workers(bench: Any) -> None:
    Campaign([Task(str(n), scaled(n)) for n in range(8, 13)], CPU, 1).run(60.0, 60)
    assert len(bench.workers) == 5 and len({id(w) for w in bench.workers}) == 1


def test_what_is_not_faster_changes_nothing(ledger: Ledger, bench: Any) -> None:
    bench.factor = 1.2
    campaign = Campaign(SOME[:1], CPU, 1, ledger)
    campaign.run(60.0, 6)
    (found,) = campaign.found()
    assert not found.is_better and found.decided == "nothing beat the default"
    assert found.default == found.tuned == SECONDS
    again = Campaign(SOME[:1], CPU, 1, ledger)
    (found,) = again.found()
    assert found.decided == "known: nothing beat the default" and found.trials == 0


def test_a_search_in_vain_takes_no_crown(ledger: Ledger, bench: Any) -> None:
    first = Campaign(SOME[:1], CPU, 1, ledger)
    first.run(60.0, 6)
    (won,) = first.found()
    bench.factor = 1.2
    again = Campaign(SOME[:1], CPU, 1, Ledger(ledger.database))
    again.run(60.0, 6)
    (found,) = again.found()
    assert found.champion is not None and won.champion is not None
    assert found.champion.point == won.champion.point and found.decided.startswith("known: ")
    again.retract()
    kept = Ledger(ledger.database).champion(workload(SOME[0].func), CPU, 1)
    assert kept is not None and kept.ratio == 1.0


def test_who_never_ran_is_no_champion(ledger: Ledger) -> None:
    func = workload(scaled())
    ledger.crown(func, CPU, 1, Champion({}, math.inf, 1.0, 1.0, 1.0))
    assert ledger.champion(func, CPU, 1) is None and ledger.database is not None


def test_who_cannot_be_measured_costs_itself() -> None:
    func = product().replace(name="broken")
    campaign = Campaign([Task("broken", func, 9), Task("norm", norm())], CPU, 1)
    campaign.run(60.0, 12)
    broken, other = campaign.found()
    assert broken.decided.startswith("given up: cannot measure 'broken'") and broken.trials == 0
    assert other.is_better


def test_an_interrupt_keeps_what_was_measured(ledger: Ledger, bench: Any) -> None:
    bench.fault = 4, KeyboardInterrupt()
    campaign = Campaign(SOME, CPU, 1, ledger)
    campaign.run(60.0)
    assert campaign.is_interrupted and campaign.trials == 3
    found = campaign.found()
    assert [f.is_better for f in found].count(True) == 1
    assert [f.decided for f in found].count("not tried: no time was left") == 2
    assert ledger.database is not None and ledger.database.stats().champions == 1


def test_a_full_disk_ends_the_recording_and_nothing_else(ledger: Ledger) -> None:
    assert ledger.database is not None
    pages = ledger.database._connection.execute("PRAGMA page_count").fetchone()[0]
    ledger.database._connection.execute(f"PRAGMA max_page_count = {pages}")
    campaign = Campaign(SOME, CPU, 1, ledger)
    with pytest.warns(RecordsWarning, match=r"records nothing more(.|\n)*make room"):
        campaign.run(60.0, 48)
    assert campaign.trials == 48 and all(f.is_better for f in campaign.found())


def test_time_ends_it_and_nothing_to_do_takes_none() -> None:
    campaign = Campaign(SOME, CPU, 1)
    campaign.run(1e-3)
    assert any(f.trials for f in campaign.found())  # one turn at least
    assert math.isfinite(campaign.found()[2].tuned)
    empty = Campaign([], CPU, 1)
    empty.run(60.0)
    assert empty.found() == []
