"""Calibration: the constants of the analytic model, from code that this compiler generates.

In: the target "cpu" as it is on this machine. Out: constants of `Costs`. The one idea: each
constant is what one small kernel takes, in cycles; a cycle is what one of a chain of additions
takes, each of which waits for the one before. The kernels take turns, again and again, and the
shortest time of each counts: what else runs on the machine only ever takes away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt, prod

import numpy as np

from tilewright import te
from tilewright.codegen.inprocess import aligned
from tilewright.driver.build import build
from tilewright.graph.operator import OPERATORS
from tilewright.ir.dtype import f32
from tilewright.ir.expr import as_int
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import Func
from tilewright.ir.walk import stores
from tilewright.runtime.threads import default_threads
from tilewright.strategy.cpu.tiles import register_tile, tiled_cycles
from tilewright.strategy.select import default
from tilewright.target.costs import COMMON, changed, rounded
from tilewright.target.target import Target

SECONDS = 8.0  # for all turns; the kernels are built in another second or two
SLICE = 0.004  # of one turn
CHAIN = 1_000_000  # steps of two additions
STEPS = 500_000  # multiply-adds of vectors that a kernel makes, or vectors that it reads
ACCUMULATORS = 12  # enough to hide a latency of 5 at two a cycle, few enough for 16 registers
LONG, WIDE = (8, 1), (1, 8)  # rows × vectors of tiles that load more than they multiply
STREAM = (1, 4)  # of one that waits for its weights
MOST_READ = 256 << 20  # bytes from memory
TILES, EDGE = 14, 4  # Winograd's tiles along each side of an image, results along a tile's
REGIONS, CHUNKS, CHUNK = 32, 16, 128  # parallel regions, chunks of each, steps of a chunk

Cycles = Mapping[str, float]


@dataclass
class Probe:
    """A kernel with its arrays, how much it does, and the shortest time that it took."""

    func: Func
    count: int
    target: Target
    threads: int = 1
    seconds: float = float("inf")

    def __post_init__(self) -> None:
        self.kernel = build(self.func, self.target, threads=self.threads)
        written = {s.buffer.name for s in stores(self.func.body)}
        self.inputs, self.outputs = list[np.ndarray](), list[np.ndarray]()
        for buffer in self.func.buffers:
            shape = tuple(as_int(size) or 1 for size in buffer.shape)
            array = (
                aligned(buffer.dtype.nbytes(prod(shape))).view(buffer.dtype.numpy).reshape(shape)
            )
            array[...] = 0.5 if buffer.dtype.is_float else 5
            (self.outputs if buffer.name in written else self.inputs).append(array)

    def turn(self) -> None:
        """Run for a slice of time, once at least."""
        end = time.perf_counter() + SLICE
        while (start := time.perf_counter()) < end:
            self.kernel.run_into(self.outputs, self.inputs)
            self.seconds = min(self.seconds, time.perf_counter() - start)


def calibrate(
    target: Target,
    seconds: float = SECONDS,
    progress: Callable[[float], object] = lambda done: None,
) -> dict[str, float]:
    """Those constants of `Costs` that can be measured, of this machine, described by `target`; two
    digits of each. `progress` is told which part of the time is over."""
    threads = min(target.cores, default_threads())
    made = {name: Probe(func, count, target) for name, (func, count) in probes(target).items()}
    if threads > 1:
        made["serial"] = Probe(regions("serial"), REGIONS, target)
        made["parallel"] = Probe(regions("parallel"), REGIONS, target, threads)
    start = time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        progress(spent / seconds)
        for probe in made.values():
            probe.turn()
    progress(1.0)
    cycle = made["clock"].seconds / made["clock"].count
    each = {name: probe.seconds / probe.count / cycle for name, probe in made.items()}
    found = constants(each, target.lanes(f32.bits), target.vector_registers, threads)
    return {name: rounded(value) for name, value in found.items()}


def constants(each: Cycles, lanes: int, registers: int, threads: int) -> dict[str, float]:
    """The constants, from the cycles that a unit of each kernel's work takes."""
    found = {
        "multiply_adds": 1 / each["multiply_adds"],
        "latency": each["latency"],
        "loads": 2 / (each["long"] + each["wide"]),
    }
    read = ("l2", "l3", "memory")
    found |= {name: f32.nbytes(lanes) / each[name] for name in read if name in each}
    if "winograd" in each:
        count, costs = TILES**2, changed(COMMON, found)
        rows, vectors = register_tile(count, 2, registers, costs=costs)
        products = 2 * lanes * tiled_cycles(count, 2, rows, vectors, costs)
        products /= 4 * count  # for each vector that is transformed
        found["transform"] = max(1.0, each["winograd"] - products)
    if "parallel" in each:
        found["fork_join"] = max(100.0, each["parallel"] - each["serial"] / threads)
    return found


