"""Run a compiled function in this process, for tests and measurements; no runtime package, no
artifact.

In: a Func in any stage from "blocks" on, and NumPy arrays for its buffer parameters. The arrays are
changed in place.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.codegen.link import CodeImage, link
from tilewright.codegen.llvm import Emitted, Entry, emit
from tilewright.codegen.llvm_compile import compile_object
from tilewright.ir.dtype import DType
from tilewright.ir.expr import Buffer, Var, const
from tilewright.ir.stmt import Func
from tilewright.ir.walk import substitute
from tilewright.lower.pipeline import lower
from tilewright.support.errors import InputError
from tilewright.target.target import Target, target


def map_image(image: CodeImage) -> tuple[mmap.mmap, int]:
    """The image in executable memory: the mapping (keep it alive) and its address."""
    memory = mmap.mmap(-1, len(image.bytes) or 1, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    memory.write(image.bytes)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    length = (len(image.bytes) + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE
    if libc.mprotect(
        ctypes.c_void_p(address), ctypes.c_size_t(length), mmap.PROT_READ | mmap.PROT_EXEC
    ):
        raise OSError(ctypes.get_errno(), "cannot make memory executable")
    return memory, address


@dataclass
class Loaded:
    """A function ready to run: call it with an array for each buffer parameter."""

    func: Func
    emitted: Emitted
    image: CodeImage
    memory: mmap.mmap
    address: int

    def __call__(
        self, *arrays: np.ndarray[Any, Any], symbols: Mapping[str, int] | None = None
    ) -> None:
        """Run every entry in order. `symbols`: values of the symbolic sizes, by name."""
        buffers = self.func.buffers
        if len(arrays) != len(buffers):
            raise InputError(
                f"cannot run '{self.func.name}'",
                f"it takes {len(buffers)} arrays, {len(arrays)} given",
            )
        values = dict(symbols or {})
        memory = {b.name: _memory_of(b, a) for b, a in zip(buffers, arrays, strict=True)}
        for b in self.emitted.workspace:
            size = b.dtype.nbytes(_number(b.shape[0], values)) if b.shape else b.dtype.nbytes(1)
            memory[b.name] = aligned(size)
        for entry in self.emitted.entries:
            launch(self.address + self.image.entries[entry.symbol], entry, memory, values)()
        for b, a in zip(buffers, arrays, strict=True):
            if memory[b.name] is not a:
                a[...] = _unpacked(memory[b.name], b.dtype, a)


def load(func: Func, on: Target | str = "cpu") -> Loaded:
    """Compile `func` for this machine (or a compatible description) and map it."""
    machine = target(on)
    lowered = lower(func, machine)
    emitted = emit(lowered, machine)
    image = link([compile_object(emitted.text, machine)], [e.symbol for e in emitted.entries])
    memory, address = map_image(image)
    return Loaded(func, emitted, image, memory, address)


def run(
    func: Func,
    *arrays: np.ndarray[Any, Any],
    symbols: Mapping[str, int] | None = None,
    target: Target | str = "cpu",
) -> None:
    """Compile `func` (in stage "blocks" to "vector") and run it once on the arrays, in place."""
    load(func, target)(*arrays, symbols=symbols)


def launch(
    address: int,
    entry: Entry,
    memory: Mapping[str, np.ndarray[Any, Any]],
    symbols: Mapping[str, int],
) -> Callable[[], None]:
    """What runs all of an entry whose code is at `address`. memory: its buffers, by name."""
    scratch = aligned(entry.scratch_bytes)
    arrays = [*(memory[name] for name in entry.buffers), scratch]
    values = [symbols[s] for s in entry.symbols]
    addresses = [a.ctypes.data for a in arrays]
    arguments = [*addresses[:-1], *values, addresses[-1], 0, _number(entry.extent, symbols)]
    passed = tuple(map(ctypes.c_int64, arguments))
    function = ctypes.CFUNCTYPE(None, *map(type, passed))(address)

    def run() -> None:
        function(*passed)
        assert arrays  # they live as long as what runs on their addresses

    return run


def aligned(size: int, to: int = 64) -> np.ndarray[Any, Any]:
    """Fresh bytes whose address is a multiple of `to`; filled with a pattern that shows up in
    results.
    """
    raw = np.full(size + to, 0xA5, np.uint8)
    start = -raw.ctypes.data % to
    return raw[start : start + size]


def _number(e: Any, values: Mapping[str, int]) -> int:
    found = substitute(e, {Var(name): const(value) for name, value in values.items()})
    return int(found.value)


def _memory_of(buffer: Buffer, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array itself, or its elements packed into bytes."""
    if not array.flags.c_contiguous or array.dtype != buffer.dtype.numpy:
        raise InputError(
            f"cannot pass an array as '{buffer.name}'",
            f"it must be contiguous {buffer.dtype.numpy}, got {array.dtype}",
        )
    if not buffer.dtype.is_packed:
        return array
    return pack(array, buffer.dtype)


def pack(array: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """Elements of a packed dtype, lowest bits first, as bytes."""
    per = 8 // dtype.bits
    flat = array.reshape(-1).astype(np.int8).view(np.uint8) & ((1 << dtype.bits) - 1)
    flat = np.concatenate([flat, np.zeros(-len(flat) % per, np.uint8)]).reshape(-1, per)
    ups = (np.arange(per) * dtype.bits).astype(np.uint8)
    return np.bitwise_or.reduce(flat << ups, axis=1).astype(np.uint8)


def _unpacked(
    packed: np.ndarray[Any, Any], dtype: DType, like: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    per = 8 // dtype.bits
    ups = (np.arange(per) * dtype.bits).astype(np.uint8)
    flat = (
        (packed[:, None] >> ups & ((1 << dtype.bits) - 1)).reshape(-1)[: like.size].astype(np.int64)
    )
    if dtype.is_signed:
        flat = np.where(flat >> (dtype.bits - 1), flat - (1 << dtype.bits), flat)
    return flat.astype(like.dtype).reshape(like.shape)
