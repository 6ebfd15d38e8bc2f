"""How dtypes live in LLVM: in registers, in memory, as constants.

Floats under 32 bits live in registers as f32 values that their type can hold, and in memory as
integers of their bits. Whole numbers live as iN of their width; bool is i1 in registers and a byte
in memory.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from typing import Any

from tilewright.ir.dtype import DType
from tilewright.ir.expr import wrap

SMALL_FLOATS = frozenset({"f16", "bf16", "f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz"})


@dataclass(slots=True, eq=False)
class Value:
    """A value in registers: LLVM text of its register type, one lane (`lanes` 0) or a vector.
    Never changed once made.

    const: the number in every lane, where it is known (then `text` is a constant). bits: the
    value's memory form, where it is at hand (small floats).
    """

    text: str
    dtype: DType
    lanes: int = 0
    const: Any = None
    bits: str | None = None


@functools.cache
def register(dtype: DType, lanes: int = 0) -> str:
    """The LLVM type of a `dtype` in registers."""
    if dtype.is_float:
        name = "double" if dtype.bits == 64 else "float"
    else:
        name = "i1" if dtype.is_bool else f"i{dtype.bits}"
    return vector(name, lanes)


@functools.cache
def memory(dtype: DType, lanes: int = 0) -> str:
    """The LLVM type of a `dtype` in memory (of the byte that holds it, for packed types)."""
    if dtype.name == "f64":
        name = "double"
    elif dtype.name == "f32":
        name = "float"
    else:
        name = f"i{max(8, dtype.bits)}"
    return vector(name, lanes)


def vector(name: str, lanes: int) -> str:
    return f"<{lanes} x {name}>" if lanes else name


@functools.cache
def mangle(name: str) -> str:
    """The suffix by which an overloaded intrinsic names a type: "<16 x float>" → "v16f32"."""
    if name.startswith("<"):
        count, element = name[1:-1].split(" x ")
        return f"v{count}{mangle(element)}"
    return {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16", "ptr": "p0"}.get(
        name, name
    )


def literal(value: Any, dtype: DType) -> str:
    """A number as LLVM writes it in the register type of `dtype`."""
    if dtype.is_float:
        return _float_literal(struct.pack("<d", value), dtype)
    if dtype.is_bool:
        return "true" if value else "false"
    return str(signed(int(value), dtype.bits))


@functools.lru_cache(maxsize=4096)
def _float_literal(bits: bytes, dtype: DType) -> str:
    """The f64 with these bits, rounded to `dtype`: by its bits, for 0.0 == -0.0."""
    (value,) = struct.unpack("<d", bits)
    if dtype.bits != 64:
        bits = struct.pack("<d", dtype.round(value))
    return f"0x{struct.unpack('<Q', bits)[0]:016X}"


def signed(value: int, bits: int) -> int:
    """The bits of a whole number, read as two's complement."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) and bits > 1 else value


def constant(value: Any, dtype: DType, lanes: int = 0) -> Value:
    """A constant; whole numbers wrap."""
    if dtype.is_int:
        value = wrap(int(value), dtype)
    text = literal(value, dtype)
    if lanes:
        text = f"splat ({register(dtype)} {text})"
    return Value(text, dtype, lanes, value)


def vector_constant(values: list[Any], dtype: DType) -> str:
    """The text of a vector of different constants."""
    kind = register(dtype)
    return "<" + ", ".join(f"{kind} {literal(v, dtype)}" for v in values) + ">"


def known_lanes(mask: str) -> list[bool]:
    """The lanes that a mask of constants lets through; [] if it is not constant."""
    return ["true" in lane for lane in mask.split(",")] if mask.startswith("<") else []
