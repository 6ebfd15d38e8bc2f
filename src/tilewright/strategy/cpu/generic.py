"""Generic: a schedule for any function, where the strategy of its family is refused a step.

In: a schedule in which nothing was done yet, and a machine. Out: every block in vectors and, where
it is worth a parallel region, on all threads. The one idea: each block has a list of ways, from the
best on, and takes the first that every primitive agrees to, if it has none of its own choice; what
is left are loops over numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.ir.expr import Var
from tilewright.ir.walk import free_vars
from tilewright.schedule.locate import find_loop
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.absorb import absorb, is_reduction
from tilewright.strategy.cpu.contraction import contraction
from tilewright.strategy.cpu.pointwise import stream, vector_lanes
from tilewright.strategy.cpu.reduction import by_itself
from tilewright.strategy.loops import extent, find, split
from tilewright.strategy.select import LOOPS
from tilewright.strategy.work import is_worth_a_region
from tilewright.support.errors import ScheduleError
from tilewright.target.target import Target

Way = Callable[[Schedule, str, Target, int], object]


def generic(schedule: Schedule, target: Target, threads: int) -> None:
    """Schedule every block by itself: decision "algorithm" is the way that it takes, or LOOPS."""
    attempt(schedule, absorb)
    for name in schedule.blocks():
        if any(find_loop(schedule.func, loop).kind != "serial" for loop in schedule.loops(name)):
            continue  # another block has taken it along
        ways = REDUCTION if is_reduction(find(schedule, name)) else POINTWISE
        pick = first_legal(schedule, ways, name, target, threads)
        chosen = schedule.decide(f"{name}.algorithm", pick, (*ways, LOOPS))
        if chosen != LOOPS:
            ways[chosen](schedule, name, target, threads)


def first_legal(
    schedule: Schedule, ways: Mapping[str, Way], name: str, target: Target, threads: int
) -> str:
    """The first way of a block that is legal with its own decisions; LOOPS if none is."""
    trial = Schedule(schedule.func)
    return next((n for n, w in ways.items() if attempt(trial, w, name, target, threads)), LOOPS)


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
    bound = {
        loop: {kinds[a.var] for a in block.axes if Var(loop) in free_vars(a.value)}
        for loop in schedule.loops(name)
    }
    loops = [n for n, found in bound.items() if found == {"spatial"}]
    long = [n for n in loops if extent(schedule, n, 0) != 1]
    if threads > 1 and len(long) > 1:
        worth = is_worth_a_region([block], target)
        if schedule.decide(f"{name}.parallel", int(worth), (0, 1)):
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


POINTWISE: dict[str, Way] = {
    "stream": stream, "vectors": plain_vectors, "stream_on_one_thread": on_one_thread(stream)
}  # fmt: skip
REDUCTION: dict[str, Way] = {
    "register_tiles": contraction, "rows": by_itself, "vectors": plain_vectors,
    "rows_on_one_thread": on_one_thread(by_itself),
}  # fmt: skip
