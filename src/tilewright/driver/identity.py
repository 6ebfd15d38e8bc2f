"""What a compiled model is known by in the cache.

In: a model file, a target and options. Out: a key that changes with the model's bytes, the machine,
the options and this compiler. Nothing here needs the compiler, so that finding a compiled model
costs no import of it.
"""

from __future__ import annotations

import mmap
import platform
from pathlib import Path
from typing import Any

from tilewright import __version__
from tilewright.runtime.bindings import hash_bytes
from tilewright.support.cache import make_key


def artifact_key(identity: str, target: Any, threads: int, opt_level: int) -> str:
    """The key of a model (its identity) compiled for a target with these options."""
    return make_key(
        identity, str(target), machine_identity(), threads, opt_level, __version__, fingerprint()
    )


def file_identity(path: Path) -> str:
    """A hash of a model file, and the state of the files beside it (external data, perhaps)."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        if size == 0:
            content = 0
        else:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
                content = hash_bytes(memoryview(view))
    beside = sorted(
        (p.name, p.stat().st_size, p.stat().st_mtime_ns)
        for p in path.parent.iterdir()
        if p != path and p.name.startswith(path.stem) and p.is_file()
    )
    return f"{content:016x}{size}{beside}"


def machine_identity() -> str:
    """What tells this machine's processor from another: "cpu" as a target means the one at hand."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return repr(platform.uname())
    kept = ("vendor", "model", "flags", "Features", "CPU ")
    return "\n".join(line for line in lines if line.startswith(kept))


def fingerprint() -> str:
    """Changes whenever a file of this package does: an old compiler's results are not found."""
    root = Path(__file__).resolve().parent.parent
    found = sorted(
        (str(p.relative_to(root)), (s := p.stat()).st_mtime_ns, s.st_size)
        for p in root.rglob("*.py")
    )
    return make_key(repr(found))
