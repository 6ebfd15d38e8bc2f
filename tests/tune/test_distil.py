"""Rows made of records, who judges them, and the log of what was accepted. Nothing is measured: a
schedule takes what the test says of its decisions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tune.functions import product, scaled
from tests.tune.test_search import Imagined, scattered
from tilewright.strategy import select
from tilewright.strategy.learned import Row, Table, machine_class, traits
from tilewright.strategy.select import default
from tilewright.strategy.space import decisions, partial
from tilewright.target.target import target
from tilewright.tune.database import Database
from tilewright.tune.distil import Challenger, challenger, examined
from tilewright.tune.examples import Example, examples
from tilewright.tune.learned_log import ACCEPTED, BACK, REFUSED, Log, beside
from tilewright.tune.records import Build, Champion, RecordsFault, Trial
from tilewright.tune.search import Search
from tilewright.tune.workload import workload

OLD = target("cpu -mcpu=nehalem")
CLASS = machine_class(OLD)
ROWS = 16, 33, 48, 64, 100, 128
VALUES = 4, 8, 12, 16, 20
Seconds = Callable[[int, int], float]  # of a product: rows and "tile_n" → seconds


def recorded(
    path: Path, seconds: Seconds, rows: Any = ROWS, build: Build | None = None, tried: Any = VALUES
) -> Path:
    """What a tuner would have recorded of products."""
    with Database(path, build) as opened:
        for m in rows:
            func = product(m)
            known, own = workload(func), decisions(default(func, OLD, 1, learned=Table()))
            points = [decisions(partial(func, OLD, 1, {"C.tile_n": v})) for v in tried]
            took = [seconds(m, p["C.tile_n"]) for p in points]
            opened.add(known, OLD, 1, [Trial(p, (s,)) for p, s in zip(points, took, strict=True)])
            base, best = seconds(m, own["C.tile_n"]), min(took)
            point = own if best >= base else points[took.index(best)]
            ratio = max(1.0, base / best)
            opened.crown(known, OLD, 1, Champion(point, min(base, best), ratio, ratio, ratio, True))
    return path


def made(path: Path, champion: Table | None = None, build: Build | None = None) -> Challenger:
    with Database(path, build) as opened:
        return challenger(examples(opened), champion or Table(), "1.0")


def wide_is_fast(m: int, columns: int) -> float:
    return {16: 0.8}.get(columns, 1.0) * m


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of products whose wide tiles are fast."""
    return recorded(tmp_path_factory.mktemp("records") / "r.db", wide_is_fast)


@pytest.fixture(scope="module")
def wide(path: Path) -> Challenger:
    """What these make."""
    return made(path)


def test_what_wins_everywhere_is_one_row(wide: Challenger) -> None:
    found = wide
    (row,) = found.table
    assert (row.role, row.machine, row.where, row.take) == ("matmul", CLASS, {}, {"tile_n": 16})
    assert row.gain == pytest.approx(1.25) and (row.workloads, row.build) == (6, "1.0")
    (judged,) = found.judged
    assert judged.accepted and judged.gain == pytest.approx(1.25) and len(judged.ratios) == 6
    seen = decisions(default(product(80), OLD, 1, learned=found.table))
    assert seen["C.tile_n"] == 16  # of a function that nobody tuned


def test_a_row_keeps_to_where_it_helps(tmp_path: Path) -> None:
    def seconds(m: int, columns: int) -> float:
        return {16: 0.8 if m <= 48 else 1.3}.get(columns, 1.0) * m

    (row,) = made(recorded(tmp_path / "r.db", seconds)).table
    fits = [row.is_for(traits(product(m), 1) or {}) for m in ROWS]
    assert fits == [True] * 3 + [False] * 3 and len(row.where) == 1


def test_who_wins_alone_or_by_chance_makes_no_rule(tmp_path: Path) -> None:
    def alone(m: int, columns: int) -> float:
        return m * (0.5 if (m, columns) == (48, 16) else 1.0)

    def by_chance(m: int, columns: int) -> float:  # each has another favourite
        return m * (0.9 if columns == VALUES[ROWS.index(m) % len(VALUES)] else 1.0)

    for number, seconds in enumerate((alone, by_chance)):
        found = made(recorded(tmp_path / f"{number}.db", seconds, ROWS[1:5]))
        assert len(found.table) == 0 and not found.is_accepted


def test_a_rule_of_two_workloads_is_not_judged_by_them(tmp_path: Path) -> None:
    found = made(recorded(tmp_path / "r.db", wide_is_fast, rows=ROWS[:2]))
    assert [row.take for row in found.proposed] == [{"tile_n": 16}]
    assert not found.is_accepted and "fewer than 2" in found.judged[0].why


def test_a_champion_stays_where_the_challenger_is_no_better(path: Path, wide: Challenger) -> None:
    good, other = wide.table, Row("reduction", CLASS, {}, {"order": 1})
    again = made(path, Table([*good, other]))
    assert not again.is_accepted and {r.role for r in again.table} == {"matmul", "reduction"}
    bad = made(path, Table([Row("matmul", CLASS, {}, {"tile_n": 4})]))
    assert bad.is_accepted and [r.take for r in bad.table] == [{"tile_n": 16}]


