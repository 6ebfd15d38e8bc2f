"""The runtime's C sources → one shared library, for this machine or for another platform.

In: the folder of the sources, and the platform of a wheel or none. Out: the library beside them.
This machine's own compiler builds for this machine; for the platforms of wheels it is the one of
the `ziglang` package, which builds for each of them on any, and whose target says what the oldest
system is that the library loads on. It also serves a machine that has no compiler.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PLATFORMS = {  # the tag of a wheel → zig's target
    "manylinux_2_17_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux_2_17_aarch64": "aarch64-linux-gnu.2.17",
    "musllinux_1_2_x86_64": "x86_64-linux-musl",
    "musllinux_1_2_aarch64": "aarch64-linux-musl",
    "macosx_11_0_x86_64": "x86_64-macos.11.0",
    "macosx_11_0_arm64": "aarch64-macos.11.0",
    "win_amd64": "x86_64-windows-gnu",
}
FLAGS = "-std=c11 -O2 -g0 -fPIC -shared -fvisibility=hidden -pthread -Wall -Wextra".split()
SUFFIXES = {"darwin": ".dylib", "win32": ".dll"}  # by Python's name of the system; else .so


def library_name(platform: str = "") -> str:
    """The library's file name on a platform ("": this machine)."""
    system = {"mac": "darwin", "win": "win32"}.get(platform[:3], "linux")
    return "libtilewright" + SUFFIXES.get(system if platform else sys.platform, ".so")


def installed_compiler() -> list[str] | None:
    """The command of the machine's C compiler: `$CC` if set, else the first of cc, gcc, clang."""
    for command in (os.environ.get("CC"), "cc", "gcc", "clang"):
        words = shlex.split(command or "")
        if words and shutil.which(words[0]):
            return words
    return None


def find_compiler(platform: str = "") -> list[str]:
    """The command of the compiler for a platform. Raises RuntimeError where there is none."""
    command = None if platform else installed_compiler()
    if command is None and importlib.util.find_spec("ziglang"):
        target = ["-target", PLATFORMS[platform]] if platform else []
        command = [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline", *target]  # no newer CPU
    if command is None:
        way = "" if platform else "install one, set CC, or "
        raise RuntimeError(f"no C compiler for {platform or 'here'}: {way}`pip install ziglang`")
    return command


def build_native(folder: Path, platform: str = "") -> Path:
    """Compile the C sources of `folder` into a library there. platform: one of PLATFORMS; "": this
    machine. Raises RuntimeError without a compiler, CalledProcessError where it fails."""
    name = library_name(platform)
    is_mac = name.endswith(".dylib")
    linked = "-Wl,-install_name,@rpath/" + name if is_mac else "-Wl,-s"
    sources = sorted(str(path.resolve()) for path in folder.glob("*.c"))
    with tempfile.TemporaryDirectory(dir=folder) as made:  # what else a linker writes goes with it
        command = [*find_compiler(platform), *FLAGS, linked, "-o", name, *sources]
        subprocess.run(command, check=True, cwd=made)
        return Path(made, name).replace(folder / name)  # a library in use keeps its old file
