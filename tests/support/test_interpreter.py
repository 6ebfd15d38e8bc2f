"""Other interpreters: what they find, wherever they are started."""

from __future__ import annotations

import importlib.abc
import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

import tilewright
from tilewright.support.interpreter import folders, isolated

SHADOWED = "numpy ml_dtypes llvmlite tilewright pickle struct random typing site sitecustomize"


@pytest.fixture
def poisoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory full of modules that have the names of others."""
    for name in SHADOWED.split():
        (tmp_path / f"{name}.py").write_text(f"open('ran', 'a').write('{name} ')")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_working_directory_is_not_searched(poisoned, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(poisoned))
    monkeypatch.setenv("PYTHONSTARTUP", str(poisoned / "numpy.py"))
    code = "import pickle, random, numpy, ml_dtypes, llvmlite, tilewright as t; print(t.__file__)"
    found = output(isolated(code, ["tilewright", "numpy", "ml_dtypes", "llvmlite"]))
    assert found == tilewright.__file__
    assert not (poisoned / "ran").exists()


def test_packages_of_any_origin_are_found(tmp_path, monkeypatch):
    """On the path, and by a finder such as that of an editable install."""
    for name, version in (("first", 1), ("hooked", 2)):
        (tmp_path / "it's in \\ here" / name).mkdir(parents=True)
        (tmp_path / "it's in \\ here" / name / "__init__.py").write_text(f"version = {version}")

    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path, target=None):
            if name != "hooked":
                return None
            file = tmp_path / "it's in \\ here" / name / "__init__.py"
            return importlib.util.spec_from_file_location(name, file)

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    code = "import hooked, numpy; print(hooked.version, numpy.__file__, sys.argv[1:])"
    found = output([*isolated(code, ["hooked", "numpy", "nowhere_to_be_found"]), "a", "-b"])
    assert found == f"2 {numpy.__file__} ['a', '-b']"


def test_folders_keep_the_order_of_the_path(tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name / name).mkdir(parents=True)
        (tmp_path / name / name / "__init__.py").touch()
    (tmp_path / "single.py").touch()
    paths = [str(tmp_path / "two"), str(tmp_path / "one"), str(tmp_path)]
    monkeypatch.setattr(sys, "path", [*paths, *sys.path])
    assert folders(["single", "one", "two", "one"]) == paths


def test_bytecode_is_written_as_here(monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "pycache_prefix", "/elsewhere")
    code = "print(sys.dont_write_bytecode, sys.pycache_prefix)"
    assert output(isolated(code, [])) == "True /elsewhere"
