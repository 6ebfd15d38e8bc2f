"""The file of a database: opened, told from others, made where there is none.

In: a path. Out: a connection to a file of this schema. The one idea: nothing that is not surely
ours is written to or moved: what another program, or a later version of this one, keeps there is
refused, and what is damaged is moved aside only if the caller asks to go on without it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from tilewright.tune.records import RecordsFault

VERSION = 1  # of the schema
APPLICATION = 0x74775475  # in a file's header: it is one of ours
PATIENCE = 30.0  # seconds that a process waits for others that write
MAGIC = b"SQLite format 3\0"

SCHEMA = (
    """CREATE TABLE workload (
        id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, family TEXT NOT NULL,
        sizes TEXT NOT NULL, text TEXT NOT NULL)""",
    "CREATE INDEX workload_family ON workload (family)",
    """CREATE TABLE machine (
        id INTEGER PRIMARY KEY, line TEXT NOT NULL UNIQUE, processor TEXT NOT NULL)""",
    """CREATE TABLE build (
        id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, version TEXT NOT NULL,
        llvm TEXT NOT NULL)""",
    """CREATE TABLE trial (
        id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE,
        workload INTEGER NOT NULL REFERENCES workload, machine INTEGER NOT NULL REFERENCES machine,
        threads INTEGER NOT NULL, build INTEGER NOT NULL REFERENCES build, point TEXT NOT NULL,
        samples BLOB NOT NULL, status TEXT NOT NULL, compile_seconds REAL NOT NULL,
        made_at INTEGER NOT NULL, sentinel REAL)""",
    "CREATE INDEX trial_of ON trial (workload, machine, threads, build)",
    """CREATE TABLE champion (
        workload INTEGER NOT NULL REFERENCES workload, machine INTEGER NOT NULL REFERENCES machine,
        threads INTEGER NOT NULL, build INTEGER NOT NULL REFERENCES build, point TEXT NOT NULL,
        seconds REAL NOT NULL, ratio REAL NOT NULL, low REAL NOT NULL, high REAL NOT NULL,
        verified INTEGER NOT NULL, made_at INTEGER NOT NULL,
        PRIMARY KEY (workload, machine, threads, build)) WITHOUT ROWID""",
)
TABLES = {"workload", "machine", "build", "trial", "champion"}


class Damaged(RecordsFault):
    """A database's file is damaged."""


@contextlib.contextmanager
def told(what: str, path: Path) -> Iterator[None]:
    """What SQLite and the system refuse in the block, in our words: RecordsFault."""
    try:
        yield
    except (sqlite3.Error, OSError) as fault:
        why = str(fault)
        if "full" in why:
            remedy = "make room on the disk; nothing of it was recorded, what was there still is"
        elif "readonly" in why or isinstance(fault, PermissionError):
            remedy = "allow writing to the file and its folder, or name another"
        elif "locked" in why:
            remedy = f"another process has been writing for {PATIENCE:.0f} s; try again"
        elif isinstance(fault, sqlite3.DatabaseError) and _is_damage(fault):
            raise damage(what, path, why) from fault
        else:
            remedy = ""
        raise RecordsFault(what, f"{path}: {why}", remedy=remedy) from fault


def _is_damage(fault: sqlite3.DatabaseError) -> bool:
    words = ("malformed", "not a database", "no such table", "no such column")
    return any(word in str(fault) for word in words)


def damage(what: str, path: Path, why: str) -> Damaged:
    """The fault for a damaged file."""
    return Damaged(
        what,
        f"{path} is damaged ({why})",
        remedy="restore it, or open it with set_aside=True, which goes on with an empty one and "
        "keeps this one beside it under the name ….damaged",
    )


