"""Database: what was tried and what won, in one file that processes share.

In: trials and champions of workloads on machines. Out: the champion of this build, suggestions
where there is none, and all trials for models. The one idea: times count for the build and machine
that they were taken with; points do for all, so a champion of elsewhere comes back as a suggestion.
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tilewright.schedule.trace import Plain
from tilewright.support.cache import replace_file
from tilewright.support.errors import ScheduleError
from tilewright.target.target import Target
from tilewright.tune import record_text
from tilewright.tune.database_file import MAGIC, damage, opened, opened_to_read, told
from tilewright.tune.record_rows import (
    CHAMPIONS,
    TRIALS,
    insert_champion,
    insert_shared,
    insert_trial,
    records,
    samples,
)
from tilewright.tune.record_text import Record
from tilewright.tune.records import (
    Build,
    Champion,
    Crowned,
    Measured,
    RecordsFault,
    Stats,
    Suggestion,
    Trial,
    point_text,
    this_build,
)
from tilewright.tune.workload import Workload

MOST_NEAR = 256  # champions of a family whose sizes are compared, the newest first
ORIGINS = ("sizes", "machine", "machine", "threads", "build")  # by what differs, farthest first


class Database:
    """Records of tuning in one file: a context manager that closes it. Threads and processes may
    use it at once; each call is one transaction, of which all or nothing is kept.

    Args:
        path: of the file; made if it is missing.
        build: what its code is timed with; None: the compiler that this process has imported.
        set_aside: whether to go on with an empty file where this one is damaged; the damaged one
            is kept beside it, with `.damaged` behind its name.

    Raises:
        RecordsFault: in all methods, too: the file is damaged, another program's, of a later
            version, cannot be written, or the disk is full.
    """

    def __init__(
        self, path: str | Path, build: Build | None = None, *, set_aside: bool = False
    ) -> None:
        self.path = Path(path)
        self.build = build or this_build()
        self._lock = threading.RLock()
        self._connection = opened(self.path, set_aside=set_aside)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(
        self, workload: Workload, machine: Target, threads: int, trials: Iterable[Trial]
    ) -> None:
        """Record trials of this build, all of them or, if one cannot be, none. Raises ScheduleError
        for a point that is not the workload's."""
        with self._transaction("cannot record trials"):
            owner = self._owner(workload, machine, threads)
            for t in trials:
                point = workload.to_canonical(t.point)
                fields = {
                    **owner, "point": point, "made_at": _time(t.made_at),
                    "samples": [*map(float, t.samples)], "status": t.status,
                    "compile_seconds": t.compile_seconds, "sentinel": t.sentinel,
                }  # fmt: skip
                insert_trial(self._connection, _as_recorded("trial", fields))

    def crown(self, workload: Workload, machine: Target, threads: int, champion: Champion) -> None:
        """Make a point this build's champion, whichever it was before. Raises ScheduleError for
        a point that is not the workload's."""
        with self._transaction("cannot record a champion"):
            c = champion
            fields = {
                **self._owner(workload, machine, threads),
                "point": workload.to_canonical(c.point), "made_at": _time(c.made_at),
                "seconds": c.seconds, "ratio": c.ratio, "low": c.low, "high": c.high,
                "verified": c.verified,
            }  # fmt: skip
            insert_champion(self._connection, _as_recorded("champion", fields), always=True)

    def champion(self, workload: Workload, machine: Target, threads: int) -> Champion | None:
        """The champion of this build, or None. Whether its point still is legal, is not asked."""
        columns = "point, seconds, ratio, low, high, verified, made_at"
        where = "workload.key = ? AND line = ? AND threads = ? AND build.key = ?"
        values = workload.key, str(machine), threads, self.build.key
        rows = self._read(f"SELECT {columns} {CHAMPIONS} WHERE {where}", values)
        if not rows:
            return None
        point, seconds, ratio, low, high, verified, made_at = rows[0]
        own = workload.from_canonical(self._point(point))
        return Champion(own, seconds, ratio, low, high, bool(verified), made_at)

    def champions(self, machine: Target, threads: int) -> dict[str, dict[str, Plain]]:
        """The points that beat the default, of this build's champions on a machine: by the keys of
        workloads, in canonical names (`Workload.from_canonical`)."""
        rows = self._of_build("workload.key, point", "ratio > 1", machine, threads)
        return {key: self._point(point) for key, point in rows}

    def unbeaten(self, machine: Target, threads: int) -> frozenset[str]:
        """The keys of workloads whose default nothing beat by this build on a machine."""
        rows = self._of_build("workload.key", "ratio <= 1", machine, threads)
        return frozenset(key for (key,) in rows)

    def _of_build(self, columns: str, where: str, machine: Target, threads: int) -> list[Any]:
        """Columns of this build's champions on a machine."""
        where = f"line = ? AND threads = ? AND build.key = ? AND {where}"
        query = f"SELECT {columns} {CHAMPIONS} WHERE {where} ORDER BY workload.key"
        return self._read(query, (str(machine), threads, self.build.key))

    def crowned(self) -> list[Crowned]:
        """The champions of all builds, of one workload on one machine the newest last."""
        columns = "workload.key, text, line, threads, build.key, point, seconds, ratio, low, high"
        query = f"""SELECT {columns}, verified, made_at {CHAMPIONS}
            ORDER BY workload.key, line, threads, made_at, build.key"""
        found: list[Crowned] = []
        for key, text, line, threads, build, point, *rest in self._read(query, ()):
            seconds, ratio, low, high, verified, made_at = rest
            won = Champion(self._point(point), seconds, ratio, low, high, bool(verified), made_at)
            found.append(Crowned(key, text, line, threads, build, won))
        return found

    def suggestions(
        self, workload: Workload, machine: Target, threads: int, most: int = 8
    ) -> list[Suggestion]:
        """Points that won elsewhere, each once, those first that are most likely to win here: of
        other builds; for other threads on this machine or one with its processor; on other
        machines; of the same family, the nearest sizes first. At this workload's sizes another one
        may be illegal. This build's own champion is none of them."""
        here = workload.key, machine.processor, str(machine), threads, self.build.key
        columns = "workload.key, processor, line, threads, build.key, sizes, ratio, point"
        query = f"""SELECT {columns} {CHAMPIONS} WHERE workload.key = ?
            UNION ALL SELECT * FROM (SELECT {columns} {CHAMPIONS}
            WHERE family = ? AND workload.key != ? ORDER BY made_at DESC LIMIT {MOST_NEAR})"""
        found: list[tuple[tuple[Any, ...], Suggestion]] = []
        for *there, sizes, ratio, point in self._read(
            query, (workload.key, workload.family, workload.key)
        ):
            differs = [a != b for a, b in zip(here, there, strict=True)]
            if any(differs):
                origin = ORIGINS[differs.index(True)]
                distance = _distance(workload.sizes, json.loads(sizes))
                with contextlib.suppress(ScheduleError):  # a renamed decision
                    own = workload.from_canonical(self._point(point))
                    order = *differs[:2], distance, *differs[2:], -ratio, point
                    found.append((order, Suggestion(own, origin, distance, ratio)))
        found.sort(key=lambda pair: pair[0])
        once: dict[str, Suggestion] = {}
        for _, suggestion in found:
            once.setdefault(point_text(suggestion.point), suggestion)
        return [*once.values()][:most]

    def trials(
        self,
        workload: Workload | None = None,
        machine: Target | None = None,
        threads: int | None = None,
        *,
        every_build: bool = False,
    ) -> list[Measured]:
        """The trials, for models, in the order in which they came: of a workload, a machine and so
        many threads where these are given; of this build, unless of every one."""
        wanted: dict[str, Any] = {
            "workload.key": workload and workload.key,
            "line": machine and str(machine),
            "threads": threads,
            "build.key": None if every_build else self.build.key,
        }
        given = {name: value for name, value in wanted.items() if value is not None}
        columns = (
            "workload.key, family, sizes, line, threads, build.key, point, samples, status,"
            " compile_seconds, made_at, sentinel"
        )
        where = " AND ".join(["1", *(f"{name} = ?" for name in given)])
        query = f"SELECT {columns} {TRIALS} WHERE {where} ORDER BY trial.id"
        return [
            Measured(
                key, family, tuple(json.loads(sizes)), line, count, build, self._point(point),
                samples(blob), *rest,
            )
            for key, family, sizes, line, count, build, point, blob, *rest in self._read(
                query, tuple(given.values())
            )
        ]  # fmt: skip

    def stats(self) -> Stats:
        """How many records there are."""
        counts = """SELECT (SELECT count(*) FROM workload),
            (SELECT count(DISTINCT family) FROM workload), (SELECT count(*) FROM machine),
            (SELECT count(*) FROM build), (SELECT count(*) FROM trial),
            (SELECT count(*) FROM trial JOIN build ON build.id = trial.build WHERE build.key = ?),
            (SELECT count(*) FROM champion)"""
        (found,) = self._read(counts, (self.build.key,))
        ((pages, size),) = self._read(
            "SELECT page_count, page_size FROM pragma_page_count, pragma_page_size", ()
        )
        return Stats(*found, nbytes=pages * size)

    def export(self, path: str | Path, *, trials: bool = True) -> None:
        """Write all records as text, a JSON object a line, sorted: equal records make equal files.
        trials: False leaves them out, for a file of champions."""
        kinds = [kind for kind in record_text.KINDS if trials or kind != "trial"]
        what = "cannot export the records of tuning"
        try:
            with self._lock, told(what, self.path):
                found = [*record_text.lines(records(self._connection, kinds))]
        except ValueError as fault:
            raise damage(what, self.path, str(fault)) from fault
        with told(what, Path(path)), replace_file(Path(path)) as file:
            file.writelines(line.encode() for line in found)

    def merge(self, path: str | Path) -> int:
        """Take over the records of an exported text or of another database, all or none. Of two
        champions for the same stays the verified, then the newer one. Gives how many trials and
        champions are new; merging again gives 0."""
        what, path = "cannot merge records of tuning", Path(path)
        with told(what, path), open(path, "rb") as file:
            is_database = file.read(len(MAGIC)) == MAGIC
        try:
            if is_database:
                with contextlib.closing(opened_to_read(path)) as other, told(what, path):
                    found = [
                        (kind, record_text.checked(kind, fields))
                        for kind, fields in records(other, record_text.KINDS)
                    ]
            else:
                with told(what, path), open(path, encoding="utf-8") as file:
                    found = [*record_text.read(file)]
            return self._take_over(what, found)
        except ValueError as fault:
            why = f"{path}: {fault}; nothing of it was taken"
            raise RecordsFault(what, why, remedy="export it anew") from fault

    def _take_over(self, what: str, found: list[tuple[str, Record]]) -> int:
        """Insert what was read elsewhere; how many trials and champions are new."""
        lines = {f["key"]: f["line"] for kind, f in found if kind == "machine"}
        known = {kind: {f["key"] for k, f in found if k == kind} for kind in ("workload", "build")}
        known["machine"], new = {*lines}, 0
        with self._transaction(what):
            for kind, f in sorted(found, key=lambda pair: record_text.KINDS.index(pair[0])):
                if kind not in ("trial", "champion"):
                    insert_shared(self._connection, kind, f)
                    continue
                if missing := [owner for owner in known if f[owner] not in known[owner]]:
                    raise ValueError(f"a {kind} is of a {missing[0]} that it does not say")
                of = {**f, "machine": lines[f["machine"]]}
                if kind == "trial":
                    new += insert_trial(self._connection, of)
                else:
                    new += insert_champion(self._connection, of, always=False)
        return new

    def _owner(self, workload: Workload, machine: Target, threads: int) -> Record:
        """What a trial or champion belongs to; recorded, too. What a family is, this build says."""
        w, b, line = workload, self.build, str(machine)
        whole = {"key": w.key, "family": w.family, "sizes": [*w.sizes], "text": w.text}
        insert_shared(self._connection, "workload", whole)
        renew = "UPDATE workload SET family = ?, sizes = ? WHERE key = ? AND family != ?"
        values = w.family, json.dumps(w.sizes), w.key, w.family
        self._connection.execute(renew, values)
        said = {"line": line, "processor": machine.processor}
        insert_shared(self._connection, "machine", said)
        insert_shared(
            self._connection, "build", {"key": b.key, "version": b.version, "llvm": b.llvm}
        )
        return {"workload": w.key, "machine": line, "threads": threads, "build": b.key}

    def _point(self, text: str) -> dict[str, Plain]:
        """A point that was kept."""
        try:
            return json.loads(text)
        except ValueError as fault:
            raise damage("cannot read a point", self.path, str(fault)) from fault

    def _read(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        with self._lock, told("cannot read the records of tuning", self.path):
            return self._connection.execute(query, values).fetchall()

    @contextlib.contextmanager
    def _transaction(self, what: str) -> Iterator[None]:
        """All that the block writes, or nothing, however it ends."""
        with self._lock, told(what, self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # it may be undone already
                    self._connection.execute("ROLLBACK")
                raise


def _as_recorded(kind: str, fields: Record) -> Record:
    """The fields, if they can be recorded. Raises RecordsFault."""
    try:
        return record_text.checked(kind, fields)
    except ValueError as fault:
        raise RecordsFault(f"cannot record a {kind}", str(fault)) from fault


def _time(made_at: int | None) -> int:
    return int(time.time()) if made_at is None else made_at


def _distance(sizes: Sequence[int], others: Sequence[int]) -> float:
    """The sum of |log2| of their ratios; open ones are 0."""
    if len(sizes) != len(others):
        return math.inf
    pairs = zip(sizes, others, strict=True)
    return sum(abs(math.log2(max(a, 1) / max(b, 1))) for a, b in pairs)
