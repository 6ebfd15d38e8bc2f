"""The memory of the interpreter: a flat list for each buffer, and what fills it before any store.

In: arrays, shapes and strides. Out: lists of scalars, and their values back in the arrays. The one
idea: an element that was never stored is an object that raises when it is used, so that ordinary
elements cost nothing.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from tilewright.ir import scalar
from tilewright.ir.expr import Buffer
from tilewright.ir.stmt import Func
from tilewright.support.errors import UserFault


class InterpError(UserFault):
    """The program does something undefined, or the arguments do not fit it."""


def misfit(func: Func, why: str) -> NoReturn:
    raise InterpError(f"cannot run '{func.name}'", why)


class Pointer:
    """A position in a buffer, as an intrinsic gets it: `p[k]` is the k-th element from there."""

    __slots__ = ("buffer", "memory", "offset")

    def __init__(self, memory: list[Any], offset: int, buffer: Buffer) -> None:
        self.memory, self.offset, self.buffer = memory, offset, buffer

    def __getitem__(self, k: int) -> Any:
        return self.memory[self.position(k)]

    def __setitem__(self, k: int, value: Any) -> None:
        self.memory[self.position(k)] = value

    def position(self, k: int) -> int:
        if not 0 <= self.offset + k < len(self.memory):
            raise InterpError(
                "cannot run an intrinsic", f"it leaves '{self.buffer.name}' by {self.offset + k}"
            )
        return self.offset + k


class Undefined:
    """What memory holds before the first store. It may be copied; any other use raises."""

    __array_ufunc__ = None  # NumPy's scalars leave operators to this class
    __slots__ = ("message",)

    def __init__(self, func: Func, buffer: Buffer) -> None:
        self.message = (
            f"cannot run '{func.name}'",
            f"an element of '{buffer.name}' is used before anything was stored there",
        )


def _use(self: Undefined, *_: Any) -> NoReturn:
    raise InterpError(*self.message)


for _name in (
    "bool int float index neg abs invert lt le gt ge eq ne add radd sub rsub mul rmul truediv"
    " rtruediv floordiv rfloordiv mod rmod and rand or ror xor rxor lshift rlshift rshift rrshift"
).split():
    setattr(Undefined, f"__{_name}__", _use)


def memory_of(
    func: Func, buffer: Buffer, array: Any, shape: list[int], strides: list[int]
) -> list[Any]:
    """The elements of an array, laid out as the buffer's strides say."""
    fits = list(array.shape) == shape or (buffer.rank == 1 and array.size == shape[0])
    if not fits:
        misfit(func, f"'{buffer.name}' has shape {shape}, the array {list(array.shape)}")
    values = scalar.values_of(np.ascontiguousarray(array), buffer.dtype)
    if buffer.strides is None:
        return values
    memory: list[Any] = [Undefined(func, buffer)] * length(shape, strides)
    for offset, value in zip(offsets(shape, strides), values, strict=True):
        memory[offset] = value
    return memory


def length(shape: Sequence[int], strides: Sequence[int]) -> int:
    """How many elements a buffer spans."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def offsets(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """The flat offsets of all elements in row-major order."""
    positions = itertools.product(*map(range, shape))
    return [sum(map(operator.mul, position, strides)) for position in positions]


def give_back(buffer: Buffer, array: Any, memory: list[Any], strides: list[int]) -> None:
    """Copy memory to the caller's array."""
    if buffer.strides is not None:
        memory = [memory[n] for n in offsets(array.shape, strides)]
    for value in memory:
        if value.__class__ is Undefined:
            _use(value)
    array[...] = scalar.array_of(memory, buffer.dtype).reshape(array.shape)
