"""Kernels by themselves: a schedule compiled to code that can be kept, and timed alone.

In: a schedule of a kernel of static sizes. Out: `Code`, plain data that processes can exchange, and
from it a `Run` on random arrays. The arrays stay where they are between runs, so small kernels are
measured in cache.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from tilewright.codegen.inprocess import aligned, launch, map_image
from tilewright.codegen.link import CodeImage, link
from tilewright.codegen.llvm import Entry, emit
from tilewright.codegen.llvm_compile import compile_object
from tilewright.ir.expr import Buffer, as_int
from tilewright.ir.stmt import Func
from tilewright.ir.walk import stores
from tilewright.lower.pipeline import lower
from tilewright.target.target import Target


@dataclass(frozen=True)
class Code:
    """A compiled kernel: its code, what to call in order, and its buffers."""

    image: CodeImage
    entries: tuple[Entry, ...]
    buffers: tuple[Buffer, ...]
    workspace: tuple[Buffer, ...]


def code(func: Func, machine: Target) -> Code:
    """The code of a scheduled function."""
    emitted = emit(lower(func, machine), machine)
    image = link([compile_object(emitted.text, machine)], [e.symbol for e in emitted.entries])
    return Code(image, emitted.entries, func.buffers, emitted.workspace)


def elements(buffer: Buffer) -> int:
    """How many there are. Raises ValueError for a symbolic shape."""
    count = 1
    for d in buffer.shape:
        size = as_int(d)
        if size is None:
            raise ValueError(f"buffer '{buffer.name}' has a symbolic shape")
        count *= size
    return count


def memory(func: Func, seed: int = 0) -> dict[str, np.ndarray]:
    """An array for each buffer of a function: random numbers; whole ones are 0, which every index
    may be; NaN where it writes."""
    random, found = np.random.default_rng(seed), {}
    results = {s.buffer.name for s in stores(func.body)}
    for buffer in func.buffers:
        count = elements(buffer)
        raw = aligned(buffer.dtype.nbytes(count))
        array = raw.view(buffer.dtype.numpy)[:count]
        if buffer.name in results:
            array[...] = np.nan if buffer.dtype.is_float else 0
        elif buffer.dtype.is_float:
            array[...] = random.standard_normal(count) / 8
        else:
            array[...] = 0
        found[buffer.name] = array
    return found


class Run:
    """A kernel bound to its arrays, ready to be called."""

    def __init__(self, made: Code, arrays: dict[str, np.ndarray]) -> None:
        self.mapping, address = map_image(made.image)
        space = {b.name: aligned(b.dtype.nbytes(elements(b))) for b in made.workspace}
        entries = made.image.entries
        self.calls = [
            launch(address + entries[e.symbol], e, {**arrays, **space}, {}) for e in made.entries
        ]

    def __call__(self) -> None:
        for call in self.calls:
            call()

    def seconds(self, budget: float, least: int = 3) -> float:
        """The shortest of several runs: at least `least` of them, and as many as fit `budget`."""
        shortest, end, done = float("inf"), time.perf_counter() + budget, 0
        while done < least or time.perf_counter() < end:
            start = time.perf_counter()
            self()
            shortest = min(shortest, time.perf_counter() - start)
            done += 1
        return shortest
