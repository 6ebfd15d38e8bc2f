"""Damage to bytes: a file's content in, another content out; the format is not looked at.

Each function takes the bytes and a random generator. `torn` ones cannot be a whole file any more.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

Damage = Callable[[bytes, Random], bytes]


def flip_bits(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4, 16))):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def set_bytes(data: bytes, random: Random) -> bytes:
    """A few bytes become ones that matter in variable-length integers."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 2, 8))):
        changed[random.randrange(len(changed))] = random.choice((0x00, 0x7F, 0x80, 0xFF))
    return bytes(changed)


def flip_early(data: bytes, random: Random) -> bytes:
    """Structure comes before content in most files: damage the first 200 bytes only."""
    return flip_bits(data[:200], random) + data[200:]


def truncate(data: bytes, random: Random) -> bytes:
    return data[: random.randrange(len(data))]


def delete_span(data: bytes, random: Random) -> bytes:
    start, size = random.randrange(len(data)), random.choice((1, 2, 7, 64, 1000))
    return data[:start] + data[start + size :]


def insert_span(data: bytes, random: Random) -> bytes:
    start, size = random.randrange(len(data)), random.choice((1, 2, 7, 64, 1000))
    return data[:start] + random.randbytes(size) + data[start:]


def repeat_span(data: bytes, random: Random) -> bytes:
    start, size = random.randrange(len(data)), random.choice((2, 16, 200))
    return data[:start] + data[start : start + size] * random.choice((2, 3, 50)) + data[start:]


def zero_span(data: bytes, random: Random) -> bytes:
    start, size = random.randrange(len(data)), random.choice((1, 8, 100))
    return data[:start] + bytes(len(data[start : start + size])) + data[start + size :]


def fill_ones(data: bytes, random: Random) -> bytes:
    start, size = random.randrange(len(data)), random.choice((4, 9, 12))
    return data[:start] + b"\xff" * size + data[start + size :]


def swap_spans(data: bytes, random: Random) -> bytes:
    a, b, c = sorted(random.randrange(len(data)) for _ in range(3))
    return data[:a] + data[b:c] + data[a:b] + data[c:]


def noise(data: bytes, random: Random) -> bytes:
    return random.randbytes(random.choice((1, 16, 300, 5000)))


def something_else(data: bytes, random: Random) -> bytes:
    """Another kind of file under the right name."""
    return random.choice((
        b"",
        b"\0" * 100,
        b"\n" * 3,
        b'{"graph": {"node": []}}',
        b"PK\x03\x04" + data,
        b"\x1f\x8b\x08" + data,
        b"version https://git-lfs.github.com/spec/v1\nsize 12345\n",
        b"\x80\x05\x95" + data,
        data.hex().encode(),
    ))  # fmt: skip


DAMAGES: list[Damage] = [
    flip_bits, flip_bits, flip_early, set_bytes, truncate, truncate, delete_span, insert_span,
    repeat_span, zero_span, fill_ones, swap_spans, noise, something_else,
]  # fmt: skip
