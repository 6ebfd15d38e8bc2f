"""The digest of loaded code: what changes it, what does not, what it cannot see into."""

from __future__ import annotations

import functools
import importlib
import shutil
import sys
import threading
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.support.loaded_code import code_digest

BASE = """
import functools, math
import numpy as np
import helpers
from helpers import shift

TABLE = np.arange(4.0)
SETTINGS = {"scale": 2, "names": ["a", "b"]}

class Scaler:
    factor = 3

    def __call__(self, x):
        return x * self.factor

scaler = Scaler()

def inner(x):
    return x * SETTINGS["scale"] + TABLE[0]

@functools.lru_cache
def kept(x):
    return x + 1

def main(x, *, by=1.5):
    def nested(y):
        return helpers.deep(y) + math.sin(y)
    return scaler(inner(shift(nested(kept(x))))) * by
"""
HELPERS = """
LIMIT = 7

def deep(y):
    return min(y, LIMIT)

def shift(y):
    return y + 1

def unused(y):
    return y - 1
"""


Patch = pytest.MonkeyPatch


def digest(monkeypatch: Patch, base: str = BASE, helpers: str = HELPERS) -> str | None:
    """That of `main`, loaded anew from these texts."""
    for name, text in (("helpers", helpers), ("plugin", base)):
        module = types.ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(text, f"{name}.py", "exec"), module.__dict__)
    return code_digest([module.main])


def test_the_same_text_has_one_digest(monkeypatch: Patch) -> None:
    assert digest(monkeypatch) == digest(monkeypatch) is not None
    assert digest(monkeypatch, f"# said in a comment\n{BASE}") == digest(monkeypatch)
    assert digest(monkeypatch, helpers=HELPERS.replace("y - 1", "y - 2")) == digest(monkeypatch)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("* by", "/ by"),
        ("by=1.5", "by=2.5"),
        ('"scale": 2', '"scale": 3'),
        ("arange(4.0)", "arange(5.0)"),
        ("factor = 3", "factor = 4"),
        ("x * self.factor", "x + self.factor"),
        ("return x + 1", "return x + 2"),
        ("math.sin", "math.cos"),
        ('["a", "b"]', '["a", "c"]'),
        ("scaler = Scaler()", "scaler = Scaler(); scaler.factor = 9"),
    ],
)
def test_whatever_is_reached_changes_it(monkeypatch: Patch, old: str, new: str) -> None:
    assert old in BASE
    assert digest(monkeypatch, BASE.replace(old, new)) != digest(monkeypatch)


@pytest.mark.parametrize(("old", "new"), [("LIMIT = 7", "LIMIT = 8"), ("y + 1", "y + 2")])
def test_other_modules_count(monkeypatch: Patch, old: str, new: str) -> None:
    assert digest(monkeypatch, helpers=HELPERS.replace(old, new)) != digest(monkeypatch)


INSIDE = BASE.replace(
    "        return helpers", "        import random, later\n        return later.late(y) + helpers"
)


def test_what_functions_import_counts(monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    found: list[str | None] = []
    for text in ("+ 1", "+ 1", "+ 2"):
        monkeypatch.delitem(sys.modules, "later", raising=False)
        monkeypatch.delitem(sys.modules, "random", raising=False)  # loaded or not: one digest
        (tmp_path / "later.py").write_text(f"def late(y):\n    return y {text}\n")
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        found.append(digest(monkeypatch, INSIDE))
        importlib.import_module("random")
    assert found[0] == found[1] != found[2] and None not in found


def closed(value: Any) -> Any:
    return lambda x: (x, value)


def test_closures_and_partials() -> None:
    assert code_digest([closed(1)]) == code_digest([closed(1)]) != code_digest([closed(2)])
    assert code_digest([closed(np.ones(2))]) != code_digest([closed(np.zeros(2))])
    assert code_digest([closed(closed(1))]) != code_digest([closed(closed(2))])
    one, two = (functools.partial(closed, n) for n in (1, 2))
    assert code_digest([one]) != code_digest([two])
    assert code_digest([closed(0.0)]) != code_digest([closed(-0.0)])
    assert code_digest([closed(1)]) != code_digest([closed(True)])


def test_circles_end() -> None:
    def ping(n: int) -> int:
        return pong(n - 1) if n else 0

    def pong(n: int) -> int:
        return ping(n - 1) if n else 1

    circle: list[Any] = [ping]
    circle.append(circle)
    assert code_digest([closed(circle)]) is not None


def test_what_cannot_be_seen_into_has_none() -> None:
    assert code_digest([closed(threading.Lock())]) is None
