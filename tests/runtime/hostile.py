"""Damaged and hostile artifacts, made from a good one, and a process that tries to open each.

In: the bytes of an artifact and a seed. Out: for each mutant, whether it was refused with a clear
error, accepted, or broke the process. `python -m tests.runtime.hostile MODEL.tw COUNT` by hand.

Half of the mutants are plain damage (flipped bytes, cuts, shuffled parts). The other half are
forged: fields of the tables are changed and every hash is made right again, so that the checks
behind the hashes are reached. A forged mutant that is accepted is opened but not run: its code may
be anything.
"""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tilewright.runtime import artifact
from tilewright.runtime.bindings import hash_bytes

EXTREMES = (0, 1, 2, 63, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1)


def damage(good: bytes, rng: random.Random) -> bytes:
    """The artifact as a bad disk or a broken download would leave it."""
    data = bytearray(good)
    kind = rng.randrange(6)
    if kind == 0:
        for _ in range(rng.choice((1, 1, 8, 64))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[rng.randrange(len(data)) :]
    elif kind == 2:
        start = rng.randrange(len(data))
        del data[start : start + rng.randrange(1, 4096)]
    elif kind == 3:
        at = rng.randrange(len(data))
        data[at:at] = rng.randbytes(rng.randrange(1, 4096))
    elif kind == 4:
        start, size = rng.randrange(len(data)), rng.randrange(1, 512)
        data[start : start + size] = bytes(len(data[start : start + size]))
    else:
        data += rng.randbytes(rng.randrange(1, 4096))
    return bytes(data)


def forge(good: bytes, rng: random.Random) -> bytes:
    """The artifact with fields of its tables changed and all hashes made right again."""
    data = bytearray(good)
    count = artifact.HEADER.unpack_from(data)[5]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        record = rng.randrange(count)
        table = artifact.HEADER.size + record * artifact.SECTION.size
        _, _, at, size, _, _ = artifact.SECTION.unpack_from(data, table)
        where = rng.randrange(5)
        if where == 0:  # the section table
            value, field = rng.choice(EXTREMES), rng.choice((0, 4, 8, 16))
            form = "<I" if field < 8 else "<Q"
            struct.pack_into(form, data, table + field, value % (2**32 if field < 8 else 2**64))
        elif where == 1:  # the header's count of sections
            struct.pack_into(
                "<I", data, 32, rng.choice((0, 1, count - 1, count + 1, 65, 2**32 - 1))
            )
        elif at + size <= len(data) and size >= 12:  # inside a section: a word, or a byte
            start, end = artifact.SECTION.unpack_from(data, artifact.HEADER.size)[2:4]
            if where < 4 and start + end <= len(data) and end >= 12:
                at, size = start, end  # most often the program section
            offset = at + rng.randrange(size - 8)
            if rng.random() < 0.5:
                struct.pack_into("<I", data, offset, rng.choice(EXTREMES) % 2**32)
            else:
                data[offset] = rng.randrange(256)
    return rehash(data)


def rehash(data: bytearray) -> bytes:
    """The same bytes with the hashes of all sections inside the file and of the header renewed."""
    count = min(artifact.HEADER.unpack_from(data)[5], 64)
    end = artifact.HEADER.size + count * artifact.SECTION.size
    for i in range(count):
        table = artifact.HEADER.size + i * artifact.SECTION.size
        if table + artifact.SECTION.size > len(data):
            break
        _, _, at, size, _, _ = artifact.SECTION.unpack_from(data, table)
        if at + size <= len(data):
            struct.pack_into("<Q", data, table + 24, hash_bytes(bytes(data[at : at + size])))
    header = bytearray(data[: artifact.HEADER.size])
    struct.pack_into("<Q", header, 24, 0)
    value = hash_bytes(bytes(header), bytes(data[artifact.HEADER.size : end]))
    struct.pack_into("<Q", data, 24, value)
    return bytes(data)


_OPENER = """
import resource, sys
from tilewright.runtime.executor import load
from tilewright.support.errors import TilewrightError
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
for path in sys.stdin.read().split("\\n"):
    try:
        load(path, threads=1)
        print("accepted", flush=True)
    except TilewrightError as fault:
        assert str(fault).strip()
        print("refused", flush=True)
print("grown", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, flush=True)
"""


def try_mutants(good: bytes, count: int, seed: int = 0, batch: int = 100) -> Counter[str]:
    """Open `count` mutants in child processes; counts of "damaged refused", "forged accepted", ….

    A process that dies or hangs counts as "… crashed" for the mutant that it died of. Raises
    AssertionError when a process grew over 2 GB.
    """
    rng = random.Random(seed)
    outcome: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for start in range(0, count, batch):
            kinds, paths = [], []
            for i in range(start, min(start + batch, count)):
                kinds.append("damaged" if i % 2 else "forged")
                mutant = good
                while mutant == good:
                    mutant = damage(good, rng) if i % 2 else forge(good, rng)
                paths.append(Path(folder) / f"{i}.tw")
                paths[-1].write_bytes(mutant)
            while paths:
                done = subprocess.run(
                    [sys.executable, "-c", _OPENER],
                    input="\n".join(map(str, paths)),
                    capture_output=True,
                    text=True,
                    timeout=120,
                )
                lines = done.stdout.split()
                if "grown" in lines:
                    assert int(lines[-1]) < 2 << 20, "a process grew over 2 GB"
                    lines = lines[:-2]
                for kind, line in zip(kinds, lines, strict=False):
                    outcome[f"{kind} {line}"] += 1
                if len(lines) < len(paths):
                    outcome[f"{kinds[len(lines)]} crashed"] += 1
                    sys.stderr.write(f"{paths[len(lines)]}: {done.stderr[-500:]}\n")
                kinds, paths = kinds[len(lines) + 1 :], paths[len(lines) + 1 :]
            for path in Path(folder).iterdir():
                path.unlink()
    return outcome


if __name__ == "__main__":
    print(dict(try_mutants(Path(sys.argv[1]).read_bytes(), int(sys.argv[2]))))
