"""Records of tuning: what is kept, what is reused, and what becomes of a bad file."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import pytest

from tests.tune.functions import norm, product, renamed, scaled
from tilewright.support import knobs
from tilewright.support.cache import Cache
from tilewright.support.errors import ScheduleError
from tilewright.support.makers import makers
from tilewright.target.target import Target, target
from tilewright.tune import database as module
from tilewright.tune import database_file
from tilewright.tune.database import Database
from tilewright.tune.database_file import Damaged
from tilewright.tune.records import Build, Champion, RecordsFault, Trial, this_build
from tilewright.tune.workload import workload

ROOT = Path(__file__).parents[2]
PRODUCT, NORM = product(), norm()
HASWELL, NEHALEM = target("cpu -mcpu=haswell"), target("cpu -mcpu=nehalem")
ONE, TWO = Build("one", "0.1", "llvm 1"), Build("two", "0.2", "llvm 2")
POINT = {"strategy": "family", "C.tile_m": 4, "D.order": "rows"}
WON = Champion(POINT, 0.5, 1.25, 1.2, 1.3, True, 1000)


def trial(tile: int = 4, made_at: int = 7, **changes: Any) -> Trial:
    return Trial({**POINT, "C.tile_m": tile}, (0.25, 0.1 + 0.2, 1e-9), made_at=made_at, **changes)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "records.db"


@pytest.fixture
def records(path: Path) -> Iterator[Database]:
    with Database(path, ONE) as made:
        yield made


def fill(records: Database) -> None:
    """Two workloads, two machines, trials of all kinds."""
    for machine in (HASWELL, NEHALEM):
        records.add(workload(PRODUCT), machine, 1, [trial(t) for t in (1, 2, 4)])
        records.crown(workload(PRODUCT), machine, 1, WON)
    failed = Trial({"y.tile_m": None}, (), "refused", 0.5, 9, 1e-3)
    records.add(workload(NORM), HASWELL, 2, [failed, Trial({}, (1.0,), made_at=3)])


def test_a_trial_comes_back_as_it_was(records: Database) -> None:
    made = trial(compile_seconds=0.1, sentinel=1e-4)
    records.add(workload(PRODUCT), HASWELL, 2, [made, Trial({}, status="crashed", made_at=8)])
    found, failed = records.trials()
    of = workload(PRODUCT)
    assert found.point == {"strategy": "family", "b0.tile_m": 4, "b1.order": "rows"}
    assert found.samples == made.samples and found.made_at == 7 and found.sentinel == 1e-4
    assert (found.workload, found.family, found.sizes) == (of.key, of.family, of.sizes)
    assert (found.machine, found.threads, found.build) == (str(HASWELL), 2, "one")
    assert (failed.status, failed.samples, failed.sentinel) == ("crashed", (), None)


def test_times_are_seconds_of_now(records: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.time, "time", lambda: 1234.9)
    records.add(workload(PRODUCT), HASWELL, 1, [Trial({})])
    records.crown(workload(PRODUCT), HASWELL, 1, Champion({}, 1.0, 1.0, 1.0, 1.0))
    found = records.champion(workload(PRODUCT), HASWELL, 1)
    assert records.trials()[0].made_at == 1234 and found and found.made_at == 1234


def test_trials_are_chosen_by_what_they_are_of(records: Database, path: Path) -> None:
    fill(records)
    with Database(path, TWO) as later:
        later.add(workload(PRODUCT), HASWELL, 1, [trial(8)])
        assert [t.point["b0.tile_m"] for t in later.trials()] == [8]
        assert len(later.trials(every_build=True)) == 9
    assert len(records.trials(workload(PRODUCT))) == 6
    assert len(records.trials(workload(PRODUCT), NEHALEM)) == 3
    assert len(records.trials(machine=HASWELL, threads=2)) == 2
    assert not records.trials(workload(scaled()))


def test_the_champion_is_of_workload_machine_threads_and_build(
    records: Database, path: Path
) -> None:
    records.crown(workload(PRODUCT), HASWELL, 2, WON)
    assert records.champion(workload(PRODUCT), HASWELL, 2) == WON
    for other in (
        (workload(NORM), HASWELL, 2), (workload(PRODUCT), NEHALEM, 2),
        (workload(PRODUCT), HASWELL, 1), (workload(product(m=47)), HASWELL, 2),
    ):  # fmt: skip
        assert records.champion(*other) is None
    with Database(path, TWO) as later:
        assert later.champion(workload(PRODUCT), HASWELL, 2) is None
    new = Champion({"C.tile_m": 6}, 0.75, 1.5, 1.4, 1.6, False, 900)
    records.crown(workload(PRODUCT), HASWELL, 2, new)  # whichever it was
    assert records.champion(workload(PRODUCT), HASWELL, 2) == new


def test_points_are_those_of_the_function_that_asks(records: Database) -> None:
    records.crown(workload(PRODUCT), HASWELL, 1, WON)
    other = workload(renamed(PRODUCT, 3))
    found = records.champion(other, HASWELL, 1)
    assert found is not None and found.point == other.from_canonical(
        workload(PRODUCT).to_canonical(POINT)
    )
    assert found.point != POINT
    with pytest.raises(ScheduleError, match=r"decision 'E\.x'"):
        records.crown(workload(PRODUCT), HASWELL, 1, Champion({"E.x": 1}, 1, 1, 1, 1))
    assert records.champion(workload(PRODUCT), HASWELL, 1) == WON


def test_suggestions_are_what_won_elsewhere_the_nearest_first(path: Path) -> None:
    asked, other_cores = workload(PRODUCT), target("cpu -mcpu=haswell -cores=7")

    def crown(
        tile: int, of: Any = PRODUCT, machine: Target = HASWELL, threads: int = 2,
        build: Build = ONE, ratio: float = 1.5,
    ) -> None:  # fmt: skip
        with Database(path, build) as records:
            point = {"C.tile_m": tile}
            records.crown(workload(of), machine, threads, Champion(point, 1, ratio, 1, 2, True, 5))

    crown(1, build=TWO)
    crown(2, threads=1)
    crown(3, machine=other_cores)
    crown(4, machine=NEHALEM)
    crown(5, product(m=24))
    crown(6, product(m=480))
    crown(7, product(m=480), build=TWO, ratio=1.9)
    crown(8, product(m=24), machine=NEHALEM)
    crown(9, product(m=24), threads=7)
    crown(4, product(m=1))  # known already
    crown(10)  # the champion
    crown(11, product(dtype="f64"))  # another family
    with Database(path, ONE) as records:
        found = records.suggestions(asked, HASWELL, 2, most=99)
        assert [s.point["C.tile_m"] for s in found] == [1, 2, 3, 4, 5, 9, 6, 7, 8]
        told = ["build", "threads", "machine", "machine"] + ["sizes"] * 5
        assert [s.origin for s in found] == told
        assert found[0].distance == 0 and found[0].ratio == 1.5
        assert found[4].distance == 4 and found[6].distance == pytest.approx(4 * 3.3219, 1e-3)
        assert records.suggestions(asked, HASWELL, 2, most=2) == found[:2]
        assert not records.suggestions(workload(NORM), HASWELL, 2)


def test_stats(records: Database, path: Path) -> None:
    fill(records)
    with Database(path, TWO) as later:
        later.add(workload(product(m=24)), HASWELL, 1, [trial()])
        found = later.stats()
    assert (found.workloads, found.families, found.machines, found.builds) == (3, 2, 2, 2)
    assert (found.trials, found.current, found.champions) == (9, 1, 2)
    assert found.nbytes > 10_000


def test_the_build_is_what_the_cache_of_kernels_knows_it_by(path: Path) -> None:
    with Database(path) as records:
        assert records.build == this_build()
        assert records.build.key == makers(Cache(knobs.kernel_folder())) and records.build.llvm
        records.crown(workload(PRODUCT), HASWELL, 1, WON)
    with Database(path) as again:
        assert again.champion(workload(PRODUCT), HASWELL, 1) == WON


# As text


def test_text_says_all_and_merging_it_makes_an_equal_database(
    records: Database, tmp_path: Path
) -> None:
    fill(records)
    records.export(tmp_path / "a.jsonl")
    text = (tmp_path / "a.jsonl").read_text()
    head, *lines = text.splitlines()
    assert json.loads(head)["version"] == 1 and lines == sorted(lines)
    assert len(lines) == 2 + 2 + 1 + 8 + 2
    for source in (tmp_path / "a.jsonl", records.path):
        with Database(tmp_path / f"{source.name}.db", TWO) as other:
            assert [other.merge(source) for _ in range(3)] == [10, 0, 0]
            other.export(tmp_path / "b.jsonl")
            assert (tmp_path / "b.jsonl").read_text() == text
            assert len(other.trials(every_build=True)) == 8
    records.export(tmp_path / "c.jsonl", trials=False)
    assert len((tmp_path / "c.jsonl").read_text().splitlines()) == 1 + 2 + 2 + 1 + 2
    assert records.merge(tmp_path / "c.jsonl") == 0


def test_text_depends_on_records_alone(tmp_path: Path) -> None:
    parts = [(HASWELL, 1), (HASWELL, 4), (NEHALEM, 2)]
    found = set()
    for seed in range(3):
        with Database(tmp_path / f"{seed}.db", ONE) as records:
            for machine, threads in Random(seed).sample(parts, 3):
                records.crown(workload(PRODUCT), machine, threads, WON)
                records.add(workload(NORM), machine, threads, [Trial({}, made_at=1)])
            records.export(tmp_path / "a.jsonl")
            found.add((tmp_path / "a.jsonl").read_text())
    assert len(found) == 1


def test_of_two_champions_the_verified_then_the_newer_one_stays(tmp_path: Path) -> None:
    def champion(tile: int, verified: bool, made_at: int) -> Champion:
        return Champion({"C.tile_m": tile}, 1.0, 1.0, 1.0, 1.0, verified, made_at)

    ranked = [
        champion(4, False, 1),
        champion(1, False, 9),
        champion(3, True, 2),
        champion(2, True, 5),
    ]
    for a, lesser in enumerate(ranked):
        for better in ranked[a + 1 :]:
            for order in ((lesser, better), (better, lesser)):
                for number, one in enumerate(order):
                    with Database(tmp_path / f"{number}.db", ONE) as records:
                        records.crown(workload(PRODUCT), HASWELL, 1, one)
                with Database(tmp_path / "0.db", ONE) as records:
                    assert records.merge(tmp_path / "1.db") == (order[1] is better)
                    assert records.champion(workload(PRODUCT), HASWELL, 1) == better


def spoilt() -> list[tuple[str, str, str]]:
    """(what to replace in a text, by what, the reason to be told)."""
    return [
        ('"format"', '"formats"', "its first line does not say"),
        ('"version": 1}', '"version": 2}', "version 2; 1 is known"),
        ('{"trial"', '{"trail"', "line 7: 'trail' is no kind"),
        ('"threads": 1', '"threads": -1', "line 3: the threads of a champion cannot be '-1'"),
        ('"samples": [0.25,', '"samples": [NaN,', "the samples of a trial cannot be"),
        ('"samples": [0.25,', '"samples": 3, "x": [', "has the fields"),
        ('"sizes": [', '"sizes": [-1, ', "the sizes of a workload"),
        ('"point": {', '"point": {"a": [1], ', "the point of a champion"),
        ('"point": {', '"point": {"a": "\\ud800", ', "the point of a champion"),
        ('"made_at": 7', f'"made_at": {10**30}', "the made_at of a trial"),
        ("def kernel(", "def kernels(", "the key of a workload is not that of its text"),
        ('"line": "cpu', '"line": "gpu', "the key of a machine is not that of its line"),
        ('{"build": {"key": "one"', '{"build": {"key": "six"', "of a build that it does not say"),
        ('{"champion"', "[" * 100_000, "line 3 is no JSON"),
        ('{"champion"', '["champion"]\n{"champion"', "line 3 is no record"),
        ('{"champion"', "\udcff", "can't decode byte"),
        ('"verified": true', '"verified": 1', "the verified of a champion cannot be '1'"),
    ]


@pytest.mark.parametrize(("old", "new", "reason"), spoilt(), ids=lambda text: text[:24])
def test_a_bad_text_is_refused_as_a_whole(
    records: Database, tmp_path: Path, old: str, new: str, reason: str
) -> None:
    fill(records)
    text = tmp_path / "a.jsonl"
    records.export(text)
    content = text.read_text()
    assert old in content
    text.write_text(content.replace(old, new, 1), errors="surrogateescape")
    with Database(tmp_path / "b.db", TWO) as other:
        with pytest.raises(RecordsFault) as fault:
            other.merge(text)
        assert reason in fault.value.why and str(text) in fault.value.why
        assert other.stats().workloads == other.stats().trials == 0


def test_what_cannot_be_merged_or_exported_to_is_said(records: Database, tmp_path: Path) -> None:
    fill(records)
    for missing in (tmp_path / "missing", tmp_path):
        with pytest.raises(RecordsFault, match="cannot merge records"):
            records.merge(missing)
    with pytest.raises(RecordsFault, match="cannot export"):
        records.export(tmp_path / "no" / "folder")
    foreign(tmp_path / "other.db")
    with pytest.raises(RecordsFault, match="another program"):
        records.merge(tmp_path / "other.db")
    with sqlite3.connect(tmp_path / "bad.db") as bad, sqlite3.connect(records.path) as good:
        good.backup(bad)
        bad.execute("UPDATE trial SET samples = 'words'")
    bad.close()
    with pytest.raises(RecordsFault, match="damaged"):
        records.merge(tmp_path / "bad.db")
    assert records.stats().trials == 8


# Bad files


def foreign(path: Path) -> None:
    """Another program's database."""
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE trial (id INTEGER)")
    other.close()


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    middle = len(content) // 2
    if how == "no database":
        path.write_bytes(b"words " * 100)
    elif how == "cut":
        path.write_bytes(content[:5000])
    elif how == "header":
        path.write_bytes(content[:16] + bytes(range(84)) + content[100:])
    elif how == "overwritten":
        path.write_bytes(content[:4096] + os.urandom(len(content) - 4096))
    elif how == "a page":
        path.write_bytes(content[:middle] + b"\xff" * 4096 + content[middle + 4096 :])


