"""docs/deploy_in_c.md is true: its programs are built as it says and print what it shows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import FENCE
from tests.runtime.c_programs import needs

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/deploy_in_c.md"


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """A function that runs commands in a folder of their own, with this tree's `tilewright`."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    commands = tmp_path / "bin"
    commands.mkdir()
    script = f'#!/bin/sh\nexec "{sys.executable}" -m tilewright "$@"\n'
    (commands / "tilewright").write_text(script)
    (commands / "tilewright").chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{commands}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
    }

    def run(text: str) -> str:
        done = subprocess.run(["sh", "-ec", text], env=env, capture_output=True, text=True)
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


@needs("cc", "cmake", "make", "pkg-config")
def test_commands(shell, tmp_path):
    shutil.copy(ROOT / "src/tilewright/driver/demo/digits.onnx", tmp_path)
    shown, printed = 0, ""
    for block in FENCE.finditer(PAGE.read_text()):
        language, body = block[1], block[2]
        if language == "c":
            (tmp_path / body.split(":")[0].removeprefix("/* ")).write_text(body)
        elif language == "cmake":
            (tmp_path / "CMakeLists.txt").write_text(body)
        elif language == "python":
            exec(body, {})
            made = (p for p in (tmp_path / "out").rglob("*") if p.is_file())
            printed = "".join(f"{p.relative_to(tmp_path)}\n" for p in sorted(made))
        elif language == "sh":
            printed = shell(body)
        elif language == "text":
            assert printed.endswith(body)
            shown += 1
    assert shown == 6
