"""A functional model of the accelerator: three units that run at once and wait for tokens only.

In: a program and arrays. Out: the arrays as the machine leaves them. Which unit takes the next step
is drawn at random; an instruction reads when it starts and writes when it is done, so that whatever
is not ordered by tokens shows. Clocks that travel with the tokens tell for each access whether it
is ordered after what it conflicts with: a race is found in every interleaving, not only in an
unlucky one.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from tilewright.codegen.accel import UNITS, Instruction, Program, Tile
from tilewright.target.accel import TILE


class Race(Exception):
    """Two units touch a place, one of them writes, and nothing says which comes first."""


class Deadlock(Exception):
    """Every unit waits for a token that nobody will give."""


def places(tile: Tile) -> np.ndarray:
    """The tile's elements in its memory."""
    i, j = np.arange(TILE)[:, None], np.arange(TILE)[None, :]
    return tile.start + i * tile.rows + j * tile.columns


def result(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """What an instruction computes."""
    if instruction.op == "accel.clear":
        return np.zeros((TILE, TILE), np.int32)
    if instruction.op == "accel.gemm":
        a, b, c = operands
        return c + a.astype(np.int32) @ b.astype(np.int32)
    return operands[0]


class Machine:
    """One run of a program. `arrays`: the parameters by name, changed in place."""

    def __init__(self, program: Program, arrays: dict[str, np.ndarray], seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.waiting = {u: deque[int]() for u in UNITS}
        self.stream = program.instructions
        for n, instruction in enumerate(self.stream):
            self.waiting[instruction.unit].append(n)
        self.memory = {name: array.reshape(-1) for name, array in arrays.items()}
        self.tokens = {(a, b): deque[dict[str, int]]() for a in UNITS for b in UNITS}
        self.clock = {u: dict.fromkeys(UNITS, -1) for u in UNITS}
        self.busy: dict[str, tuple[int, np.ndarray]] = {}
        self.written: dict[tuple[str, str], np.ndarray] = {}
        self.read: dict[tuple[str, str], np.ndarray] = {}
        for instruction in self.stream:
            for tile in (*instruction.reads, instruction.writes):
                self.provide(tile)

    def provide(self, tile: Tile) -> None:
        """Let the memory of a tile be large enough; on-chip memory begins with garbage."""
        size = int(places(tile).max()) + 1
        have = self.memory.get(tile.memory)
        if have is None or len(have) < size:
            assert tile.memory.startswith("accel."), f"'{tile.memory}' is exceeded"
            garbage = self.random.integers(-99, 99, size).astype(tile.dtype.numpy)
            self.memory[tile.memory] = garbage
        for table in (self.written, self.read):
            for unit in UNITS:
                length = len(self.memory[tile.memory])
                table[tile.memory, unit] = np.full(length, -1)

    def run(self) -> None:
        """Run to the end. Raises Race or Deadlock."""
        while self.busy or any(self.waiting.values()):
            able = [u for u in UNITS if u in self.busy or self.can_start(u)]
            if not able:
                stuck = [str(self.waiting[u][0]) for u in UNITS if self.waiting[u]]
                raise Deadlock(f"instructions {', '.join(stuck)} wait for ever")
            unit = able[int(self.random.integers(len(able)))]
            (self.finish if unit in self.busy else self.start)(unit)

    def can_start(self, unit: str) -> bool:
        if not self.waiting[unit]:
            return False
        takes = self.stream[self.waiting[unit][0]].takes
        return all(len(self.tokens[other, unit]) >= takes.count(other) for other in takes)

    def start(self, unit: str) -> None:
        n = self.waiting[unit].popleft()
        instruction, clock = self.stream[n], self.clock[unit]
        for other in instruction.takes:
            for known, at in self.tokens[other, unit].popleft().items():
                clock[known] = max(clock[known], at)
        clock[unit] = n
        operands: list[np.ndarray] = []
        for tile in instruction.reads:
            self.check(n, tile, self.written)
            self.read[tile.memory, unit][places(tile)] = n
            operands.append(self.memory[tile.memory][places(tile)])
        self.check(n, instruction.writes, self.written)
        self.check(n, instruction.writes, self.read)
        self.written[instruction.writes.memory, unit][places(instruction.writes)] = n
        self.busy[unit] = n, result(instruction, operands)

    def check(self, n: int, tile: Tile, table: dict[tuple[str, str], np.ndarray]) -> None:
        """Every access of another unit in `table` is known to be done."""
        me = self.stream[n].unit
        for unit in UNITS:
            last = int(table[tile.memory, unit][places(tile)].max())
            if unit != me and last > self.clock[me][unit]:
                raise Race(f"instructions {last} and {n} meet in {tile.memory}")

    def finish(self, unit: str) -> None:
        n, value = self.busy.pop(unit)
        instruction = self.stream[n]
        self.memory[instruction.writes.memory][places(instruction.writes)] = value
        for other in instruction.gives:
            self.tokens[unit, other].append(dict(self.clock[unit]))


def ticks(program: Program, cost: dict[str, int]) -> int:
    """How long the program takes if each unit starts as soon as it can; `cost` by unit."""
    tokens = {(a, b): deque[int]() for a in UNITS for b in UNITS}
    free, end = dict.fromkeys(UNITS, 0), 0
    for instruction in program.instructions:  # the stream's order feeds every queue in time
        ready = [tokens[other, instruction.unit].popleft() for other in instruction.takes]
        end_now = max([free[instruction.unit], *ready]) + cost[instruction.unit]
        free[instruction.unit] = end_now
        end = max(end, end_now)
        for other in instruction.gives:
            tokens[instruction.unit, other].append(end_now)
    return end
