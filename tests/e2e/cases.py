"""One case: a model of the zoo at one batch size through one frontend; `judge` gives its figures.

The reference is onnxruntime for the ONNX file and eager PyTorch for the module. The error is the
largest |difference| over the largest |value|, over all outputs and `SEEDS` fresh random inputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import onnxruntime
import torch

import tilewright as tw
from tests import zoo
from tests.zoo import registry

SEEDS = range(1, 6)
MOST_ERROR = 1e-4
MOST_ARENA = 1.10  # times the largest live set
FRONTENDS = ("onnx", "torch")
MODULES = frozenset(registry.TABLE)  # the others come as files

Arrays = list[np.ndarray]


@dataclass(frozen=True, order=True)
class Case:
    """A model, a batch size and a frontend."""

    name: str
    batch: int
    frontend: str

    def __str__(self) -> str:
        return f"{self.name}-b{self.batch}-{self.frontend}"


@dataclass(frozen=True)
class Figures:
    """What a case gave. arena: planned bytes over those of the largest live set; compile: s."""

    error: float
    arena: float
    compile: float

    @property
    def faults(self) -> list[str]:
        """Which limits are broken."""
        found = []
        if not self.error <= MOST_ERROR:
            found.append(f"error {self.error:.1e} > {MOST_ERROR:.0e}")
        if self.arena > MOST_ARENA:
            found.append(f"arena {self.arena:.3f} > {MOST_ARENA}")
        return found


def cases() -> Iterator[Case]:
    """Every case: modules through both frontends, files of the onnx package through one."""
    for name in zoo.names():
        for batch in zoo.batches(name):
            for frontend in FRONTENDS if name in MODULES else FRONTENDS[:1]:
                yield Case(name, batch, frontend)


def in_turn() -> Iterator[Case]:
    """Of modules of several batch sizes, which go through several frontends, each of both with one
    of the others: every second model batch 1 through the first frontend."""
    for case in cases():
        batches = zoo.batches(case.name)
        both = len(batches) > 1 and case.name in MODULES
        numbers = (
            zoo.names().index(case.name),
            batches.index(case.batch),
            FRONTENDS.index(case.frontend),
        )
        if not both or sum(numbers) % 2 == 0:
            yield case


def judge(case: Case, threads: int | None = None) -> Figures:
    """Compile the case and compare it with its reference on fresh inputs."""
    model = zoo.model(case.name, case.batch)
    reference = of_onnxruntime(model) if case.frontend == "onnx" else of_eager(model)
    start = time.perf_counter()
    if case.frontend == "onnx":
        exe = tw.compile(model.onnx_path, threads=threads, cache=False)
    else:
        example = tuple(map(torch.from_numpy, model.inputs(0).values()))
        exe = tw.compile(model.module, example_inputs=example, threads=threads, cache=False)
    seconds = time.perf_counter() - start
    errors = [0.0]
    for seed in SEEDS:
        arrays = list(model.inputs(seed).values())
        errors.append(error(exe(*arrays), reference(arrays)))
    notes = exe.manifest.notes
    arena = notes["arena_bytes"] / max(1, notes["arena_live_bytes"])
    return Figures(max(errors), arena, seconds)


def of_onnxruntime(model: zoo.Model) -> Callable[[Arrays], Arrays]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.onnx_path, options)
    names = [entry.name for entry in session.get_inputs()]
    return lambda arrays: session.run(None, dict(zip(names, arrays, strict=True)))


def of_eager(model: zoo.Model) -> Callable[[Arrays], Arrays]:
    module = model.module
    assert module is not None

    def run(arrays: Arrays) -> Arrays:
        with torch.no_grad():
            return [y.numpy() for y in module(*map(torch.from_numpy, arrays))]

    return run


def error(found: Arrays, expected: Arrays) -> float:
    """The largest difference over the largest value; infinite where they cannot be compared."""
    if len(found) != len(expected):
        return float("inf")
    worst = 0.0
    for a, b in zip(found, expected, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype or not np.isfinite(a).all():
            return float("inf")
        if a.size:
            difference = np.abs(a.astype(np.float64) - b.astype(np.float64)).max()
            worst = max(worst, float(difference / max(np.abs(b).max(), np.finfo(np.float32).tiny)))
    return worst
