"""The contract between compiler and runtime, and the only one.

The compiler fills a `Program` (code images, weights, what the model's tensors and kernels are); the
runtime reads it back from an artifact. The numbers and struct layouts here mirror `tilewright.h`.

Compiled code is called as the C header says: an entry takes a `tw_call` (see `CALL_FIELDS`) and
starts each kernel through its `launch`. An input dimension is a constant, a symbol, or a multiple
of a symbol plus a constant ("n * 2 + 1"), which the loader solves; an output dimension may be any
expression of symbols, which `tw_shapes` then computes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from tilewright.support.record import record

ABI_VERSION = 4
FORMAT_VERSION = 4
ALIGNMENT = 64  # bytes; arena, scratch, and each tensor of the weights
MAX_RANK = 16
MAX_THREADS = 1024
MAX_DIM = 2**46
MOST_SYMBOL = 2**31 - 1  # what a symbol may be where the model says nothing

FLOATS = ("f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz")
DTYPE_CODES = {
    **{name: 1 + i for i, name in enumerate(FLOATS)},
    **{name: 16 + i for i, name in enumerate(["i64", "i32", "i16", "i8", "i4", "i2", "i1"])},
    **{name: 32 + i for i, name in enumerate(["u64", "u32", "u16", "u8", "u4", "u2", "u1"])},
    "bool": 48,
}
DTYPE_NAMES = {code: name for name, code in DTYPE_CODES.items()}


class Tensor(ctypes.Structure):
    """`tw_tensor`: a dense row-major tensor of the caller."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("shape", ctypes.c_void_p),
        ("rank", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    )


class Info(ctypes.Structure):
    """`tw_info`: what the loader knows of an input or output."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
        ("rank", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    )


class Hash(ctypes.Structure):
    """`tw_hash`: the state of a running hash; zeroed at the start."""

    _fields_ = (
        ("lane", ctypes.c_uint64 * 8),
        ("total", ctypes.c_uint64),
        ("rest", ctypes.c_uint8 * 64),
    )


# Byte offsets of the fields of `tw_call`, as compiled code reads them on a 64-bit machine.
CALL_FIELDS = {
    "inputs": 0,
    "outputs": 8,
    "dims": 16,
    "arena": 24,
    "weights": 32,
    "launch": 40,
    "provide": 48,
    "refuse": 56,
}


Dim = int | str  # a constant, or the text of an expression over symbols ("n", "n * 2 + 1")


@record
class Symbol:
    """A symbolic dimension and the values it may take. data_dependent: the run finds its value."""

    name: str
    minimum: int = 1
    maximum: int = MOST_SYMBOL
    data_dependent: bool = False


@record
class TensorInfo:
    """An input or output of a model. format: what its elements stand for (see `runtime.formats`)
    if that is not what the dtype says."""

    name: str
    dtype: str
    shape: tuple[Dim, ...]
    format: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@record
class KernelInfo:
    """What one kernel does; its index in `Manifest.kernels` is its id in `launch`.

    shape is that of its main output; flops and bytes (read and written, each tensor once) may be
    expressions of symbols.
    """

    name: str
    ops: tuple[str, ...] = ()
    shape: tuple[Dim, ...] = ()
    flops: Dim = 0
    bytes: Dim = 0


@record
class Manifest:
    """What an artifact says about itself; stored as JSON."""

    name: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    symbols: tuple[Symbol, ...] = ()
    kernels: tuple[KernelInfo, ...] = ()
    target: str = ""  # LLVM triple
    compiler: str = ""  # version that wrote it
    sources: dict[str, str] = field(default_factory=dict[str, str])  # e.g. the graph's text
    notes: dict[str, Any] = field(default_factory=dict[str, Any])  # anything else, as JSON


@record
class Variant:
    """The code of a model for one instruction set: the loader takes the first that fits.

    code: a flat, position-independent image, every relocation resolved, no external symbol.
    run, shapes: offsets of the `tw_entry` and the `tw_shapes` in it.
    """

    arch: str  # "x86_64", "aarch64"
    features: tuple[str, ...]  # what the machine must have, in LLVM's names
    code: bytes
    run: int
    shapes: int | None = None


@record
class Weight:
    """A constant of the model at a fixed offset in the weights section.

    data: anything with a buffer, a function that makes it when it is written, or functions that
    make its parts one after another.
    """

    offset: int
    nbytes: int
    data: Any | Callable[[], Any] | Sequence[Callable[[], Any]]


@record
class Program:
    """A compiled model, ready to be written as an artifact.

    arena_bytes: the arena of a static model, else the least one; scratch_bytes: per thread.
    """

    manifest: Manifest
    variants: Sequence[Variant]
    weights: Sequence[Weight] = ()
    arena_bytes: int = 0
    scratch_bytes: int = 0


def align(offset: int, alignment: int = ALIGNMENT) -> int:
    """The next multiple of `alignment` at or after `offset`."""
    return -(-offset // alignment) * alignment


def plan_weights(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Offsets for weights of these sizes in bytes, one after another, and the section's size."""
    offsets: list[int] = []
    end = 0
    for size in sizes:
        offsets.append(end)
        end = align(end + size)
    return offsets, end
