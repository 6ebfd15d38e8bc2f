"""Arrays at the border of the runtime: what a caller brings, seen as NumPy without a copy.

In: NumPy arrays or anything with DLPack in the CPU's memory. Out: NumPy arrays of the dtypes that
the runtime names; and the way back, to the library that the caller's arrays came from. A `Table`
holds them as the native session reads them.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from tilewright.runtime import abi
from tilewright.support.errors import InputError

_ML_DTYPES = {
    "bf16": "bfloat16",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2fnuz": "float8_e5m2fnuz",
    "i4": "int4",
    "u4": "uint4",
    "i2": "int2",
    "u2": "uint2",
}
_NUMPY = {"f": "float", "i": "int", "u": "uint"}
PACKED_BITS = {"i4": 4, "u4": 4, "i2": 2, "u2": 2, "i1": 1, "u1": 1}


def more_dtypes(name: str) -> Any:
    """The package that has what NumPy lacks. Raises InputError for a tensor of dtype or format
    `name` where it is not installed."""
    try:
        import ml_dtypes
    except ImportError:
        raise InputError(
            f"cannot make tensors of {name}",
            "the package 'ml_dtypes' is not installed",
            remedy="pip install ml_dtypes",
        ) from None
    return ml_dtypes


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a dtype's name; those narrower than a byte widen to one. Raises InputError
    for one that NumPy lacks where the package ml_dtypes is not installed."""
    if name in _ML_DTYPES:
        return np.dtype(getattr(more_dtypes(name), _ML_DTYPES[name]))
    if name == "bool":
        return np.dtype(np.bool_)
    bits = max(8, int(name[1:]))
    return np.dtype(f"{_NUMPY[name[0]]}{bits}")


