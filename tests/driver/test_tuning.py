"""`tw.tune`, what it records, and models compiled by that."""

from __future__ import annotations

import json
import re
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from tests.driver.conftest import DIGITS, dense, expected
from tests.driver.test_representations import parsed, words
from tests.tune.functions import product, scaled
from tests.tune.test_tasks import FakeBench
from tilewright.driver import tuning
from tilewright.driver.champions import Champions, recorded
from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import Job
from tilewright.driver.tuning import compared_calls
from tilewright.ir.expr import Var
from tilewright.ir.stmt import Func
from tilewright.strategy import space
from tilewright.strategy.rules import rule, unregister
from tilewright.strategy.space import decisions, sample
from tilewright.support.errors import CompileError, InputError, ScheduleError, ScheduleWarning
from tilewright.target.target import target
from tilewright.tune import database as database_module
from tilewright.tune import tasks
from tilewright.tune.database import Database
from tilewright.tune.ledger import RecordsWarning
from tilewright.tune.records import Build, Champion, RecordsFault
from tilewright.tune.samples import Verdict
from tilewright.tune.workload import workload

HERE = target("cpu")
Said = Callable[[float], None]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Said:
    """Candidates take half of the default's time, by words; how the model compares is said, too."""

    class Fresh(FakeBench):
        open: ClassVar[set[FakeBench]] = set()
        started: ClassVar[list[str]] = []

    def compare(ratio: float) -> None:
        verdict = Verdict(ratio, ratio, ratio, "b" if ratio < 1 else "a", 20)
        monkeypatch.setattr(tuning, "compared_calls", lambda *_: (1e-3, ratio * 1e-3, verdict))

    monkeypatch.setattr(tasks, "Bench", Fresh)
    compare(0.5)
    return compare


@pytest.fixture(autouse=True)
def no_schedule_warnings() -> Iterator[None]:
    """A warning that a test does not expect is a fault."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", ScheduleWarning)
        yield


def tuned(source: Any, **options: Any) -> Any:
    given = {"seconds": 20.0, "trials": 12, "threads": 1, "database": "records.db"} | options
    return tw.tune(source, **given)


def jobs(source: Any, **options: Any) -> list[Job]:
    found: list[Job] = []

    def seen(job: Job) -> Job:
        found.append(job)
        return job

    compile_observed(source, points=seen, **options)
    return found


def other_point(func: Func) -> dict[str, Any]:
    """A legal point that is not the default's."""
    for seed in range(50):
        try:
            return decisions(sample(func, HERE, 1, Random(seed)))
        except ScheduleError:
            continue
    raise AssertionError("no point")


def crowned(path: Path | str, func: Func, point: Any = None, build: Build | None = None) -> None:
    with Database(path, build) as opened:
        champion = Champion(point or other_point(func), 1e-3, 2.0, 1.9, 2.1, verified=True)
        opened.crown(workload(func), HERE, 1, champion)


def one_by_one(schedule: Any, machine: Any, threads: int) -> None:
    """A rule of a user."""
    name = schedule.blocks()[-1]
    lanes = schedule.decide(f"{name}.lanes", 4, (4, 8))
    schedule.vectorize(schedule.split(schedule.loops(name)[-1], (None, lanes))[1])


# ---- What it does -------------------------------------------------------------------------------


def test_a_model_really_tuned() -> None:
    """No times are said here: whatever comes of them, the results are right."""
    parts: list[float] = []
    found = tw.tune(DIGITS, seconds=2.0, threads=1, progress=lambda part, what: parts.append(part))
    assert parts == sorted(parts) and parts[0] >= 0 and parts[-1] <= 1 and found.seconds > 0
    assert found.trials > 0 and found.trials == sum(row.trials for row in found.tasks)
    assert found.before >= found.after > 0 and found.ratio >= 1 and found.schedule is None
    x = np.random.default_rng(0).random((1, 1, 8, 8), np.float32)
    (y,), (reference,) = found.executable(x), tw.compile(DIGITS, threads=1)(x)
    np.testing.assert_allclose(y, reference, rtol=1e-3, atol=1e-3)


