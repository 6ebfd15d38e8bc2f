"""Relocatable objects, read and taken apart.

In: ELF objects for x86-64 or AArch64, what LLVM emits. Out: an `Object`: sections with their bytes
and what these refer to. The one idea: where each function has a section of its own, what belongs to
some functions can be told by the references in them, so that a function is the same whatever it was
compiled together with.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace

from tilewright.support.errors import InternalFault
from tilewright.support.record import record

MACHINES = {62: "x86_64", 183: "aarch64"}
ALLOCATED, WRITABLE, EXECUTABLE, MERGED = 2, 1, 4, 16  # a section's flags
PROGBITS, NOBITS = 1, 8  # and kinds
_RELOCATIONS, _SYMBOLS = 4, 2
LONGEST = 64  # bytes of a constant: a vector of AVX-512


@record
class Reference:
    """Where a section takes an address: `addend` bytes after `value` in a section of the
    same object or, where `section` is -1, after the symbol `name`."""

    offset: int
    kind: int  # a relocation type of the machine
    addend: int
    section: int
    value: int
    name: str


@record
class Section:
    """Bytes that stay together. entry_size: of the constants that it consists of, if it does."""

    name: str
    kind: int
    flags: int
    align: int
    entry_size: int
    bytes: bytes
    references: tuple[Reference, ...]

    @property
    def is_code(self) -> bool:
        return bool(self.flags & EXECUTABLE)


@record
class Object:
    """Sections, and the global symbols that they define: (name, section, offset)."""

    machine: str
    sections: tuple[Section, ...]
    symbols: tuple[tuple[str, int, int], ...]


EMPTY = Object("", (), ())  # of any machine


def read(data: bytes) -> Object:
    """An ELF object's sections that a program needs, in order."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise InternalFault("cannot link: not a little-endian 64-bit ELF object")
    kind, machine = struct.unpack_from("<HH", data, 16)
    if kind != 1 or machine not in MACHINES:
        raise InternalFault(f"cannot link: ELF type {kind} for machine {machine}")
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    raw = [struct.unpack_from("<IIQQQQIIQQ", data, table + n * size) for n in range(count)]

    def string(at: int) -> str:
        return data[at : data.index(b"\0", at)].decode()

    kept: dict[int, int] = {}  # number in the file → number of those kept
    sections: list[Section] = []
    for n, (name, kind, flags, _, at, size, _, _, align, entry) in enumerate(raw):
        called = string(raw[names][4] + name)
        if flags & ALLOCATED and size and not called.startswith((".eh_frame", ".note")):
            kept[n] = len(sections)
            content = b"" if kind == NOBITS else data[at : at + size]
            sections.append(Section(called, kind, flags, max(1, align), entry, content, ()))

    symbols: list[tuple[str, int, int, int]] = []  # name, info, section, value
    for _, kind, _, _, at, size, link, *_ in raw:
        if kind == _SYMBOLS:
            entries = data[at : at + size]
            for name, info, _, where, value, _ in struct.iter_unpack("<IBBHQQ", entries):
                symbols.append((string(raw[link][4] + name), info, where, value))

    for _, kind, _, _, at, size, _, of, *_ in raw:
        if kind == _RELOCATIONS and of in kept:
            found: list[Reference] = []
            for offset, info, addend in struct.iter_unpack("<QQq", data[at : at + size]):
                name, _, where, value = symbols[info >> 32]
                if where and where not in kept:
                    label = name or string(raw[names][4] + raw[where][0])
                    raise InternalFault(f"cannot link: '{label}' is not defined in any object")
                section = kept[where] if where else -1
                found.append(Reference(offset, info & 0xFFFFFFFF, addend, section, value, name))
            sections[kept[of]] = replace(sections[kept[of]], references=tuple(found))
    defined = ((s, kept[at], value) for s, info, at, value in symbols if info >> 4 and at in kept)
    return Object(MACHINES[machine], tuple(sections), tuple(defined))


def part(whole: Object, symbols: Iterable[str]) -> Object | None:
    """The sections that define `symbols`, with all that they refer to: the same whatever else the
    object is made of. None where some of it cannot be told from what belongs to others: data that
    is neither constants of one size nor a pool of vectors for each function."""
    wanted = set(symbols)
    found = dict.fromkeys(at for name, at, _ in whole.symbols if name in wanted)
    numbers = {at: n for n, at in enumerate(found)}
    data: dict[int, dict[range, int]] = {}  # of sections of data: what is taken of it → where to
    taken: dict[int, list[Reference]] = {}
    while new := [at for at in numbers if at not in taken]:
        for at in new:
            taken[at] = []
            for r in whole.sections[at].references:
                if r.section >= 0:
                    value, addend = r.value, r.addend
                    if not whole.sections[r.section].is_code:
                        own = _constant(whole, r) or _pool(whole, at, r.section)
                        if own is None:
                            return None
                        known = data.setdefault(r.section, {})
                        value = known.setdefault(own, sum(map(len, known)))
                        addend += r.value - own.start
                    section = numbers.setdefault(r.section, len(numbers))
                    r = replace(r, section=section, value=value, addend=addend, name="")
                taken[at].append(r)
    sections: list[Section] = []
    for at, references in taken.items():
        section = whole.sections[at]
        content = section.bytes
        if at in data:
            content = b"".join(content[own.start : own.stop] for own in data[at])
        sections.append(replace(section, bytes=content, references=tuple(references)))
    defined = ((name, numbers[at], value) for name, at, value in whole.symbols if at in numbers)
    return Object(whole.machine, tuple(sections), tuple(defined))


def _constant(whole: Object, r: Reference) -> range | None:
    """Where the constant lies that a reference is to; None where that cannot be told. An addend of
    x86 counts from the next instruction, and where that begins only a symbol leaves open."""
    to = whole.sections[r.section]
    if not to.flags & MERGED or not to.entry_size:
        return None
    value = r.value
    if not r.name:
        if whole.machine != "aarch64":
            return None
        value += r.addend
    start = value - value % to.entry_size
    return range(start, start + to.entry_size)


def _pool(whole: Object, code: int, data: int) -> range | None:
    """Where the constants of one function lie in a section that has no sizes, as those of 64 bytes
    do not: LLVM writes a function's constants one after another. None unless such pools make up
    the section, each for one function that refers to its first constant and its last."""
    if whole.sections[data].references or whole.sections[data].align != LONGEST:
        return None
    pools: dict[int, range] = {}
    for at, section in enumerate(whole.sections):
        # x86 counts from the end of the instruction: behind the 4 bytes and, at most, one operand
        behind = 5 if whole.machine == "x86_64" else 0
        to = [r.value + r.addend + behind for r in section.references if r.section == data]
        if to:
            first, last = min(to) // LONGEST, max(to) // LONGEST
            pools[at] = range(first * LONGEST, (last + 1) * LONGEST)
    end = 0
    for pool in sorted(pools.values(), key=lambda pool: pool.start):
        if pool.start != end:
            return None
        end = pool.stop
    return pools[code] if end == len(whole.sections[data].bytes) else None
