"""How busy a farm keeps its devices, and what it loses: `python -m benchmarks.tuning.farm`.

In: how many devices, candidates of 50 to 200 ms for each, and the part of the devices that is
switched off meanwhile. Out: seconds of candidates over those of all devices that were there; how
many candidates have no result, or two. The devices sleep, so one machine can have many.
"""

from __future__ import annotations

import time
from collections import Counter
from random import Random
from typing import Annotated

import typer

from benchmarks.tuning.devices import CPU, Simulated, code, function
from tilewright.tune.farm import farm as farms
from tilewright.tune.farm.farm import Farm
from tilewright.tune.search import EACH
from tilewright.tune.stand import Outcome

SHORTEST, LONGEST = 0.05, 0.2  # seconds of a candidate
LOOK = 0.01  # seconds of a look at the machine, for each batch


def main(
    devices: Annotated[int, typer.Option(help="How many.")] = 32,
    each: Annotated[int, typer.Option(help="Candidates for each device, in a round.")] = EACH,
    rounds: Annotated[int, typer.Option(help="A search waits for all of one.")] = 2,
    lost: Annotated[float, typer.Option(help="Part of the devices that is switched off.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Of times and faults.")] = 0,
) -> None:
    """Measure a farm of sleeping devices."""
    rng = Random(seed)
    takes = [rng.uniform(SHORTEST, LONGEST) for _ in range(devices * each * rounds)]
    whole = rounds * each * (SHORTEST + LONGEST) / 2
    began = time.monotonic()
    ends = {f"d{n}": rng.uniform(0, whole) for n in rng.sample(range(devices), int(lost * devices))}

    def made(name: str) -> Simulated:
        def fails(numbers: list[int]) -> str:
            time.sleep(LOOK)
            return "stays away" if time.monotonic() - began > ends.get(name, 1e9) else ""

        return Simulated(name, fails, lambda number: takes[number])

    farms.PAUSE = 0.05
    team = [made(f"d{n}") for n in range(devices)]
    told: Counter[int] = Counter()
    outcomes: list[Outcome] = []
    with Farm(team, CPU, 1) as farm:
        began, size = time.monotonic(), devices * each
        for first in range(0, len(takes), size):
            asked = range(first, first + size)
            futures = [farm.measure(function(), code(n), 10.0) for n in asked]
            for n, future in zip(asked, futures, strict=True):
                future.add_done_callback(lambda _, n=n: told.update([n]))
            outcomes += [future.result() for future in futures]
        wall = time.monotonic() - began
    there = sum(min(wall, ends.get(d.name, wall)) for d in team)
    busy = sum(d.working for d in team)
    missing = sum(o.status != "timed" for o in outcomes)
    twice = sum(c > 1 for c in told.values()) + sum(
        c > 1 for c in sum((d.ran for d in team), Counter[int]()).values()
    )
    print(f"{len(takes)} candidates on {devices} devices, {len(ends)} switched off: {wall:.1f} s")
    print(f"busy {100 * busy / there:.0f} % of the time; lost {missing}, counted twice {twice}")


if __name__ == "__main__":
    typer.run(main)