def probes(target: Target) -> dict[str, tuple[Func, int]]:
    """The kernels of one thread, each with how much it does: additions, multiply-adds of vectors,
    loads, vectors of weights, vectors that are transformed."""
    lanes = target.lanes(f32.bits)
    caches = [cache.size for cache in target.caches]
    made = {
        "clock": (clock(), 2 * CHAIN),
        "multiply_adds": chains(ACCUMULATORS, lanes),
        "latency": chains(1, lanes),
    }
    for name, (rows, vectors) in (("long", LONG), ("wide", WIDE)):
        func, read = tile(rows, vectors, caches[0] // 2, lanes)
        made[name] = func, read // vectors * (rows + vectors)
    # From a cache comes what is as many times larger than the one before as it is smaller.
    for name, (small, large) in zip(("l2", "l3"), pairwise(caches), strict=False):
        made[name] = tile(*STREAM, isqrt(small * large), lanes)
    made["memory"] = tile(*STREAM, min(4 * caches[-1], MOST_READ), lanes)
    if lanes > 1:
        made["winograd"] = winograd(target)
    return made


def clock() -> Func:
    """Additions (and exclusive ors, so that they do not become one), each of the one before."""
    return parse_func(f"""
def clock(K: i64[1], X: i64[1]):
    X[0] = i64(1)
    for i in serial(0, {CHAIN}):
        X[0] = (X[0] + i) ^ K[0]
""")


def chains(count: int, lanes: int) -> tuple[Func, int]:
    """So many chains of multiply-adds of vectors, all in registers."""
    steps = STEPS // count
    text = f"""
def chains(X: f32[{lanes}], R: f32[{count}, {lanes}]):
    A = alloc(f32[{count}, {lanes}], "local")
    for a in unroll(0, {count}):
        for i in vectorize(0, {lanes}):
            A[a, i] = X[i] + f32(a)
    for k in serial(0, {steps}):
        for b in unroll(0, {count}):
            for j in vectorize(0, {lanes}):
                A[b, j] = A[b, j] * X[j] + X[j]
    for c in unroll(0, {count}):
        for l in vectorize(0, {lanes}):
            R[c, l] = A[c, l]
"""
    return parse_func(text), steps * count


def tile(rows: int, vectors: int, size: int, lanes: int) -> tuple[Func, int]:
    """A product's register tile of rows × vectors over `size` bytes of weights, several times."""
    depth = size // f32.nbytes(vectors * lanes) or 1
    times = -(-STEPS // (depth * vectors))
    text = f"""
def tile(
    X: f32[{rows}, {depth}], W: f32[{vectors}, {depth}, {lanes}],
    R: f32[{rows}, {vectors}, {lanes}]
):
    A = alloc(f32[{rows}, {vectors}, {lanes}], "local")
    for t in serial(0, {times}):
        for a in unroll(0, {rows}):
            for b in unroll(0, {vectors}):
                for i in vectorize(0, {lanes}):
                    A[a, b, i] = f32(t)
        for k in serial(0, {depth}):
            for c in unroll(0, {rows}):
                for d in unroll(0, {vectors}):
                    for j in vectorize(0, {lanes}):
                        A[c, d, j] = A[c, d, j] + X[c, k] * W[d, k, j]
        for e in unroll(0, {rows}):
            for f in unroll(0, {vectors}):
                for l in vectorize(0, {lanes}):
                    R[e, f, l] = A[e, f, l]
"""
    return parse_func(text), times * depth * vectors


def winograd(target: Target) -> tuple[Func, int]:
    """Winograd's convolution of two vectors of channels to as many, as its strategy has it."""
    lanes, taps, image = target.lanes(f32.bits), EDGE + 2, TILES * EDGE
    x = te.placeholder((1, 2, image, image, lanes), name="x")
    w = te.placeholder((2, taps, taps, 2, lanes, lanes), name="w")
    y = OPERATORS["winograd_packed"].define(x, w, pads=((1, 1), (1, 1)))
    func = default(te.func("winograd", [x, w], [y]), target).func
    return func, taps**2 * TILES**2 * 4  # two vectors of channels there, two back


def regions(kind: str) -> Func:
    """Loops one after another, each with chunks of work that touch cache lines of their own."""
    body = "".join(
        f"""
    for p{n} in {kind}(0, {CHUNKS}):
        R[{n}, p{n}, 0] = i64(p{n})
        for i{n} in serial(0, {CHUNK}):
            R[{n}, p{n}, 0] = (R[{n}, p{n}, 0] + i{n}) ^ K[0]"""
        for n in range(REGIONS)
    )
    return parse_func(f"def regions(K: i64[1], R: i64[{REGIONS}, {CHUNKS}, 8]):{body}\n")