@pytest.mark.parametrize("how", ["no database", "cut", "header", "overwritten", "a page"])
def test_a_damaged_file_is_kept_aside_if_one_goes_on(path: Path, how: str) -> None:
    with Database(path, ONE) as records:
        fill(records)
        records.add(workload(PRODUCT), HASWELL, 3, [trial(1, n) for n in range(200)])
    damage(path, how)
    content = path.read_bytes()

    def use() -> None:
        with Database(path, ONE) as found:
            found.trials()
            found.stats()
            found.crown(workload(PRODUCT), NEHALEM, 1, WON)

    if how != "a page":  # which only who reads it sees
        with pytest.raises(Damaged, match="is damaged"):
            use()
        assert not list(path.parent.glob("*.damaged*"))
    for count in (1, 2):
        path.write_bytes(content)
        with Database(path, ONE, set_aside=True) as found:
            assert found.stats().trials == 0
            found.crown(workload(PRODUCT), HASWELL, 1, WON)
        kept = [p for p in path.parent.iterdir() if re.search(r"\.damaged(_\d)?$", p.name)]
        assert len(kept) == count and all(p.read_bytes() == content for p in kept)
    with Database(path, ONE, set_aside=True) as found:  # which is whole
        assert found.champion(workload(PRODUCT), HASWELL, 1) == WON


