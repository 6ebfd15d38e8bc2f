"""The build backend: setuptools, plus one shared library compiled from the runtime's C sources.

In: a source tree. Out: an sdist, or a wheel tagged `py3-none-<platform>`: the library is loaded by
ctypes and so serves every CPython. Two settings say what else is built:

    python -m build -C distribution=runtime              tilewright-runtime: runs models alone
    python -m build --wheel -C platform=win_amd64        for one of tilewright_native.PLATFORMS
    python build_backend/tilewright_build.py --all dist  both distributions, for every platform
    python build_backend/tilewright_build.py             the library, in place, while working on it
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from setuptools import build_meta as setuptools_backend
from setuptools.command.bdist_wheel import bdist_wheel
from tilewright_native import PLATFORMS, build_native, installed_compiler
from tilewright_tree import write_tree

ROOT = Path(__file__).resolve().parent.parent
DISTRIBUTIONS = ("", "runtime")
FILES = ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in")  # and what the last one names
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so", "*.dylib", "*.dll")

Settings = Mapping[str, Any] | None


class PlatformWheel(bdist_wheel):
    """A wheel that depends on the platform but not on the Python version."""

    def finalize_options(self) -> None:
        self.distribution.has_ext_modules = lambda: True  # so files go where platform files go
        super().finalize_options()

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


def setting(settings: Settings, name: str, known: Mapping[str, Any] | tuple[str, ...]) -> str:
    """What was asked for by `-C name=value`; "" if nothing was. Raises ValueError for a value that
    is not known."""
    value = (settings or {}).get(name, "")
    if value and value not in known:
        words = ", ".join(filter(None, known))
        raise ValueError(f"cannot build for {name}={value}: {name} is one of {words}")
    return value


def native_folder(root: Path) -> Path:
    """Where the C sources lie in a source tree of either distribution."""
    (folder,) = (root / "src").glob("*/runtime/native")
    return folder


@contextmanager
def source_tree(settings: Settings) -> Iterator[Path]:
    """The tree that a distribution is built from, as the working directory: a copy, in which
    nothing is left of other builds and no other build runs."""
    kind = setting(settings, "distribution", DISTRIBUTIONS)
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        if kind and (ROOT / "src" / "tilewright").exists():  # else this is the runtime's sdist
            write_tree(ROOT, root)
        else:
            _copy_tree(root)
        os.chdir(root)
        try:
            yield root
        finally:
            os.chdir(before)


def _copy_tree(out: Path) -> None:
    """Copy what the sdist holds."""
    lines = [line.split() for line in (ROOT / "MANIFEST.in").read_text().splitlines()]
    named = [name for command, *names in lines if command in ("graft", "include") for name in names]
    for name in (*FILES, *named):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, out / name, ignore=LEFT_OUT)
        else:
            shutil.copyfile(ROOT / name, out / name)


def _compiler_requirement(settings: Settings) -> list[str]:
    needed = setting(settings, "platform", PLATFORMS) or not installed_compiler()
    return ["ziglang"] if needed else []


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    required = setuptools_backend.get_requires_for_build_wheel()
    return required + _compiler_requirement(config_settings)


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    required = setuptools_backend.get_requires_for_build_editable()
    return required + _compiler_requirement(config_settings)


def get_requires_for_build_sdist(config_settings: Settings = None) -> list[str]:
    return setuptools_backend.get_requires_for_build_sdist()


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    out = os.path.abspath(sdist_directory)
    with source_tree(config_settings):
        return setuptools_backend.build_sdist(out)


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: Settings = None
) -> str:
    out = os.path.abspath(metadata_directory)
    with source_tree(config_settings):
        return setuptools_backend.prepare_metadata_for_build_wheel(out)


def build_wheel(
    wheel_directory: str,
    config_settings: Settings = None,
    metadata_directory: str | None = None,
) -> str:
    out = os.path.abspath(wheel_directory)
    platform = setting(config_settings, "platform", PLATFORMS)
    options = {"--build-option": [f"--plat-name={platform}"]} if platform else None
    with source_tree(config_settings) as root:
        build_native(native_folder(root), platform)
        return setuptools_backend.build_wheel(out, options)


def build_editable(
    wheel_directory: str,
    config_settings: Settings = None,
    metadata_directory: str | None = None,
) -> str:
    build_native(native_folder(ROOT))
    return setuptools_backend.build_editable(wheel_directory, config_settings, metadata_directory)


prepare_metadata_for_build_editable = setuptools_backend.prepare_metadata_for_build_editable


def build_all(out: Path) -> None:
    """Both distributions as sdists and as wheels for every platform, into one folder."""
    out.mkdir(parents=True, exist_ok=True)
    for distribution in DISTRIBUTIONS:
        print(build_sdist(str(out), {"distribution": distribution}))
        for platform in PLATFORMS:
            settings = {"distribution": distribution, "platform": platform}
            print(build_wheel(str(out), settings))


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the native runtime in place.")
    parser.add_argument("--all", metavar="FOLDER", type=Path, help="sdists and all wheels instead")
    arguments = parser.parse_args()
    if arguments.all:
        os.chdir(ROOT)
        build_all(arguments.all.resolve())
    else:
        print(build_native(native_folder(ROOT)))


if __name__ == "__main__":
    main()
