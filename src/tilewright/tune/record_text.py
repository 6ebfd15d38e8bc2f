"""Records as text: a JSON object a line, sorted, so that two exports differ where records do.

In: the records of a database, as dictionaries. Out: lines, and from lines the records again. The
one idea: what comes from a file is checked field by field before any of it is kept, whether the
file is such a text or another database.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tilewright.tune.records import RecordsFault, point_text
from tilewright.tune.workload import digest

FORMAT, VERSION = "tilewright tuning records", 1
LONGEST = 1 << 62  # whole numbers that a database takes are less

Record = dict[str, Any]  # of one kind: its fields


def _is_word(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        return bool(value.encode())
    except UnicodeEncodeError:
        return False


def _is_text(value: Any) -> bool:
    return value == "" or _is_word(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LONGEST


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) < LONGEST and math.isfinite(value)


def _is_number_or_none(value: Any) -> bool:
    return value is None or _is_number(value)


def _is_list_of(of: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(of, value))  # type: ignore[misc]


def _is_point(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    plain = all(v is None or isinstance(v, int | float | str) for v in value.values())  # type: ignore[misc]
    try:
        return plain and bool(point_text(value))  # type: ignore[arg-type]
    except RecordsFault:
        return False


_OWNER: dict[str, Callable[[Any], bool]] = {
    "workload": _is_word, "machine": _is_word, "threads": _is_count, "build": _is_word,
    "point": _is_point, "made_at": _is_count,
}  # fmt: skip
FIELDS: dict[str, dict[str, Callable[[Any], bool]]] = {  # of each kind, in order of their need
    "workload": {
        "key": _is_word, "family": _is_word, "sizes": _is_list_of(_is_count), "text": _is_word,
    },
    "machine": {"key": _is_word, "line": _is_word, "processor": _is_word},
    "build": {"key": _is_word, "version": _is_word, "llvm": _is_text},
    "trial": {
        **_OWNER, "samples": _is_list_of(_is_number), "status": _is_word,
        "compile_seconds": _is_number, "sentinel": _is_number_or_none,
    },
    "champion": {
        **_OWNER, "seconds": _is_number, "ratio": _is_number, "low": _is_number,
        "high": _is_number, "verified": lambda value: isinstance(value, bool),
    },
}  # fmt: skip
KINDS = tuple(FIELDS)
KNOWN_BY = {"workload": "text", "machine": "line"}  # kinds whose key is a digest


def lines(records: Iterable[tuple[str, Record]]) -> Iterator[str]:
    """The records, each a kind and its fields, as lines of text."""
    yield json.dumps({"format": FORMAT, "version": VERSION}) + "\n"
    yield from sorted(
        json.dumps({kind: fields}, sort_keys=True, ensure_ascii=False) + "\n"
        for kind, fields in records
    )


def read(text: Iterable[str]) -> Iterator[tuple[str, Record]]:
    """The records of a text that `lines` wrote. Raises ValueError that says what is wrong."""
    numbered = enumerate(text, 1)
    _, head = next(numbered, (1, ""))
    said = _parsed(head, 1)
    if said.get("format") != FORMAT:
        raise ValueError("its first line does not say that it holds records of tuning")
    if said.get("version") != VERSION:
        raise ValueError(f"it is of version {said.get('version')}; {VERSION} is known here")
    for number, line in numbered:
        if line.strip():
            found = _parsed(line, number)
            if len(found) != 1:
                raise ValueError(f"line {number} is no record")
            ((kind, fields),) = found.items()
            yield kind, _with_number(kind, fields, number)


def _parsed(line: str, number: int) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as fault:
        raise ValueError(f"line {number} is no JSON ({fault})") from fault
    if not isinstance(found, dict):
        raise ValueError(f"line {number} is no record")
    return found  # type: ignore[no-any-return]


def _with_number(kind: str, fields: Any, number: int) -> Record:
    try:
        return checked(kind, fields)
    except ValueError as fault:
        raise ValueError(f"line {number}: {fault}") from fault


def checked(kind: str, fields: Any) -> Record:
    """The fields of a record, all there and as they have to be. Raises ValueError."""
    if kind not in FIELDS or not isinstance(fields, dict):
        raise ValueError(f"'{kind}' is no kind of record")
    of = FIELDS[kind]
    if fields.keys() != of.keys():
        raise ValueError(f"a record of kind '{kind}' has the fields {', '.join(sorted(of))}")
    for name, is_right in of.items():
        if not is_right(fields[name]):
            raise ValueError(f"the {name} of a {kind} cannot be {str(fields[name])[:80]!r}")
    whole = KNOWN_BY.get(kind)
    if whole and fields["key"] != digest(fields[whole]):
        raise ValueError(f"the key of a {kind} is not that of its {whole}")
    return fields  # type: ignore[no-any-return]
