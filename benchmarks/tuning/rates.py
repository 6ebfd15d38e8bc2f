"""Rates: what the machine does at best, and the least time that an operator needs on it.

In: a machine and a number of threads; an operator. Out: `Rates`, measured, and `attainable`
seconds. The one idea: an operator is done no sooner than its steps at the rates of the vector
units, and no sooner than its bytes from the cache where they lie, whichever takes longer.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from benchmarks.tuning.operator import Operator, Traffic
from benchmarks.tuning.rate_kernels import KINDS, Kernel, levels, read_kernel, step_kernel
from tilewright.codegen.inprocess import aligned
from tilewright.driver.build import build
from tilewright.ir.dtype import f32
from tilewright.ir.expr import as_int
from tilewright.ir.walk import stores
from tilewright.target.target import Target

SLICE = 0.002  # seconds of one kernel in a turn


@dataclass(frozen=True)
class Rates:
    """The best that so many threads showed. steps: single elements a second of each kind of step;
    bytes: of each cache from L1 on, then of memory, the largest working set that comes from it
    (memory: 0) and bytes a second."""

    threads: int
    steps: Mapping[str, float]
    bytes: tuple[tuple[int, float], ...]

    def bandwidth(self, working_set: int) -> float:
        """Bytes a second for arrays of so many bytes, which are read again and again."""
        return next(rate for size, rate in self.bytes if working_set <= size or not size)

    def describe(self) -> str:
        """The rates in a line each, in 10⁹ steps or bytes a second."""
        names = [f"L{n}" for n in range(1, len(self.bytes))] + ["memory"]
        steps = ", ".join(f"{name} {rate / 1e9:.3g}" for name, rate in self.steps.items())
        read = ", ".join(
            f"{name} {rate / 1e9:.3g}" for name, (_, rate) in zip(names, self.bytes, strict=True)
        )
        return f"10⁹ steps a second: {steps}\n10⁹ bytes a second: {read}"


def attainable(operator: Operator, rates: Rates) -> float:
    """Seconds that the operator takes at least.

    The larger of two times. That of its steps: of each kind how many the expression says, for
    single elements, over the measured rate of that kind; kinds are added up, as if they shared
    units (where they do not, a schedule that overlaps them can be faster, by less than 2 in theory
    and little in practice). No algebra is assumed: a product counts its m·n·k, a window all its
    elements. That of its bytes: inputs and results once each (of look-ups every row that is looked
    up), over the rate at which the cache that holds all arrays together is read; a working set that
    is a little too large for a cache counts as if all came from the next one, so that schedules
    that keep a part of it may be faster. What lies between is not counted: operands that come from
    L1 again and again, edges of tiles, stores, and intermediate results, which can stay in L1.
    """
    return max(step_seconds(operator, rates), byte_seconds(operator, rates))


def step_seconds(operator: Operator, rates: Rates) -> float:
    """Seconds of its steps alone."""
    return sum(count / rates.steps[kind] for kind, count in operator.work.steps.items())


def byte_seconds(operator: Operator, rates: Rates) -> float:
    """Seconds of its bytes alone."""

    def seconds(moved: Traffic) -> float:
        return moved.bytes / rates.bandwidth(moved.within)

    return sum(map(seconds, operator.work.traffic))


def limit(operator: Operator, rates: Rates) -> str:
    """Which of the two takes longer: "compute" or "memory"."""
    steps, moved = step_seconds(operator, rates), byte_seconds(operator, rates)
    return "compute" if steps >= moved else "memory"


@dataclass
class Probe:
    """A kernel with its arrays, and the shortest time that a call took."""

    kernel: Kernel
    target: Target
    threads: int
    seconds: float = field(default=float("inf"), init=False)

    def __post_init__(self) -> None:
        func = self.kernel.func
        self.call = build(func, self.target, threads=self.threads)
        written = {s.buffer.name for s in stores(func.body)}
        self.inputs, self.outputs = list[np.ndarray](), list[np.ndarray]()
        for buffer in func.buffers:
            shape = tuple(as_int(size) or 1 for size in buffer.shape)
            raw = aligned(buffer.dtype.nbytes(int(np.prod(shape))))
            array = raw.view(buffer.dtype.numpy).reshape(shape)
            array[...] = 0.25 if buffer.dtype.is_float else 1
            (self.outputs if buffer.name in written else self.inputs).append(array)

    def turn(self, slice: float = SLICE) -> None:
        """Run for a slice of time, once at least."""
        end = time.perf_counter() + slice
        while (start := time.perf_counter()) < end:
            self.call.run_into(self.outputs, self.inputs)
            self.seconds = min(self.seconds, time.perf_counter() - start)

    @property
    def rate(self) -> float:
        return self.kernel.amount / self.seconds


class Meter:
    """The kernels of all rates, to be run in turns between what is judged by them: of each the best
    turn counts, so that they are the rates of the same minutes."""

    def __init__(self, target: Target, threads: int) -> None:
        lanes = target.lanes(f32.bits)
        self.threads = threads
        self.levels = levels(target, threads)
        self.steps = {
            name: [Probe(step_kernel(way, lanes, threads), target, threads) for way in ways]
            for name, ways in KINDS.items()
        }
        self.reads = [
            Probe(read_kernel(n, lanes, threads), target, threads) for _, n in self.levels
        ]

    def turn(self) -> None:
        """One slice of each kernel: some 50 ms, and more where memory is slow."""
        for probe in [*self.reads, *(p for ways in self.steps.values() for p in ways)]:
            probe.turn()

    def rates(self) -> Rates:
        """The best until now."""
        return Rates(
            self.threads,
            {name: max(p.rate for p in ways) for name, ways in self.steps.items()},
            tuple((size, p.rate) for (size, _), p in zip(self.levels, self.reads, strict=True)),
        )
