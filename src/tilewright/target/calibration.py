"""Calibration: what was found out about this very machine, kept in the user's cache folder.

In: a machine's line (without its costs and cores), and constants by name. Out: the constants kept
for that line, or None. The one idea: a file says for which machine, and by which version of the
calibration, it was made; one that is damaged or for another machine is as good as none, and that is
said.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.support import knobs
from tilewright.support.cache import Cache, make_key
from tilewright.target.costs import COMMON, changed

VERSION = 2  # of the calibration: what another one found says nothing here


class CalibrationWarning(UserWarning):
    """What was calibrated of this machine cannot be used."""


def path_of(line: str) -> Path:
    """The file for that machine."""
    return _kept().path(_key(line))


def fetch(line: str) -> dict[str, float] | None:
    """The constants calibrated of that machine; None, with a warning, if they are not what `keep`
    wrote."""
    data = _kept().fetch(_key(line), Path.read_bytes)
    if data is None:
        return None
    try:
        return _constants(json.loads(data), line)
    except (ValueError, RecursionError) as fault:
        warnings.warn(
            f"{path_of(line)} is ignored: {fault}. `tilewright machine --calibrate` writes it anew",
            CalibrationWarning,
            stacklevel=2,
        )
        return None


def keep(line: str, found: Mapping[str, float]) -> Path | None:
    """Keep the constants of that machine; None if the folder takes no files."""
    text = json.dumps({"version": VERSION, "machine": line, "costs": dict(found)}, indent=1)
    return _kept().store(_key(line), lambda file: file.write(text.encode() + b"\n"))


def forget(line: str) -> None:
    """Let that machine be one that nobody calibrated."""
    with contextlib.suppress(OSError):
        path_of(line).unlink()


def _constants(kept: Any, line: str) -> dict[str, float]:
    """What a file holds. Raises ValueError that says what is wrong with it."""
    if not isinstance(kept, dict) or not isinstance(found := kept.get("costs"), dict):
        raise ValueError("it holds no constants")
    if (kept.get("version"), kept.get("machine")) != (VERSION, line):
        raise ValueError("it was made for another machine")
    changed(COMMON, found)
    return found


def _key(line: str) -> str:
    return make_key("costs", VERSION, line)


def _kept() -> Cache:
    return Cache(knobs.machine_folder())