def pack(array: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    """The low `bits` of each element, several to a byte, the first in the low bits."""
    per_byte = 8 // bits
    flat = array.reshape(-1).astype(np.int8).view(np.uint8) & ((1 << bits) - 1)
    padded = np.zeros(-(-flat.size // per_byte) * per_byte, np.uint8)
    padded[: flat.size] = flat
    shifts = np.arange(per_byte, dtype=np.uint8) * bits
    return np.bitwise_or.reduce(padded.reshape(-1, per_byte) << shifts, axis=1).astype(np.uint8)


def unpack(packed: np.ndarray[Any, Any], shape: tuple[int, ...], name: str) -> np.ndarray[Any, Any]:
    """The inverse of `pack`: an array of `shape` in the NumPy dtype of `name`."""
    bits = PACKED_BITS[name]
    shifts = np.arange(8 // bits, dtype=np.uint8) * bits
    values = (packed.reshape(-1, 1) >> shifts & ((1 << bits) - 1)).reshape(-1)
    values = values[: int(np.prod(shape, dtype=np.int64))].reshape(shape).astype(np.int8)
    if name.startswith("i"):
        values = (values ^ (1 << bits - 1)) - (1 << bits - 1)  # extend the sign
    return values.astype(numpy_dtype(name))


# ---- Addresses --------------------------------------------------------------------------------


def _find_data_field() -> int | None:
    """Where an array object holds the pointer to its data: by NumPy's C interface the first field
    after the object's head, whose size depends on the interpreter."""
    probe = np.empty(3)
    offset = object.__basicsize__
    stored = ctypes.c_uint64.from_address(id(probe) + offset).value
    return offset if stored == probe.__array_interface__["data"][0] else None


_DATA_FIELD = _find_data_field()
# Memory from there on as words, so that the pointer of an array is the word at its own address.
_fields = (ctypes.c_uint64 * (1 << 59)).from_address(_DATA_FIELD) if _DATA_FIELD else None


def address_of(array: np.ndarray[Any, Any]) -> int:
    """The address of the array's first element."""
    if _fields is None:
        return array.__array_interface__["data"][0]
    return _fields[id(array) >> 3]  # ten times as fast, and each call needs several


# ---- DLPack -----------------------------------------------------------------------------------


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]

_CPU_DEVICES = (1, 3, 11)  # plain, CUDA-pinned and ROCm-pinned host memory
_DLPACK_CODES = {0: "i", 1: "u", 2: "f", 6: "bool"}
_DLPACK_EXACT = {(4, 16): "bf16", (10, 8): "f8e4m3", (12, 8): "f8e5m2"}


class _Borrowed:
    """Memory of a DLPack producer as a NumPy array: keeps the capsule, and so the memory, alive."""

    def __init__(self, capsule: object) -> None:
        self.capsule = capsule
        t = _DLTensor.from_address(_get_pointer(capsule, b"dltensor"))
        name = _DLPACK_EXACT.get((t.code, t.bits))
        if name is None and t.code in _DLPACK_CODES:
            letter = _DLPACK_CODES[t.code]
            name = letter if letter == "bool" else f"{letter}{t.bits}"
        if not name or t.bits < 8 or t.lanes != 1:
            raise BufferError(f"DLPack type {t.code} of {t.bits} bits x {t.lanes}")
        self.dtype = numpy_dtype(name)
        shape = tuple(t.shape[i] for i in range(t.ndim))
        size = self.dtype.itemsize
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": f"|V{size}" if size != 1 else "|u1",
            "data": ((t.data or 0) + t.byte_offset, False),
            "strides": tuple(t.strides[i] * size for i in range(t.ndim)) if t.strides else None,
        }


def to_numpy(value: Any) -> np.ndarray[Any, Any]:
    """`value` as a NumPy array, without a copy where it is one, or speaks DLPack.

    Raises TypeError if it is neither, BufferError if its memory cannot be read from the CPU.
    """
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, np.generic):
        return np.asarray(value)
    if not hasattr(value, "__dlpack__"):
        raise TypeError(f"{type(value).__name__} is neither a NumPy array nor has DLPack")
    if hasattr(value, "detach"):  # torch: gradients are not followed into the model
        value = value.detach()
        try:
            return value.numpy()  # ten times as fast as DLPack
        except (TypeError, RuntimeError):  # on another device, or of a dtype that NumPy lacks
            pass
    device = value.__dlpack_device__()
    if int(device[0]) not in _CPU_DEVICES:
        raise BufferError(f"its memory is on device {tuple(map(int, device))}, expected the CPU")
    borrowed = _Borrowed(value.__dlpack__())
    return np.asarray(borrowed).view(borrowed.dtype)


def from_numpy(array: np.ndarray[Any, Any], like: Any) -> Any:
    """`array` as the kind of array that `like` is, sharing its memory: torch for torch, and any
    library whose package has `from_dlpack`. Others get the NumPy array itself."""
    if isinstance(like, np.ndarray) or not hasattr(like, "__dlpack__"):
        return array
    library = sys.modules.get(type(like).__module__.partition(".")[0])
    if library is None or not hasattr(library, "from_dlpack"):
        return array
    if array.dtype.kind == "V" or array.dtype.isbuiltin != 1:  # NumPy cannot export these itself
        name = array.dtype.name
        if not hasattr(library, name):
            return array
        plain = array.view(f"uint{8 * array.dtype.itemsize}")
        return library.from_dlpack(plain).view(getattr(library, name))
    return getattr(library, "from_numpy", library.from_dlpack)(array)


# ---- Tensors of a call -----------------------------------------------------------------------

WORDS = ctypes.sizeof(abi.Tensor) // 8  # a tw_tensor as 8-byte words: data, shape, rank and dtype


class Table:
    """The `tw_tensor`s of a model's inputs or outputs, filled in place from call to call."""

    def __init__(self, tensors: Sequence[abi.TensorInfo]) -> None:
        self.infos = tensors
        self.names = [t.name for t in tensors]
        self.shapes: list[tuple[int, ...]] = [(-1,)] * len(tensors)  # none yet
        ranks = [len(t.shape) for t in tensors]
        self.starts = [sum(ranks[:i]) for i in range(len(ranks))]
        self.dims = (ctypes.c_int64 * (sum(ranks) + 1))()
        self.words = (ctypes.c_uint64 * (WORDS * len(tensors) + 1))()
        self.address = ctypes.addressof(self.words)
        for i, t in enumerate(tensors):
            self.words[WORDS * i + 1] = ctypes.addressof(self.dims) + 8 * self.starts[i]
            self.words[WORDS * i + 2] = ranks[i] | abi.DTYPE_CODES[t.dtype] << 32

    def set_shape(self, i: int, shape: tuple[int, ...]) -> None:
        start = self.starts[i]
        self.dims[start : start + len(shape)] = shape
        self.shapes[i] = shape
