"""The runner's program: one static file that a board needs nothing for.

In: the triple of a machine. Out: the bytes of an executable. The one idea: it is compiled here,
together with the runtime whose threads it runs kernels on, by whoever compiles libraries for that
machine; against musl where that can be, so that no board's C library matters.
"""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

from tilewright.runtime import amalgamation
from tilewright.runtime.toolchain import find_toolchain, has_zig, platform_of
from tilewright.support.errors import CompileError

SOURCE = Path(__file__).with_name("runner.c")
OPTIONS = ("-O2", "-pthread", "-static", "-s")
SECONDS = 300  # that compiling it may take: the first time, a C library is compiled, too


@functools.cache
def runner_program(triple: str) -> bytes:
    """The executable for a machine. Raises CompileError where no C compiler makes one."""
    wanted = platform_of(triple)
    if wanted.endswith("-linux-gnu") and has_zig():
        triple = wanted.replace("-gnu", "-musl")
    tools = find_toolchain(triple)
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        source, made = Path(folder) / "runner.c", Path(folder) / "runner"
        source.write_text(amalgamation.source("runner") + SOURCE.read_text())
        command = [*tools.compiler, *OPTIONS, str(source), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        if done.returncode:
            raise CompileError(
                f"cannot build the program that runs candidates on {triple}",
                done.stderr.strip()[-2000:],
                remedy="pip install ziglang",
            )
        return made.read_bytes()
