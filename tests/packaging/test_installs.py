"""Installs in fresh environments, by pip and nothing else, with no compiler on the path.

Pythons of 3.10 and later that are on the path or among those of pyenv get the runtime's wheel (of
five versions three, all with --long), two of them both wheels, side by side; the sdist is installed
once, with the compiler that comes as a package.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.built import build_sdist, build_wheel
from tests.packaging.models import CHECK, MODELS, write

pytestmark = pytest.mark.slow
VERSIONS = [f"3.{minor}" for minor in range(10, 15)]
PLATFORM = "manylinux_2_17_x86_64"

COMPILE = """
import shutil, sys
import numpy as np
import tilewright as tw
from tilewright import te

assert not shutil.which("cc") and not shutil.which("gcc")
a, b = te.placeholder((64, 32), name="A"), te.placeholder((32, 48), name="B")
k = te.reduce_axis(32, "k")
c = te.compute((64, 48), lambda i, j: te.sum(a[i, k] * b[k, j], k), name="C")
matmul = tw.build(te.func("matmul", [a, b], [c]))
x, y = np.random.rand(64, 32).astype("f4"), np.random.rand(32, 48).astype("f4")
assert np.allclose(matmul(x, y)[0], x @ y, 1e-4)
print(sys.version_info[:2], tw.__version__)
"""


@functools.cache
def interpreter(version: str) -> str | None:
    """The command of that Python, if it runs here."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = [shutil.which(f"python{version}")]
    found += [str(f / "bin" / "python") for f in sorted(pyenv.glob(f"{version}.*"))]
    code = "import ensurepip, sys; print('%d.%d' % sys.version_info[:2])"
    for command in filter(None, found):
        done = subprocess.run([command, "-c", code], capture_output=True, text=True)
        if done.returncode == 0 and done.stdout.strip() == version:
            return command
    return None


class Environment:
    """A fresh virtual environment whose processes find no compiler and no other packages."""

    def __init__(self, folder: Path, version: str) -> None:
        command = interpreter(version)
        if command is None:
            pytest.skip(f"Python {version} is not here")
        subprocess.run([command, "-m", "venv", str(folder)], check=True)
        self.python = str(folder / "bin" / "python")
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON") and k != "CC"}
        self.env = {**kept, "PATH": str(folder / "bin")}

    def run(self, *arguments: object) -> str:
        command = [self.python, *map(str, arguments)]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, cwd="/")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def install(self, *what: object) -> None:
        self.run("-m", "pip", "install", "--quiet", "--only-binary", "numpy,llvmlite", *what)

    def packages(self) -> set[str]:
        listed = json.loads(self.run("-m", "pip", "list", "--format", "json"))
        return {entry["name"].lower() for entry in listed} - {"pip", "setuptools"}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel of the compiler, and that of the runtime."""
    out = tmp_path_factory.mktemp("wheels")
    return build_wheel(out, "", PLATFORM), build_wheel(out, "runtime", PLATFORM)


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("artifacts")
    for name in MODELS:
        write(folder, name, threads=2)
    return folder


@pytest.mark.sampled
@pytest.mark.parametrize("version", VERSIONS)
def test_the_runtime_with_numpy_alone(
    wheels: tuple[Path, Path], artifacts: Path, version: str, tmp_path: Path
) -> None:
    environment = Environment(tmp_path / "venv", version)
    environment.install(wheels[1])
    assert environment.packages() == {"numpy", "tilewright-runtime"}
    told = environment.run("-c", CHECK, artifacts, 2)
    assert told.split() == ["10", *sorted(MODELS)]


@pytest.mark.parametrize("version", VERSIONS[::3])  # far apart
def test_both_side_by_side(
    wheels: tuple[Path, Path], artifacts: Path, version: str, tmp_path: Path
) -> None:
    """Removing either leaves the other whole."""
    environment = Environment(tmp_path / "venv", version)
    environment.install(*wheels)
    assert "0.1" in environment.run("-c", COMPILE)
    assert environment.run("-c", CHECK, artifacts, 2)
    environment.run("-m", "pip", "uninstall", "--yes", "tilewright-runtime")
    assert "0.1" in environment.run("-c", COMPILE)
    environment.install("--no-deps", wheels[1])
    environment.run("-m", "pip", "uninstall", "--yes", "tilewright")
    assert environment.run("-c", CHECK, artifacts, 2)
    environment.run("-m", "pip", "check")


@pytest.mark.parametrize("distribution", ["", "runtime"])
def test_an_sdist_brings_its_compiler(distribution: str, artifacts: Path, tmp_path: Path) -> None:
    version = f"3.{sys.version_info.minor}"
    environment = Environment(tmp_path / "venv", version)
    environment.install(build_sdist(tmp_path, distribution))
    if distribution:
        assert environment.run("-c", CHECK, artifacts, 2).split() == ["10", *sorted(MODELS)]
    else:
        assert "0.1" in environment.run("-c", COMPILE)


@pytest.mark.parametrize("distribution", ["", "runtime"])
def test_the_standard_tool_builds_both(distribution: str, tmp_path: Path) -> None:
    """`python -m build`: an sdist, and a wheel out of it."""
    setting = ["-C", "distribution=runtime"] if distribution else []
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "build", *setting, "--outdir", str(tmp_path), str(root)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    built = sorted(p.name for p in tmp_path.iterdir())
    stem = "tilewright_runtime" if distribution else "tilewright"
    assert len(built) == 2 and all(name.startswith(f"{stem}-") for name in built)
    check = [sys.executable, "-m", "twine", "check", "--strict"]
    subprocess.run([*check, *(str(tmp_path / name) for name in built)], check=True)
