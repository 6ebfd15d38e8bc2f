"""Relocatable objects → one flat, position-independent code image.

In: objects for x86-64 or AArch64 and the symbols that will be entered. Out: `CodeImage`: bytes that
can be mapped at any page and entered at the offsets given. Only PC-relative references among the
objects are resolved; anything that would need a loader or a library is refused by name.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence

from tilewright.codegen.objects import EMPTY, PROGBITS, WRITABLE, Object, Reference, read
from tilewright.support.errors import InternalFault
from tilewright.support.record import record

PAGE = 4096


@record
class CodeImage:
    """Machine code and constants; `entries` maps each asked symbol to its offset."""

    machine: str
    bytes: bytes
    entries: dict[str, int]


def link(objects: Iterable[bytes | Object], symbols: Iterable[str]) -> CodeImage:
    """Lay the objects out one after another, code first, and resolve every reference among them."""
    parsed = [o if isinstance(o, Object) else read(o) for o in objects]
    machines = {o.machine for o in parsed if o is not EMPTY}
    if len(machines) != 1:
        raise InternalFault(
            f"cannot link objects for {', '.join(sorted(machines)) or 'no machine'} together"
        )
    machine = machines.pop()
    image = bytearray()
    laid_out = _lay_out(parsed, image)
    globals_ = _definitions(parsed, laid_out)
    for o, starts in zip(parsed, laid_out, strict=True):
        for section, start in zip(o.sections, starts, strict=True):
            for reference in section.references:
                if reference.section >= 0:
                    target = starts[reference.section] + reference.value
                else:
                    target = globals_.get(reference.name)
                _relocate(reference, o, target, _APPLY[machine], start, image)
    missing = [s for s in symbols if s not in globals_]
    if missing:
        raise InternalFault(f"cannot link: no object defines {', '.join(missing)}")
    return CodeImage(machine, bytes(image), {s: globals_[s] for s in symbols})


def _lay_out(objects: Sequence[Object], image: bytearray) -> list[list[int]]:
    """Copy code, then constants; gives where each section of each object starts."""
    laid_out = [[0] * len(o.sections) for o in objects]
    for is_code in (True, False):
        for o, starts in zip(objects, laid_out, strict=True):
            for n, s in enumerate(o.sections):
                if s.is_code is not is_code:
                    continue
                if s.kind != PROGBITS or s.flags & WRITABLE:
                    raise InternalFault(
                        f"cannot link: section {s.name} is writable or not plain bytes"
                    )
                image.extend(b"\0" * (-len(image) % s.align))
                starts[n] = len(image)
                image.extend(s.bytes)
    return laid_out


def _definitions(objects: Sequence[Object], laid_out: Sequence[Sequence[int]]) -> dict[str, int]:
    """Offsets of the global symbols."""
    found: dict[str, int] = {}
    for o, starts in zip(objects, laid_out, strict=True):
        for name, section, value in o.symbols:
            if name in found:
                raise InternalFault(f"cannot link: symbol '{name}' is defined twice")
            found[name] = starts[section] + value
    return found


def _relocate(
    reference: Reference,
    of: Object,
    target: int | None,
    known: Mapping[int, Callable[[bytearray, int, int], None]],
    start: int,
    image: bytearray,
) -> None:
    """Write the address that a reference takes in a section that starts at `start`."""
    how = known.get(reference.kind)
    if target is None or how is None:
        label = reference.name or of.sections[reference.section].name
        if target is None:
            raise InternalFault(f"cannot link: '{label}' is not defined in any object")
        raise InternalFault(
            f"cannot link: relocation {reference.kind} of '{label}' is not PC-relative"
        )
    how(image, start + reference.offset, target + reference.addend)


def _relative(form: str) -> Callable[[bytearray, int, int], None]:
    def apply(image: bytearray, at: int, target: int) -> None:
        struct.pack_into(form, image, at, target - at)

    return apply


def _bits(image: bytearray, at: int, clear: int, bits: int) -> None:
    (word,) = struct.unpack_from("<I", image, at)
    struct.pack_into("<I", image, at, word & ~clear | bits)


def _branch(image: bytearray, at: int, target: int) -> None:
    distance = (target - at) >> 2
    if not -(1 << 25) <= distance < 1 << 25:
        raise InternalFault("cannot link: a call reaches farther than 128 MB")
    _bits(image, at, 0x3FFFFFF, distance & 0x3FFFFFF)


def _page(image: bytearray, at: int, target: int) -> None:
    pages = target // PAGE - at // PAGE
    _bits(image, at, 0x60FFFFE0, (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5)


def _near(image: bytearray, at: int, target: int) -> None:
    distance = target - at
    _bits(image, at, 0x60FFFFE0, (distance & 3) << 29 | (distance >> 2 & 0x7FFFF) << 5)


def _low(scale: int) -> Callable[[bytearray, int, int], None]:
    """The low 12 bits of an address, in units of 1 << scale."""

    def apply(image: bytearray, at: int, target: int) -> None:
        _bits(image, at, 0xFFF << 10, (target % PAGE >> scale) << 10)

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
