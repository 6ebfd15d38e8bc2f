"""The sdists hold what the build, the tests and the docs need, and nothing that was built."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

from tests.packaging.built import ROOT, build_sdist

FOLDERS = ("src", "tests", "docs", "build_backend", "benchmarks", "examples", "tools", ".ci")
LOOSE = (
    *("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md"),
    "mkdocs.yml",
)
BUILT = (".so", ".dylib", ".dll", ".pyc")


def contents(sdist: Path) -> set[str]:
    """The files in it, without the folder that it unpacks to."""
    with tarfile.open(sdist) as archive:
        return {m.name.partition("/")[2] for m in archive if m.isfile()}


def is_source(path: Path) -> bool:
    """Neither made by a build or a test run."""
    made = any(part == "__pycache__" or part.endswith(".egg-info") for part in path.parts)
    return path.is_file() and not made and path.suffix not in BUILT


def passes_check(path: Path) -> bool:
    command = [sys.executable, "-m", "twine", "check", "--strict", str(path)]
    return subprocess.run(command, capture_output=True).returncode == 0


def test_sdist_of_tilewright(tmp_path: Path) -> None:
    sdist = build_sdist(tmp_path)
    held = contents(sdist)
    files = {f for folder in FOLDERS for f in (ROOT / folder).rglob("*") if is_source(f)}
    expected = {f.relative_to(ROOT).as_posix() for f in files} | set(LOOSE)
    assert not expected - held
    others = {name for name in held - expected if ".egg-info/" not in name}
    assert others == {"PKG-INFO", "setup.cfg"}
    assert passes_check(sdist)


def test_sdist_of_the_runtime_is_a_project_of_its_own(tmp_path: Path) -> None:
    """It builds without settings, by the backend that it holds."""
    sdist = build_sdist(tmp_path, "runtime")
    held = contents(sdist)
    assert not [name for name in held if name.endswith(BUILT) or "/tilewright/" in name]
    assert passes_check(sdist)
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "out", filter="data")
    (root,) = (tmp_path / "out").iterdir()
    code = "import sys; sys.path.insert(0, 'build_backend'); import tilewright_build as hooks; "
    code += "hooks.build_wheel('made')"
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True, capture_output=True)
    (wheel,) = (root / "made").iterdir()
    assert wheel.name.startswith("tilewright_runtime-") and passes_check(wheel)