@pytest.mark.parametrize("set_aside", [False, True])
def test_what_is_not_ours_is_left_as_it_is(path: Path, set_aside: bool) -> None:
    path.parent.mkdir()
    foreign(path)
    content = path.read_bytes()
    with pytest.raises(RecordsFault, match=r"database of another program.*(.|\n)*left as it is"):
        Database(path, ONE, set_aside=set_aside)
    assert path.read_bytes() == content
    path.unlink()
    Database(path, ONE).close()
    with sqlite3.connect(path) as later:
        later.execute(f"PRAGMA user_version = {database_file.VERSION + 1}")
    later.close()
    with pytest.raises(RecordsFault, match=r"is of version 2, and this Tilewright knows 1"):
        Database(path, ONE, set_aside=set_aside)
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    with pytest.raises(RecordsFault, match="cannot open"):
        Database(path.parent, ONE, set_aside=set_aside)
    with pytest.raises(RecordsFault, match="cannot open"):
        Database(path / "below", ONE, set_aside=set_aside)


def test_an_empty_file_becomes_a_database(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    with Database(path, ONE) as records:
        fill(records)
    with Database(path, ONE) as records:
        assert records.stats().trials == 8


def test_of_a_full_disk_nothing_is_half_written(records: Database) -> None:
    records.add(workload(PRODUCT), HASWELL, 1, [trial()])
    connection = records._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(RecordsFault, match=r"is full(.|\n)*make room"):
        records.add(workload(NORM), HASWELL, 1, [Trial({"y.x": n}, (1.0,) * 99) for n in range(99)])
    assert (records.stats().trials, records.stats().workloads) == (1, 1)
    connection.execute(f"PRAGMA max_page_count = {pages + 999}")
    records.add(workload(NORM), HASWELL, 1, [Trial({"y.x": n}, (1.0,) * 99) for n in range(99)])
    assert records.stats().trials == 100


def test_a_file_that_may_only_be_read(path: Path) -> None:
    """As another user, whose folder it is not: root may write everywhere."""
    if not hasattr(os, "fork") or os.geteuid() != 0:
        pytest.skip("needs a user who may become another")
    with Database(path, ONE) as records:
        fill(records)
    open_to_all = Path(os.path.realpath("/tmp")) / f"records-{os.getpid()}"
    open_to_all.mkdir()
    try:
        shutil.copy(path, open_to_all / "records.db")
        os.chmod(open_to_all, 0o755)
        os.chmod(open_to_all / "records.db", 0o644)
        process = os.fork()
        if process == 0:
            os._exit(_as_reader(open_to_all / "records.db"))
        assert os.waitpid(process, 0)[1] == 0
    finally:
        shutil.rmtree(open_to_all)


def _as_reader(path: Path) -> int:
    try:
        os.setuid(65534)
        with Database(path, ONE) as records:
            assert records.champion(workload(PRODUCT), HASWELL, 1) == WON
            with pytest.raises(RecordsFault, match=r"readonly(.|\n)*allow writing"):
                records.add(workload(PRODUCT), HASWELL, 1, [trial(99)])
            assert records.stats().trials == 8
    except BaseException as fault:
        print(repr(fault), file=sys.stderr)
        return 1
    return 0


def test_what_cannot_be_written_is_said(records: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(records)
    records._connection.execute("PRAGMA query_only = ON")
    with pytest.raises(RecordsFault, match=r"readonly(.|\n)*allow writing"):
        records.crown(workload(NORM), HASWELL, 1, Champion({}, 1, 1, 1, 1))
    assert records.champion(workload(PRODUCT), HASWELL, 1) == WON


def test_who_waits_too_long_is_told(
    records: Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_file, "PATIENCE", 0.05)
    with Database(path, TWO) as impatient, records._transaction("hold it"):
        with pytest.raises(RecordsFault, match=r"locked(.|\n)*another process has been writing"):
            impatient.add(workload(PRODUCT), HASWELL, 1, [trial()])
        assert impatient.champion(workload(PRODUCT), HASWELL, 1) is None  # reading needs no wait


@pytest.mark.parametrize("fault", [KeyboardInterrupt, MemoryError, RuntimeError])
def test_an_interrupt_leaves_all_or_nothing(records: Database, fault: type[BaseException]) -> None:
    def trials() -> Iterator[Trial]:
        yield trial(1)
        yield trial(2)
        raise fault

    with pytest.raises(fault):
        records.add(workload(PRODUCT), HASWELL, 1, trials())
    assert records.stats().trials == records.stats().workloads == 0
    records.add(workload(PRODUCT), HASWELL, 1, [trial(1)])
    assert records.stats().trials == 1


@pytest.mark.parametrize(
    "bad",
    [
        Trial({"C.x": float("nan")}), Trial({"C.x": [1]}), Trial({}, (float("inf"),)),
        Trial({}, status=""), Trial({}, made_at=-1), Trial({}, sentinel=float("nan")),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_trial_is_not_recorded(records: Database, bad: Trial) -> None:
    with pytest.raises(RecordsFault, match="cannot record"):
        records.add(workload(PRODUCT), HASWELL, 1, [trial(), bad])
    assert records.stats().trials == 0


WRITER = """
import sys
from tests.tune.test_database import *
with Database(sys.argv[1], ONE) as records:
    for n in range(100):
        records.add(workload(PRODUCT), HASWELL, int(sys.argv[2]), [trial(n, k) for k in range(3)])
        records.crown(workload(NORM), NEHALEM, n % 3 + 1, Champion({}, 1.0, 1.0, 1.0, 1.0))
"""


def test_two_processes_write_at_once(path: Path) -> None:
    """Into a file that neither has made before."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(n)], env=environment)
        for n in (1, 2)
    ]
    assert [writer.wait() for writer in writers] == [0, 0]
    with Database(path, ONE) as records:
        assert [len(records.trials(threads=n)) for n in (1, 2)] == [300, 300]
        assert records.stats().champions == 3


def test_threads_share_a_database(records: Database) -> None:
    def write(threads: int) -> None:
        for n in range(30):
            records.add(workload(PRODUCT), HASWELL, threads, [trial(n)])
            records.suggestions(workload(PRODUCT), HASWELL, threads)

    workers = [Thread(target=write, args=(n,)) for n in (1, 2, 3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert records.stats().trials == 90
