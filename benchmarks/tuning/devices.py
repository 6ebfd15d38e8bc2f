"""Devices that only seem to measure: what a farm hands out to whom can be seen without any."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from threading import Lock

from tilewright import te
from tilewright.codegen.link import CodeImage
from tilewright.target.target import Target, target
from tilewright.tune.farm.device import Function, Vanished
from tilewright.tune.launcher import Code
from tilewright.tune.samples import Verdict
from tilewright.tune.stand import Duel, Outcome
from tilewright.tune.worker import Setup

CPU = target("cpu")


def code(number: int) -> Code:
    """A candidate of that number."""
    return Code(CodeImage("x86_64", number.to_bytes(4, "little"), {}), (), ())


def number_of(candidate: Code) -> int:
    """Which one it is."""
    return int.from_bytes(candidate.image.bytes, "little")


def function(key: str = "f") -> Function:
    """A function to measure candidates of."""
    x = te.placeholder((8,), "f32", "x")
    func = te.func("doubled", [x], [te.compute((8,), lambda i: x[i] * 2.0, "y")])
    return Function(key, Setup(func, str(CPU), 1, {}, None, False, 0), code(0))


class Simulated:
    """A device whose candidates take as long as `seconds` says. fails: asked before each batch
    whether the device vanishes with it, and how it comes back: "", "vanishes" or "stays away"."""

    def __init__(
        self,
        name: str,
        fails: Callable[[list[int]], str] = lambda numbers: "",
        seconds: Callable[[int], float] = lambda number: 0.0,
        speed: float = 1.0,
    ) -> None:
        self.name, self.fails, self.seconds, self.speed = name, fails, seconds, speed
        self.ran: Counter[int] = Counter()
        self.is_away = False
        self.working = 0.0  # seconds of candidates

    def open(self, machine: Target, threads: int) -> None:
        if self.is_away:
            raise Vanished("there is no route to it")

    def begin(self, function: Function) -> float:
        return self.speed

    def measure(self, codes: Mapping[str, Code], best: float, limit: float) -> dict[str, Outcome]:
        numbers = [number_of(c) for c in codes.values()]
        if how := self.fails(numbers):
            self.is_away = how == "stays away"
            raise Vanished("the line was cut")
        for number in numbers:
            time.sleep(self.seconds(number))
            self.working += self.seconds(number)
        self.ran.update(numbers)
        return {d: Outcome("timed", (self.speed * (1 + number_of(c)),)) for d, c in codes.items()}

    def duel(
        self, codes: tuple[Code, Code], seconds: float, p: float, turns: int, limit: float
    ) -> Duel:
        return Verdict(1.0, 0.9, 1.1, ""), (1.0,), (1.0,)

    def close(self) -> None:
        pass


class Dice:
    """Whether a device vanishes, drawn: with this chance for each batch."""

    def __init__(self, chance: float, seed: int) -> None:
        self.chance, self.random, self.lock, self.count = chance, Random(seed), Lock(), 0

    def __call__(self, numbers: list[int]) -> str:
        with self.lock:
            vanishes = self.random.random() < self.chance
            self.count += vanishes
        return "vanishes" if vanishes else ""
