"""Relocatable objects → one flat, position-independent code image.

In: ELF objects for x86-64 or AArch64 (what LLVM emits) and the symbols that will be entered. Out:
`CodeImage`: bytes that can be mapped at any page and entered at the offsets given. Only PC-relative
references among the objects are resolved; anything that would need a loader or a library is refused
by name.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable

from tilewright.support.errors import InternalFault
from tilewright.support.record import record

MACHINES = {62: "x86_64", 183: "aarch64"}
_ALLOCATED, _WRITABLE, _EXECUTABLE = 2, 1, 4
_PROGBITS, _RELA, _NOBITS, _SYMTAB = 1, 4, 8, 2
PAGE = 4096


@record
class CodeImage:
    """Machine code and constants; `entries` maps each asked symbol to its offset."""

    machine: str
    bytes: bytes
    entries: dict[str, int]


@record
class _Section:
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int


class _Object:
    """One parsed object."""

    def __init__(self, data: bytes, number: int) -> None:
        if data[:6] != b"\x7fELF\x02\x01":
            raise InternalFault("cannot link: not a little-endian 64-bit ELF object")
        kind, machine = struct.unpack_from("<HH", data, 16)
        if kind != 1 or machine not in MACHINES:
            raise InternalFault(f"cannot link: ELF type {kind} for machine {machine}")
        self.data, self.number, self.machine = data, number, MACHINES[machine]
        (table,) = struct.unpack_from("<Q", data, 40)
        size, count, names = struct.unpack_from("<HHH", data, 58)
        raw = [struct.unpack_from("<IIQQQQIIQQ", data, table + n * size) for n in range(count)]
        base = raw[names][4]
        self.sections = [
            _Section(
                self.string(base + r[0]), r[1], r[2], r[4], r[5], r[6], r[7], max(1, r[8]), r[9]
            )
            for r in raw
        ]
        self.symbols: list[tuple[str, int, int, int]] = []  # name, info, section, value
        for section in self.sections:
            if section.kind == _SYMTAB:
                strings = self.sections[section.link].offset
                for at in range(section.offset, section.offset + section.size, 24):
                    name, info, _, where, value, _ = struct.unpack_from("<IBBHQQ", data, at)
                    self.symbols.append((self.string(strings + name), info, where, value))

    def string(self, at: int) -> str:
        return self.data[at : self.data.index(b"\0", at)].decode()


def link(objects: Iterable[bytes], symbols: Iterable[str]) -> CodeImage:
    """Lay the objects out one after another, code first, and resolve every reference among them."""
    parsed = [_Object(data, n) for n, data in enumerate(objects)]
    machines = {o.machine for o in parsed}
    if len(machines) != 1:
        raise InternalFault(
            f"cannot link objects for {', '.join(sorted(machines)) or 'no machine'} together"
        )
    image = bytearray()
    placed = _lay_out(parsed, image)
    globals_ = _definitions(parsed, placed)
    for o in parsed:
        for section in o.sections:
            if section.kind == _RELA and (o.number, section.info) in placed:
                _relocate(o, section, placed, globals_, image)
    missing = [s for s in symbols if s not in globals_]
    if missing:
        raise InternalFault(f"cannot link: no object defines {', '.join(missing)}")
    return CodeImage(machines.pop(), bytes(image), {s: globals_[s] for s in symbols})


def _lay_out(objects: list[_Object], image: bytearray) -> dict[tuple[int, int], int]:
    """Copy code, then constants; gives the place of each section."""
    placed: dict[tuple[int, int], int] = {}
    for code in (True, False):
        for o in objects:
            for n, s in enumerate(o.sections):
                wanted = s.flags & _ALLOCATED and not s.name.startswith((".eh_frame", ".note"))
                if not wanted or not s.size or bool(s.flags & _EXECUTABLE) is not code:
                    continue
                if s.kind != _PROGBITS or s.flags & _WRITABLE:
                    raise InternalFault(
                        f"cannot link: section {s.name} is writable or not plain bytes"
                    )
                image.extend(b"\0" * (-len(image) % s.align))
                placed[o.number, n] = len(image)
                image.extend(o.data[s.offset : s.offset + s.size])
    return placed


def _definitions(objects: list[_Object], placed: dict[tuple[int, int], int]) -> dict[str, int]:
    """Offsets of the global symbols."""
    found: dict[str, int] = {}
    for o in objects:
        for name, info, section, value in o.symbols:
            if info >> 4 and (o.number, section) in placed:
                if name in found:
                    raise InternalFault(f"cannot link: symbol '{name}' is defined twice")
                found[name] = placed[o.number, section] + value
    return found


def _relocate(o: _Object, section: _Section, placed: dict[tuple[int, int], int],
              globals_: dict[str, int], image: bytearray) -> None:  # fmt: skip
    apply = _APPLY[o.machine]
    base = placed[o.number, section.info]
    for at in range(section.offset, section.offset + section.size, 24):
        offset, info, addend = struct.unpack_from("<QQq", o.data, at)
        name, _, where, value = o.symbols[info >> 32]
        if where:
            home = placed.get((o.number, where))
            target = None if home is None else home + value
        else:
            target = globals_.get(name)
        label = name or o.sections[where].name
        if target is None:
            raise InternalFault(f"cannot link: '{label}' is not defined in any object")
        how = apply.get(info & 0xFFFFFFFF)
        if how is None:
            raise InternalFault(
                f"cannot link: relocation {info & 0xFFFFFFFF} of '{label}' is not PC-relative"
            )
        how(image, base + offset, target + addend)


def _relative(form: str) -> Callable[[bytearray, int, int], None]:
    def apply(image: bytearray, place: int, target: int) -> None:
        struct.pack_into(form, image, place, target - place)

    return apply


def _bits(image: bytearray, place: int, clear: int, bits: int) -> None:
    (word,) = struct.unpack_from("<I", image, place)
    struct.pack_into("<I", image, place, word & ~clear | bits)


def _branch(image: bytearray, place: int, target: int) -> None:
    distance = (target - place) >> 2
    if not -(1 << 25) <= distance < 1 << 25:
        raise InternalFault("cannot link: a call reaches farther than 128 MB")
    _bits(image, place, 0x3FFFFFF, distance & 0x3FFFFFF)


def _page(image: bytearray, place: int, target: int) -> None:
    pages = target // PAGE - place // PAGE
    _bits(image, place, 0x60FFFFE0, (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5)


def _near(image: bytearray, place: int, target: int) -> None:
    distance = target - place
    _bits(image, place, 0x60FFFFE0, (distance & 3) << 29 | (distance >> 2 & 0x7FFFF) << 5)


def _low(scale: int) -> Callable[[bytearray, int, int], None]:
    """The low 12 bits of an address, in units of 1 << scale."""

    def apply(image: bytearray, place: int, target: int) -> None:
        _bits(image, place, 0xFFF << 10, (target % PAGE >> scale) << 10)

    return apply


_APPLY: dict[str, dict[int, Callable[[bytearray, int, int], None]]] = {
    "x86_64": {2: _relative("<i"), 4: _relative("<i"), 24: _relative("<q")},  # PC32, PLT32, PC64
    "aarch64": {
        260: _relative("<q"),  # PREL64
        261: _relative("<i"),  # PREL32
        274: _near,  # ADR_PREL_LO21
        275: _page,  # ADR_PREL_PG_HI21
        277: _low(0),  # ADD_ABS_LO12_NC
        278: _low(0),  # LDST8
        282: _branch,  # JUMP26
        283: _branch,  # CALL26
        284: _low(1),  # LDST16
        285: _low(2),  # LDST32
        286: _low(3),  # LDST64
        299: _low(4),  # LDST128
    },
}