def test_what_is_not_known_is_measured_and_duels_have_the_last_word(tmp_path: Path) -> None:
    path = recorded(tmp_path / "r.db", wide_is_fast, tried=(8, 16))
    with Database(path) as opened:
        found = examples(opened)
    asked: list[str] = []

    def slower(e: Example, row: Row) -> None:
        asked.append(e.key)
        e.note(e.followed(row), 0.9)

    for e in found:
        e.seen.clear()  # times of single trials, all of them
    assert not examined(found, Table(), "1.0", slower).is_accepted
    assert {*asked} == {e.key for e in found}
    with Database(path) as opened:
        found = examples(opened)
    assert examined(found, Table(), "1.0", slower).is_accepted  # champions were seen already


def test_times_of_another_build_count_where_todays_default_was_among_them(tmp_path: Path) -> None:
    path = recorded(tmp_path / "r.db", wide_is_fast, build=Build("older"))
    assert made(path, build=Build("newer")).is_accepted
    path = recorded(tmp_path / "s.db", wide_is_fast, build=Build("older"), tried=(4, 16))
    with Database(path, Build("newer")) as opened:
        assert examples(opened) == []


def test_what_a_shipped_row_replaced_stays_on_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = Table([Row("matmul", CLASS, {}, {"tile_n": 4})])
    monkeypatch.setattr(select, "shipped", lambda: shipped)
    with Database(tmp_path / "r.db") as opened:
        search = Search(product(48), OLD, 1, Imagined(scattered), opened)
        search.step()
        plain = decisions(default(product(48), OLD, 1, learned=Table()))
        assert search.default["C.tile_n"] == 4 and plain in search.bench.measured
        search.finish(1.0)
        (example,) = examples(opened)
    ratio = scattered(plain)  # of the shipped row's, whose seconds are 1
    assert example.ratio(shipped.rows[0]) == pytest.approx(ratio) and example.ratio(None) == 1.0


def test_an_example(tmp_path: Path) -> None:
    path = recorded(tmp_path / "r.db", wide_is_fast, rows=(48,))
    with Database(path) as opened:
        opened.add(workload(scaled()), OLD, 1, [Trial({"strategy": "generic"}, (1.0,))])
        func = product(48)
        slow = decisions(partial(func, OLD, 1, {"C.unroll": 1}))
        opened.add(workload(func), OLD, 1, [Trial(slow, (), "wrong")])
        (example,) = examples(opened)  # what was not decided is none
    assert example.traits is not None and example.traits["row"] == 48 and example.role == "matmul"
    by = Row("matmul", CLASS, {}, {"tile_n": 16})
    assert example.ratio(by) == pytest.approx(1.25) and example.ratio(None) == 1.0
    assert example.ratio(Row("matmul", CLASS, {}, {"unroll": 1})) == 0.25
    assert example.ratio(Row("matmul", CLASS, {}, {"unroll": 16})) is None
    assert example.is_seen(by) and not example.is_seen(Row("matmul", CLASS, {}, {"unroll": 1}))


# ---- The log ------------------------------------------------------------------------------------


def test_the_log_grows_and_says_which_table_counts(tmp_path: Path, wide: Challenger) -> None:
    log, good = Log(beside(tmp_path / "r.db")), wide
    assert log.path.name == "r.learned.jsonl" and len(log.table) == 0 and log.entries() == []
    texts: list[bytes] = []

    def grown() -> bool:
        texts.append(log.path.read_bytes())
        return len(texts) < 2 or (texts[-1].startswith(texts[-2]) and texts[-1] != texts[-2])

    assert log.judge(good, "1.0").decided == ACCEPTED and grown()
    assert log.table.rows == good.table.rows
    none = Challenger(good.table, (), (), ())
    assert log.judge(none, "1.0").decided == REFUSED and grown()
    assert log.table.rows == good.table.rows
    better = Challenger(Table([Row("lrn", CLASS, {}, {"order": 1})]), good.judged, (), ())
    log.judge(better, "1.1")
    assert len(log.table) == 1 and log.table.rows[0].role == "lrn" and grown()
    assert log.roll_back().decided == BACK and grown() and log.table.rows == good.table.rows
    log.roll_back()
    assert len(log.table) == 0 and grown()
    with pytest.raises(RecordsFault, match="no table was accepted"):
        log.roll_back()
    assert [e.decided for e in log.entries()] == [ACCEPTED, REFUSED, ACCEPTED, BACK, BACK]
    assert "matmul on cpu 16x4: accepted, 1.250 times" in log.entries()[0].why[0]


def test_a_log_that_is_none(tmp_path: Path) -> None:
    log = Log(tmp_path / "r.learned.jsonl")
    log.judge(Challenger(Table(), (), (), ()), "1.0")
    whole = log.path.read_text()
    for wrong in ("", "{}\n", whole[:-8], whole + '{"at": 1}\n', whole + "[1]\n", "\udcff"):
        log.path.write_bytes(wrong.encode(errors="surrogateescape"))
        with pytest.raises(RecordsFault, match="remove the file"):
            _ = log.table
    log.path.unlink()
    log.path.mkdir()
    with pytest.raises(RecordsFault):
        log.judge(Challenger(Table(), (), (), ()), "1.0")
