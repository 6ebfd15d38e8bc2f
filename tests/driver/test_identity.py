"""What a model file is known by: its bytes, remembered while nothing says that they changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tilewright.driver import identity
from tilewright.driver.identity import file_identity
from tilewright.support.cache import Cache

LONG_AGO = 10**18  # nanoseconds


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the files that were read whole, in order."""
    found: list[int] = []
    real = identity.hash_bytes

    def counted(data: memoryview) -> int:
        found.append(data.nbytes)
        return real(data)

    monkeypatch.setattr(identity, "hash_bytes", counted)
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
    assert file_identity(path, memory) != first and len(reads) == 1
