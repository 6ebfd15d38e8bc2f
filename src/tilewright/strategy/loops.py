"""Loops by axis: the primitives that strategies use most, for axes that may have no loop.

In: a schedule and loop names, "" where an axis has extent 1 and so needs no loop. Out: loop names.
The one idea: a strategy is written once for all shapes; where a loop is missing, the step that
would touch it does nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.arith.estimate import BATCH, IMAGE, estimate
from tilewright.ir.expr import Binary, BinaryOp, Expr, Var, as_int, const
from tilewright.ir.stmt import Block
from tilewright.ir.walk import free_vars
from tilewright.schedule.locate import find_block, find_loop
from tilewright.schedule.schedule import Schedule

ITERATIONS = 16  # for each thread: the last one to be done keeps the others waiting for a sixteenth
EVEN_CHUNKS = 4  # chunks for each thread where they are of one length
RUN = 16  # rounds of a chunk of an open row


def find(schedule: Schedule, name: str) -> Block:
    """The block called `name`."""
    return find_block(schedule.func, name)


def by_axis(schedule: Schedule, name: str, among: Sequence[str] | None = None) -> list[str]:
    """For each axis of a block the loop (of `among`) that it is bound to, or ""."""
    loops = schedule.loops(name) if among is None else among
    used = [free_vars(axis.value) for axis in find(schedule, name).axes]
    return [next((n for n in loops if Var(n) in variables), "") for variables in used]


def compute_inside(schedule: Schedule, name: str, loop: str) -> list[str]:
    """compute_at, giving the block's new loop for each of its axes, or ""; with no loop to go into
    the block stays where it is."""
    return by_axis(schedule, name, schedule.compute_at(name, loop) if loop else None)


def extent(schedule: Schedule, loop: str, unknown: int = 1) -> int:
    """How many iterations; 1 for no loop, `unknown` where it is symbolic."""
    if not loop:
        return 1
    count = as_int(find_loop(schedule.func, loop).extent)
    return unknown if count is None else count


def split(schedule: Schedule, loop: str, *inner: int) -> list[str]:
    """Split into an outer loop and loops of the given extents."""
    if not loop:
        return [""] * (1 + len(inner))
    return list(schedule.split(loop, (None, *inner)))


def present(loops: Sequence[str]) -> list[str]:
    """The loops that there are."""
    return [loop for loop in loops if loop]


def innermost(loops: Sequence[str]) -> str:
    """The last loop that there is, or ""."""
    return (["", *present(loops)])[-1]


def reorder(schedule: Schedule, *loops: str) -> None:
    """Nest in this order."""
    if len(there := present(loops)) > 1:
        schedule.reorder(*there)


def fuse(schedule: Schedule, loops: Sequence[str]) -> str:
    """Make nested loops one; "" if there are none."""
    there = present(loops)
    return schedule.fuse(*there) if len(there) > 1 else "".join(there)


def unroll(schedule: Schedule, *loops: str) -> None:
    """Unroll each."""
    for loop in present(loops):
        schedule.unroll(loop)


def vectorize(schedule: Schedule, loop: str) -> None:
    """Vectorise, if there is something to."""
    if loop and extent(schedule, loop) > 1:
        schedule.vectorize(loop)


def divisors(size: int, most: int = 0) -> tuple[int, ...]:
    """The divisors of `size` up to `most` (0: all), the least first."""
    return tuple(d for d in range(1, min(size, most or size) + 1) if size % d == 0)


def blocked(schedule: Schedule, decision: str, loop: str) -> tuple[str, str]:
    """A loop as (a loop over blocks, the loop inside a block); `decision` is how long a block is,
    and the pick is the whole loop, which has no loop over blocks."""
    count = extent(schedule, loop)
    size = schedule.decide(decision, count, divisors(count))
    if size == count:
        return "", loop
    outer, inner = split(schedule, loop, size)
    return outer, inner


def chunked(
    schedule: Schedule,
    decision: str,
    loop: str,
    threads: int,
    others: int,
    *,
    wanted: bool = True,
    most: int = 0,
) -> tuple[str, str]:
    """The loop over the pixels of an image as a loop over chunks, some for each thread, and the
    loop inside a chunk; the first is "" where it is not cut. `decision` is how long a chunk is;
    `others`: iterations that a chunk has; `wanted`: whether the pick is to cut the loop; `most`:
    what a longer chunk reads does not stay in a cache for all of them (0: it does).

    With chunks outside, a thread meets in one kernel after another the same pixels of the image: it
    finds them in its own cache. Where cores have no cache in common, what another thread made is as
    far away as memory.
    """
    count = extent(schedule, loop)
    near = count if most == 0 else -(-count // -(-count // most))  # in even parts
    if count < threads or (threads == 1 and near == count):
        return "", loop
    sizes = {n: -(-count // min(count, threads * n)) for n in range(1, EVEN_CHUNKS + 1)}
    pick = min(near, sizes[max(1, -(-EVEN_CHUNKS // others))]) if wanted else count
    size = schedule.decide(decision, pick, sorted({*sizes.values(), near, count}))
    if size == count:
        return "", loop
    outer, inner = split(schedule, loop, size)
    return outer, inner


def iterations(schedule: Schedule, loops: Sequence[str]) -> int:
    """Iterations of nested loops, as many as there surely are for all threads: of a symbolic
    extent the outermost counts for its known factor, for the rest may be a batch."""
    extents = [find_loop(schedule.func, n).extent if n else const(1) for n in loops]
    unknown = sum(as_int(size) is None for size in extents[1:])
    return prod(map(_factor, extents)) * IMAGE**unknown


def _factor(extent: Expr) -> int:
    """What a size counts for, as its form shows: its known factor, for an open one may be a batch;
    of a product of open ones, as the pixels of an image are, no more than one is."""
    if isinstance(extent, Binary) and extent.op is BinaryOp.mul:
        unknown = as_int(extent.a) is None and as_int(extent.b) is None
        return _factor(extent.a) * _factor(extent.b) * (IMAGE if unknown else 1)
    if isinstance(extent, Binary) and extent.op is BinaryOp.floordiv:  # in tiles
        return max(1, _factor(extent.a) // estimate(extent.b, IMAGE))
    if isinstance(extent, Binary) and extent.op is BinaryOp.add:  # rounded up
        return _factor(extent.a) if as_int(extent.b) else 1
    return estimate(extent, BATCH)


def parallel(
    schedule: Schedule,
    loops: Sequence[str],
    threads: int,
    decision: str,
    *,
    worth: bool = True,
    in_runs: bool = False,
) -> str:
    """Run nested loops in parallel: the fewest outer ones that give every thread enough iterations,
    or none where it is not `worth` a parallel region. `decision` names how many.

    An inner loop stays a loop: its indices cost an addition, those of a fused loop divisions.
    in_runs: where the last of all is fused and open, a chunk is several rounds of it, for which one
    asks once whether the row's ends are among them; gives the loop over these, "" if there is none.
    """
    there, count = present(loops), 0
    batch = [""] * (there[:1] != list(loops[:1]))  # of one
    while count < len(there):
        if count and enough(schedule, [*batch, *there[:count]], there[count], threads):
            break
        count += 1
    count = schedule.decide(decision, count if worth else 0, range(len(there) + 1))
    taken, run = there[:count], ""
    if in_runs and taken and count == len(there) and not extent(schedule, taken[-1], 0):
        taken[-1], run = split(schedule, taken[-1], RUN)
    if taken:
        schedule.parallel(fuse(schedule, taken))
    return run


def enough(schedule: Schedule, loops: Sequence[str], inner: str, threads: int) -> bool:
    """Are the iterations of these loops enough? Around an open loop `inner`, whose tails
    have better code in a loop of their own, fewer are, if threads get about as many."""
    there = iterations(schedule, loops)
    if there >= threads * ITERATIONS:
        return True
    if extent(schedule, inner, 0) or there < threads * EVEN_CHUNKS:
        return False
    return -(-there // threads) * threads * ITERATIONS <= there * (ITERATIONS + 1)
