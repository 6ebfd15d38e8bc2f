"""The documentation is true: its programs run and print what it shows."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.docs.pages import run_page

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "src/tilewright/driver/demo/digits.onnx"
PAGES = ("tour.md", "matmul.md", "interfaces.md", "own_operators.md")


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """No knobs of the user's, an empty cache, a folder of one's own."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TILEWRIGHT_DUMP", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", PAGES)
def test_outputs(name, request):
    path = ROOT / "docs" / name
    found = run_page(path)
    if request.config.getoption("--update-golden"):
        path.write_text(found)
    assert found == path.read_text()


def test_readme(tmp_path):
    import torch

    shutil.copy(MODEL, "model.onnx")
    image = np.zeros((1, 1, 8, 8), np.float32)
    module = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU()).eval()
    run_page(ROOT / "README.md", {"x": image, "module": module, "print": lambda *_: None})
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"include", "lib", "share"}


@pytest.mark.parametrize("path", sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/**/*.md")))
def test_links_lead_somewhere(path):
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
        assert "://" in link or (path.parent / link).exists(), link
