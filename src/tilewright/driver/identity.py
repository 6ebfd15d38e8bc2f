"""What a compiled model is known by in the cache.

In: a model file, a target and options. Out: a key that changes with the bytes of the model and of
its external data, the machine, the options and this compiler. Nothing here needs the compiler, so
that finding a compiled model costs no import of it.

Bytes count by SHA-256 where the processor computes it, else by BLAKE2b: nobody can make two
contents with one digest. Reading gigabytes at each start would take longer than loading what was
compiled, so the digest of a large file is remembered under its device, inode, size and the times of
its last change. Each write sets the time of change (ctime), which no program can set back; two
things can change bytes without a trace in it, and both end soon: a write within the clock's grain,
and one through a mapping whose pages wait to be written back. So a file is only remembered once it
was left alone for two minutes.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from tilewright.support import knobs
from tilewright.support.background import in_background
from tilewright.support.cache import Cache, make_key
from tilewright.support.handover import short_turns
from tilewright.support.sources import compiler
from tilewright.support.version import __version__

LONGEST = 1024  # bytes of a name
LARGE = 1 << 20  # bytes from which reading a file again costs more than remembering it
RECENT = 120_000_000_000  # nanoseconds in which a change may leave no trace in a file's times
CHUNK = 4 << 20  # bytes that are hashed apart, so that several cores do it,
LONG = 16 << 20  # bytes whose hash takes long enough to do something beside it
MOST_READERS = 8  # at most so many
# key, and tag of a name, as protocol buffers have them in a tensor's `external_data`
LOCATION = b"\x0a\x08location\x12"


def artifact_key(
    identity: str,
    target: Any,
    threads: int,
    opt_level: int,
    shapes: Any = None,
    winograd: bool | None = None,
    champions: str = "",
) -> str:
    """The key of a model (its identity) compiled for a target, or several, with these options, by
    recorded schedules of this digest."""
    sized = sorted((k, v if isinstance(v, int) else tuple(v)) for k, v in (shapes or {}).items())
    targets = [target] if isinstance(target, str) or not isinstance(target, Sequence) else target
    words = "; ".join(map(str, targets))
    here = machine_identity() + calibrations()
    winograd = knobs.WINOGRAD.read() if winograd is None else winograd
    asked = repr((sized, knobs.CHECK_INDICES.read(), winograd, champions))
    return make_key(identity, words, here, threads, opt_level, asked, __version__, compiler())


def file_identity(
    path: Path, memory: Cache | None = None, meanwhile: Callable[[], object] | None = None
) -> str:
    """What a model file is known by: a hash of its bytes, of those of the files that it names as
    its external data, and of those beside it that begin with its name. `memory` keeps what large
    files were found to contain; where it does not know and that takes a while, `meanwhile` is
    called once."""
    if meanwhile is not None:
        meanwhile = lru_cache(meanwhile)  # whichever file is the first that is read
    content, named = file_content(path, memory, meanwhile)
    beside = {p for p in path.parent.iterdir() if p != path and p.name.startswith(path.name)}
    beside.update(path.parent / name for name in named)
    parts = [content]
    for p in sorted(beside):
        with contextlib.suppress(OSError, ValueError):  # a name that no file can have
            if p.is_file():
                content, _ = file_content(p, memory, meanwhile)
                parts += [str(p.relative_to(path.parent)), content]
    return make_key(*parts)


def content_identity(content: bytes) -> str:
    """What a model in memory is known by: as a file of this content alone would be."""
    name, view = fastest_hash(), memoryview(content)
    parts = (view[at : at + CHUNK] for at in range(0, len(view), CHUNK))
    return make_key(_digest(name, len(view), [hashlib.new(name, p).digest() for p in parts]))


def file_content(
    path: Path, memory: Cache | None, meanwhile: Callable[[], object] | None = None
) -> tuple[str, list[str]]:
    """A hash of the file's bytes, and the names of external data in them. Of a large file that has
    not been touched since, what it was the last time."""
    with open(path, "rb") as file:
        state = os.fstat(file.fileno())
        if state.st_size == 0:
            return "", []
        touched = max(state.st_mtime_ns, state.st_ctime_ns)
        if state.st_size < LARGE or time.time_ns() - touched < RECENT:  # it may change unnoticed
            memory = None
        inode = state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns
        key = make_key("content", str(path.resolve()), *inode)
        known = memory.fetch_bytes(key) if memory else None
        if known is not None:
            content, *names = json.loads(known)
            return content, names
        content, names = read_content(file.fileno(), state.st_size, meanwhile)
        after = os.fstat(file.fileno())
    is_same = (after.st_mtime_ns, after.st_ctime_ns) == (state.st_mtime_ns, state.st_ctime_ns)
    if memory and is_same:  # else somebody was writing to it
        memory.store_bytes(key, json.dumps([content, *names]).encode())
    return content, names


def _read_at(file: int, nbytes: int, start: int) -> bytes:
    """Bytes of an open file, wherever others read."""
    if hasattr(os, "pread"):
        return os.pread(file, nbytes, start)
    with _one_reads:  # Windows
        os.lseek(file, start, os.SEEK_SET)
        return os.read(file, nbytes)


_one_reads = threading.Lock()


def read_content(
    file: int, nbytes: int, meanwhile: Callable[[], object] | None = None
) -> tuple[str, list[str]]:
    """A hash, after its name, over the number of bytes and the digest of each chunk of them; and
    the names of external data. meanwhile: what this thread does while others hash a file of LONG
    bytes or more."""
    name = fastest_hash()

    def chunk(start: int) -> tuple[bytes, set[str]]:
        data = _read_at(file, CHUNK + LONGEST + 16, start)  # names may cross the end of a chunk
        part = hashlib.new(name, memoryview(data)[:CHUNK]).digest()
        return part, set(external_names(data))

    starts = range(0, nbytes, CHUNK)
    if len(starts) < 2:
        parts = list(map(chunk, starts))
    else:
        readers = max(1, min(len(starts), MOST_READERS, os.cpu_count() or 1) - 1)  # beside this one
        jobs = [partial(chunk, start) for start in starts]
        with short_turns(), in_background(jobs, readers, len(jobs)) as found:
            if meanwhile is not None and nbytes >= LONG:
                meanwhile()
            parts = list(found)
    digest = _digest(name, nbytes, [part for part, _ in parts])
    return digest, sorted(set[str]().union(*(names for _, names in parts)))


def _digest(name: str, nbytes: int, parts: Sequence[bytes]) -> str:
    """The hash of a content, of those of its chunks."""
    total = hashlib.new(name, nbytes.to_bytes(8, "little"))
    for part in parts:
        total.update(part)
    return f"{name}:{total.hexdigest()}"


@lru_cache
def fastest_hash() -> str:
    """SHA-256 where the processor has instructions for it (1.7 GB/s, BLAKE2b 0.7), else BLAKE2b."""
    features = machine_identity().split()
    return "sha256" if {"sha_ni", "sha2"} & set(features) else "blake2b"


def external_names(data: bytes) -> Iterator[str]:
    """The files that an ONNX model may have its weights in: what follows the key "location"."""
    at = find(data, LOCATION)
    while at >= 0:
        start = at + len(LOCATION)
        length, start = (data[start : start + 1] or b"\0")[0], start + 1
        if length > 127:
            length, start = length - 128 + ((data[start : start + 1] or b"\0")[0] << 7), start + 1
        if 0 < length < LONGEST:
            text = data[start : start + length].decode(errors="replace")
            if text.isprintable() and not Path(text).is_absolute():
                yield text
        at = find(data, LOCATION, start)


def find(data: bytes, part: bytes, start: int = 0) -> int:
    """`data.find(part, start)`, in a third of the time and without the interpreter, which another
    thread may have meanwhile."""
    memmem = _memmem()
    if memmem is None or start > len(data):
        return data.find(part, start)
    base: int = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0
    at = memmem(base + start, len(data) - start, part, len(part))
    return -1 if at is None else at - base


@lru_cache
def _memmem() -> Any:
    """The C library's function, where it has one."""
    try:
        found = ctypes.CDLL(None).memmem
    except (OSError, TypeError, AttributeError):
        return None
    found.restype = ctypes.c_void_p
    found.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    return found


def machine_identity() -> str:
    """What tells this machine's processor from another: "cpu" as a target means the one at hand."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        import platform

        return repr(platform.uname())
    kept = ("vendor", "cpu family", "model", "stepping", "flags", "Features", "CPU ")
    return "\n".join(line for line in lines if line.startswith(kept))


def calibrations() -> str:
    """Changes with what was calibrated of machines: other constants may pick other schedules."""
    found: list[tuple[str, bytes]] = []
    with contextlib.suppress(OSError):
        for path in sorted(knobs.machine_folder().iterdir()):
            with contextlib.suppress(OSError):
                found.append((path.name, path.read_bytes()))
    return make_key(repr(found)) if found else ""
