"""The cache on disk: hits, misses, damage, eviction, folders that cannot be written."""

import os
import threading

import pytest

from tilewright.support import knobs
from tilewright.support.cache import Cache, make_key
from tilewright.support.errors import CacheWarning, MemoryFault

K, A, B, C, D, BIG = (make_key(word) for word in ("k", "a", "b", "c", "d", "big"))


def test_keys_tell_lists_of_parts_apart():
    lists = [(), ("a",), ("a", "b"), ("ab",), (b"ab",), ("a", b"b"), (1,), ("1",), (b"1",), ("",)]
    assert len({make_key(*parts) for parts in lists}) == len(lists)
    assert make_key("a", 1) == make_key("a", 1)


def test_values_come_back(tmp_path):
    cache = Cache(tmp_path / "deep" / "folder", 1 << 20)
    assert cache.fetch_bytes(K) is None
    cache.store_bytes(K, b"value")
    assert cache.fetch_bytes(K) == b"value"
    assert cache.store(A, lambda file: file.write(b"whole")) == cache.path(A)
    assert cache.fetch(A, lambda path: path.read_bytes()) == b"whole"
    assert cache.size() == 16 + 5 + 5
    cache.clear()
    assert cache.size() == 0 and cache.fetch_bytes(K) is None


def test_damage_is_a_miss_and_goes(tmp_path):
    cache = Cache(tmp_path, 1 << 20)
    cache.store_bytes(K, b"value" * 100)
    data = bytearray(cache.path(K).read_bytes())
    data[50] ^= 1
    for damaged in (data, data[:7], b""):
        cache.path(K).write_bytes(damaged)
        assert cache.fetch_bytes(K) is None
        assert not cache.path(K).exists()


def test_an_opener_that_refuses_makes_a_miss(tmp_path):
    cache = Cache(tmp_path, 1 << 20)
    cache.store(K, lambda file: file.write(b"x"))

    def refuse(path):
        raise ValueError("foreign")

    assert cache.fetch(K, refuse) is None
    assert not cache.path(K).exists()


def test_the_least_recently_used_goes_first(tmp_path):
    cache = Cache(tmp_path, 3500)
    for i, key in enumerate((A, B, C)):
        cache.store(key, lambda file: file.write(bytes(1000)))
        os.utime(cache.path(key), ns=(i, i))
    assert cache.fetch(A, lambda path: True)
    cache.store(D, lambda file: file.write(bytes(1000)))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([A, C, D])
    cache.store(BIG, lambda file: file.write(bytes(9000)))
    assert [path.name for path in tmp_path.iterdir()] == [BIG]  # kept: it was just asked for


def test_many_values_are_kept_at_once(tmp_path, monkeypatch):
    """Old ones go once in a sixteenth of the limit: every time where it is small."""
    values = {key: key.encode() * 100 for key in (A, B, C)}
    cache = Cache(tmp_path / "cache", 1 << 40)
    monkeypatch.setattr(Cache, "_evict", None)  # it is not asked: once in 5 million times
    cache.store_all(values)
    cache.store_all({})
    assert {key: cache.fetch_bytes(key) for key in values} == values
    monkeypatch.undo()
    small = Cache(tmp_path / "cache", 5000)
    small.store_all({D: bytes(4100)})
    assert [path.name for path in small.folder.iterdir()] == [D]


def test_a_value_under_the_key_of_another_is_damage(tmp_path):
    cache = Cache(tmp_path, 1 << 20)
    cache.store_all({A: b"a", B: b"b"})
    os.replace(cache.path(A), cache.path(B))
    assert cache.fetch_bytes(B) is None


def test_a_full_disk_keeps_what_there_was(tmp_path, monkeypatch):
    cache = Cache(tmp_path, 1 << 20)
    cache.store_all({A: b"a"})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    cache.store_all({B: b"b"})
    assert [path.name for path in tmp_path.iterdir()] == [A] and cache.fetch_bytes(A) == b"a"


