"""flatten: every buffer becomes one-dimensional.

In: stage "loops". Out: stage "flat": a buffer has one dimension, its length in elements, and an
access has one index. The order of a sum is kept from the outermost dimension inwards, so that what
does not change in inner loops stands first.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr import Buffer, Expr, Load, as_int, const
from tilewright.ir.stmt import Alloc, Func, Store
from tilewright.ir.walk import rewrite

VECTOR = 16  # elements of the rows of local buffers come in multiples of this


def flatten(func: Func) -> Func:
    """Give every access one index.

    rewrite:    C[i, j] = A[i, k]       →   C[i * 64 + j] = A[i * 8 + k]
    """
    flat: dict[Buffer, tuple[Buffer, tuple[Expr, ...]]] = {}

    def of(buffer: Buffer) -> tuple[Buffer, tuple[Expr, ...]]:
        found = flat.get(buffer)
        if found is None:
            if buffer.strides is None:
                shape = padded(buffer) if buffer.scope == "local" else buffer.shape
                strides = row_major(shape)
                length = shape[0] * strides[0] if shape else const(1)
            else:
                strides = buffer.strides
                length = _length(buffer.shape, strides)
            found = buffer.replace(shape=(length,), strides=None), strides
            flat[buffer] = found
        return found

    def change(n: Any) -> Any:
        if n.__class__ is Load:
            buffer, strides = of(n.buffer)
            return Load(buffer, (_offset(n.indices, strides),))
        if n.__class__ is Store:
            buffer, strides = of(n.buffer)
            return Store(buffer, (_offset(n.indices, strides),), n.value)
        return Alloc(of(n.buffer)[0], n.body)

    body = rewrite(func.body, (Load, Store, Alloc), change)
    params = tuple(of(p)[0] if isinstance(p, Buffer) else p for p in func.params)
    return func.replace(params=params, body=body)


def row_major(shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Strides, in elements, of a dense row-major array."""
    strides: list[Expr] = []
    step: Expr = const(1)
    for extent in reversed(shape):
        strides.append(step)
        step = extent * step
    return tuple(reversed(strides))


def padded(buffer: Buffer) -> tuple[Expr, ...]:
    """The shape of a local buffer with rows of whole vectors.

    A masked access at the end of a row then touches no other row, so that rows can be registers.
    """
    row = as_int(buffer.shape[-1]) if buffer.rank > 1 else None
    if row is None or row & (row - 1) == 0:
        return buffer.shape
    whole = 1 << (row - 1).bit_length() if row < VECTOR else (row + VECTOR - 1) // VECTOR * VECTOR
    return (*buffer.shape[:-1], const(whole))


def _length(shape: tuple[Expr, ...], strides: tuple[Expr, ...]) -> Expr:
    """Elements from the first to the last that an index can reach; rows are whole."""
    last: Expr = const(1)
    if len(shape) > 1 and as_int(strides[-1]) == 1:
        last, shape, strides = strides[-2], shape[:-1], strides[:-1]
    for extent, stride in zip(shape, strides, strict=True):
        last = last + (extent - 1) * stride
    return last


def _offset(indices: tuple[Expr, ...], strides: tuple[Expr, ...]) -> Expr:
    offset: Expr | None = None
    for index, stride in zip(indices, strides, strict=True):
        part = index * stride
        offset = part if offset is None else offset + part
    return const(0) if offset is None else offset
