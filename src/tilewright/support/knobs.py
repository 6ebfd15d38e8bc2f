"""The environment variables that Tilewright reads: one table, and nothing reads another.

In: the process environment, at the time of asking. Out: typed values. `tilewright knobs` prints the
table.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from tilewright.support.errors import UserFault
from tilewright.support.record import record

T = TypeVar("T")


@record
class Knob(Generic[T]):
    """One variable: `read()` gives its value, or the default where it is unset or empty."""

    name: str
    parse: Callable[[str], T]
    default: T
    values: str  # what may be written
    help: str

    def read(self) -> T:
        """The current value. Raises UserFault when the variable holds something else."""
        text = os.environ.get(self.name, "").strip()
        if not text:
            return self.default
        try:
            return self.parse(text)
        except ValueError as fault:
            raise UserFault(
                f"cannot read the knob {self.name}={text}",
                str(fault) or f"expected {self.values}",
                remedy=f"unset it, or set it to {self.values}",
            ) from fault


def _flag(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _print_spec(text: str) -> tuple[str, str]:
    when, colon, name = text.partition(":")
    if when not in ("before", "after") or not colon or not name:
        raise ValueError
    return when, name


def _default_cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(root) if os.path.isabs(root) else Path.home() / ".cache") / "tilewright"


DUMP: Knob[Path | None] = Knob(
    "TILEWRIGHT_DUMP", _path, None, "a folder", "write each stage of a compilation as a text file"
)
PRINT: Knob[tuple[str, str] | None] = Knob(
    "TILEWRIGHT_PRINT",
    _print_spec,
    None,
    "before:PASS or after:PASS",
    "print programs before or after a pass; PASS may be * for all",
)
TIME = Knob("TILEWRIGHT_TIME", _flag, False, "0 or 1", "print what each stage and pass takes")
VERIFY = Knob("TILEWRIGHT_VERIFY", _flag, False, "0 or 1", "verify the program after every pass")
DIFF = Knob("TILEWRIGHT_DIFF", _flag, False, "0 or 1", "print what each pass changed")
THREADS: Knob[int | None] = Knob(
    "TILEWRIGHT_THREADS", _count, None, "1 or more", "threads of a model, unless the caller says"
)
CACHE_DIR: Knob[Path | None] = Knob(
    "TILEWRIGHT_CACHE_DIR", _path, None, "a folder", "where compiled models and kernels are kept"
)
CACHE_MB = Knob(
    "TILEWRIGHT_CACHE_MB",
    _count,
    4096,
    "1 or more",
    "size of that folder's models at most; kernels take up to an eighth of it beside them",
)
DATABASE: Knob[Path | None] = Knob(
    "TILEWRIGHT_DATABASE", _path, None, "a file", "where tuning records what it finds"
)
CHECK_INDICES = Knob(
    "TILEWRIGHT_CHECK_INDICES",
    _flag,
    True,
    "0 or 1",
    "compile checks that indices lie in what they index; without, those outside take the nearest",
)
WINOGRAD = Knob(
    "TILEWRIGHT_WINOGRAD",
    _flag,
    True,
    "0 or 1",
    "let 3x3 convolutions be Winograd's, where the caller does not say",
)

ALL: tuple[Knob[Any], ...] = (
    DUMP,
    PRINT,
    TIME,
    VERIFY,
    DIFF,
    THREADS,
    CACHE_DIR,
    CACHE_MB,
    DATABASE,
    CHECK_INDICES,
    WINOGRAD,
)


def cache_folder() -> Path:
    """Where the cache lives: `TILEWRIGHT_CACHE_DIR`, else the user's cache folder (XDG)."""
    return CACHE_DIR.read() or _default_cache()


def kernel_folder() -> Path:
    """Where the kernels of models are kept: a folder of the cache's."""
    return cache_folder() / "kernels"


def machine_folder() -> Path:
    """Where what was calibrated of machines is kept: a folder of the cache's."""
    return cache_folder() / "machines"


def database_file() -> Path:
    """The user's records of tuning: `TILEWRIGHT_DATABASE`, else a file in the cache's folder."""
    return DATABASE.read() or cache_folder() / "tuning" / "records.db"
