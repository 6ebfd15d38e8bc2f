"""What a shared library asks of the system that loads it, read from the file.

In: a library in ELF, Mach-O or PE. Out: the libraries it is linked with, the versions of symbols
that it needs (of glibc), the oldest macOS that it is for.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection


@dataclass(frozen=True)
class Needs:
    machine: str
    libraries: frozenset[str]
    glibc: tuple[int, int] = (0, 0)  # the newest version of a symbol
    macos: tuple[int, int] = (0, 0)
    is_signed: bool = False


def needs_of(library: Path) -> Needs:
    start = library.read_bytes()[:4]
    if start == b"\x7fELF":
        return _elf(library)
    return _mach(library) if start == b"\xcf\xfa\xed\xfe" else _pe(library)


def _elf(library: Path) -> Needs:
    with library.open("rb") as file:
        elf = ELFFile(file)
        libraries, versions = set(), {(0, 0)}
        for section in elf.iter_sections():
            if isinstance(section, DynamicSection):
                libraries |= {t.needed for t in section.iter_tags() if t.entry.d_tag == "DT_NEEDED"}
            if isinstance(section, GNUVerNeedSection):
                names = [v.name for _, each in section.iter_versions() for v in each]
                assert all(name.startswith("GLIBC_") for name in names), names
                numbers = [name.removeprefix("GLIBC_").split(".") for name in names]
                versions |= {(int(n[0]), int(n[1])) for n in numbers}
        return Needs(elf.get_machine_arch(), frozenset(libraries), max(versions))


def _mach(library: Path) -> Needs:
    data = library.read_bytes()
    kind, _, _, count = struct.unpack_from("<4I", data, 4)
    libraries, oldest, signed, at = set(), (0, 0), False, 32
    for _ in range(count):
        command, size = struct.unpack_from("<II", data, at)
        if command == 0xC:  # LC_LOAD_DYLIB
            (offset,) = struct.unpack_from("<I", data, at + 8)
            libraries.add(data[at + offset : at + size].split(b"\0")[0].decode())
        if command == 0x32:  # LC_BUILD_VERSION
            (number,) = struct.unpack_from("<I", data, at + 12)
            oldest = number >> 16, number >> 8 & 255
        signed |= command == 0x1D  # LC_CODE_SIGNATURE
        at += size
    machine = {0x1000007: "x64", 0x100000C: "AArch64"}[kind]
    return Needs(machine, frozenset(libraries), macos=oldest, is_signed=signed)


def _pe(library: Path) -> Needs:
    data = library.read_bytes()
    (head,) = struct.unpack_from("<I", data, 0x3C)
    machine, sections = struct.unpack_from("<HH", data, head + 4)
    (optional,) = struct.unpack_from("<H", data, head + 20)
    assert data[head : head + 4] == b"PE\0\0" and machine == 0x8664
    table = [
        struct.unpack_from("<8x4I", data, head + 24 + optional + 40 * n) for n in range(sections)
    ]

    def offset(address: int) -> int:
        return next(address - at + raw for size, at, _, raw in table if at <= address < at + size)

    (imports,) = struct.unpack_from("<I", data, head + 24 + 120)
    libraries, at = set(), offset(imports)
    while name := struct.unpack_from("<I", data, at + 12)[0]:
        libraries.add(data[offset(name) :].split(b"\0", 1)[0].decode().lower())
        at += 20
    return Needs("x64", frozenset(libraries))
