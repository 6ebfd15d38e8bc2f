"""One operator: its schedules checked against the reference, then timed beside the libraries.

In: an operator, a machine, a number of threads. Out: a `Row` of the table. The one idea: all take
short turns in one process on the same inputs, and the machine's rates are measured in the same
minutes, so that what else runs on the machine takes away from all of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.tuning.operator import Arrays, Operator, error, several
from benchmarks.tuning.rates import Meter, Rates, attainable, limit
from benchmarks.tuning.tuned import tuned
from tilewright.driver.build import build
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.select import default
from tilewright.target.target import Target

ROUNDS = 10
TOLERANCE = 1e-4  # of the largest value; whole numbers are equal


class WrongResult(Exception):
    """A schedule does not compute its operator."""


@dataclass
class Subject:
    """Something that computes an operator: `call` does so once on inputs that it holds."""

    name: str
    call: Callable[[], Any]
    times: list[float] = field(default_factory=list)

    def turn(self, slice: float) -> None:
        """Call for a slice of time, once at least."""
        end = time.perf_counter() + slice
        while (start := time.perf_counter()) < end:
            self.call()
            self.times.append(time.perf_counter() - start)


@dataclass(frozen=True)
class Seconds:
    """The shortest and the median time of a subject's calls."""

    minimum: float
    median: float


@dataclass(frozen=True)
class Row:
    """An operator in the table. attainable: seconds that it takes at least; limit: "compute" or
    "memory"; found: by the names of subjects "default", "tuned", "numpy", "torch" or "compiled"."""

    operator: str
    what: str
    attainable: float
    limit: str
    found: dict[str, Seconds]

    def part(self, name: str) -> float | None:
        """What part of the attainable rate a subject reached, in minima; None where it is not."""
        return self.attainable / self.found[name].minimum if name in self.found else None

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def compare(
    operator: Operator,
    target: Target,
    threads: int,
    seconds: float,
    meter: Meter,
    *,
    tuning: float = 0.0,
    torch: Any = None,
    seed: int = 0,
) -> Row:
    """Check and time an operator for about `seconds`; `tuning` are those of the search for a tuned
    schedule; `torch` is the module, or None to leave it out.

    Raises:
        WrongResult: a schedule's results are not those of the reference.
    """
    inputs = operator.inputs(seed)
    expected = operator.expected(inputs)
    schedules = {
        "default": default(operator.func, target, threads),
        "tuned": tuned(operator.func, target, threads, tuning) if tuning else None,
    }
    subjects = [
        scheduled(name, operator, schedule, target, threads, inputs, expected)
        for name, schedule in schedules.items()
        if schedule is not None
    ]
    if operator.numpy is not None:
        subjects.append(library("numpy", lambda: operator.numpy(*inputs), expected))  # type: ignore[misc]
    if torch is not None and operator.torch is not None:
        subjects.append(in_torch(operator, inputs, expected, torch))
    slice = seconds / (ROUNDS * len(subjects))
    for turn in range(ROUNDS):
        first = turn % len(subjects)
        for subject in subjects[first:] + subjects[:first]:
            subject.turn(slice)
        meter.turn()
    found = {s.name: Seconds(min(s.times), statistics.median(s.times)) for s in subjects}
    return judged(operator, found, meter.rates())


def judged(operator: Operator, found: dict[str, Seconds], rates: Rates) -> Row:
    """The row, by the rates that the machine has shown until now."""
    least, which = attainable(operator, rates), limit(operator, rates)
    return Row(operator.name, operator.what, least, which, found)


def scheduled(
    name: str,
    operator: Operator,
    schedule: Schedule,
    target: Target,
    threads: int,
    inputs: Arrays,
    expected: Arrays,
) -> Subject:
    """A schedule, compiled, whose results are right."""
    results = operator.outputs()
    exe = build(schedule, target, threads=threads)
    exe.run_into(results, inputs)
    off = error(results, expected)
    if off > TOLERANCE:
        raise WrongResult(f"the {name} schedule of {operator.name} is off by {off:.2g}")
    return Subject(name, lambda: exe.run_into(results, inputs))


def library(name: str, call: Callable[[], Any], expected: Arrays) -> Subject:
    """A library's expression, whose results are right."""
    off = error(several(call()), expected)
    if off > TOLERANCE:
        raise WrongResult(f"{name}'s expression is off by {off:.2g}")
    return Subject(name, call)


def in_torch(operator: Operator, inputs: Arrays, expected: Arrays, torch: Any) -> Subject:
    """torch's expression, compiled where torch.compile takes it ("compiled"), else as it stands
    ("torch")."""
    tensors = [torch.from_numpy(array) for array in inputs]

    def expression(*given: Any) -> Any:
        return operator.torch(torch, *given)  # type: ignore[misc]

    def calling(function: Callable[..., Any]) -> Callable[[], Any]:
        def call() -> Any:
            with torch.no_grad():
                return function(*tensors)

        return call

    if operator.torch_compiles:
        try:
            compiled = calling(torch.compile(expression, dynamic=False))
            return library("compiled", compiled, expected)
        except Exception:  # whatever its compiler runs into
            torch._dynamo.reset()
    return library("torch", calling(expression), expected)