def test_a_models_champions_are_recorded_and_compiled_by(model: Path, told: Said) -> None:
    found = tuned(model)
    (row,) = found.tasks
    assert row.ratio == pytest.approx(2.0) and "beat the default" in row.decided
    assert (found.before, found.after, found.decided) == (1e-3, 0.5e-3, "1 schedule kept")
    with Database("records.db") as opened:
        (point,) = opened.champions(HERE, 1).values()
    x = np.random.default_rng(1).standard_normal((2, 8), np.float32)
    by = tw.compile(model, threads=1, database="records.db")
    for made in (found.executable, by):
        np.testing.assert_allclose(made(x)[0], expected(x), rtol=1e-5, atol=1e-5)
    assert point and found.trials == 12


def test_a_function(told: Said) -> None:
    found = tuned(product())
    assert found.schedule is not None and found.tasks[0].name == "product"
    with Database("records.db") as opened:
        known = opened.champion(workload(product()), HERE, 1)
    assert known is not None and decisions(found.schedule) == known.point
    a, b = np.ones((48, 96), np.float32), np.ones((96, 64), np.float32)
    (d,) = found.executable(a, b)
    np.testing.assert_allclose(d, np.maximum(a @ b + 1.5, 0), rtol=1e-5)
    assert "trials" in str(found) and "beat the default" in str(found)


def test_what_is_known_costs_no_trials(model: Path, told: Said) -> None:
    tuned(model)
    again = tuned(model, trials=1)
    assert again.tasks[0].ratio == pytest.approx(2.0)
    found = tuned(model, database=None, trials=1)  # and nothing is known without it
    assert "known" not in found.tasks[0].decided


def test_a_model_that_is_slower_keeps_nothing(model: Path, told: Said) -> None:
    told(1.01)
    found = tuned(model)
    assert found.ratio == 1 and "so nothing is kept" in found.decided
    assert found.tasks[0].ratio == 1 and found.tasks[0].decided.startswith("not kept; ")
    with Database("records.db") as opened:
        assert opened.champions(HERE, 1) == {} and opened.stats().trials == 12


def test_calls_are_compared_in_turns(model: Path) -> None:
    exe, x = compile_observed(model, threads=1), np.ones((2, 8), np.float32)
    before, after, verdict = compared_calls(exe, exe.clone(), [x], 0.05)
    assert before > 0 and after == before * verdict.ratio and verdict.rounds > 0


def test_the_report(model: Path, told: Said) -> None:
    found = tuned(model)
    assert max(map(len, str(found).splitlines())) <= 100
    assert re.fullmatch(r"<Tuning of dense: 1 task, 1000.0 -> 500.0 us a call>", repr(found))
    text = words(parsed(found._repr_html_()))
    assert "Tuning dense" in text and "beat the default" in text and "1 thread" in text


# ---- compile(database=) -------------------------------------------------------------------------


def code(model: Path, **options: Any) -> bytes:
    return bytes(tw.compile(model, threads=1, **options).artifact())


def test_the_same_records_make_the_same_code(model: Path) -> None:
    (job,) = jobs(model, threads=1)
    plain = code(model)
    crowned("records.db", job.func)
    by = code(model, database="records.db")
    assert by != plain and by == code(model, database="records.db")  # once made, once found
    assert by == code(model, database=Path("records.db"), cache=False)
    with Database("records.db") as opened:
        assert by == code(model, database=opened, cache=False)
    assert plain == code(model) == code(model, database=False)


