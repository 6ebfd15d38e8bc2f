"""C programs of tests: compiled against what `save` made of a model, and run.

In: a folder that a library was saved to. Out: what a program prints, with nothing of this process's
environment. Bytes go in and out by files.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tilewright.runtime.toolchain import find_c_compiler

STRICT = ["-Wall", "-Wextra", "-Werror"]
EMPTY = {"PATH": "", "LD_LIBRARY_PATH": ""}


def needs(*programs: str) -> pytest.MarkDecorator:
    """Skip a test where one of these programs is not installed."""
    missing = [p for p in programs if shutil.which(p) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def run(command: list[str], folder: Path, env: dict[str, str] | None = None) -> str:
    """What a command prints; a failure shows what it says."""
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def flags(folder: Path, *names: str) -> list[str]:
    """The compiler's options for libraries in this prefix, as their kind needs them."""
    lib = folder / "lib"
    return [
        f"-I{folder}/include",
        f"-L{lib}",
        *(f"-l{name}" for name in names),
        f"-Wl,-rpath,{lib}",
        "-pthread",
    ]


def run_example(folder: Path, name: str, *inputs: bytes) -> tuple[bytes, str]:
    """Build the example of a library or a C array, run it on these inputs: the bytes of its first
    output, and what it prints."""
    if (folder / f"{name}.c").exists():
        built = ["example.c", f"{name}.c", "-pthread"]
    else:
        built = [f"share/{name}/example.c", *flags(folder, name)]
    run([*find_c_compiler(), *STRICT, *built, "-o", "example"], folder)
    for i, data in enumerate(inputs):
        (folder / f"{i}.bin").write_bytes(data)
    printed = run(["./example", *(f"{i}.bin" for i in range(len(inputs)))], folder, EMPTY)
    return (folder / "output0.bin").read_bytes(), printed


def without_compilers(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """As if no compiler of the system's was installed."""
    monkeypatch.setenv("PATH", os.fspath(folder))
    monkeypatch.delenv("CC", raising=False)
