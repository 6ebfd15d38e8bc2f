"""The runner's program: one static file that a board needs nothing for.

In: the triple of a machine. Out: the bytes of an executable. The one idea: it is compiled here,
together with the runtime whose threads it runs kernels on, by whoever compiles libraries for that
machine; for another one against musl, so that no board's C library matters.
"""

from __future__ import annotations

import functools
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tilewright.runtime import amalgamation
from tilewright.runtime.toolchain import (
    Toolchain,
    find_toolchain,
    has_zig,
    platform_of,
    this_platform,
)
from tilewright.support.errors import CompileError

SOURCE = Path(__file__).with_name("runner.c")
OPTIONS = ("-O2", "-pthread", "-static", "-s")
SECONDS = 600  # that compiling it may take: the first time, a C library is compiled, too


@functools.cache
def runner_program(triple: str) -> bytes:
    """The executable for a machine. Raises CompileError where no C compiler makes one."""
    why = ""
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        source, made = Path(folder) / "runner.c", Path(folder) / "runner"
        source.write_text(amalgamation.source("runner") + SOURCE.read_text())
        for tools in _toolchains(triple):
            command = [*tools.compiler, *OPTIONS, str(source), "-o", str(made)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
            except subprocess.TimeoutExpired:
                why = f"the C compiler took more than {SECONDS} s"
                continue
            if not done.returncode:
                return made.read_bytes()
            why = done.stderr.strip()[-2000:]
    asked = f"cannot build the program that runs candidates on {triple}"
    raise CompileError(asked, why, remedy="pip install ziglang, which compiles for other machines")


def _toolchains(triple: str) -> Iterator[Toolchain]:
    """Who may compile it, the likeliest first: a system need not have its C library to link into
    programs."""
    wanted = platform_of(triple)
    if wanted == this_platform():
        yield find_toolchain()
    if wanted.endswith("-linux-gnu") and has_zig():
        yield find_toolchain(wanted.replace("-gnu", "-musl"))
    else:
        yield find_toolchain(triple)
