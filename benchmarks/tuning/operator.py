"""An operator of the bench: what it computes, three times, and how much work that is.

In: the sizes that a maker is called with. Out: an `Operator`: its tensor expression, random inputs,
a reference, and expressions of libraries to be compared with. The one idea: work is counted by
hand, as the least that any schedule of the expression must do, so that a limit follows from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.ir.expr import as_int
from tilewright.ir.stmt import Func
from tilewright.ir.walk import stores

Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Traffic:
    """bytes: how many are moved at least; within: the bytes of the arrays that they are of, which
    tell from which cache they come when the operator runs again and again."""

    bytes: int
    within: int


@dataclass(frozen=True)
class Work:
    """The least that an operator does. steps: how often it does each kind of step, by the names of
    `rates.STEPS`, counted for single elements; traffic: what it moves."""

    steps: Mapping[str, int]
    traffic: tuple[Traffic, ...] = ()


@dataclass(frozen=True)
class Operator:
    """An operator at some sizes.

    what: it in one line. func: the tensor expression, in stage "blocks". draw: random inputs in the
    order of the parameters, every index a legal one. reference: the result, or a tuple of several,
    of inputs whose floats are float64 and whose whole numbers are int64. work: see `Work`; without
    traffic every parameter is moved once. numpy: the same in the inputs' own dtypes and as fast as
    NumPy can, where it can say it. torch: an expression of the module torch and tensors;
    torch_compiles: whether torch.compile takes it, and in less than minutes.
    """

    name: str
    what: str
    func: Func
    draw: Callable[[np.random.Generator], Arrays]
    reference: Callable[..., Any]
    work: Work
    numpy: Callable[..., Any] | None = None
    torch: Callable[..., Any] | None = None
    torch_compiles: bool = True

    def __post_init__(self) -> None:
        if not self.work.traffic:
            size = sum(nbytes(self.func).values())
            object.__setattr__(self, "work", replace(self.work, traffic=(Traffic(size, size),)))

    def inputs(self, seed: int = 0) -> Arrays:
        """Random inputs."""
        return self.draw(np.random.default_rng(seed))

    def outputs(self) -> Arrays:
        """Arrays for the results, full of what is no result."""
        written = {s.buffer.name for s in stores(self.func.body)}
        found = []
        for buffer in self.func.buffers:
            if buffer.name in written:
                array = np.empty([as_int(d) or 0 for d in buffer.shape], buffer.dtype.numpy)
                array[...] = np.nan if buffer.dtype.is_float else -99
                found.append(array)
        return tuple(found)

    def expected(self, inputs: Arrays) -> Arrays:
        """The reference's results."""
        return several(self.reference(*map(exact, inputs)))


def nbytes(func: Func) -> dict[str, int]:
    """Bytes of each parameter, by its name."""
    sizes = {}
    for buffer in func.buffers:
        count = 1
        for d in buffer.shape:
            count *= as_int(d) or 0
        sizes[buffer.name] = buffer.dtype.nbytes(count)
    return sizes


def exact(array: np.ndarray) -> np.ndarray:
    """The array, in which sums lose next to nothing."""
    return array.astype(np.float64 if array.dtype.kind == "f" else np.int64)


def several(results: Any) -> Arrays:
    """One result or a tuple of them, as a tuple of arrays."""
    return tuple(map(np.asarray, results if isinstance(results, tuple) else (results,)))


def error(got: Arrays, expected: Arrays) -> float:
    """The largest difference over the largest value, of the worst result; infinite where a shape, a
    NaN or a whole number differs."""
    worst = 0.0
    for mine, theirs in zip(got, expected, strict=True):
        if mine.shape != theirs.shape:
            return float("inf")
        if mine.dtype.kind != "f":
            worst = max(worst, 0.0 if np.array_equal(mine, theirs) else float("inf"))
            continue
        largest = max(float(np.abs(theirs).max(initial=0)), 1e-30)
        difference = float(np.abs(mine - theirs).max(initial=0)) / largest
        worst = max(worst, difference if np.isfinite(difference) else float("inf"))
    return worst


def normal(random: np.random.Generator, *shape: int) -> np.ndarray:
    """f32 numbers of the standard normal distribution."""
    return random.standard_normal(shape, dtype=np.float32)


def eighths(random: np.random.Generator, *shape: int) -> np.ndarray:
    """f32 multiples of 1/8 between -2 and 2: their products and short sums are exact, so that the
    index of an extreme does not depend on rounding."""
    return random.integers(-16, 17, shape).astype(np.float32) / 8