def test_ones_own_records(model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (job,) = jobs(model, threads=1)
    plain = code(model)
    assert code(model, database=True) == plain  # there are none yet, and that is no fault
    crowned(tmp_path / "cache/tuning/records.db", job.func)
    by = code(model, database=True)
    assert by != plain
    monkeypatch.setenv("TILEWRIGHT_DATABASE", str(tmp_path / "mine.db"))
    assert code(model, database=True) == plain


def test_champions_of_other_builds_machines_and_threads_do_not_count(model: Path) -> None:
    (job,) = jobs(model, threads=1)
    crowned("records.db", job.func, build=Build("another"))
    assert recorded("records.db", [HERE], 1).digest == ""
    crowned("records.db", job.func)
    assert recorded("records.db", [HERE], 1).digest != ""
    assert recorded("records.db", [HERE], 2).digest == ""
    assert recorded("records.db", [target("cpu -mcpu=nehalem")], 1).digest == ""


def test_a_point_that_no_longer_replays_costs_the_gain_alone(model: Path) -> None:
    (job,) = jobs(model, threads=1)
    plain = code(model)
    with Database("records.db") as opened:
        champion = Champion(other_point(job.func), 1e-3, 2.0, 1.9, 2.1, verified=True)
        opened.crown(workload(job.func), HERE, 1, champion)
        opened._connection.execute('UPDATE champion SET point = \'{"strategy": "lost"}\'')
    with pytest.warns(ScheduleWarning, match=r"'dense' took the default(.|\n)*k0_(.|\n)*tune it"):
        by = code(model, database="records.db", cache=False)
    assert by == plain


def test_a_point_is_of_its_function_whatever_its_names(model: Path) -> None:
    (job,) = jobs(model, threads=1)
    point = other_point(job.func)
    known = workload(job.func)
    by = Champions({str(HERE): {known.key: known.to_canonical(point)}})
    assert by.job(job).point == point and by.used == 1
    other = Job(scaled(), str(HERE), 1)
    assert by.job(other) is other


def test_champions_of_rules_need_their_rule(model: Path) -> None:
    (job,) = jobs(model, threads=1)
    plain = code(model)
    rule(one_by_one)
    try:
        made = space.partial(job.func, HERE, 1, {"strategy": "one_by_one"})
        crowned("records.db", job.func, decisions(made))
        by = code(model, database="records.db", cache=False)
        x = np.random.default_rng(1).standard_normal((2, 8), np.float32)
        made = tw.compile(model, threads=1, database="records.db")
        np.testing.assert_allclose(made(x)[0], expected(x), rtol=1e-5, atol=1e-5)
        assert by != plain and by == code(model, database="records.db")
        before = recorded("records.db", [HERE], 1).digest
        rule(name="one_by_one")(lambda *given: one_by_one(*given))
        assert recorded("records.db", [HERE], 1).digest != before
    finally:
        unregister("one_by_one")
    with pytest.warns(ScheduleWarning, match=r"took the default(.|\n)*one_by_one"):
        assert code(model, database="records.db", cache=False) == plain


def test_a_rule_is_really_measured() -> None:
    def columns(schedule: Any, machine: Any, threads: int) -> None:
        schedule.unroll(schedule.split("i", (None, schedule.decide("y.step", 2, (1, 2, 4))))[1])

    rule(columns)
    try:
        found = tuned(scaled(64), seconds=2.0, trials=3)
    finally:
        unregister("columns")
    with Database("records.db") as opened:
        tried = {t.point["strategy"]: t for t in opened.trials()}
    assert found.trials == 3 and tried.keys() == {"columns"} and tried["columns"].status == "ok"


def test_torch_compile_takes_records(told: Said) -> None:
    torch = pytest.importorskip("torch")
    crowned("records.db", product())
    options = {"threads": 1, "database": "records.db"}
    made = torch.compile(lambda x: x * 2 + 1, backend="tilewright", options=options)
    assert made(torch.ones(4)).tolist() == [3.0] * 4


# ---- Bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [{"seconds": 0}, {"seconds": -1}, {"trials": 0}])
def test_a_budget_of_nothing(model: Path, budget: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"budget of .* measures nothing"):
        tuned(model, **budget)
    assert not Path("records.db").exists()


def spoil(how: str, path: Path) -> None:
    """Make a file that is no database of ours."""
    Database(path).close()
    if how == "damaged":
        path.write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 16)
    with sqlite3.connect(path) as connection:
        if how == "newer":
            connection.execute("PRAGMA user_version = 99")
        elif how == "foreign":
            connection.execute("PRAGMA application_id = 7")


