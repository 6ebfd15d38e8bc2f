"""Signatures: whose artifact it is, and that nobody has changed it since.

In: an artifact's bytes and a key (Ed25519). Out: what to write into them, or a refusal. Every
artifact has a section for a signature, zeros at first, so that signing moves nothing. Signed is a
hash of all bytes, with the section's content and the two hashes over it as zeros:

    signature  public key [32] | signature [64]
    signed     "Tilewright artifact, signature 1" | BLAKE2b-512 of the artifact

Ed25519 comes from the `cryptography` package (`pip install 'tilewright[sign]'`). A key is the path
of a PEM file, its content, or an object of that package; a public key also its 32 bytes.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tilewright.runtime.artifact import (
    HEADER,
    MAGIC,
    SECTION,
    SIGNATURE,
    SIGNATURE_BYTES,
    encode_header,
)
from tilewright.runtime.bindings import hash_bytes
from tilewright.runtime.module import unchanging
from tilewright.support.errors import ArtifactError, InputError
from tilewright.support.files import remedy_of
from tilewright.support.memory import memory_limit, memory_told

DOMAIN = b"Tilewright artifact, signature 1"
PUBLIC_BYTES = 32
HASH_AT, ENTRY_HASH_AT = 24, 24  # of a hash in the header, in an entry of the section table
MOST_SECTIONS = 64
STEP = 1 << 24

Key = Any  # a path, PEM text or bytes, an object of `cryptography`


def sign(file: BinaryIO, key: Key) -> None:
    """Sign the artifact in `file`, open for reading and writing. Raises InputError for what is no
    private key."""
    private = private_key(key)
    file.flush()
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view, memoryview(view) as data:
        number, at = _signature_at(data, "cannot sign the artifact")
        content = _public_bytes(private.public_key()) + private.sign(_signed(data, number, at))
        table = bytearray(data[HEADER.size : _end_of_table(data)])
    entry = number * SECTION.size + ENTRY_HASH_AT
    table[entry : entry + 8] = hash_bytes(content).to_bytes(8, "little")
    file.seek(at)
    file.write(content)
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    file.write(encode_header(bytes(table), size) + table)


def verified(source: Any, key: Key) -> np.ndarray[Any, Any]:
    """The bytes of an artifact that holds a signature by `key` (a public one), in memory that
    nobody else can change: these are the bytes to load. Raises ArtifactError if it is unsigned,
    signed with another key, or changed; InputError for what is no public key."""
    public = _public(key)
    if isinstance(source, str | os.PathLike):
        array = _read(Path(os.fspath(source)))
    else:
        with memory_told("cannot load the artifact"):
            array = unchanging(source).copy()
    array.flags.writeable = False
    with array.data as data:
        _check(data, public)
    return array


def _check(data: memoryview, public: Any) -> None:
    what = "cannot load the artifact"
    number, at = _signature_at(data, what)
    content = bytes(data[at : at + SIGNATURE_BYTES])
    by, wanted = content[:PUBLIC_BYTES], _public_bytes(public)
    if not any(content):
        raise ArtifactError(
            what, "it is not signed", remedy="sign it where it is made: save(path, sign=KEY)"
        )
    if by != wanted:
        why = f"it is signed with another key ({by.hex()[:16]}…, not {wanted.hex()[:16]}…)"
        raise ArtifactError(what, why, remedy="ask for the public key of whoever signed it")
    try:
        public.verify(content[PUBLIC_BYTES:], _signed(data, number, at))
    except _library("exceptions").InvalidSignature:
        raise ArtifactError(
            what, "it was changed after it was signed", remedy="do not run it; get it anew"
        ) from None


def _read(path: Path) -> np.ndarray[Any, Any]:
    """A file's bytes in pages of our own, aligned as mapped ones would be."""
    what = "cannot load the artifact"
    try:
        opened = open(path, "rb", buffering=0, opener=_at_once)  # noqa: SIM115
    except OSError as fault:
        raise ArtifactError(what, f"cannot open '{path}': {fault.strerror}") from None
    with opened, memory_told(what):
        status = os.fstat(opened.fileno())
        start = opened.read(len(MAGIC)) if stat.S_ISREG(status.st_mode) else b""
        if start != MAGIC:
            raise ArtifactError(what, f"'{path}' is not a Tilewright artifact")
        opened.seek(0)
        if status.st_size > memory_limit():
            raise MemoryError(f"'{path}' has {status.st_size} bytes")
        array = np.frombuffer(mmap.mmap(-1, status.st_size), np.uint8)
        with array.data as view:
            at = 0
            while got := opened.readinto(view[at : at + STEP]):
                at += got
    if at < status.st_size:
        raise ArtifactError(what, f"cannot read '{path}': it is cut short")
    return array


