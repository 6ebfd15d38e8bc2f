"""Counts what a steady run of an artifact asks of the heap; see allocations.c.

In: the path of an artifact. Out: the number of requests for memory in `runs` runs after the first,
and the nanoseconds of one run from C.
"""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

from tilewright.runtime.bindings import NATIVE
from tilewright.runtime.toolchain import find_c_compiler


@functools.cache
def _program() -> Path:
    """The compiled counter; its folder goes when the process ends."""
    folder = Path(_folder.name)
    source = Path(__file__).with_suffix(".c")
    command = [*find_c_compiler(), "-O1", "-fno-builtin", f"-I{NATIVE}", str(source)]
    command += [f"-L{NATIVE}", "-ltilewright", f"-Wl,-rpath,{NATIVE}", "-o", str(folder / "count")]
    subprocess.run(command, check=True)
    return folder / "count"


_folder = tempfile.TemporaryDirectory()


def count_requests(path: Path, threads: int = 1, runs: int = 50, dim: int = 4) -> tuple[int, float]:
    """(requests for memory in `runs` steady runs, nanoseconds a run); symbolic dimensions are
    `dim`, inputs are zeros. Raises CalledProcessError with the reason when the model cannot run."""
    command = [str(_program()), str(path), str(threads), str(runs), str(dim)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    words = done.stdout.split()
    assert int(words[-2]) > 10, "the interposed functions were never called"
    return int(words[0]), float(words[2])
