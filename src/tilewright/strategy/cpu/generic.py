"""Generic: a schedule for any function, where the strategy of its family is refused a step.

In: a schedule in which nothing was done yet, and a machine. Out: every block in vectors and, where
it is worth a parallel region, on all threads; and which blocks were left as loops over numbers. The
one idea: each block has a list of ways, from the best on, and takes the first that every primitive
agrees to; what a refused one did is undone.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.expr import Var
from tilewright.ir.walk import free_vars
from tilewright.schedule.locate import find_loop
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.absorb import absorb, is_reduction
from tilewright.strategy.cpu.contraction import contraction
from tilewright.strategy.cpu.pointwise import stream, vector_lanes
from tilewright.strategy.cpu.reduction import by_itself
from tilewright.strategy.loops import extent, find, split
from tilewright.strategy.work import is_worth_a_region
from tilewright.support.errors import ScheduleError
from tilewright.target.target import Target

Way = Callable[[Schedule, str, Target, int], object]


def generic(schedule: Schedule, target: Target, threads: int) -> list[str]:
    """Schedule every block by itself. Gives the names of those that no way took."""
    attempt(schedule, absorb)
    left: list[str] = []
    for name in schedule.blocks():
        if any(find_loop(schedule.func, loop).kind != "serial" for loop in schedule.loops(name)):
            continue  # another block has taken it along
        block = find(schedule, name)
        ways = REDUCTION if is_reduction(block) else POINTWISE
        if not any(attempt(schedule, way, name, target, threads) for way in ways):
            left.append(name)
    return left


def attempt(schedule: Schedule, way: Callable[..., object], *args: object) -> bool:
    """Whether every step that `way` takes on the schedule is legal; it is as before if not."""
    before = schedule.func, schedule.trace
    try:
        way(schedule, *args)
    except ScheduleError:
        schedule.func, schedule.trace = before
        return False
    return True


def plain_vectors(schedule: Schedule, name: str, target: Target, threads: int) -> None:
    """Vectors along the innermost loop that walks nothing but a result's axes, threads along the
    outermost one."""
    block = find(schedule, name)
    kinds = {a.var: a.kind for a in block.axes}
    driven = {
        loop: {kinds[a.var] for a in block.axes if Var(loop) in free_vars(a.value)}
        for loop in schedule.loops(name)
    }
    loops = [n for n, found in driven.items() if found == {"spatial"}]
    long = [n for n in loops if extent(schedule, n, 0) != 1]
    worth = threads > 1 and is_worth_a_region([block], target)
    if worth and len(long) > 1:
        attempt(schedule, Schedule.parallel, long[0])
    *_, inner = long or [""]
    lanes, count = vector_lanes(block, target), extent(schedule, inner, 0)
    if inner and lanes > 1:
        inside = inner if 0 < count <= lanes else split(schedule, inner, lanes)[1]
        nest = schedule.loops(name)
        below = nest[nest.index(inside) + 1 :]
        if below:
            schedule.reorder(*below, inside)
        schedule.vectorize(inside)


def on_one_thread(way: Way) -> Way:
    """`way` where its parallel loop is refused."""
    return lambda schedule, name, target, threads: way(schedule, name, target, 1)


POINTWISE: tuple[Way, ...] = (stream, plain_vectors, on_one_thread(stream))
REDUCTION: tuple[Way, ...] = (contraction, by_itself, plain_vectors, on_one_thread(by_itself))