def _at_once(path: str, flags: int) -> int:
    """Open a file; a pipe must not hold us up."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _end_of_table(data: memoryview) -> int:
    count = HEADER.unpack_from(data)[5]
    return HEADER.size + SECTION.size * count


def _signature_at(data: memoryview, what: str) -> tuple[int, int]:
    """The number of the signature's section and where its content begins. The loader checks all
    else: here nothing may lead outside the bytes."""
    if len(data) < HEADER.size or bytes(data[: len(MAGIC)]) != MAGIC:
        raise ArtifactError(what, "it is not a Tilewright artifact")
    count = HEADER.unpack_from(data)[5]
    if count > MOST_SECTIONS or _end_of_table(data) > len(data):
        raise ArtifactError(what, "its section table is damaged")
    for number in range(count):
        kind, _, at, size, _, _ = SECTION.unpack_from(data, HEADER.size + SECTION.size * number)
        if kind == SIGNATURE:
            if size != SIGNATURE_BYTES or not _end_of_table(data) <= at <= len(data) - size:
                raise ArtifactError(what, "the section of its signature is damaged")
            return number, at
    raise ArtifactError(what, "it has no room for a signature", remedy="compile the model again")


def _signed(data: memoryview, number: int, at: int) -> bytes:
    """What is signed: see the module's opening."""
    head = bytearray(data[: _end_of_table(data)])
    for hash_at in (HASH_AT, HEADER.size + SECTION.size * number + ENTRY_HASH_AT):
        head[hash_at : hash_at + 8] = bytes(8)
    seen = hashlib.blake2b(head)
    seen.update(data[len(head) : at])
    seen.update(bytes(SIGNATURE_BYTES))
    seen.update(data[at + SIGNATURE_BYTES :])
    return DOMAIN + seen.digest()


# ---- Keys -------------------------------------------------------------------------------------


def _library(part: str) -> Any:
    try:
        from cryptography import exceptions
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise InputError(
            "cannot sign or verify an artifact",
            "the package 'cryptography' is not installed",
            remedy="pip install 'tilewright[sign]'",
        ) from None
    found = {"exceptions": exceptions, "serialization": serialization, "ed25519": ed25519}
    return found[part]


def private_key(key: Key) -> Any:
    """The private key that was meant. Raises InputError if it is none."""
    what = "cannot sign the artifact"
    load = _library("serialization").load_pem_private_key
    kind = _library("ed25519").Ed25519PrivateKey
    return _of(key, kind, lambda pem: load(pem, None), what, "a private key")


def _public(key: Key) -> Any:
    what = "cannot verify the artifact"
    kind = _library("ed25519").Ed25519PublicKey
    if isinstance(key, bytes | bytearray) and len(key) == PUBLIC_BYTES:
        return kind.from_public_bytes(bytes(key))
    return _of(key, kind, _library("serialization").load_pem_public_key, what, "a public key")


def _of(key: Key, kind: type[Any], load: Callable[[bytes], Any], what: str, wanted: str) -> Any:
    """The key that was meant. Raises InputError."""
    name, made = "it", key
    if isinstance(key, os.PathLike) or (isinstance(key, str) and "-----BEGIN" not in key):
        name = f"'{os.fspath(key)}'"
        try:
            made = Path(os.fspath(key)).read_bytes()
        except OSError as fault:
            why = f"cannot read {name}: {fault.strerror}"
            raise InputError(what, why, remedy=remedy_of(fault)) from None
    if isinstance(made, str | bytes | bytearray):
        try:
            made = load(made.encode() if isinstance(made, str) else bytes(made))
        except TypeError:  # it needs a password
            raise InputError(
                what,
                f"{name} is encrypted",
                remedy="load it with the cryptography package and give the key itself",
            ) from None
        except ValueError:
            made = None
    if not isinstance(made, kind):
        raise InputError(
            what,
            f"{name} is not {wanted} for Ed25519 in PEM",
            remedy="make one: openssl genpkey -algorithm ed25519 -out key.pem; "
            "openssl pkey -in key.pem -pubout -out public.pem",
        )
    return made


def _public_bytes(public: Any) -> bytes:
    return public.public_bytes_raw()
