"""The documentation is true: every block of it runs and prints what it shows."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import FENCE, alike, blocks, in_console, run_page
from tests.docs.stand_ins import STAND_INS

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
RUNNING = [p for p in PAGES if blocks(p.read_text())]


def told(path: Path) -> str:
    """A page as tests call it."""
    return path.relative_to(ROOT).as_posix()


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """No knobs of the user's, an empty cache, a folder of one's own."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TILEWRIGHT_DUMP", raising=False)
    (tmp_path / "page").mkdir()
    monkeypatch.chdir(tmp_path / "page")


@pytest.fixture
def shell(tmp_path):
    """A function that runs commands with this tree's `tilewright`; gives what they print. What is
    measured for seconds is measured shortly: no page shows those numbers as facts."""
    commands = tmp_path / "bin"
    commands.mkdir()
    shortly = 'if [ "$1" = bench ]; then shift; set -- bench --seconds 0.1 "$@"; fi\n'
    for name, module, first in (("tilewright", "-m tilewright", shortly), ("python", "", "")):
        script = f'#!/bin/sh\n{first}exec "{sys.executable}" {module} "$@"\n'
        (commands / name).write_text(script)
        (commands / name).chmod(0o755)
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}", "PYTHONPATH": paths}

    def run(text: str) -> str:
        done = subprocess.run(["sh", "-ec", text], env=env, capture_output=True, text=True)
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


@pytest.mark.parametrize("path", RUNNING, ids=told)
def test_outputs(path, request, shell, monkeypatch):
    monkeypatch.setattr(logging.root, "handlers", [])  # pytest's, or those of another page
    for name in (None, "tilewright", "tilewright.compile", "tilewright.torch"):
        monkeypatch.setattr(logging.getLogger(name), "level", logging.getLogger(name).level)
    stand_in = STAND_INS.get(told(path))
    names = stand_in(monkeypatch) if stand_in else {}
    found = run_page(path, names, shell)
    if request.config.getoption("--update-golden"):
        path.write_text(found)
    assert found == path.read_text()


def test_pages_of_stand_ins_are_there():
    assert STAND_INS.keys() <= {told(p) for p in RUNNING}


@pytest.mark.parametrize("path", PAGES, ids=told)
def test_links_lead_somewhere(path):
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", FENCE.sub("", path.read_text())):
        assert "://" in link or (path.parent / link).exists(), link


@pytest.fixture
def page(tmp_path):
    """A function that writes a page, runs it, and gives how it should read."""

    def run(text: str, shell: Any = None) -> str:
        path = tmp_path / "page.md"
        path.write_text(text)
        return run_page(path, shell=shell)

    return run


def test_what_a_block_prints_is_shown_below_it(page):
    assert page("```python\nprint(1)\n```\n\n```text\n2\n```\n").endswith("```text\n1\n```\n")
    with pytest.raises(AssertionError, match="nothing shows this"):
        page("```python\nprint(1)\n```\n")
    with pytest.raises(AssertionError, match="shows what nothing prints"):
        page("```python\n1\n```\n\n```text\n1\n```\n")


def test_marks(page):
    kept = "<!-- not run: it would end this test -->\n```python\nraise SystemExit\n```\n"
    assert page(kept) == kept
    absent = "<!-- needs: no-such-program -->\n```sh\nno-such-program\n```\n"
    assert page(absent, shell=lambda _: 1 / 0) == absent
    varies = "```python\nprint('12.5 us')\n```\n\n<!-- numbers vary -->\n```text\n3.1 us\n```\n"
    assert page(varies) == varies
    assert "12.5 us" in page(varies.replace("3.1 us", "3.1 ms"))
    for wrong in ("not run", "not run: ", "runs sometimes"):
        with pytest.raises(AssertionError, match=r"page\.md"):
            page(f"<!-- {wrong} -->\n```python\n1\n```\n")


def test_consoles():
    assert in_console("$ a\nold\n$ b\n", lambda line: f"new {line}") == "$ a\nnew a\n$ b\n"
    assert in_console("$ a \\\n  b\n", lambda line: "c") == "$ a \\\n  b\n"


def test_numbers_are_compared_by_where_they_stand():
    assert alike("a   1.5  2", "a 10,000 3")
    assert not alike("a 1 b", "a b")
    assert not alike("conv 1", "pool 1")