@pytest.mark.parametrize(
    "how, why", [("damaged", "damaged"), ("newer", "version 99"), ("foreign", "another program")]
)
def test_a_database_that_is_none_of_ours(model: Path, how: str, why: str) -> None:
    path = Path("records.db")
    spoil(how, path)
    content = path.read_bytes()
    for use in (tuned, lambda m: tw.compile(m, database=path, threads=1)):
        with pytest.raises(RecordsFault, match=why):
            use(model)
    assert path.read_bytes() == content


def test_records_that_are_not_there(model: Path) -> None:
    with pytest.raises(InputError, match=r"no such file(.|\n)*check the path"):
        tw.compile(model, database="nowhere.db")
    for wrong in (3, ["records.db"]):
        with pytest.raises(InputError, match="True for your own records"):
            tw.compile(model, database=wrong)  # type: ignore[arg-type]
    assert not Path("nowhere.db").exists()


def test_a_full_disk(model: Path, told: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(database_module, "insert_trial", full)
    with pytest.warns(RecordsWarning, match=r"records nothing more(.|\n)*make room"):
        found = tuned(model)
    assert found.tasks[0].ratio > 1 and found.ratio == 2
    with Database("records.db") as opened:  # it is whole
        assert opened.stats().trials == opened.stats().champions == 0


def test_an_interrupt_keeps_what_was_found(
    model: Path, told: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks.Bench, "fault", (4, KeyboardInterrupt()))
    found = tuned(model, trials=None)
    assert found.is_interrupted and found.trials == 3 and found.tasks[0].ratio > 1
    assert "interrupted" in found.total

    def compare(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(tasks.Bench, "fault", None)
    monkeypatch.setattr(tuning, "compared_calls", compare)
    found = tuned(model)
    assert found.is_interrupted and "what won is recorded" in found.decided
    assert found.before == found.after


def test_open_sizes(tmp_path: Path, told: Said) -> None:
    model = dense(tmp_path / "open.onnx", rows="rows")
    with pytest.raises(CompileError, match=r"open \(rows\)(.|\n)*shapes={\"rows\": 128}"):
        tuned(model)
    assert tuned(model, shapes={"rows": 4}).executable.inputs[0].shape == (4, 8)
    func = product(Var("n"))
    with pytest.raises(CompileError, match=r"open \(n\)"):
        tuned(func)
    with pytest.raises(CompileError, match="no open size 'm'"):
        tuned(func, shapes={"m": 3})
    for size in (0, 1.5, "x"):
        with pytest.raises(CompileError, match="a whole number from 1 on"):
            tuned(func, shapes={"n": size})
    found = tuned(func, shapes={"n": 48})
    a, b = np.ones((48, 96), np.float32), np.ones((96, 64), np.float32)
    np.testing.assert_allclose(found.executable(a, b)[0], np.maximum(a @ b + 1.5, 0), rtol=1e-5)


@pytest.mark.parametrize(
    "machine, why",
    [
        ("cpu -mtriple=aarch64-linux-gnu", "this machine"),
        ("cpu -mattr=+amx-tile,+amx-int8,+avx10.2", "this machine"),
        (["cpu", "cpu -mcpu=nehalem"], "one target at a time"),
        ("opencl", "whole models run on CPUs"),
    ],
)
def test_a_machine_that_is_not_here(model: Path, machine: Any, why: str) -> None:
    with pytest.raises(CompileError, match=why):
        tuned(model, target=machine)


def test_an_older_machine(model: Path, told: Said) -> None:
    found = tuned(model, target="cpu -mcpu=nehalem")
    assert "nehalem" in found.target and found.tasks[0].ratio > 1


def test_sizes_that_the_run_finds_and_nothing_to_tune(
    tmp_path: Path, told: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["n"]), helper.make_node("Mul", ["n", "n"], ["y"])],
        "found",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [1, None])],
    )
    path = tmp_path / "found.onnx"
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(proto, path)
    found = tuned(path)
    assert "not tuned: its sizes are open" in [row.decided for row in found.tasks]
    monkeypatch.setattr(tuning, "tasks_of", lambda jobs, profile: ([], []))
    found = tuned(path)
    assert found.tasks == () and found.before == found.after and found.trials == 0
    assert "there is nothing to tune" in found.decided
    assert found.executable(np.ones(3, np.float32))[0].tolist() == [[0, 1, 4]]


