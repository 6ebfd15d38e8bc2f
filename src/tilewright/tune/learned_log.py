"""Learned log: which tables of learned schedules were tried, and which one counts now.

In: challengers and what was found of them. Out: the table that counts, and a way back. The one
idea: a line is added for each decision and none is ever changed, so that what counts now follows
from the lines, and going back is one more of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tilewright.strategy.learned import Table, row_of
from tilewright.support.record import record
from tilewright.tune.distil import Challenger
from tilewright.tune.records import RecordsFault

FORMAT, VERSION = "tilewright learned schedules, log", 1
ACCEPTED, REFUSED, BACK = "accepted", "refused", "rolled back"


@record
class Entry:
    """A line. at: seconds since 1970 UTC; decided: ACCEPTED, REFUSED or BACK; table: that was; why:
    a sentence for each family; build: by whose times."""

    at: int
    decided: str
    table: Table
    why: tuple[str, ...] = ()
    build: str = ""


def beside(database: Path) -> Path:
    """Where the log of a database of tuning is."""
    return database.with_name(f"{database.stem}.learned.jsonl")


class Log:
    """The log in a file, which is made by the first line. Raises RecordsFault, in all methods:
    the file is none, or cannot be read or written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self) -> list[Entry]:
        """All lines, in order."""
        return [*self._read()]

    @property
    def table(self) -> Table:
        """The table that counts now."""
        return self._standing()[-1]

    def _standing(self) -> list[Table]:
        """The tables that counted, the one that does now last, without those that were taken
        back."""
        found = [Table()]
        for entry in self._read():
            if entry.decided == ACCEPTED:
                found.append(entry.table)
            elif entry.decided == BACK and len(found) > 1:
                found.pop()
        return found

    def judge(self, made: Challenger, build: str) -> Entry:
        """Note a challenger, which counts from now on if any of it was accepted."""
        decided = ACCEPTED if made.is_accepted else REFUSED
        return self._add(Entry(_now(), decided, made.table, tuple(map(str, made.judged)), build))

    def roll_back(self) -> Entry:
        """Let the table count that did before the last one that was accepted. Raises RecordsFault
        where there is none."""
        standing = self._standing()
        if len(standing) < 2:
            raise RecordsFault(
                f"cannot roll back the learned schedules in '{self.path}'",
                "no table was accepted that is not taken back",
            )
        return self._add(Entry(_now(), BACK, standing[-2]))

    def _add(self, entry: Entry) -> Entry:
        told = {
            "at": entry.at, "decided": entry.decided, "build": entry.build, "why": [*entry.why],
            "rows": [row.fields() for row in entry.table],
        }  # fmt: skip
        head = "" if self.path.exists() else json.dumps({"format": FORMAT, "version": VERSION})
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(f"{head}\n" * bool(head) + json.dumps(told, ensure_ascii=False) + "\n")
        except OSError as fault:
            why = fault.strerror or str(fault)
            raise RecordsFault(f"cannot write '{self.path}'", why) from fault
        return entry

    def _read(self) -> Iterator[Entry]:
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as fault:
            raise self._fault(str(fault)) from fault
        try:
            head, *told = [json.loads(line) for line in lines]
            if head != {"format": FORMAT, "version": VERSION}:
                raise ValueError("its first line does not say that it is such a log")
            yield from map(_entry, told)
        except ValueError as fault:
            raise self._fault(str(fault)) from fault

    def _fault(self, why: str) -> RecordsFault:
        return RecordsFault(
            f"cannot read the learned schedules in '{self.path}'",
            why,
            remedy="remove the file, and distil the records again (tilewright records --distil)",
        )


def _entry(told: Any) -> Entry:
    try:
        rows = Table(map(row_of, told["rows"]))
        return Entry(told["at"], told["decided"], rows, tuple(told["why"]), told["build"])
    except (KeyError, TypeError) as fault:
        raise ValueError(f"a line is no decision ({fault})") from fault


def _now() -> int:
    return int(time.time())
