"""Models compiled by what was learnt from others, and the command `distil`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.driver.conftest import expected
from tests.driver.test_tuning import HERE, code, crowned, jobs, run
from tests.tune.functions import product
from tests.tune.test_distil import OLD, recorded, wide_is_fast
from tilewright.driver.champions import recorded as read_recorded
from tilewright.driver.distilling import _timed, distil
from tilewright.driver.kernels import Job
from tilewright.strategy.learned import Row, Table, machine_class, read
from tilewright.strategy.select import default
from tilewright.strategy.space import decisions
from tilewright.tune.database import Database
from tilewright.tune.distil import Challenger, Judged
from tilewright.tune.examples import Example, examples
from tilewright.tune.learned_log import Log, beside
from tilewright.tune.records import Champion
from tilewright.tune.workload import workload


def learnt(path: str | Path, *rows: Row) -> None:
    """These rows count for a database from now on."""
    fine = Judged("", "", {}, 0, 0, 1.1, 1.1, True, "")
    Log(beside(Path(path))).judge(Challenger(Table(rows), (fine,), (), ()), "1.0")


def other_row(job: Job) -> Row:
    """A row by which a kernel is another one."""
    own = decisions(default(job.func, HERE, 1))
    for what, value in (("unroll", 1), ("unroll", 2), ("tile_m", 1), ("strategy", "generic")):
        row = Row("dense_packed", machine_class(HERE), {}, {what: value})
        if decisions(default(job.func, HERE, 1, learned=Table([row]))) != own:
            return row
    raise AssertionError("no row")


def test_a_model_that_nobody_tuned_is_compiled_by_what_was_learnt(model: Path) -> None:
    (job,) = jobs(model, threads=1)
    plain, row = code(model), other_row(job)
    Database("records.db").close()
    assert code(model, database="records.db") == plain
    learnt("records.db", row)
    by = code(model, database="records.db")
    assert by != plain == code(model) and by == code(model, database="records.db", cache=False)
    x = np.random.default_rng(1).standard_normal((2, 8), np.float32)
    made = tw.compile(model, threads=1, database="records.db")
    np.testing.assert_allclose(made(x)[0], expected(x), rtol=1e-5, atol=1e-5)
    Log(beside(Path("records.db"))).roll_back()
    assert code(model, database="records.db") == plain


def test_what_was_measured_counts_for_more(model: Path) -> None:
    (job,) = jobs(model, threads=1)
    learnt("records.db", other_row(job))
    Database("records.db").close()
    by_row = read_recorded("records.db", [HERE], 1)
    assert by_row.job(job).point and by_row.used == 1
    crowned("records.db", job.func)
    by_champion = read_recorded("records.db", [HERE], 1)
    with Database("records.db") as opened:
        known = opened.champion(workload(job.func), HERE, 1)
        assert known is not None and by_champion.job(job).point == known.point
        own = decisions(default(job.func, HERE, 1))
        opened.crown(workload(job.func), HERE, 1, Champion(own, 1.0, 1.0, 1.0, 1.0))
    unbeaten = read_recorded("records.db", [HERE], 1)
    assert unbeaten.job(job).point is None
    assert len({c.digest for c in (by_row, by_champion, unbeaten)}) == 3


def test_what_the_records_do_not_say_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    path, measured = recorded(Path("r.db"), wide_is_fast, tried=(8, 16)), list[str]()
    with Database(path) as opened:
        later = product(80)
        own = decisions(default(later, OLD, 1, learned=Table()))
        opened.crown(workload(later), OLD, 1, Champion(own, 1.0, 1.0, 1.0, 1.0))

    def seen(database: Database, example: Example, row: Row, seconds: float) -> None:
        measured.append(example.key)
        example.note(example.followed(row), 1.5)

    monkeypatch.setattr("tilewright.driver.distilling._timed", seen)
    with Database(path) as opened:
        made, entry = distil(opened)
        assert (entry.decided, made.judged[0].unknown, measured) == ("accepted", 1, [])
        log = Log(beside(path))
        log.roll_back()
        made, _ = distil(opened, seconds=60)
    assert measured == [workload(later).key] and made.judged[0].unknown == 0
    assert len(made.judged[0].ratios) == 7 and log.table.rows == made.table.rows


def test_one_schedule_really_measured() -> None:
    path = recorded(Path("r.db"), wide_is_fast, rows=(48,), tried=(8,))
    with Database(path) as opened:
        (example,) = examples(opened)
        row = Row("matmul", example.machine_class, {}, {"tile_n": 16})
        _timed(opened, example, row, 0.05)
        assert example.is_seen(row) and (example.ratio(row) or 0.0) > 0
        points = [t.point for t in opened.trials()]
    assert example.followed(row) in points


def test_the_command(command: Any) -> None:
    recorded(Path("r.db"), wide_is_fast)
    given = "distil", "--database", "r.db"
    printed = run(command, *given, "-o", "rules.jsonl")
    assert "accepted, 1.250 times as fast" in printed and "matmul on cpu 16x4: tile_n 16" in printed
    with open("rules.jsonl", encoding="utf-8") as file:
        assert [row.take for row in read(file)] == [{"tile_n": 16}]
    again = json.loads(run(command, *given, "--json"))
    assert (again["decisions"][0]["decided"], len(again["rules"])) == ("refused", 1)
    assert again["judged"][0] | {"gain": 0} == {
        "role": "matmul", "machine": "cpu 16x4", "accepted": False, "workloads": 6, "changed": 0,
        "unknown": 0, "gain": 0, "low": 1.0,
    }  # fmt: skip
    assert "rolled back" in run(command, *given, "--rollback")
    shown = json.loads(run(command, *given, "--show", "--json"))
    assert [d["decided"] for d in shown["decisions"]] == ["accepted", "refused", "rolled back"]
    assert shown["rules"] == []
    status, _, errors = command(*given, "--rollback")
    assert status == 1 and "no table was accepted" in errors
    assert command(*given, "--rollback", "--show")[0] == 2
