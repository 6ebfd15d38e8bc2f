"""Hostile artifacts: a sound `*.tw` in, a damaged one out, by bytes or with its hashes made right.

Hashes find damage and are no signature, so the parts that only the loader reads (header, section
table, program description, manifest) are also changed with hashes that fit. Such files are loaded
and not run: an artifact carries native code, and whoever can write its hashes can write its code.
"""

from __future__ import annotations

from random import Random

from tests.fuzz.case import ARTIFACT, Case
from tests.fuzz.damage import DAMAGES
from tilewright.runtime import artifact
from tilewright.runtime.bindings import hash_bytes

Sections = list[tuple[int, int, int, int]]  # kind, index, offset, size


def hostile_artifact(random: Random, name: str, sound: bytes) -> Case:
    """A case from the sound artifact of the seed `name`."""
    if random.random() < 0.5:
        damage = random.choice(DAMAGES)
        data = damage(sound, random)
        title = f"artifact/{name}/{damage.__name__}"
        return Case(title, {ARTIFACT: data}, ARTIFACT, must_refuse=len(data) < len(sound))
    change = random.choice((described_otherwise, placed_otherwise))
    data = change(sound, random)
    title = f"artifact/{name}/{change.__name__}"
    return Case(title, {ARTIFACT: data}, ARTIFACT, may_run=False)


def described_otherwise(sound: bytes, random: Random) -> bytes:
    """The program section or the manifest is damaged in place, hashes right again."""
    sections = read_sections(sound)
    kinds = (artifact.PROGRAM, artifact.MANIFEST)
    _, _, offset, size = random.choice([entry for entry in sections if entry[0] in kinds])
    part = random.choice(DAMAGES)(sound[offset : offset + size], random)
    part = part[:size].ljust(size, random.choice((b"\0", b" ", b"\xff")))
    return with_hashes(sound[:offset] + part + sound[offset + size :], sections)


def placed_otherwise(sound: bytes, random: Random) -> bytes:
    """One number of the section table becomes another, hashes right again."""
    sections = read_sections(sound)
    row, column = random.randrange(len(sections)), random.randrange(4)
    limit = 2**32 if column < 2 else 2**64
    number = random.choice((0, 1, 7, 63, len(sound), len(sound) + 1, 2**31, limit - 1, limit // 2))
    changed = list(sections[row])
    changed[column] = number if random.random() < 0.7 else (changed[column] + 1) % limit
    kind, index, offset, size = changed
    sections[row] = (kind, index, offset, size)
    return with_hashes(sound, sections)


def read_sections(data: bytes) -> Sections:
    count = artifact.HEADER.unpack_from(data)[5]
    rows = (
        artifact.SECTION.unpack_from(data, artifact.HEADER.size + k * artifact.SECTION.size)
        for k in range(count)
    )
    return [(kind, index, offset, size) for kind, index, offset, size, _, _ in rows]


def with_hashes(data: bytes, sections: Sections) -> bytes:
    """The same bytes under a header and section table whose hashes fit them."""
    table = b"".join(
        artifact.SECTION.pack(
            kind, index, offset, size, hash_bytes(data[offset : offset + size]), 0
        )
        for kind, index, offset, size in sections
    )
    head = artifact.encode_header(table, len(data)) + table
    return head + data[len(head) :]
