"""The documentation site: built without a warning, whole, and complete without a network."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import tilewright as tw

pytest.importorskip("mkdocs", reason="not installed: pip install '.[docs]'")
pytest.importorskip("material", reason="not installed: pip install '.[docs]'")
pytest.importorskip("mkdocstrings_handlers.python", reason="not installed: pip install '.[docs]'")

ROOT = Path(__file__).parents[2]
FETCHES = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}


class Page(HTMLParser):
    """What a page fetches, and the names that links may lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.fetched.append(given.get(FETCHES.get(tag, "")) or "")
        self.anchors.add(given.get("id") or "")


def build(root: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of the `mkdocs.yml` in a folder."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stderr
    assert not re.search(r"^(WARNING|ERROR)", done.stderr, re.MULTILINE), done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {p.relative_to(site).as_posix(): Page(p.read_text()) for p in site.rglob("*.html")}


def test_every_page_is_there(pages):
    docs = ROOT / "docs"
    written = {p.relative_to(docs).with_suffix(".html").as_posix() for p in docs.rglob("*.md")}
    assert written <= pages.keys()
    assert "decisions/index.html" in pages
    assert "source/src/tilewright/ir/expr.py.html" in pages


def test_nothing_is_fetched_from_elsewhere(site, pages):
    for name, page in pages.items():
        assert not [f for f in page.fetched if re.match(r"(https?:)?//", f)], name
    for style in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import\s*)['\"]?(https?:)?//", style.read_text()), style


def test_files_that_pages_use_are_there(site, pages):
    for name, page in pages.items():
        for file in filter(None, page.fetched):
            path = file.partition("?")[0].partition("#")[0]
            folder = site if path.startswith("/") else (site / name).parent
            assert (folder / path.lstrip("/")).exists(), (name, file)


def test_public_names_have_an_entry(pages):
    anchors = set().union(*(p.anchors for n, p in pages.items() if n.startswith("reference/")))
    entries = {a.rpartition(".")[2] for a in anchors}
    missing = set(tw.__all__) - entries - {"te", "__version__"}
    assert not missing
    methods = {f"{tw.Schedule.__module__}.Schedule.{n}" for n in vars(tw.Schedule) if n[0] != "_"}
    assert not methods - anchors


def test_tensor_expressions_are_all_named(site):
    text = (site / "reference/te.html").read_text()
    assert not [n for n in tw.te.__all__ if not re.search(rf"\b{n}\b", text)]


def test_a_broken_link_is_refused(tmp_path):
    """The build's strictness is no accident of what the pages hold today."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("[nowhere](absent.md)\n")
    other = {"INHERIT": str(ROOT / "mkdocs.yml"), "docs_dir": "docs", "nav": ["index.md"]}
    other |= {"plugins": [], "hooks": [], "extra_css": []}
    (tmp_path / "mkdocs.yml").write_text(json.dumps(other))
    done = build(tmp_path, tmp_path / "made")
    assert done.returncode != 0
    assert "absent.md" in done.stderr
