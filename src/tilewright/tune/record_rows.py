"""Records as rows: how the kinds of records go into a database's tables and come out of them.

In: a connection and the fields of records (`record_text.FIELDS`). Out: rows, and the fields again.
The one idea: a record names what it belongs to by keys, a row by numbers, so that a machine's line
or a function's text is kept once.
"""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Iterable, Iterator
from typing import Any

from tilewright.tune.record_text import FIELDS, Record
from tilewright.tune.records import point_text
from tilewright.tune.workload import digest

_OWNERS = """
    JOIN workload ON workload.id = {0}.workload JOIN machine ON machine.id = {0}.machine
    JOIN build ON build.id = {0}.build
"""
CHAMPIONS = "FROM champion" + _OWNERS.format("champion")
TRIALS = "FROM trial" + _OWNERS.format("trial")
_QUERIES = {  # columns in the order of the fields
    "workload": "SELECT key, family, sizes, text FROM workload",
    "machine": "SELECT line, line, processor FROM machine",
    "build": "SELECT key, version, llvm FROM build",
    "trial": f"""SELECT workload.key, line, threads, build.key, point, made_at, samples, status,
        compile_seconds, sentinel {TRIALS}""",
    "champion": f"""SELECT workload.key, line, threads, build.key, point, made_at, seconds, ratio,
        low, high, verified {CHAMPIONS}""",
}
_SHARED = {  # what many trials are of; known ones stay
    "workload": "INSERT OR IGNORE INTO workload (key, family, sizes, text) VALUES (?, ?, ?, ?)",
    "machine": "INSERT OR IGNORE INTO machine (line, processor) VALUES (?, ?)",
    "build": "INSERT OR IGNORE INTO build (key, version, llvm) VALUES (?, ?, ?)",
}
_TRIAL = """
    INSERT OR IGNORE INTO trial (digest, workload, machine, threads, build, point, made_at, samples,
    status, compile_seconds, sentinel) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_CHAMPION = """
    INSERT INTO champion (workload, machine, threads, build, point, made_at, seconds, ratio, low,
    high, verified) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET point = excluded.point, made_at = excluded.made_at,
    seconds = excluded.seconds, ratio = excluded.ratio, low = excluded.low, high = excluded.high,
    verified = excluded.verified
"""
_IF_BETTER = """
    WHERE (excluded.verified, excluded.made_at, excluded.point, excluded.seconds)
    > (champion.verified, champion.made_at, champion.point, champion.seconds)
"""


def records(connection: sqlite3.Connection, kinds: Iterable[str]) -> Iterator[tuple[str, Record]]:
    """All records of these kinds, as they are at one moment. Raises ValueError for rows that this
    module did not write."""
    connection.execute("BEGIN")
    try:
        for kind in kinds:
            for row in connection.execute(_QUERIES[kind]):
                try:
                    yield kind, _fields(kind, row)
                except (TypeError, AttributeError, RecursionError, struct.error) as fault:
                    raise ValueError(f"a record of kind '{kind}' is damaged ({fault})") from fault
    finally:
        connection.execute("ROLLBACK")  # nothing was written


def _fields(kind: str, row: tuple[Any, ...]) -> Record:
    made: Record = dict(zip(FIELDS[kind], row, strict=True))
    if kind == "machine":
        made["key"] = digest(made["line"])
    if kind == "workload":
        made["sizes"] = json.loads(made["sizes"])
    if "point" in made:
        made["machine"] = digest(made["machine"])
        made["point"] = json.loads(made["point"])
    if kind == "trial":
        made["samples"] = [*samples(made["samples"])]
    if kind == "champion":
        made["verified"] = bool(made["verified"])
    return made


def samples(blob: bytes) -> tuple[float, ...]:
    """Raw samples, seconds."""
    return struct.unpack(f"<{len(blob) // 8}d", blob)


def insert_shared(connection: sqlite3.Connection, kind: str, f: Record) -> None:
    """Insert what trials are of, unless it is there: a workload, machine or build."""
    if kind == "workload":
        row = f["key"], f["family"], json.dumps(f["sizes"]), f["text"]
    else:
        row = tuple(f[name] for name in FIELDS[kind] if (kind, name) != ("machine", "key"))
    connection.execute(_SHARED[kind], row)


def insert_trial(connection: sqlite3.Connection, f: Record) -> int:
    """Insert a trial, whose machine is told by its line, unless the very same is there; how many
    are new by that."""
    blob = struct.pack(f"<{len(f['samples'])}d", *f["samples"])
    sentinel = None if f["sentinel"] is None else float(f["sentinel"])
    rest = f["made_at"], blob, f["status"], float(f["compile_seconds"]), sentinel
    point = point_text(f["point"])
    whole = f["workload"], f["machine"], f["threads"], f["build"], point, *rest
    row = digest(repr(whole)), *_owner(connection, f), point, *rest
    return connection.execute(_TRIAL, row).rowcount


def insert_champion(connection: sqlite3.Connection, f: Record, *, always: bool) -> int:
    """Insert a champion, likewise; in the place of another one always, or if it is verified and
    that is not, or it is the newer one. How many are new by that."""
    rest = f["seconds"], f["ratio"], f["low"], f["high"], int(f["verified"])
    row = *_owner(connection, f), point_text(f["point"]), f["made_at"], *rest
    return connection.execute(_CHAMPION + ("" if always else _IF_BETTER), row).rowcount


def _owner(connection: sqlite3.Connection, f: Record) -> tuple[int, int, int, int]:
    """The numbers of what a record belongs to. Raises ValueError for what is not there."""
    found: list[int] = []
    for table, name in (("workload", "key"), ("machine", "line"), ("build", "key")):
        query = f"SELECT id FROM {table} WHERE {name} = ?"
        row = connection.execute(query, (f[table],)).fetchone()
        if row is None:
            raise ValueError(f"a record is of a {table} that is not there")
        found.append(row[0])
    return found[0], found[1], f["threads"], found[2]
