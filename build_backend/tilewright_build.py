"""The build backend: setuptools, plus one shared library compiled from the runtime's C sources.

In: a source tree. Out: a wheel tagged `py3-none-<platform>`: the library is loaded by ctypes and so
serves every CPython. A machine without a C compiler gets one from the `ziglang` wheel.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import build_meta as setuptools_backend
from setuptools.command.bdist_wheel import bdist_wheel

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "src" / "tilewright" / "runtime" / "native"
FLAGS = "-std=c11 -O2 -g0 -fPIC -shared -fvisibility=hidden -pthread -Wall -Wextra".split()
SUFFIX = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")


class PlatformWheel(bdist_wheel):
    """A wheel that depends on the platform but not on the Python version."""

    def finalize_options(self) -> None:
        self.distribution.has_ext_modules = lambda: True  # so files go where platform files go
        super().finalize_options()

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


def installed_compiler() -> list[str] | None:
    """The command of the machine's C compiler: `$CC` if set, else the first of cc, gcc, clang."""
    for command in (os.environ.get("CC"), "cc", "gcc", "clang"):
        words = shlex.split(command or "")
        if words and shutil.which(words[0]):
            return words
    return None


def find_compiler() -> list[str]:
    """As `installed_compiler`, else that of the ziglang wheel. Raises RuntimeError for neither."""
    command = installed_compiler()
    if command is None and importlib.util.find_spec("ziglang"):
        command = [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline"]  # else for this CPU
    if command is None:
        raise RuntimeError("no C compiler: install one, set CC, or `pip install ziglang`")
    return command


def build_native() -> Path:
    """Compile the runtime library beside its sources, where package data and editable installs
    both find it."""
    sources = sorted(str(path) for path in NATIVE.glob("*.c"))
    target = NATIVE / f"libtilewright{SUFFIX}"
    fresh = target.with_name(f"building-{os.getpid()}{SUFFIX}")
    strip = [] if sys.platform == "darwin" else ["-Wl,-s"]
    command = [*find_compiler(), *FLAGS, *strip, "-o", str(fresh), *sources]
    try:
        subprocess.run(command, check=True)
        fresh.replace(target)  # a library in use keeps its old file
    finally:
        fresh.unlink(missing_ok=True)
    return target


def _compiler_requirement() -> list[str]:
    return [] if installed_compiler() else ["ziglang"]


def get_requires_for_build_wheel(config_settings=None):
    return (
        setuptools_backend.get_requires_for_build_wheel(config_settings) + _compiler_requirement()
    )


def get_requires_for_build_editable(config_settings=None):
    required = setuptools_backend.get_requires_for_build_editable(config_settings)
    return required + _compiler_requirement()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    build_native()
    return setuptools_backend.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    build_native()
    return setuptools_backend.build_editable(wheel_directory, config_settings, metadata_directory)


get_requires_for_build_sdist = setuptools_backend.get_requires_for_build_sdist
prepare_metadata_for_build_wheel = setuptools_backend.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = setuptools_backend.prepare_metadata_for_build_editable
build_sdist = setuptools_backend.build_sdist


if __name__ == "__main__":  # rebuild in place while working on the C code
    print(build_native())
