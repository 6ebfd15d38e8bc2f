"""Together: what blocks make of one part of the results, before any of them goes on to the next.

In: a function with several blocks that build on one another. Out: the loops around a part, with all
blocks inside that make or use what belongs to it. The one idea: the first result's outer loops,
the last of them in chunks, hold everything; what lies between blocks then stays in a cache. How
deep and how large a chunk is, is decided; a chunk of each cache's size is worth a look.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.ir.expr import as_int
from tilewright.ir.stmt import Block, Func
from tilewright.ir.walk import blocks, free_vars
from tilewright.schedule.locate import find_loop
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.absorb import instances, is_reduction, written
from tilewright.strategy.loops import by_axis, divisors, extent, find, present, reorder, split
from tilewright.support.errors import ScheduleError
from tilewright.target.target import Target

REPEATED = 1.3  # times as often as before: more work than that is not worth a cache
APART = 0  # the chunk of what is done block by block

Chunk = tuple[int, int]  # how many loops are around, and iterations of the last one in a part


def chunks(func: Func) -> list[Chunk]:
    """The parts that there may be of a function's first result, the smallest first."""
    root, found = first_result(func), blocks(func.body)
    if root is None or len(found) < 2 or _ends_tiles(found):
        return []
    sizes = [as_int(a.extent) for a in root.axes if a.kind == "spatial"]
    made: list[Chunk] = []
    for depth in reversed(range(len(sizes))):
        size = sizes[depth]
        if size is None or size == 1:
            continue
        made += [(depth + 1, n) for n in divisors(size) if n < size]
    return made


def _ends_tiles(found: Sequence[Block]) -> bool:
    """Are these a reduction and what its tiles do with their results?"""
    first, *others = found
    spatial = [a.extent for a in first.axes if a.kind == "spatial"]
    same = all([a.extent for a in b.axes] == spatial and not is_reduction(b) for b in others)
    return len(found) == 2 and same and is_reduction(first) and len(first.writes) == 1


def first_result(func: Func) -> Block | None:
    """The first block that stores a parameter."""
    return next((b for b in blocks(func.body) if written(b) & {*func.buffers}), None)


def together(schedule: Schedule, chunk: Chunk) -> list[str]:
    """Do everything chunk by chunk: gives the loops around a chunk. What is made for all of them is
    made before. Raises ScheduleError where a block that comes later cannot be part of it."""
    root = first_result(schedule.func)
    if root is None:
        raise ScheduleError(f"cannot chunk '{schedule.func.name}'", "it stores no result")
    depth, size = chunk
    loops = by_axis(schedule, root.name)
    spatial = [n for n, a in zip(loops, root.axes, strict=True) if a.kind == "spatial"]
    outer, inner = split(schedule, spatial[depth - 1], size)
    around = present([*spatial[: depth - 1], outer])
    reorder(schedule, *around, inner, *spatial[depth:])
    names = list(schedule.blocks())
    at = names.index(root.name)
    for name in names[at + 1 :]:
        schedule.reverse_compute_at(name, around[-1])
    for name in reversed(names[:at]):
        _move(schedule, name, around)
    return around


def _move(schedule: Schedule, name: str, around: Sequence[str]) -> None:
    """Make what a block makes inside the loops, unless it is for all rounds, or nobody there reads
    it."""
    func, trace, before = schedule.func, schedule.trace, instances(find(schedule, name))
    try:
        schedule.compute_at(name, around[-1])
    except ScheduleError:
        schedule.func, schedule.trace = func, trace
        return
    rounds = prod(extent(schedule, n) for n in around)
    if rounds * prod(extents_inside(schedule, name, around)) > REPEATED * before:
        schedule.func, schedule.trace = func, trace


def extents_inside(schedule: Schedule, name: str, around: Sequence[str]) -> tuple[int, ...]:
    """How many iterations of each axis of a block there are inside of loops."""
    inside = [n for n in schedule.loops(name) if n not in around]
    found: list[int] = []
    for axis in find(schedule, name).axes:
        used = free_vars(axis.value)
        own = [find_loop(schedule.func, n) for n in inside]
        found.append(prod(as_int(s.extent) or 1 for s in own if s.var in used))
    return tuple(found)


def is_inside(schedule: Schedule, name: str, around: Sequence[str]) -> bool:
    """Is a block part of what is done in each round?"""
    return bool(around) and around[-1] in schedule.loops(name)


def worth_a_look(chunks: Sequence[tuple[Chunk, int]], target: Target) -> list[Chunk]:
    """Of chunks with the bytes that each touches the largest ones that fit each cache."""
    found: list[Chunk] = []
    for cache in target.caches[:2]:
        fit = [chunk for chunk, size in chunks if size <= cache.size]
        found += fit[-1:]
    return list(dict.fromkeys(found))