def test_a_folder_in_one_that_others_can_write_to_is_not_used(tmp_path):
    (tmp_path / "kernels").mkdir(0o700)
    cache = Cache(tmp_path / "kernels", 1 << 20, within=tmp_path)
    cache.store_all({A: b"a"})
    tmp_path.chmod(0o777)
    with pytest.warns(CacheWarning, match="somebody else may write"):
        assert cache.fetch_bytes(A) is None
    tmp_path.chmod(0o700)
    assert cache.fetch_bytes(A) == b"a"


def test_a_writer_that_fails_leaves_nothing(tmp_path):
    cache = Cache(tmp_path, 1 << 20)

    def fail(file):
        file.write(b"half")
        raise OSError("disk full")

    assert cache.store(K, fail) is None
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("in the way")
    cache = Cache(tmp_path / "file" / "cache", 1 << 20)
    assert cache.store(K, lambda file: file.write(b"x")) is None
    cache.store_bytes(K, b"x")
    assert cache.fetch_bytes(K) is None and cache.size() == 0
    cache.clear()


def test_writers_at_once_leave_one_whole_value(tmp_path):
    cache = Cache(tmp_path, 1 << 24)
    values = [bytes([i]) * 50_000 for i in range(4)]

    def write(value):
        for _ in range(20):
            cache.store_bytes(K, value)
            assert cache.fetch_bytes(K) in values

    threads = [threading.Thread(target=write, args=(value,)) for value in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.fetch_bytes(K) in values
    assert [path.name for path in tmp_path.iterdir()] == [K]


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


def test_what_is_no_entry_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_bytes(bytes(5000))
    cache = Cache(tmp_path, 1000)
    for key in (A, B):
        cache.store(key, lambda file: file.write(bytes(800)))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([B, "thesis.txt"])
    cache.clear()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_what_is_kept_is_for_this_user_alone(tmp_path):
    cache = Cache(tmp_path / "new" / "cache")
    before = os.umask(0)
    try:
        cache.store_bytes(K, b"value")
    finally:
        os.umask(before)
    made = cache.folder.parent, cache.folder, cache.path(K)
    assert [p.stat().st_mode & 0o777 for p in made] == [0o700, 0o700, 0o600]
    assert cache.fetch_bytes(K) == b"value"


@pytest.mark.parametrize("mode", [0o602, 0o620])
def test_an_entry_that_others_may_write_is_not_read(tmp_path, mode):
    cache = Cache(tmp_path)
    cache.store_bytes(K, b"value")
    cache.path(K).chmod(mode)
    assert cache.fetch_bytes(K) is None


def test_a_link_is_no_entry(tmp_path):
    cache = Cache(tmp_path)
    cache.store_bytes(A, b"value")
    cache.path(K).symlink_to(cache.path(A))
    assert cache.fetch_bytes(K) is None


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_folder_that_others_may_write_is_not_used(tmp_path, mode):
    cache = Cache(tmp_path / "cache")
    cache.store_bytes(K, b"value")
    cache.folder.chmod(mode)
    with pytest.warns(CacheWarning, match="somebody else may write to it"):
        assert cache.fetch_bytes(K) is None
    with pytest.warns(CacheWarning):
        assert cache.store(A, lambda file: file.write(b"x")) is None
    cache.folder.chmod(0o755)
    assert cache.fetch_bytes(K) == b"value" and not cache.path(A).exists()


def test_what_belongs_to_another_user_is_not_read(tmp_path, monkeypatch):
    cache = Cache(tmp_path / "cache")
    cache.store_bytes(K, b"value")
    own = os.geteuid()
    for status_of, found in ((own, b"value"), (own + 1, None)):
        monkeypatch.setattr(os, "geteuid", lambda uid=status_of: uid)
        if own == 0:  # root's entries are everybody's: give them away
            os.chown(cache.path(K), 4321, -1) if found is None else None
        assert cache.fetch_bytes(K) == found


def test_no_memory_to_open_an_entry_is_no_damage(tmp_path):
    cache = Cache(tmp_path)
    cache.store_bytes(K, b"value")

    def open_it(path):
        raise MemoryFault("cannot load", "out of memory")

    with pytest.raises(MemoryFault):
        cache.fetch(K, open_it)
    assert cache.fetch_bytes(K) == b"value"
