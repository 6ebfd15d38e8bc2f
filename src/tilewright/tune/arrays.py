"""Arrays that candidates run on, and whether what they leave there is right.

In: a function of known sizes, perhaps the caller's arrays. Out: memory for each of its buffers,
which all candidates use, and in words what is wrong with it after a run. The one idea: before a
run that is checked, what a kernel is to write holds other values and the memory around every buffer
a pattern, so that what it leaves out and what it writes outside both show.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.codegen.inprocess import aligned, pack
from tilewright.ir.dtype import DType
from tilewright.ir.expr import Buffer, Cast, Expr, Load, as_int
from tilewright.ir.stmt import Func
from tilewright.ir.walk import loads, stores, visit
from tilewright.support.errors import CompileError, InputError

GUARD, PATTERN = 256, 0xA5  # bytes around each buffer, and what is in them
TOLERANCE = 1e-4  # of the largest value of a float result
Array = np.ndarray[Any, Any]


def elements(buffer: Buffer) -> int:
    """How many there are. Raises CompileError for a symbolic shape."""
    count = 1
    for d in buffer.shape:
        size = as_int(d)
        if size is None:
            raise CompileError(
                f"cannot measure a function of buffer '{buffer.name}'",
                "its shape is symbolic",
                remedy="give the symbols the sizes to be tuned at",
            )
        count *= size
    return count


def written(func: Func) -> tuple[Buffer, ...]:
    """The results among a function's buffers."""
    names = {s.buffer.name for s in stores(func.body)}
    return tuple(b for b in func.buffers if b.name in names)


class Arrays:
    """Memory for a function's buffers: `memory`, by name, flat, of each buffer's dtype (bytes where
    that is narrower than one). `inputs`: the caller's; the others are random, seeded, and legal.
    Raises InputError for an array that no buffer can hold, CompileError for symbolic sizes."""

    def __init__(self, func: Func, inputs: Mapping[str, Array], seed: int = 0) -> None:
        self.results = written(func)
        self.memory: dict[str, Array] = {}
        self._around: list[tuple[str, Array]] = []
        self._restored: list[tuple[Array, Array]] = []  # what results hold before a checked run
        known = {b.name: b for b in func.buffers}
        if unknown := [name for name in inputs if name not in known]:
            raise InputError(
                f"cannot measure '{func.name}' with {', '.join(map(repr, unknown))}",
                f"its buffers are {', '.join(known)}",
            )
        rng, limits = np.random.default_rng(seed), index_limits(func)
        read = {n.buffer.name for n in loads(func.body)}
        for b in func.buffers:
            array = self._allocate(b)
            is_result = b in self.results
            if b.name in inputs:
                array[...] = as_memory(inputs[b.name], b)
            elif is_result and b.name not in read:
                array[...] = np.nan if b.dtype.is_float else array
            else:
                array[...] = random(rng, b, array.size, limits.get(b.name))
            if is_result:
                self._restored.append((array, array.copy()))
            self.memory[b.name] = array

    def _allocate(self, buffer: Buffer) -> Array:
        count = elements(buffer)
        size = buffer.dtype.nbytes(count)
        raw = aligned(size + 2 * GUARD)
        self._around += [(buffer.name, raw[:GUARD]), (buffer.name, raw[GUARD + size :])]
        inside = raw[GUARD : GUARD + size]
        return inside if buffer.dtype.is_packed else inside.view(buffer.dtype.numpy)

    def restore(self) -> None:
        """Make results again what they were before any run."""
        for array, before in self._restored:
            array[...] = before

    def outcome(self) -> dict[str, Array]:
        """A copy of each result."""
        return {b.name: self.memory[b.name].copy() for b in self.results}

    def wrong(self, expected: Mapping[str, Array]) -> str:
        """How the results differ from the expected ones, "" if they do not; whether anything was
        written around a buffer."""
        for name, guard in self._around:
            if (guard != PATTERN).any():
                guard[...] = PATTERN
                return f"it writes outside of buffer '{name}'"
        for b in self.results:
            if told := difference(self.memory[b.name], expected[b.name], b.dtype):
                return f"in '{b.name}' {told}"
        return ""


def as_memory(array: Array, buffer: Buffer) -> Array:
    """A caller's array as a buffer holds it: flat. Raises InputError where it does not fit."""
    count, of = elements(buffer), buffer.dtype
    if array.size != count or array.dtype != of.numpy:
        raise InputError(
            f"cannot take an array for buffer '{buffer.name}'",
            f"it has {array.size} elements of {array.dtype}, expected {count} of {of.numpy}",
        )
    flat = np.ascontiguousarray(array).reshape(-1)
    return pack(flat, of) if of.is_packed else flat


def difference(found: Array, expected: Array, dtype: DType) -> str:
    """How two results differ, in words, or "". Floats may by `TOLERANCE` of the largest value, or
    by what their dtype can tell if that is more; infinite and undefined ones and all others must be
    the same."""
    if np.array_equal(found.view(np.uint8), expected.view(np.uint8)):
        return ""
    if not dtype.is_float:
        count = int((found != expected).sum())
        return f"{count} of {found.size} elements differ" if count else ""
    ours, theirs = found.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(theirs)
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    if count := int((~finite & ~same).sum() + (finite & ~np.isfinite(ours)).sum()):
        return f"{count} of {found.size} elements are undefined or infinite in one result only"
    if not finite.any():
        return ""
    least = 2.0 ** -mantissa(dtype)
    most = float(np.abs(theirs[finite]).max())
    away = float(np.abs(ours[finite] - theirs[finite]).max())
    if away <= max(TOLERANCE, 2 * least) * most:
        return ""
    return f"elements differ by {away:.3g}, the largest is {most:.3g}"


def mantissa(dtype: DType) -> int:
    """Bits behind the point of a float dtype."""
    kept = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7}
    return kept.get(dtype.name, 2)  # those of a byte have 2 or 3


def index_limits(func: Func) -> dict[str, int]:
    """Buffers whose elements are indices: what each of them must be less than, at most 1 where that
    does not follow from where they stand, so that they are all 0."""
    found: dict[str, int] = {}
    for access in visit(func.body):
        if not isinstance(access, Load):
            continue
        for index, size in zip(access.indices, access.buffer.shape, strict=True):
            for inner in loads(index):
                limit = as_int(size) if inner == _uncast(index) else 1
                name = inner.buffer.name
                found[name] = min(found.get(name, limit or 1), limit or 1)
    for store in stores(func.body):
        for inner in (load for index in store.indices for load in loads(index)):
            found[inner.buffer.name] = 1
    return found


def _uncast(e: Expr) -> Expr:
    """What is cast, if anything is."""
    return _uncast(e.a) if isinstance(e, Cast) else e


def random(rng: np.random.Generator, buffer: Buffer, size: int, limit: int | None) -> Array:
    """Numbers for a buffer: no integer is 0, which something may be divided by, unless it is an
    index, less than `limit`."""
    dtype = buffer.dtype
    if dtype.is_packed:
        return rng.integers(0, 256, size, np.uint8)
    if dtype.is_float:
        return (rng.standard_normal(size) / 8).astype(dtype.numpy)
    if dtype.is_bool:
        return rng.integers(0, 2, size).astype(dtype.numpy)
    if limit is not None:
        return rng.integers(0, max(1, limit), size).astype(dtype.numpy)
    magnitude = rng.integers(1, 100, size)
    signs = rng.choice((-1, 1), size) if dtype.is_signed else 1
    return (magnitude * signs).astype(dtype.numpy)
