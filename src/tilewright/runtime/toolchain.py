"""Who compiles C for which machine: the system's compiler for this one, ziglang's for others.

In: an LLVM triple. Out: a `Toolchain` of commands. A triple that no compiler here serves is refused
with those that can be served.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import sys
from collections.abc import Sequence

from tilewright.support.errors import CompileError
from tilewright.support.interpreter import isolated
from tilewright.support.record import record

GLIBC = "2.17"  # the oldest that a library for glibc runs with: that of manylinux2014
CROSS = ("x86_64-linux-gnu", "x86_64-linux-musl", "aarch64-linux-gnu", "aarch64-linux-musl")
SHARED = ["-shared", "-pthread", "-O2"]  # without -O zig links what checks for undefined behaviour
_SAME = {"amd64": "x86_64", "arm64": "aarch64"}


@record
class Toolchain:
    """Commands that arguments are added to, and how files are called where the result is used."""

    compiler: Sequence[str]
    archiver: Sequence[str]
    is_apple: bool = False

    def shared(self, name: str) -> str:
        """The file of a shared library."""
        return f"lib{name}.dylib" if self.is_apple else f"lib{name}.so"

    def linking(self, name: str) -> list[str]:
        """The compiler's options that make a shared library of this name."""
        if self.is_apple:
            return [*SHARED, f"-Wl,-install_name,@rpath/{self.shared(name)}"]
        return [*SHARED, "-Wl,-s", f"-Wl,-soname,{self.shared(name)}"]


def find_toolchain(triple: str = "") -> Toolchain:
    """What compiles for `triple` ("": for this machine). Raises CompileError where nothing does."""
    wanted, here = platform_of(triple), this_platform()
    if not triple and sys.platform == "win32":
        raise CompileError(
            "cannot build a library for Windows",
            "libraries are built on Linux and macOS",
            remedy="take kind 'c-array', which is C source for gcc and clang",
        )
    if not triple or wanted == here:
        compiler = find_c_compiler()
        found = shutil.which("ar")
        archiver = [found] if found else zig("ar") if has_zig() else ["ar"]
        return Toolchain(compiler, archiver, sys.platform == "darwin")
    if wanted not in CROSS:
        raise CompileError(
            f"cannot build a library for {triple}",
            f"libraries are built for {', '.join(CROSS)}"
            + (f", and here for {here}" if here not in CROSS else ""),
            remedy="name one of them, as in --target 'cpu -mtriple=aarch64-linux-gnu', or take "
            "kind 'c-array', which is C source for a compiler of your own",
        )
    if not has_zig():
        raise CompileError(
            f"cannot build a library for {triple}",
            f"this machine is {here}, and the package that compiles C for others is not installed",
            remedy="pip install ziglang, or take kind 'c-array', which is C source for a compiler "
            "of your own",
        )
    target = f"{wanted}.{GLIBC}" if wanted.endswith("-gnu") else wanted
    return Toolchain(zig("cc", "-target", target, "-mcpu=baseline"), zig("ar"))


def platform_of(triple: str) -> str:
    """A triple without vendor and spellings, as in `CROSS`; "" for what is in no such list."""
    architecture, *rest = triple.split("-")
    architecture = _SAME.get(architecture, architecture)
    if any(word.startswith(("darwin", "macos")) for word in rest):
        return f"{architecture}-macos"
    if "linux" not in rest:
        return ""
    environment = rest[rest.index("linux") + 1 :] or ["gnu"]
    return f"{architecture}-linux-{environment[0]}"


def this_platform() -> str:
    """The platform of this process, as `platform_of` says it."""
    machine = platform.machine().lower()
    architecture = _SAME.get(machine, machine)
    if sys.platform == "darwin":
        return f"{architecture}-macos"
    if sys.platform != "linux":
        return f"{architecture}-{sys.platform}"
    return f"{architecture}-linux-{'gnu' if platform.libc_ver()[0] == 'glibc' else 'musl'}"


def find_c_compiler() -> list[str]:
    """The command of a C compiler for this machine: `$CC`, cc, gcc, clang, or ziglang's. Raises
    CompileError."""
    for command in (os.environ.get("CC"), "cc", "gcc", "clang"):
        words = shlex.split(command or "")
        if words and shutil.which(words[0]):
            return words
    if has_zig():
        return zig("cc", "-mcpu=baseline")  # else for this CPU
    raise CompileError(
        "cannot build a library", "there is no C compiler", remedy="pip install ziglang"
    )


def has_zig() -> bool:
    return importlib.util.find_spec("ziglang") is not None


def zig(*words: str) -> list[str]:
    """A command of the ziglang package."""
    start = "import runpy; runpy.run_module('ziglang', run_name='__main__', alter_sys=True)"
    return [*isolated(start, ["ziglang"]), *words]
