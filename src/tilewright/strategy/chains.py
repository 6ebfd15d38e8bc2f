"""Chains: long sums in blocks, so that their error does not grow with their length.

In: a schedule whose strategy is done. Out: the same, where no accumulator of floats takes many more
than `LONGEST` numbers one after another: a fresh one takes so many, is added to one of the next
level, and so on. The one idea: a sum of n numbers in blocks of b has the error of b + n / b
additions, and costs one more in b. Source: blocked summation (Higham 1993), in more levels.
"""

from __future__ import annotations

import contextlib
from math import prod

from tilewright.ir.stmt import Block, If, annotation
from tilewright.ir.walk import blocks, free_vars
from tilewright.schedule.locate import block_path
from tilewright.schedule.primitives.cascade_reduction import sum_of
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.absorb import is_reduction, role
from tilewright.strategy.loops import extent, find
from tilewright.support.errors import ScheduleError

LONGEST = 128  # numbers that one accumulator takes: as many as sums in pairs begin with
OF_PRODUCTS = 512  # of products, whose tiles fill the registers: another level costs 72 in 12,000
SPARSE = "sparse"  # a sum of which branches leave many rounds out
MOST_VALUES = 1024  # that get another accumulator: more would not stay in registers, or near them


def shorten_chains(schedule: Schedule) -> None:
    """Every long sum of floats in blocks."""
    for block in blocks(schedule.func.body):
        summed = sum_of(block)
        if is_reduction(block) and summed is not None and summed.buffer.dtype.is_float:
            before = schedule.func, schedule.trace
            try:
                shorten(schedule, block, OF_PRODUCTS if role(block) else LONGEST)
            except ScheduleError:
                schedule.func, schedule.trace = before  # one long chain is less exact, not wrong


def shorten(schedule: Schedule, block: Block, longest: int) -> None:
    """The sum of one block in levels of about `longest` numbers each.

    An open loop around which no other sums is cut into blocks; one that has others around it is a
    row, and each row has accumulators of its own. Of a loop that a SPARSE sum has a branch in one
    round counts.
    """
    name, chain = block.name, summing(schedule, block.name)
    around = block_path(schedule.func, name) if annotation(block, SPARSE) else ()
    branches = [s.cond for s in around if isinstance(s, If)]
    asked = {v.name for cond in branches for v in free_vars(cond)}
    counts = [1 if loop in asked else extent(schedule, loop, 0) for loop in chain]
    if all(counts) and prod(counts) <= longest:
        return
    if block.init is not None:
        schedule.decompose_reduction(name, chain[0])
    levels: list[str] = []  # the loops whose iterations get accumulators of their own, inner first
    taken = 1
    for at, loop in reversed([*enumerate(chain)]):
        count = counts[at]
        if count and taken * count <= longest:
            taken *= count
        elif count:
            taken = cut(schedule, loop, count, taken, longest, levels)
        elif at:
            levels.append(chain[at - 1])
            taken = 1
        elif loop not in levels:
            cut_open(schedule, name, loop, max(1, longest // taken), longest, levels)
    for loop in reversed(dict.fromkeys(levels)):
        if values_inside(schedule, name, loop) <= MOST_VALUES:
            schedule.cascade_reduction(name, loop)


def values_inside(schedule: Schedule, name: str, loop: str) -> int:
    """How many numbers a block sums side by side inside a loop."""
    nest, summed = schedule.loops(name), summing(schedule, name)
    inside = [n for n in nest[nest.index(loop) + 1 :] if n not in summed]
    return prod(extent(schedule, n, MOST_VALUES + 1) for n in inside)


def cut(
    schedule: Schedule, loop: str, count: int, taken: int, longest: int, levels: list[str]
) -> int:
    """Add the levels of a loop of `count` iterations, each of `taken` numbers. Gives how many
    numbers the last level takes."""
    while taken * count > longest:
        if taken >= longest // 4:
            levels.append(loop)
        else:
            size = part_of(count, longest // taken)
            outer, inner = schedule.split(loop, (None, size))
            levels[:] = [inner if level == loop else level for level in levels]
            levels.append(outer)
            loop, count = outer, -(-count // size)
        taken = 1
    return taken * count


def cut_open(
    schedule: Schedule, name: str, loop: str, size: int, longest: int, levels: list[str]
) -> None:
    """Add the levels of an open loop: blocks of `size`, and blocks of `longest` of those. What is
    left over is added to the accumulators of the next level. The last round, if it may not be
    whole, is cut off first: no level asks for its end."""
    with contextlib.suppress(ScheduleError):  # all are whole
        schedule.partition_loop(loop, whole=True)
    schedule.partition_loop(loop, multiple=size)
    several, _ = schedule.split(loop, (None, size))
    known = {*schedule.blocks()}
    _, rest = schedule.partition_loop(several, multiple=longest)
    (of_rest,) = {*schedule.blocks()} - known
    outer, inner = schedule.split(several, (None, longest))
    schedule.cascade_reduction(of_rest, rest)
    levels += [inner, outer]


def summing(schedule: Schedule, name: str) -> list[str]:
    """The loops that the axes of a block's sum are bound to, outermost first."""
    axes = [a.value for a in find(schedule, name).axes if a.kind == "reduce"]
    bound = {v.name for value in axes for v in free_vars(value)}
    return [n for n in schedule.loops(name) if n in bound]


def part_of(count: int, most: int) -> int:
    """How many of `count` numbers one block takes: about `most`, with nothing left over where that
    is possible."""
    even = [d for d in range(max(1, most // 2), 2 * most) if count % d == 0]
    return min(even, key=lambda d: abs(d - most)) if even else most
