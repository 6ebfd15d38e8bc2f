"""Prefetching panels: the next panel of weights comes into the cache while this one is in use.

In: a schedule whose anchor walks panels of weights, each used by several register tiles. Out: the
same with requests for the next panel spread over the steps of the reduction. The one idea: weights
that lie beyond L2 reach the first tile of a panel as fast as memory gives them, and
the others as fast as they multiply; asked for in time, they come while the others work.
"""

from __future__ import annotations

from math import prod

from tilewright.arith.estimate import BATCH, estimate
from tilewright.ir.expr import as_int
from tilewright.schedule.locate import find_buffer, find_loop, loop_path
from tilewright.schedule.primitives.prefetch import LINE, ROUNDS, read_inside
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.loops import find
from tilewright.target.target import Target

MOST_REQUESTS = 2  # a step: with more, the panel is used too little for anything to be hidden
MOST_STEPS = 16  # a request: with more, the first of so many tiles is little of the time


def prefetch_panels(
    schedule: Schedule, target: Target, anchor: str, panel: str, *, known: bool = True
) -> None:
    """Ask for what the next iteration of loop `panel` reads of the anchor's last operand, its
    weights: decision "prefetch", 1 where they lie beyond L2 and several tiles read them.

    known: a loop of constant extent has as many iterations in the run, which may bound it else.
    """
    weights = find_buffer(schedule.func, find(schedule, anchor).reads[-1].buffer.name)
    loops = schedule.loops(anchor)
    if panel not in loops:
        return
    below = [find_loop(schedule.func, n) for n in loops[loops.index(panel) + 1 :]]
    below = [f for f in below if f.kind == "serial"]
    read = read_inside(schedule.func, loop_path(schedule.func, panel), weights.name)
    if not below or read is None:
        return
    counts = [as_int(f.extent) for f in below]
    rounds = 0
    if len(counts) > 1 and (counts[0] is None or not known):
        rounds = counts[0] = min(counts[0] or ROUNDS, ROUNDS)
    sizes = [as_int(size) for size in (*weights.shape, *read.extents)]
    if None in (*sizes, *counts):
        return
    near = target.cache(1).size // 2
    bits = weights.dtype.bits
    whole, part = (
        prod(estimate(n, BATCH) for n in s) * bits // 8 for s in (weights.shape, read.extents)
    )
    steps, lines = prod(n or 1 for n in counts), part / LINE
    reused = lines <= MOST_REQUESTS * steps and steps <= MOST_STEPS * lines
    worth = part <= near < whole and reused
    if schedule.decide(f"{anchor}.prefetch", int(worth), (0, 1)):
        schedule.prefetch(weights.name, panel, 1, over=below[-1].name, rounds=rounds)
