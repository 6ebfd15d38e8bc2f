"""A cache on disk: values under the hash of what they were made from, the oldest out first.

In: a key (`make_key`) and a function that writes or opens a file. Out: what the opener returns, or
None for a miss. An entry that cannot be opened is a miss and is removed; writes are atomic, so
processes may share a cache; a folder that cannot be written makes a cache that is always empty.
Entries may be native code, so nothing is read that somebody else could have put there: folder and
entry belong to this user (or to root) and nobody else may write to them.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

from tilewright.support import knobs
from tilewright.support.errors import CacheWarning, TilewrightError

T = TypeVar("T")
_CHECK_BYTES = 16
NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_OURS = re.compile(r"[0-9a-f]{40}|\..*\.part")  # names of entries, and of those not yet complete


def make_key(*parts: bytes | str | int) -> str:
    """The name of an entry made from these parts; different lists of parts give different names."""
    digest = hashlib.blake2b(digest_size=20)
    for part in parts:
        data = part if isinstance(part, bytes) else f"{type(part).__name__}:{part}".encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


@contextmanager
def replace_file(path: Path, private: bool = False) -> Generator[BinaryIO]:
    """A new binary file that replaces `path` at once, when the block ends well. private:
    for this user alone; else for whom new files are for."""
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    name = path.with_name(f".{os.urandom(8).hex()}.part")
    try:
        handle = os.open(name, NEW, 0o600)
    except OSError as fault:  # tell it of the file that was asked for
        raise OSError(fault.errno, fault.strerror, str(path)) from None
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
        if not private:
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(name, 0o666 & ~mask)
        try:
            os.replace(name, path)
        except OSError as fault:
            raise OSError(fault.errno, fault.strerror, str(path)) from None
    except BaseException:
        name.unlink(missing_ok=True)
        raise


def replace_bytes(path: Path, value: bytes) -> None:
    """`replace_file` with these bytes, for this user alone."""
    name = os.path.join(path.parent, f".{os.urandom(8).hex()}.part")
    handle = os.open(name, NEW, 0o600)
    try:
        try:
            rest = memoryview(value)
            while rest:
                rest = rest[os.write(handle, rest) :]
        finally:
            os.close(handle)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def is_own(status: os.stat_result) -> bool:
    """Could only this user (or root) have written to a file or folder?"""
    if not hasattr(os, "geteuid"):
        return True
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & 0o022


def _check(key: str, value: bytes) -> bytes:
    """What tells that a value is whole, and that of this key."""
    return hashlib.blake2b(key.encode() + value, digest_size=_CHECK_BYTES).digest()


class Cache:
    """Entries in one folder, together at most `limit` bytes."""

    def __init__(
        self, folder: Path | None = None, limit: int | None = None, within: Path | None = None
    ) -> None:
        """folder, limit: as the knobs say unless given. within: a folder around it, which is to be
        trusted like it."""
        self.folder = folder or knobs.cache_folder()
        self.limit = limit or knobs.CACHE_MB.read() << 20
        self.within = within

    def path(self, key: str) -> Path:
        """Where the entry of that key is or would be."""
        return self.folder / key

    def fetch(self, key: str, opener: Callable[[Path], T]) -> T | None:
        """What `opener` makes of the entry; None if there is none, or the opener refuses it by an
        OSError, a ValueError or an error of ours."""
        path = self.path(key)
        try:
            status = os.lstat(path)
            if not stat.S_ISREG(status.st_mode) or not is_own(status) or not self.is_trusted():
                return None
            os.utime(path)  # used just now
        except OSError:
            return None
        try:
            return opener(path)
        except MemoryError:
            raise
        except (OSError, ValueError, TilewrightError):
            with contextlib.suppress(OSError):
                path.unlink()
            return None

    def store(self, key: str, write: Callable[[BinaryIO], object]) -> Path | None:
        """Keep what `write` writes; None if the folder takes no files. Old entries make room."""
        path = self.path(key)
        try:
            self._make_folder()
            if not self.is_trusted():
                return None
            with replace_file(path, private=True) as file:
                write(file)
        except OSError:
            return None
        self._evict(path)
        return path

    def _make_folder(self) -> None:
        """The folder, and those that it lies in and that are missing, for this user alone."""
        missing = [f for f in (self.folder, *self.folder.parents) if not f.exists()]
        for folder in reversed(missing):
            folder.mkdir(0o700, exist_ok=True)

    def is_trusted(self) -> bool:
        """Is the folder one that only this user (or root) can write to? Warns if it is not. Raises
        OSError where there is none."""
        for folder in filter(None, (self.within, self.folder)):
            if not is_own(folder.stat()):
                warnings.warn(
                    f"the cache in '{folder}' is not used: somebody else may write to it "
                    f"(chmod go-w '{folder}' if it is yours, or name another in "
                    "TILEWRIGHT_CACHE_DIR)",
                    CacheWarning,
                    stacklevel=2,
                )
                return False
        return True

    def fetch_bytes(self, key: str) -> bytes | None:
        """A value kept by `store_bytes`, or None."""

        def opener(path: Path) -> bytes:
            data = path.read_bytes()
            check, value = data[:_CHECK_BYTES], data[_CHECK_BYTES:]
            if check != _check(key, value):
                raise ValueError("damaged, or another's")
            return value

        return self.fetch(key, opener)

    def store_bytes(self, key: str, value: bytes) -> None:
        """Keep a value, guarded by a hash."""
        self.store(key, lambda file: file.write(_check(key, value) + value))

    def store_all(self, values: Mapping[str, bytes]) -> None:
        """Keep several small values, each as `store_bytes` does. To look for old ones takes longer
        than to keep these, so that it is done about once for each sixteenth of the limit that
        comes in."""
        try:
            if values:
                self._make_folder()
                if not self.is_trusted():
                    return
            for key, value in values.items():
                replace_bytes(self.path(key), _check(key, value) + value)
        except OSError:
            return
        drawn = int.from_bytes(os.urandom(4), "little") % (self.limit // 16 + 1)
        if drawn < sum(map(len, values.values())):
            self._evict()

    def clear(self) -> None:
        """Remove every entry."""
        for _, _, path in self._entries():
            with contextlib.suppress(OSError):
                path.unlink()

    def size(self) -> int:
        """Bytes that the entries take."""
        return sum(size for _, size, _ in self._entries())

    def _entries(self) -> list[tuple[int, int, Path]]:
        """(time of last use, bytes, path) of each entry."""
        found: list[tuple[int, int, Path]] = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as listing:
            for entry in listing:
                with contextlib.suppress(OSError):
                    if not _OURS.fullmatch(entry.name):
                        continue  # the folder may be one that has other files too
                    status = entry.stat(follow_symlinks=False)
                    found.append((status.st_mtime_ns, status.st_size, Path(entry.path)))
        return found

    def _evict(self, newest: Path | None = None) -> None:
        entries = sorted(self._entries())
        total = sum(size for _, size, _ in entries)
        for _, size, path in entries:
            if total <= self.limit:
                return
            if path != newest:
                with contextlib.suppress(OSError):
                    path.unlink()
                total -= size
