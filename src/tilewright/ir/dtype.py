"""Element types: one interned object for each type of the IR.

In: a name ("f32"). Out: a `DType` that knows its kind, its width and its NumPy twin. Types narrower
than a byte (i4, u4, i2, i1) are packed in memory, lowest bits first, and are whole numbers
everywhere else.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np


class DType:
    """An element type. Compare with `is` or `==`; there is one object for each name."""

    __slots__ = (
        "bits",
        "is_bool",
        "is_float",
        "is_int",
        "is_packed",
        "is_signed",
        "kind",
        "name",
        "numpy",
        "of_ml_dtypes",
    )
    by_name: ClassVar[dict[str, DType]] = {}

    name: str
    kind: str  # "float", "int", "uint" or "bool"
    bits: int  # bits in memory; bool takes a byte
    numpy: np.dtype[Any]  # the NumPy (or ml_dtypes) twin; packed types widen to a byte
    of_ml_dtypes: str  # the name that the twin has there; "" where it is NumPy's
    is_float: bool
    is_int: bool  # signed or unsigned whole numbers (not bool)
    is_signed: bool
    is_bool: bool
    is_packed: bool  # narrower than a byte: several elements share one byte in memory

    def __init__(self, name: str, kind: str, bits: int, numpy: Any) -> None:
        self.name, self.kind, self.bits = name, kind, bits
        self.of_ml_dtypes = numpy if isinstance(numpy, str) else ""
        if not self.of_ml_dtypes:
            self.numpy = np.dtype(numpy)
        self.is_float, self.is_bool = kind == "float", kind == "bool"
        self.is_int, self.is_signed = kind in ("int", "uint"), kind in ("int", "float")
        self.is_packed = bits < 8
        DType.by_name[name] = self

    def __getattr__(self, name: str) -> Any:
        """The twin of ml_dtypes, which most models do without, when it is first asked for."""
        if name != "numpy":
            raise AttributeError(f"a dtype has no '{name}'")
        import ml_dtypes

        self.numpy = np.dtype(getattr(ml_dtypes, self.of_ml_dtypes))
        return self.numpy

    @property
    def lowest(self) -> int | float:
        """The least value: -inf for floats that have it."""
        if self.is_float:
            return float(_limits(self).min) if self.name in FINITE else float("-inf")
        if self.is_bool:
            return False
        return -(1 << (self.bits - 1)) if self.is_signed else 0

    @property
    def highest(self) -> int | float:
        """The greatest value: inf for floats that have it."""
        if self.is_float:
            return self.largest if self.name in FINITE else float("inf")
        if self.is_bool:
            return True
        return (1 << (self.bits - (1 if self.is_signed else 0))) - 1

    @property
    def largest(self) -> float:
        """The greatest finite value of a float."""
        return float(_limits(self).max)

    def nbytes(self, elements: int) -> int:
        """Bytes that `elements` of this type take in memory (packed types share bytes)."""
        return (elements * self.bits + 7) // 8

    def round(self, value: float) -> float:
        """The float of this type nearest to `value`, ties to even, rounded once (f32: C; f16:
        NumPy; f64: itself).

        ml_dtypes goes through f32, which rounds twice; going there by rounding to odd makes that
        harmless.
        """
        if self.bits == 64:
            return value
        if self.bits == 32:
            return ctypes.c_float(value).value
        with np.errstate(all="ignore"):
            if self.numpy.kind == "f":
                return float(self.numpy.type(value))
            near: Any = np.float32(value)
            if float(near) != value and value == value and not near.view(np.uint32) & 1:
                near = np.nextafter(near, np.float32(np.inf if value > float(near) else -np.inf))
            return float(self.numpy.type(near))

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return dtype, (self.name,)


FINITE = frozenset({"f8e4m3", "f8e4m3fnuz", "f8e5m2fnuz"})  # floats without infinities


def _limits(of: DType) -> Any:
    import ml_dtypes

    finfo: Any = ml_dtypes.finfo
    return finfo(of.numpy)


f64 = DType("f64", "float", 64, np.float64)
f32 = DType("f32", "float", 32, np.float32)
f16 = DType("f16", "float", 16, np.float16)
bf16 = DType("bf16", "float", 16, "bfloat16")
f8e4m3 = DType("f8e4m3", "float", 8, "float8_e4m3fn")
f8e5m2 = DType("f8e5m2", "float", 8, "float8_e5m2")
f8e4m3fnuz = DType("f8e4m3fnuz", "float", 8, "float8_e4m3fnuz")
f8e5m2fnuz = DType("f8e5m2fnuz", "float", 8, "float8_e5m2fnuz")
i64 = DType("i64", "int", 64, np.int64)
i32 = DType("i32", "int", 32, np.int32)
i16 = DType("i16", "int", 16, np.int16)
i8 = DType("i8", "int", 8, np.int8)
i4 = DType("i4", "int", 4, "int4")
i2 = DType("i2", "int", 2, "int2")
i1 = DType("i1", "int", 1, np.int8)
u64 = DType("u64", "uint", 64, np.uint64)
u32 = DType("u32", "uint", 32, np.uint32)
u16 = DType("u16", "uint", 16, np.uint16)
u8 = DType("u8", "uint", 8, np.uint8)
u4 = DType("u4", "uint", 4, "uint4")
u2 = DType("u2", "uint", 2, "uint2")
bool_ = DType("bool", "bool", 8, np.bool_)

ALL: tuple[DType, ...] = tuple(DType.by_name.values())


def dtype(name: str | DType | Any) -> DType:
    """The type called `name` ("f32"), or the twin of a NumPy dtype. Raises ValueError with the
    known names.
    """
    if isinstance(name, DType):
        return name
    if isinstance(name, str) and name in DType.by_name:
        return DType.by_name[name]
    twin = None if name is None else _numpy_dtype(name)
    loaded = "ml_dtypes" in sys.modules  # else it is none of theirs
    for known in ALL if twin is not None else ():
        if (loaded or not known.of_ml_dtypes) and known.numpy == twin and known is not i1:
            return known
    raise ValueError(f"unknown dtype {name!r}; known: {', '.join(DType.by_name)}")


def _numpy_dtype(name: Any) -> np.dtype[Any] | None:
    """What NumPy calls `name`, or would if it had ml_dtypes; None if nothing."""
    with suppress(TypeError):
        return np.dtype(name)
    if isinstance(name, str):
        import ml_dtypes

        with suppress(AttributeError, TypeError):
            return np.dtype(getattr(ml_dtypes, name))
    return None