def opened(path: Path, *, set_aside: bool = False) -> sqlite3.Connection:
    """A connection to the database; a file that is missing or empty becomes one. set_aside: a
    damaged file is looked for more closely, and moved aside. Raises RecordsFault for one that is
    damaged (`Damaged`), another program's, or of a later version."""
    what = "cannot open the records of tuning"
    try:
        with told(what, path):
            path.parent.mkdir(parents=True, exist_ok=True)
            return _connected(path, what, thorough=set_aside)
    except Damaged:
        if not set_aside:
            raise
    with told(what, path):
        move_aside(path)
        return _connected(path, what, thorough=False)


def opened_to_read(path: Path) -> sqlite3.Connection:
    """A connection that never writes, to a database that is there."""
    what = "cannot read the records of tuning"
    with told(what, path):
        return _checked(_reader(path), path, what)


def move_aside(path: Path) -> Path:
    """Give a database's file, and that of what was not yet written back, names of their own."""
    count, kept = 0, path.with_name(f"{path.name}.damaged")
    while kept.exists():
        count += 1
        kept = path.with_name(f"{path.name}.damaged_{count}")
    for ending in ("", "-wal"):
        with contextlib.suppress(FileNotFoundError):
            os.replace(f"{path}{ending}", f"{kept}{ending}")
    Path(f"{path}-shm").unlink(missing_ok=True)  # an index of the latter
    return kept


def _connected(path: Path, what: str, *, thorough: bool) -> sqlite3.Connection:
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        head = file.read(len(MAGIC))
        if head and head != MAGIC:
            raise damage(what, path, "it does not begin as a database does")
    connection = _connection(str(path))
    try:
        if _is_new(connection):
            _make(connection)
    except BaseException as fault:
        connection.close()
        if not isinstance(fault, sqlite3.OperationalError) or os.access(path.parent, os.W_OK):
            raise
        connection = _reader(path)
    return _checked(connection, path, what, thorough)


def _reader(path: Path) -> sqlite3.Connection:
    """A connection that does not write, not even a lock where nobody may write to the folder."""
    for how in ("mode=ro", "immutable=1"):
        connection = _connection(f"{path.resolve().as_uri()}?{how}", uri=True)
        try:
            _tables(connection)
            break
        except BaseException as fault:
            connection.close()
            is_last = how == "immutable=1" or os.access(path.parent, os.W_OK)
            if is_last or not isinstance(fault, sqlite3.OperationalError):
                raise
    return connection


def _connection(name: str, *, uri: bool = False) -> sqlite3.Connection:
    return sqlite3.connect(
        name, timeout=PATIENCE, isolation_level=None, check_same_thread=False, uri=uri
    )


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def _is_new(connection: sqlite3.Connection) -> bool:
    marked = _pragma(connection, "application_id"), _pragma(connection, "user_version")
    return marked == (0, 0) and not _tables(connection)


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}


def _make(connection: sqlite3.Connection) -> None:
    """Make the tables, unless another process just did."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as fault:  # for this one SQLite itself does not wait
            if "locked" not in str(fault) or time.monotonic() > end:
                raise
            time.sleep(0.01)
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _is_new(connection):
            for statement in SCHEMA:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _checked(
    connection: sqlite3.Connection, path: Path, what: str, thorough: bool = False
) -> sqlite3.Connection:
    """The connection, if it is to a database of ours, of this version and with all tables."""
    try:
        if _pragma(connection, "application_id") != APPLICATION:
            why = f"{path} is a database of another program"
            raise RecordsFault(what, why, remedy="name another file; this one was left as it is")
        if (version := _pragma(connection, "user_version")) > VERSION:
            why = f"{path} is of version {version}, and this Tilewright knows {VERSION}"
            raise RecordsFault(what, why, remedy="upgrade Tilewright, or name another file")
        if missing := TABLES - _tables(connection):
            raise damage(what, path, f"it has no table '{min(missing)}'")
        if thorough:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise damage(what, path, found)
        connection.execute("PRAGMA synchronous = NORMAL")  # a power cut takes the last at most
    except BaseException:
        connection.close()
        raise
    return connection