def test_what_is_scheduled_or_no_model_at_all(told: Said) -> None:
    schedule = tw.Schedule(scaled())
    assert tuned(schedule).schedule is not None
    schedule.parallel("i")
    with pytest.raises(CompileError, match="scheduled already"):
        tuned(schedule)
    with pytest.raises(CompileError, match=r"it is a builtins\.int"):
        tuned(3)
    with pytest.raises(CompileError, match="no such file"):
        tuned("nothing.onnx")


# ---- The command line ---------------------------------------------------------------------------


def run(command: Any, *arguments: Any) -> str:
    status, printed, errors = command(*arguments)
    assert status == 0, errors
    return printed


def test_tuning_from_the_command_line(command: Any, model: Path, told: Said) -> None:
    options = "--seconds", 20, "--trials", 6, "--threads", 1
    printed = run(command, "tune", model, *options, "-o", "tuned.tw")
    assert "beat the default" in printed and "2.00 times as fast" in printed
    x = np.ones((2, 8), np.float32)
    np.testing.assert_allclose(tw.load("tuned.tw")(x)[0], expected(x), rtol=1e-5, atol=1e-5)
    found = json.loads(run(command, "tune", model, *options, "--json", "--database", "its.db"))
    assert found["command"] == "tune" and found["trials"] == 6 and not found["interrupted"]
    assert found["tasks"][0]["default_us"] == 2 * found["tasks"][0]["tuned_us"]
    assert (found["before_us"], found["after_us"]) == (1000, 500)
    plain = bytes(tw.compile(model, threads=1).artifact())
    for database in ("own", "its.db"):
        given = "--threads", 1, "-o", "out.tw", "--database", database
        run(command, "compile", model, *given)
        assert Path("out.tw").read_bytes() != plain
        run(command, "run", model, "--threads", 1, "--database", database)
    run(command, "bench", model, "--against", "none", "--seconds", 0.02, "--database", "own")
    status, _, errors = command("run", "out.tw", "--database", "own")
    assert status == 1 and "compiled already" in errors


def test_ctrl_c_on_the_command_line(
    command: Any, model: Path, told: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks.Bench, "fault", (4, KeyboardInterrupt()))
    status, printed, errors = command("tune", model, "--seconds", 20, "--threads", 1)
    assert status == 130 and "interrupted" in errors
    assert "interrupted" in printed and "beat the default" in printed
    assert json.loads(run(command, "records", "--json"))["champions"] == 1


def test_records_are_shown_exported_and_merged(command: Any, model: Path, told: Said) -> None:
    run(command, "tune", model, "--seconds", 20, "--trials", 6, "--threads", 1)
    printed = run(command, "records", "--export", "all.jsonl")
    assert "trials of this build" in printed and "all.jsonl" in printed
    run(command, "records", "--export", "won.jsonl", "--champions")
    assert len(Path("won.jsonl").read_text()) < len(Path("all.jsonl").read_text())
    merged = json.loads(
        run(command, "records", "--database", "new.db", "--merge", "all.jsonl", "--json")
    )
    assert merged["merged"] == [{"file": "all.jsonl", "new": 7}]
    assert (merged["trials"], merged["champions"], merged["current"]) == (6, 1, 6)
    again = run(command, "records", "--database", "new.db", "--merge", "all.jsonl")
    assert "all.jsonl: 0 new records" in again
    status, _, errors = command("records", "--merge", model)
    assert status == 1 and "nothing of it was taken" in errors
    assert command("records", "--champions")[0] == 2


def test_mistakes_on_the_command_line(command: Any, model: Path) -> None:
    for arguments, why in (
        (("tune", model, "--seconds", 0), "measures nothing"),
        (("tune", model, "--target", "cpu -mtriple=aarch64-linux-gnu"), "tune on such a machine"),
        (("tune", model, "--device", "board"), "it is no device"),
        (("tune", "nothing.onnx"), "no such file"),
        (("compile", model, "--database", "nothing.db"), "no such file"),
    ):
        status, _, errors = command(*arguments)
        assert status == 1 and why in errors, errors
