"""Signed artifacts: what is loaded is what the holder of the key has signed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.images import program, scale_program
from tests.runtime.test_changed_files import LARGE, LAST
from tilewright.runtime import abi, signing
from tilewright.runtime.artifact import HEADER, SECTION, SIGNATURE, write_artifact
from tilewright.runtime.executor import load
from tilewright.support.errors import ArtifactError, InputError

serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
from cryptography.hazmat.primitives.asymmetric import ec, ed25519  # noqa: E402

X = np.arange(1000, dtype=np.float32)
KEY, OTHER = ed25519.Ed25519PrivateKey.generate(), ed25519.Ed25519PrivateKey.generate()
PEM, PKCS8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
PUBLIC_PEM = KEY.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def private_pem(key, password=None) -> bytes:
    how = serialization.BestAvailableEncryption(password) if password else None
    return key.private_bytes(PEM, PKCS8, how or serialization.NoEncryption())


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    write_artifact(scale_program(), tmp_path / "plain.tw")
    return tmp_path / "plain.tw"


@pytest.fixture
def signed(plain: Path) -> Path:
    return load(plain).save(plain.with_name("signed.tw"), sign=KEY)


def start_of_signature(data: bytes | bytearray) -> int:
    kind, _, at, size, _, _ = SECTION.unpack_from(data, HEADER.size + 2 * SECTION.size)
    assert kind == SIGNATURE and size == 96
    return at


def test_keys_of_every_kind(plain, tmp_path):
    key, public = tmp_path / "key.pem", tmp_path / "public.pem"
    key.write_bytes(private_pem(KEY))
    public.write_bytes(PUBLIC_PEM)
    exe = load(plain)
    for n, private in enumerate((KEY, key, str(key), private_pem(KEY), private_pem(KEY).decode())):
        exe.save(tmp_path / f"{n}.tw", sign=private)
        assert (load(tmp_path / f"{n}.tw", verify=public)(X)[0] == 2 * X + 3).all()
    raw = KEY.public_key().public_bytes_raw()
    for verify in (KEY.public_key(), public, str(public), PUBLIC_PEM, PUBLIC_PEM.decode(), raw):
        assert (load((tmp_path / "0.tw").read_bytes(), verify=verify)(X)[0] == 2 * X + 3).all()


def test_a_signed_artifact_is_an_artifact(signed, plain, tmp_path):
    """It loads without a key, moves nothing, and a copy of it is signed too."""
    exe = load(signed)
    assert (exe(X)[0] == 2 * X + 3).all()
    assert signed.stat().st_size == plain.stat().st_size
    copy = exe.save(tmp_path / "copy.tw")
    assert copy.read_bytes() == signed.read_bytes()
    again = load(copy).save(tmp_path / "again.tw", sign=OTHER)
    assert (load(again, verify=OTHER.public_key())(X)[0] == 2 * X + 3).all()


def test_what_is_not_signed_by_the_key_is_refused(plain, signed):
    with pytest.raises(ArtifactError, match="it is not signed"):
        load(plain, verify=KEY.public_key())
    with pytest.raises(ArtifactError, match="it is signed with another key"):
        load(signed, verify=OTHER.public_key())


def test_every_byte_counts(signed):
    """Whatever is changed, also with the hashes made to fit, or the key named in it."""
    good = signed.read_bytes()
    public = KEY.public_key()
    at = start_of_signature(good)
    hashes = {*range(24, 32), *range(64 + 2 * 40 + 24, 64 + 2 * 40 + 32)}
    positions = {*range(300), *range(0, len(good), 37), *range(at, at + 96), len(good) - 1} - hashes
    for position in sorted(positions):
        bad = bytearray(good)
        bad[position] ^= 16
        with pytest.raises(ArtifactError):
            signing.verified(bytes(bad), public)
    for bad in (good + b"\0", good[:-1], good[:64], b"", bytes(2000)):
        with pytest.raises(ArtifactError):
            signing.verified(bad, public)
    for position in hashes:  # these are not signed: the loader finds that they do not fit
        bad = bytearray(good)
        bad[position] ^= 16
        with pytest.raises(ArtifactError, match="hash differs"):
            load(bytes(bad), verify=public)


def test_a_signature_of_another_artifact_does_not_fit(signed, tmp_path):
    write_artifact(scale_program(name="other"), tmp_path / "other.tw")
    other = bytearray((tmp_path / "other.tw").read_bytes())
    good = signed.read_bytes()
    at, to = start_of_signature(good), start_of_signature(other)
    other[to : to + 96] = good[at : at + 96]
    with pytest.raises(ArtifactError, match="changed after it was signed"):
        load(bytes(other), verify=KEY.public_key())


def test_what_is_verified_is_what_runs(tmp_path):
    """Large weights too are read once: who writes to the file afterwards changes nothing."""
    count = LARGE // 4
    weights = np.zeros(count, np.float32)
    weights[-1] = 7
    of = abi.TensorInfo("y", "f32", ())
    made = program(LAST.replace("COUNT", str(count)), (), (of,), weights=(weights,))
    write_artifact(made, tmp_path / "plain.tw")
    path = load(tmp_path / "plain.tw").save(tmp_path / "m.tw", sign=KEY)
    exe = load(path, verify=KEY.public_key())
    with path.open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(np.float32(9).tobytes())
    assert exe()[0] == 7
    load(tmp_path / "plain.tw").save(tmp_path / "m.tw", sign=KEY)
    given = bytearray((tmp_path / "m.tw").read_bytes())
    exe = load(given, verify=KEY.public_key())
    given[-4:] = np.float32(9).tobytes()
    assert exe()[0] == 7


def test_what_is_no_key_is_refused(plain, tmp_path):
    exe = load(plain)
    locked = private_pem(KEY, b"secret")
    curve = private_pem(ec.generate_private_key(ec.SECP256R1()))
    (tmp_path / "empty.pem").write_text("")
    for key, why in (
        (tmp_path / "none.pem", "No such file"),
        (tmp_path / "empty.pem", "is not a private key"),
        (locked, "it is encrypted"),
        (curve, "it is not a private key for Ed25519"),
        (PUBLIC_PEM, "it is not a private key"),
        (7, "it is not a private key"),
    ):
        with pytest.raises(InputError, match=why):
            exe.save(tmp_path / "m.tw", sign=key)
    assert not (tmp_path / "m.tw").exists()
    with pytest.raises(InputError, match="it is not a public key"):
        load(plain, verify=private_pem(KEY))
    with pytest.raises(ValueError, match="only an artifact"):
        exe.save(tmp_path / "m", kind="library", sign=KEY)


def test_without_the_library_it_is_told(plain, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(InputError, match=r"pip install 'tilewright\[sign\]'"):
        load(plain, verify=PUBLIC_PEM)
    with pytest.raises(InputError, match="'cryptography' is not installed"):
        load(plain).save(tmp_path / "m.tw", sign=PUBLIC_PEM)


def test_files_that_are_no_artifacts(tmp_path):
    (tmp_path / "text.tw").write_text("no artifact at all")
    os.mkfifo(tmp_path / "pipe.tw")
    for name in ("none.tw", "text.tw", "pipe.tw", "."):
        with pytest.raises(ArtifactError):
            load(tmp_path / name, verify=KEY.public_key())
