"""A build of the compiler is known by what its sources say that make kernels."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tilewright.support import makers as module
from tilewright.support.cache import Cache
from tilewright.support.makers import makers
from tilewright.support.sources import ROOT, source_files


def sources(root: Path | str) -> str | None:
    """What the sources in a folder say that make kernels."""
    return module.sources(str(root), source_files(str(root)))


def test_every_file_of_the_compiler_counts(tmp_path: Path) -> None:
    (tmp_path / "room" / "inner").mkdir(parents=True)
    seen = [source_files(str(tmp_path))]
    for name in ("a.py", "room/a.py", "room/inner/a.py", "room/inner/b.py"):
        (tmp_path / name).write_text("x = 1")
        seen.append(source_files(str(tmp_path)))
    assert len(set(map(str, seen))) == len(seen)
    (tmp_path / "room" / "note.txt").write_text("no code")
    assert source_files(str(tmp_path)) == seen[-1]
    (tmp_path / "room" / "a.py").write_text("x = 12")
    assert source_files(str(tmp_path)) not in seen


def test_edits_elsewhere_lose_no_kernel(tmp_path: Path) -> None:
    root = tmp_path / "tilewright"
    shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns("native", "*.so", "__pycache__"))
    before = sources(root)
    assert before == sources(ROOT)
    for harmless in ("frontend/onnx/importer.py", "graph/passes/fuse.py", "driver/compile.py"):
        with open(root / harmless, "a") as file:
            file.write("# edited\n")
    os.utime(root / "ir/expr.py", ns=(1, 1))
    assert sources(root) == before
    seen = {before}
    for maker in ("strategy/cpu/product.py", "lower/flatten.py", "arith/affine.py", "ir/expr.py"):
        with open(root / maker, "a") as file:
            file.write("# edited\n")
        seen.add(sources(root))
    (root / "codegen/new.py").touch()
    seen.add(sources(root))
    with open(root / "strategy/learned.jsonl", "a") as file:
        file.write("{}\n")
    assert len(seen | {sources(root)}) == 7


def test_llvm_and_the_sources_are_in_the_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    memory, known = Cache(tmp_path), module._content
    monkeypatch.setattr(module, "_content", {})
    before = makers(memory)
    known.clear()
    assert makers(memory) == before  # as it was remembered
    with monkeypatch.context() as patch:
        patch.setattr(module, "release", lambda: "another")
        assert makers(memory) != before
    edited = [(name, time + 1, size) for name, time, size in module.imported()]
    monkeypatch.setattr(module, "compiler", lambda: "edited while it was imported")
    monkeypatch.setattr(module, "imported", lambda: edited)
    found = {before}
    for _ in range(2):
        monkeypatch.setattr(module, "_content", {})
        found.add(makers(memory))
    assert len(found) == 3
