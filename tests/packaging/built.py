"""Distributions built for the tests: by the hooks of the build backend, as `python -m build` does.

In: a distribution ("" or "runtime"), a platform, a folder. Out: the path of what was built.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BACKEND = ROOT / "build_backend"


def _module(name: str) -> Any:
    """A module of the build backend, which is in no package."""
    spec = importlib.util.spec_from_file_location(name, BACKEND / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


native = _module("tilewright_native")


def run_hook(call: str, *arguments: str) -> str:
    """What a hook of the backend returns; `call` is Python with `hooks` and `sys.argv[1:]`."""
    code = f"import sys; sys.path.insert(0, {str(BACKEND)!r}); import tilewright_build as hooks; "
    code += f"made = {call}; print(); print(made)"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def build_sdist(out: Path, distribution: str = "") -> Path:
    settings = {"distribution": distribution}
    return out / run_hook(f"hooks.build_sdist(sys.argv[1], {settings})", str(out))


def build_wheel(out: Path, distribution: str = "", platform: str = "") -> Path:
    settings = {"distribution": distribution, "platform": platform}
    return out / run_hook(f"hooks.build_wheel(sys.argv[1], {settings})", str(out))


def runtime_tree(out: Path) -> Path:
    """The package `tilewright_runtime` as it would be installed here: the folder that holds it."""
    out.mkdir()
    run_hook("hooks.write_tree(hooks.ROOT, hooks.Path(sys.argv[1]))", str(out))
    native = "runtime/native/libtilewright.so"
    library = (ROOT / "src/tilewright" / native).read_bytes()
    (out / "src/tilewright_runtime" / native).write_bytes(library)
    return out / "src"


def unpack(wheel: Path, out: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(out)
    return out
