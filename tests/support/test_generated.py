"""Generated text is compiled once, and again when it is another text."""

from __future__ import annotations

import sys
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import pytest

from tilewright.support import generated
from tilewright.support.generated import compiled


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file of a module whose bytecode Python would keep beside it."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    return str(tmp_path / "module.py")


def result(text: str, module: str) -> Any:
    scope: dict[str, Any] = {}
    exec(compiled(text, "Name", module), scope)
    return scope["x"]


def unused(*_: object, **__: object) -> None:
    raise AssertionError("it was compiled again")


def test_the_second_process_does_not_compile(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert result("x = 41 + 1", module) == 42
    monkeypatch.setattr(generated._Text, "source_to_code", unused)  # pyright: ignore[reportPrivateUsage]
    assert result("x = 41 + 1", module) == 42


def test_another_text_of_the_same_length_is_another_code(module: str) -> None:
    assert [result(f"x = 41 + {n}", module) for n in (1, 2, 1)] == [42, 43, 42]


def test_it_lies_where_python_keeps_bytecode(module: str, tmp_path: Path) -> None:
    compiled("x = 1", "Name", module)
    assert [str(p) for p in tmp_path.rglob("*.pyc")] == [
        cache_from_source(str(tmp_path / "module.Name.py"))
    ]


def test_nothing_is_written_where_python_must_not(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert result("x = 1", module) == 1
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert result("x = 3", str(tmp_path / "file" / "module.py")) == 3
