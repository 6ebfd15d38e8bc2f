"""What a model file is known by: its bytes, remembered while nothing says that they changed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.driver import identity
from tilewright.driver.identity import file_identity
from tilewright.support.cache import Cache

LONG_AGO = 10**18  # nanoseconds


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the files that were read whole, in order."""
    found: list[int] = []
    real = identity.read_content

    def counted(file: int, nbytes: int, *more: Any) -> tuple[str, list[str]]:
        found.append(nbytes)
        return real(file, nbytes, *more)

    monkeypatch.setattr(identity, "read_content", counted)
    monkeypatch.setattr(identity, "LARGE", 100)
    monkeypatch.setattr(identity, "RECENT", -(10**18))
    return found


def test_a_large_file_is_read_once(tmp_path: Path, reads: list[int]) -> None:
    path, memory = tmp_path / "m.onnx", Cache(tmp_path / "cache")
    path.write_bytes(bytes(200))
    first = file_identity(path, memory)
    assert file_identity(path, memory) == first == file_identity(path)
    assert reads == [200, 200]  # the second time without a memory
    path.write_bytes(b"\1" + bytes(199))
    os.utime(path, ns=(LONG_AGO, LONG_AGO))  # as old as can be: the time of the change tells
    second = file_identity(path, memory)
    assert second != first and file_identity(path, memory) == second and len(reads) == 3


def test_something_is_done_once_while_unknown_files_are_hashed(
    tmp_path: Path, reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "CHUNK", 64)
    monkeypatch.setattr(identity, "LONG", 250)
    path, memory, done = tmp_path / "m.onnx", Cache(tmp_path / "cache"), list[int]()
    path.write_bytes(bytes(200))
    file_identity(path, memory, lambda: done.append(len(reads)))
    assert not done  # that takes no time
    for name in ("m.onnx.data", "m.onnx.more"):
        (tmp_path / name).write_bytes(bytes(300))
    first = file_identity(path, memory, lambda: done.append(len(reads)))
    assert done == [2] and reads == [200, 300, 300]
    assert file_identity(path, memory, lambda: done.append(0)) == first == file_identity(path)
    assert done == [2]  # all are known


def test_what_may_change_unnoticed_is_read_again(
    tmp_path: Path, reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, memory = tmp_path / "m.onnx", Cache(tmp_path / "cache")
    path.write_bytes(bytes(99))
    for _ in range(2):
        file_identity(path, memory)  # small
    monkeypatch.setattr(identity, "RECENT", 10**12)
    path.write_bytes(bytes(300))
    for _ in range(2):
        file_identity(path, memory)  # large, and just written
    assert reads == [99, 99, 300, 300]


def test_the_memory_keeps_the_names_of_external_data(tmp_path: Path, reads: list[int]) -> None:
    path, memory = tmp_path / "m.onnx", Cache(tmp_path / "cache")
    path.write_bytes(bytes(500) + identity.LOCATION + b"\x07far.bin" + bytes(50))
    other = tmp_path / "far.bin"
    other.write_bytes(b"1")
    first = file_identity(path, memory)
    other.write_bytes(b"12")
    assert file_identity(path, memory) != first and reads == [path.stat().st_size, 1, 2]


def test_external_data_counts_by_its_content(tmp_path: Path) -> None:
    """Not by its size and times, which anybody may set."""
    path, other = tmp_path / "m.onnx", tmp_path / "far.bin"
    path.write_bytes(bytes(50) + identity.LOCATION + b"\x07far.bin")
    found = []
    for content in (b"one", b"two", b"one"):
        other.write_bytes(content)
        os.utime(other, ns=(LONG_AGO, LONG_AGO))
        found.append(file_identity(path))
    assert found[0] != found[1] and found[0] == found[2]


def test_files_are_hashed_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte counts, wherever it lies; names may cross the end of a chunk."""
    monkeypatch.setattr(identity, "CHUNK", 64)
    path, location = tmp_path / "m.onnx", identity.LOCATION + b"\x07far.bin"
    data = bytearray(
        bytes(60) + location + bytes(150) + location.replace(b"far", b"off") + bytes(9)
    )
    seen = set()
    for at in (None, 0, 127, 128, 191, len(data) - 1):
        if at is not None:
            data[at] ^= 1
        path.write_bytes(data)
        content, names = identity.file_content(path, None)
        assert names == ["far.bin", "off.bin"]
        seen.add(content)
    path.write_bytes(data[:64])
    seen.add(identity.file_content(path, None)[0])
    assert len(seen) == 7


@pytest.mark.parametrize(("flags", "hashes"), [("fpu sha_ni avx", "sha256"), ("fpu", "blake2b")])
def test_the_hash_is_the_one_that_the_processor_has(
    flags: str, hashes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "machine_identity", lambda: f"flags: {flags}")
    identity.fastest_hash.cache_clear()
    path = tmp_path / "m.onnx"
    contents = [bytes(200), b"\1" + bytes(199), bytes(201)]
    found = set[str]()
    for content in contents:
        path.write_bytes(content)
        found.add(identity.file_content(path, None)[0])
    identity.fastest_hash.cache_clear()
    assert len(found) == 3 and all(one.startswith(f"{hashes}:") for one in found)


@pytest.mark.parametrize("library", [True, False])
def test_parts_are_found_where_python_finds_them(
    library: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not library:
        monkeypatch.setattr(identity, "_memmem", lambda: None)
    random = np.random.default_rng(3)
    for length in (0, 1, 2, 7, 300):
        data = random.integers(0, 3, length, np.uint8).tobytes()
        for part in (b"\0", b"\1\2", b"\2\0\1", b"\5"):
            for start in (0, 1, length // 2, length, length + 1, length + 9):
                assert identity.find(data, part, start) == data.find(part, start)
    assert identity.find(b"x" * 5_000_000 + b"key", b"key") == 5_000_000


def test_threads_that_hash_get_the_interpreter_soon(tmp_path: Path) -> None:
    """Else each waits 5 ms for it after each part, while the compiler is imported."""
    path, seen = tmp_path / "large", list[float]()
    path.write_bytes(bytes(identity.LONG))
    default = sys.getswitchinterval()
    identity.file_identity(path, None, lambda: seen.append(sys.getswitchinterval()))
    assert len(seen) == 1 and seen[0] < default == sys.getswitchinterval()
