"""The cache on disk: hits, misses, damage, eviction, folders that cannot be written."""

import os
import threading

from tilewright.support import knobs
from tilewright.support.cache import Cache, make_key


def test_keys_tell_lists_of_parts_apart():
    lists = [(), ("a",), ("a", "b"), ("ab",), (b"ab",), ("a", b"b"), (1,), ("1",), (b"1",), ("",)]
    assert len({make_key(*parts) for parts in lists}) == len(lists)
    assert make_key("a", 1) == make_key("a", 1)


def test_values_come_back(tmp_path):
    cache = Cache(tmp_path / "deep" / "folder", 1 << 20)
    assert cache.fetch_bytes("k") is None
    cache.store_bytes("k", b"value")
    assert cache.fetch_bytes("k") == b"value"
    assert cache.store("file", lambda file: file.write(b"whole")) == cache.path("file")
    assert cache.fetch("file", lambda path: path.read_bytes()) == b"whole"
    assert cache.size() == 16 + 5 + 5
    cache.clear()
    assert cache.size() == 0 and cache.fetch_bytes("k") is None


def test_damage_is_a_miss_and_goes(tmp_path):
    cache = Cache(tmp_path, 1 << 20)
    cache.store_bytes("k", b"value" * 100)
    data = bytearray(cache.path("k").read_bytes())
    data[50] ^= 1
    for damaged in (data, data[:7], b""):
        cache.path("k").write_bytes(damaged)
        assert cache.fetch_bytes("k") is None
        assert not cache.path("k").exists()


def test_an_opener_that_refuses_makes_a_miss(tmp_path):
    cache = Cache(tmp_path, 1 << 20)
    cache.store("k", lambda file: file.write(b"x"))

    def refuse(path):
        raise ValueError("foreign")

    assert cache.fetch("k", refuse) is None
    assert not cache.path("k").exists()


def test_the_least_recently_used_goes_first(tmp_path):
    cache = Cache(tmp_path, 3500)
    for i, key in enumerate("abc"):
        cache.store(key, lambda file: file.write(bytes(1000)))
        os.utime(cache.path(key), ns=(i, i))
    assert cache.fetch("a", lambda path: True)
    cache.store("d", lambda file: file.write(bytes(1000)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "c", "d"]
    cache.store("big", lambda file: file.write(bytes(9000)))
    assert [path.name for path in tmp_path.iterdir()] == ["big"]  # kept: it was just asked for


def test_a_writer_that_fails_leaves_nothing(tmp_path):
    cache = Cache(tmp_path, 1 << 20)

    def fail(file):
        file.write(b"half")
        raise OSError("disk full")

    assert cache.store("k", fail) is None
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("in the way")
    cache = Cache(tmp_path / "file" / "cache", 1 << 20)
    assert cache.store("k", lambda file: file.write(b"x")) is None
    cache.store_bytes("k", b"x")
    assert cache.fetch_bytes("k") is None and cache.size() == 0
    cache.clear()


def test_writers_at_once_leave_one_whole_value(tmp_path):
    cache = Cache(tmp_path, 1 << 24)
    values = [bytes([i]) * 50_000 for i in range(4)]

    def write(value):
        for _ in range(20):
            cache.store_bytes("k", value)
            assert cache.fetch_bytes("k") in values

    threads = [threading.Thread(target=write, args=(value,)) for value in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.fetch_bytes("k") in values
    assert [path.name for path in tmp_path.iterdir()] == ["k"]


def test_folder_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TILEWRIGHT_CACHE_DIR", raising=False)
    assert Cache().folder == tmp_path / "tilewright"
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "own"))
    monkeypatch.setenv("TILEWRIGHT_CACHE_MB", "2")
    assert Cache().folder == tmp_path / "own" and Cache().limit == 2 << 20
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert knobs.cache_folder().is_absolute()
