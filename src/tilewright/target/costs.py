"""Costs: the constants by which the strategies' analytic model tells one choice from another.

In: a processor's name and the width of its vectors, or a text. Out: a frozen `Costs`, ten numbers
in cycles of one core. The one idea: the model is the same for all machines, and what differs
between them stands in one record; a target carries it, and its line says what is not the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields, replace

from tilewright.support.record import record
from tilewright.target.processors import ONE_WIDE_PORT


def _constant(default: float, unit: str, decides: str) -> float:
    return field(default=default, metadata={"unit": unit, "decides": decides})


@record
class Costs:
    """What the model knows of a machine: what one core does in a cycle, with vectors as wide as the
    target's, or how many cycles something takes."""

    multiply_adds: float = _constant(2.0, "vectors a cycle", "tiles; where Winograd pays")
    latency: float = _constant(4.0, "cycles", "least accumulators of a tile")
    loads: float = _constant(1.5, "loads a cycle", "how square a tile is")
    l2: float = _constant(24.0, "bytes a cycle", "tiles whose weights leave L1")
    l3: float = _constant(16.0, "bytes a cycle", "tiles whose weights leave L2")
    memory: float = _constant(5.0, "bytes a cycle", "the edge of Winograd's tiles")
    overlap_penalty: float = _constant(0.25, "of the shorter", "tiles: loads beside multiply-adds")
    loop: float = _constant(1.0, "cycles a step", "tiles: many small against few large")
    transform: float = _constant(
        8.0, "cycles a vector", "where Winograd pays, the edge of its tiles"
    )
    fork_join: float = _constant(4096.0, "cycles", "what is worth more than one thread")

    @property
    def of_halves(self) -> Costs:
        """The same for half a vector: where one unit makes a whole one of two halves, it takes half
        as long; elsewhere it takes as long."""
        fast = max(1.0, min(2.0, UNITS / self.multiply_adds))
        rates = "multiply_adds", "loads", "l2", "l3"
        found = {name: getattr(self, name) * fast for name in rates}
        found |= {name: getattr(self, name) / fast for name in ("latency", "loop", "transform")}
        return replace(self, **found)

    @property
    def has_halves(self) -> bool:
        """Whether half a vector takes much less time than a whole one."""
        return self.multiply_adds <= GAIN * self.of_halves.multiply_adds

    def __post_init__(self) -> None:
        for name in NAMES:
            value = getattr(self, name)
            if not LEAST <= value <= MOST:
                raise ValueError(f"{name}:{value} is not between {LEAST:g} and {MOST:g}")


NAMES = tuple(f.name for f in fields(Costs))
LEAST, MOST = 1e-3, 1e7  # what no machine is beyond
UNITS = 2.0  # multiply-adds a cycle of vectors that are not full: a machine has two units for them
GAIN = 0.8  # of a whole vector's time, at most, is much less
COMMON = Costs()
WIDE = replace(COMMON, memory=6.0, transform=13.0)  # vectors of 64 bytes; each moves twice as much
# Halves of a vector are done one after the other there: whatever vectors do takes twice as long.
HALVES = replace(WIDE, multiply_adds=1.0, latency=8.0, loads=0.75, l2=12.0, l3=8.0, loop=2.0)


def default(cpu: str, vector_bytes: int) -> Costs:
    """The costs of a machine that nobody calibrated."""
    if vector_bytes < 64:
        return COMMON
    return HALVES if cpu in ONE_WIDE_PORT else WIDE


def changed(costs: Costs, found: Mapping[str, object]) -> Costs:
    """`costs` with other numbers for the constants named. Raises ValueError that names the one at
    fault."""
    for name, value in found.items():
        if name not in NAMES:
            raise ValueError(f"there is no constant '{name}'; known: {', '.join(NAMES)}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{name}:{value} is not a number")
    return replace(costs, **found)  # type: ignore[arg-type]


def read(costs: Costs, text: str) -> Costs:
    """`costs` with the constants of a text such as "loads:0.9,memory:8". Raises ValueError."""
    found: dict[str, object] = {}
    for word in text.split(","):
        name, _, value = word.partition(":")
        try:
            found[name] = float(value)
        except ValueError:
            found[name] = f"'{value}'"
    return changed(costs, found)


def written(costs: Costs, beside: Costs) -> str:
    """What differs between the two, as `read` takes it; "" for nothing."""
    names = (n for n in NAMES if getattr(costs, n) != getattr(beside, n))
    return ",".join(f"{n}:{getattr(costs, n)!r}" for n in names)


def rounded(value: float) -> float:
    """Two digits of it: what varies a little from one measurement to the next moves no pick."""
    return float(f"{value:.2g}")
